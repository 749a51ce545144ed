"""Precisions: their speed and error, and whether training converges in formats of numbers, also in the cautions of other answers."""

import json
from dataclasses import replace

import formats
import made_up
import pytest
from formats import DECLARED, NO_GAPS, products, training
from plain_answers import columns_of, head_of, rows_of

from dlbench.core.conditions import Throttling
from dlbench.core.measurement import SpotCheck

CHECKS = {"fp32": SpotCheck(True, 3e-7, 1e-5, 1e-7), "bf16": SpotCheck(True, 0.004, 0.02, 1e-7)}
NEAR = (-0.004, 0.001, -0.006, 0.0, -0.002, 0.001)
"""Gaps by seed; of their 21 Walsh averages the middle one is -0.0015."""
STALLED = (-0.41, -0.40, -0.42, -0.39, -0.41, -0.40)
UNSURE = (-0.02, 0.0, -0.01, 0.001, -0.03, 0.0)
WORSE = (-0.15, -0.16, -0.14, -0.15, -0.15, -0.16)
SPEEDS, LADDER = "The ladder: speed and error of each precision", "The ladder: trainings in each format"
TRAININGS = [
    *training("fp32"),
    *training("fp32", rate=0.001, loss=1.6),
    *training("bf16", NEAR),
    *training("bf16", STALLED, rate=0.001, loss=2.2),
    *training("bf16_stochastic", NEAR),
    *training("bf16_stochastic", NEAR, rate=0.001),
    *training("fixed_8_8", STALLED, diverged=2),
    *training("dynamic_10_12", UNSURE),
    *training("binary", WORSE, loss=1.3),
]
PRODUCTS = [
    *products("fp32", 0.013, 3e-7),
    *products("bf16", 0.0065, 0.004),
    *products("int8", 0.00325, 0.011),
    *products("fp64", 0.026, 1e-16),
]


def in_precisions(workload="train_step", device="cpu", n=8, factors=made_up.SEVEN, **seconds):
    cases = [(made_up.case(workload, device, n=n, dtype=dtype), each) for dtype, each in seconds.items()]
    return [each for case, s in cases for each in made_up.around(case, s, factors)]


def of_model(workload, bf16_s, **params):
    """Steps in fp32, which take a second, and in bf16."""
    cases = {1.0: made_up.case(workload, **params, dtype="fp32"), bf16_s: made_up.case(workload, **params, dtype="bf16")}
    return [each for seconds, case in cases.items() for each in made_up.rounds_of(case, [[seconds]] * 7)]


def test_what_it_says(scenes):
    found = {
        "steps whose error was checked, on a CPU and a card": [
            replace(each, check=CHECKS[each.case.params["dtype"]]) for each in made_up.both_kinds()
        ],
        "two machines, two kinds of steps and a product": (
            [*of_model("train_step", 0.8, model="a"), *of_model("infer_step", 0.4, model="a"), *of_model("matmul", 0.1)],
            of_model("train_step", 0.5, model="a"),
        ),
        "four precisions of a product, from the widest down": in_precisions("matmul", bf16=0.25, tf32=0.5, fp32=1.0, fp64=2.0),
        "trainings alone": TRAININGS,
        "speed, error and convergence": [*PRODUCTS, *TRAININGS, *training("int8", NEAR)],
        "a card without trainings": [*products("fp32", 0.01, 0.004, "cuda:0"), *products("bf16", 0.005, 0.004, "cuda:0"), *TRAININGS],
        "wider precisions alone": in_precisions(fp32=1.0, fp64=2.0),
        "a format without the plain one": training("bf16", NEAR),
    }
    # On an H100 bf16 ran 3.05 × in a small product, the only one of it, and 14.0 × in the one that tf32 ran 7.22 × in.
    on_h100 = [
        *in_precisions("matmul", n=1024, factors=[1] * 7, fp32=3.05, bf16=1.0),
        *in_precisions("matmul", n=8192, factors=[1] * 7, fp32=14.0, bf16=1.0, tf32=14.0 / 7.22),
    ]
    heads = {
        "perhaps no gain": in_precisions(fp32=1.0, bf16=1.0),
        "a loss": in_precisions(fp32=1.0, bf16=2.0),
        "five rounds, of which a case alone has no interval": in_precisions(factors=made_up.SEVEN[:5], fp32=1.0, bf16=0.5),
        "few rounds": in_precisions("matmul", factors=[1] * 3, fp32=1.0, bf16=0.0625),
        "few rounds of a loss": in_precisions("matmul", factors=[1] * 3, fp32=1.0, bf16=1.25),
        "a long name of a precision": in_precisions("matmul", factors=[1] * 7, fp32=1.0, **{"d" * 200: 0.5}),
        "a long name of a case": of_model("matmul", 0.1, name="d" * 200),
        "the fastest of several": in_precisions("matmul", "cuda:0", bf16=0.25, tf32=0.5, fp32=1.0, fp64=2.0),
        "a wider one, which nobody chooses for speed": in_precisions(fp32=1.0, fp64=0.5) + in_precisions("infer_step", fp32=1.0, bf16=4.0),
        "the fastest in the cases that all have": on_h100,
    }
    ends = {
        "its training converges": training("bf16", NEAR),
        "its training does not": training("bf16", WORSE),
        "its training is not shown to": training("bf16", UNSURE),
        "one of two trainings converges": [
            *training("fp32", rate=0.001), *training("bf16", NEAR), *training("bf16", STALLED, rate=0.001),
        ],
        "a training in another format": training("fp16", NEAR),
    }  # fmt: skip
    heads |= {name: [*PRODUCTS[:14], *training("fp32"), *trained] for name, trained in ends.items()}
    scenes("precisions", "precision", found, heads, workloads=DECLARED)


