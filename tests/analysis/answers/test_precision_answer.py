import made_up

from dlbench.core.model import SpotCheck

CHECKS = {"fp32": SpotCheck(True, 3e-7, 1e-5, 1e-7), "bf16": SpotCheck(True, 0.004, 0.02, 1e-7)}


def checked(measurements):
    return [made_up.checked(each, CHECKS[each.case.params["dtype"]], "") for each in measurements]


def test_the_fastest_beside_fp32_and_how_far_off_both_are(asked):
    answer = asked(checked(made_up.both_kinds()))["precision"]
    assert answer["sentences"] == [
        "On cuda:0 the fastest beside fp32 is bf16: train_step resnet18 batch=8 runs 2.00 × (1.94…2.06) as fast; "
        "results are off by up to 0.4 % in bf16 and 3.0e-07 in fp32.",
        "On cpu the fastest beside fp32 is bf16: train_step resnet18 batch=8 runs 1.00 × (0.971…1.03) as fast; "
        "results are off by up to 0.4 % in bf16 and 3.0e-07 in fp32.",
    ]
    assert answer["weaknesses"] == ["8 of 8 cases it rests on are noisy", "whether training still converges in it was not measured"]
    (table,) = answer["tables"]
    assert {(row["base.value"], row["other.value"], row["base.error"], row["other.error"]) for row in table["rows"]} == {
        ("fp32", "bf16", 3e-7, 0.004)
    }


def test_of_several_the_one_whose_case_in_the_middle_is_fastest_is_named(asked):
    seconds = {"fp32": 1.0, "tf32": 0.5, "bf16": 0.25, "fp64": 2.0}
    measured = []
    for dtype, each in seconds.items():
        case = made_up.case("matmul", "cuda:0", n=8, dtype=dtype)
        measured += made_up.rounds_of(case, made_up.flat([each * factor for factor in made_up.SEVEN]), flops=1e6)
    answer = asked(measured)["precision"]
    assert answer["sentences"] == ["On cuda:0 the fastest beside fp32 is bf16: matmul n=8 runs 4.00 × (3.88…4.12) as fast."]
    assert "how far off its results are was not checked" in answer["weaknesses"]
    assert len(answer["tables"][0]["rows"]) == 3


def test_one_precision_is_none_to_choose_from(asked):
    answer = asked([each for each in made_up.both_kinds() if each.case.params["dtype"] == "fp32"])["precision"]
    assert (answer["reason"], answer["command"]) == ("no two rows differ in their precision alone", "dlbench run precision")
