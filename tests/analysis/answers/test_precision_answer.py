import made_up
import pytest
from plain_answers import plain

from dlbench.analysis.answers.engine.question import cut
from dlbench.core.measurement import SpotCheck

CHECKS = {"fp32": SpotCheck(True, 3e-7, 1e-5, 1e-7), "bf16": SpotCheck(True, 0.004, 0.02, 1e-7)}


def line(answer):
    return answer["headline"], answer["qualifier"], answer["tags"]


def checked(measurements):
    return [made_up.checked(each, CHECKS[each.case.params["dtype"]], "") for each in measurements]


def in_precisions(workload="train_step", device="cpu", n=8, factors=made_up.SEVEN, **seconds):
    cases = [(made_up.case(workload, device, n=n, dtype=dtype), each) for dtype, each in seconds.items()]
    return [each for case, s in cases for each in made_up.rounds_of(case, made_up.flat([s * factor for factor in factors]))]


def test_the_ladder_of_each_device_has_speed_and_error(asked, told, snapshot):
    found = checked(made_up.both_kinds())
    snapshot("precision", plain(told(found)["precision"]))
    ladder, pairs = asked(found)["precision"]["tables"]
    assert [(row["place"], row["ladder.error"], row["ladder.base_error"]) for row in ladder["rows"]] == [
        ("cuda:0", 0.004, 3e-7),
        ("cpu", 0.004, 3e-7),
    ]
    assert {(row["base.value"], row["other.value"], row["base.check.error"], row["other.check.error"]) for row in pairs["rows"]} == {
        ("fp32", "bf16", 3e-7, 0.004)
    }


@pytest.mark.parametrize(
    ("measured", "said"),
    [
        (in_precisions(fp32=1.0, bf16=1.0), ("no gain shown by bf16 over fp32", "train n=8", ["noisy", "not checked"])),
        (in_precisions(fp32=1.0, bf16=2.0), ("none beats fp32: bf16 0.500× (0.485…0.515)", "train n=8", ["not checked"])),
        # Though a case alone has no interval of five rounds.
        (in_precisions(factors=made_up.SEVEN[:5], fp32=1.0, bf16=0.5), ("bf16 2.00× fp32 (1.92…2.08)", "train n=8", ["not checked"])),
        (in_precisions("matmul", factors=[1] * 3, fp32=1.0, bf16=0.0625), ("bf16 16.0× fp32", "matmul n=8", ["few rounds", "not checked"])),
        (
            in_precisions("matmul", factors=[1] * 3, fp32=1.0, bf16=1.25),
            ("none beats fp32: bf16 0.800×", "matmul n=8", ["few rounds", "not checked"]),
        ),
        (
            in_precisions("matmul", factors=[1] * 7, fp32=1.0, **{"d" * 200: 0.5}),
            ("dddddddddd… 2.00× fp32 (2.00…2.00)", "matmul n=8", ["not checked"]),
        ),
        # Of several the one whose case in the middle is fastest; a wider one is none to choose for speed.
        (
            in_precisions("matmul", "cuda:0", bf16=0.25, tf32=0.5, fp32=1.0, fp64=2.0),
            ("bf16 4.00× fp32 (3.88…4.12)", "matmul n=8", ["not checked"]),
        ),
        (
            [*in_precisions(fp32=1.0, fp64=0.5), *in_precisions("infer_step", fp32=1.0, bf16=4.0)],
            ("none beats fp32: bf16 0.250× (0.242…0.258)", "infer n=8", ["not checked"]),
        ),
        # On an H100 bf16 ran 3.05 × in a small product, the only one of it, and 14.0 × in the one that tf32 ran 7.22 × in.
        (
            [
                *in_precisions("matmul", n=1024, factors=[1] * 7, fp32=3.05, bf16=1.0),
                *in_precisions("matmul", n=8192, factors=[1] * 7, fp32=14.0, bf16=1.0, tf32=14.0 / 7.22),
            ],
            ("bf16 14.0× fp32 (14.0…14.0)", "matmul n=8192", ["not checked"]),
        ),
    ],
)
def test_the_headline_is_of_the_fastest(asked, measured, said):
    assert line(asked(measured)["precision"]) == said


def test_the_rungs_go_from_the_widest_down_each_with_its_own_ratio(asked):
    ladder, pairs = asked(in_precisions("matmul", bf16=0.25, tf32=0.5, fp32=1.0, fp64=2.0))["precision"]["tables"]
    assert [(row["ladder.name"], row["ratio.speedup"]) for row in ladder["rows"]] == [
        ("fp64", pytest.approx(0.5)),
        ("tf32", pytest.approx(2)),
        ("bf16", pytest.approx(4)),
    ]
    assert [row["ratio.among"] for row in ladder["rows"]] == [1, 1, 2]
    assert [row["other.dtype"] for row in pairs["rows"]] == ["fp64", "tf32", "bf16"]


def test_wider_precisions_alone_and_one_alone_are_no_answer(asked):
    missing = asked(in_precisions(fp32=1.0, fp64=2.0))["precision"]
    assert (missing["kind"], missing["reason"]) == (
        "missing",
        "no two rows differ in their precision alone, or none is narrower than the other",
    )
    missing = asked(in_precisions(fp32=1.0))["precision"]
    assert missing["command"] == "dlbench run precision"


def test_of_several_machines_the_best_is_told_with_its_name_and_kinds_are_not_mixed(asked, told, snapshot):
    def measured(workload, seconds, **params):
        cases = {dtype: made_up.case(workload, **params, dtype=dtype) for dtype in ("fp32", "bf16")}
        return [each for case, s in zip(cases.values(), (1.0, seconds), strict=True) for each in made_up.rounds_of(case, [[s]] * 7)]

    long = measured("matmul", 0.1, name="n" * 200)
    files = (
        [*measured("train_step", 0.8, model="a"), *measured("infer_step", 0.4, model="a"), *long],
        measured("train_step", 0.5, model="a"),
    )
    snapshot("precision-of-several-machines", plain(told(*files)["precision"]))
    assert line(asked(long)["precision"])[:2] == ("bf16 10.0× fp32 (10.0…10.0)", cut("n" * 200, 38))