def test_the_rungs_have_their_own_ratios_and_that_of_the_fastest_allows_for_its_choice(asked):
    rows = rows_of(asked(in_precisions("matmul", bf16=0.25, tf32=0.5, fp32=1.0, fp64=2.0))["precision"], SPEEDS)
    assert columns_of(rows, "ladder.name", "ratio.speedup", "ratio.among") == [
        ("fp64", pytest.approx(0.5), 1), ("tf32", pytest.approx(2), 1), ("bf16", pytest.approx(4), 2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "rate", "gap", "low", "high", "converges"),
    [
        ("bf16", 0.02, -0.15, -0.6, 0.1, "yes"),
        ("bf16", 0.001, -40.5, -42, -39, "no"),
        ("bf16_stochastic", 0.001, -0.15, -0.6, 0.1, "yes"),
        ("dynamic_10_12", 0.02, -1.0, -3.0, 0.1, "not shown"),
        ("binary", 0.02, -15, -16, -14, "no"),
        ("fp32", 0.02, None, None, None, None),
    ],
)
def test_the_gap_is_by_seed_with_its_exact_interval(asked, name, rate, gap, low, high, converges):
    answer = asked(TRAININGS, workloads=DECLARED)["precision"]
    key = name, f"convergence[network=mlp,rate={rate}]"
    (row,) = (row for row in rows_of(answer, LADDER) if (row["ladder.name"], row["pair.case"]) == key)
    assert [row[f"ladder.{each}"] for each in ("gap", "gap_low", "gap_high")] == pytest.approx([gap, low, high])
    assert (row["ladder.converges"], row["value.weight_bytes"], row["value.optimizer_bytes"]) == (converges, 4000, 8000)
    curve = [row for row in answer["figures"][1]["rows"] if row["ladder.name"] == "binary"]
    assert columns_of(curve, "curve.share", "curve.loss") == [(1 / 3, 2.0), (2 / 3, 1.0), (1.0, 1.3)]


def test_without_an_accuracy_the_gap_is_how_much_lower_the_loss_is(asked):
    measured = [each for name, loss in (("fp32", 0.5), ("bf16", 0.504), ("fp16", 0.6)) for each in training(name, loss=loss)]
    measured = [replace(each, values={name: value for name, value in each.values.items() if name != "accuracy"}) for each in measured]
    rows = rows_of(asked(measured, workloads=DECLARED)["precision"], LADDER)
    assert columns_of(rows, "ladder.gap", "ladder.converges", "ladder.accuracy") == [
        (None, None, None), (pytest.approx(-0.8), "yes", None), (pytest.approx(-20), "no", None),
    ]  # fmt: skip


def test_a_better_accuracy_and_one_that_is_a_point_lower_converge(asked):
    gaps = {"bf16": (0.2,) * 6, "fp16": (-0.01,) * 6, "amp_fp16": (-0.011,) * 6}
    measured = [*training("fp32"), *(each for name, of_seeds in gaps.items() for each in training(name, of_seeds))]
    rows = rows_of(asked(measured, workloads=DECLARED)["precision"], LADDER)
    assert {row["ladder.name"]: row["ladder.converges"] for row in rows[1:]} == {"bf16": "yes", "fp16": "yes", "amp_fp16": "no"}


@pytest.mark.parametrize("measured", [training("fp32"), training("fp32") + training("bf16", rate=0.5), in_precisions(fp32=1.0)])
def test_one_precision_or_format_alone_is_no_answer(asked, measured):
    answer = asked(measured, workloads=DECLARED)["precision"]
    assert (answer["kind"], answer["command"]) == ("missing", "dlbench run precision")
    assert answer["others"] == ["dlbench run cnn", "dlbench run convergence"]


def test_fewer_than_six_seeds_show_nothing(asked):
    declared = json.loads(json.dumps(DECLARED))
    for each in declared["convergence"]["values"]:
        each["points"] = list(formats.SEEDS[:5]) if each.get("points") else []
    answer = asked([*training("fp32", NO_GAPS[:5]), *training("bf16", WORSE[:5])], workloads=declared)["precision"]
    assert head_of(answer)[:2] == ("too few seeds to tell, 6 would do", "5 seeds")


def test_other_answers_have_no_noise_of_it(asked):
    steps = [*made_up.both_kinds(), *training("fp32", device="cuda:0")]
    before, after = (asked([*steps, *more], workloads=DECLARED) for more in ([], TRAININGS))
    for topic in ("speed-up", "crossover", "bottleneck", "batch", "default", "devices", "cost"):
        assert {**before[topic], "weaknesses": []} == {**after[topic], "weaknesses": []}, topic


def test_what_disturbs_a_device_disturbs_no_accuracy(asked):
    found = asked([replace(each, throttling=Throttling(waiting=0.5, stolen=0.0)) for each in TRAININGS], workloads=DECLARED)
    assert (found["precision"]["tags"], found["precision"]["weaknesses"]) == ([], [])
    assert found["health"]["headline"] == "not usable: 9 of 9 disturbed"
