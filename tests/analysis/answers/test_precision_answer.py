import made_up
import pytest

from dlbench.core.measurement import SpotCheck

CHECKS = {"fp32": SpotCheck(True, 3e-7, 1e-5, 1e-7), "bf16": SpotCheck(True, 0.004, 0.02, 1e-7)}


def checked(measurements):
    return [made_up.checked(each, CHECKS[each.case.params["dtype"]], "") for each in measurements]


def test_the_fastest_beside_fp32_and_how_far_off_both_are(asked):
    answer = asked(checked(made_up.both_kinds()))["precision"]
    assert answer["sentences"] == [
        "On cuda:0 the fastest beside fp32 is bf16: train_step resnet18 batch=8 runs 2.00 × (1.94…2.06) as fast; "
        "results are off by up to 0.4 % in bf16 and 3.0e-07 in fp32.",
        "On cpu nothing is faster than fp32 as far as 7 rounds tell, and nearest comes bf16: train_step resnet18 batch=8 runs 1.00 × "
        "(0.970…1.03) as fast; "
        "results are off by up to 0.4 % in bf16 and 3.0e-07 in fp32.",
    ]
    assert answer["weaknesses"] == ["8 of 8 cases it rests on are noisy", "whether training still converges in it was not measured"]
    (table,) = answer["tables"]
    assert {(row["base.value"], row["other.value"], row["base.check.error"], row["other.check.error"]) for row in table["rows"]} == {
        ("fp32", "bf16", 3e-7, 0.004)
    }


def test_where_all_are_slower_the_nearest_is_named_and_none_called_fast(asked):
    answer = asked([made_up.scaled(each, 2.0) if each.case.params["dtype"] == "bf16" else each for each in made_up.both_kinds()])[
        "precision"
    ]
    assert answer["sentences"][1] == (
        "On cpu nothing is faster than fp32, and nearest comes bf16: train_step resnet18 batch=8 runs 0.500 × (0.485…0.515) as fast."
    )


@pytest.mark.parametrize(
    ("seconds", "sentence"),
    [
        (0.0625, "the fastest measured beside fp32 is bf16, too few rounds to tell: matmul n=8 runs 16.0 × (no interval before 4 rounds)"),
        (1.25, "nothing is faster than fp32, and nearest comes bf16: matmul n=8 runs 0.800 × (no interval before 4 rounds)"),
    ],
)
def test_of_too_few_rounds_for_an_interval_nothing_is_denied_that_was_measured(asked, seconds, sentence):
    both = {"fp32": 1.0, "bf16": seconds}
    of_each = (made_up.rounds_of(made_up.case("matmul", n=8, dtype=dtype), made_up.flat([each] * 3)) for dtype, each in both.items())
    answer = asked([each for rounds in of_each for each in rounds])["precision"]
    assert answer["sentences"] == [f"On cpu {sentence} as fast."]


def test_of_several_the_one_whose_case_in_the_middle_is_fastest_is_named(asked):
    seconds = {"fp32": 1.0, "tf32": 0.5, "bf16": 0.25, "fp64": 2.0}
    measured = []
    for dtype, each in seconds.items():
        case = made_up.case("matmul", "cuda:0", n=8, dtype=dtype)
        measured += made_up.rounds_of(case, made_up.flat([each * factor for factor in made_up.SEVEN]), flops=1e6)
    answer = asked(measured)["precision"]
    assert answer["sentences"] == ["On cuda:0 the fastest beside fp32 is bf16: matmul n=8 runs 4.00 × (3.84…4.16) as fast."]
    assert "how far off its results are was not checked" in answer["weaknesses"]
    assert len(answer["tables"][0]["rows"]) == 3


def test_one_precision_is_none_to_choose_from(asked):
    answer = asked([each for each in made_up.both_kinds() if each.case.params["dtype"] == "fp32"])["precision"]
    assert (answer["reason"], answer["command"]) == ("no two rows differ in their precision alone", "dlbench run precision")


def test_what_a_workload_declares_stands_in_the_sentence_and_in_the_table_with_its_unit(asked):
    declared = {"mine": {"values": [{"name": "recall", "unit": "fraction", "direction": "higher", "meaning": "found of all"}]}}
    measured = [
        made_up.with_values(each, recall=recall)
        for dtype, seconds, recall in (("fp32", 1.0, 0.75), ("fp8", 0.5, 0.5))
        for each in made_up.rounds_of(made_up.case("mine", dtype=dtype), made_up.flat([seconds] * 7))
    ]
    answer = asked(measured, workloads=declared)["precision"]
    assert answer["sentences"] == [
        "On cpu the fastest beside fp32 is fp8: mine runs 2.00 × (2.00…2.00) as fast; recall 50.0 % in fp8 and 75.0 % in fp32."
    ]
    (table,) = answer["tables"]
    assert [(heading, column["unit"], column["better"]) for heading, column in table["columns"] if "recall" in heading] == [
        ("recall in fp32", "fraction", "higher"),
        ("recall in fp8", "fraction", "higher"),
    ]
    assert [(row["base.value.recall"], row["other.value.recall"]) for row in table["rows"]] == [(0.75, 0.5)]


def test_what_is_reported_is_told_beside_the_times_of_two_devices(asked):
    declared = {"mine": {"values": [{"name": "recall", "unit": "fraction", "direction": "higher", "meaning": "found of all"}]}}
    reported = [
        made_up.with_values(made_up.without_rounds(each), recall=0.5)
        for dtype in ("fp32", "bf16")
        for each in made_up.rounds_of(made_up.case("mine", dtype=dtype), made_up.flat([1.0] * 7))
    ]
    answer = asked([*made_up.both_kinds(), *reported], workloads=declared)["precision"]
    assert [each.split(" ")[:2] for each in answer["sentences"]] == [["On", "cuda:0"], ["On", "cpu"], ["mine", "reports"]]
    assert not [each for each in answer["weaknesses"] if "table" in each]
