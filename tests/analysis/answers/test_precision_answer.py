import made_up
import pytest
from plain_answers import plain

from dlbench.analysis.answers.parts.headline import cut
from dlbench.core.measurement import SpotCheck
from dlbench.core.model import Status

CHECKS = {"fp32": SpotCheck(True, 3e-7, 1e-5, 1e-7), "bf16": SpotCheck(True, 0.004, 0.02, 1e-7)}


def line(answer):
    return answer["headline"], answer["qualifier"], answer["tags"]


def checked(measurements):
    return [made_up.checked(each, CHECKS[each.case.params["dtype"]], "") for each in measurements]


def test_the_fastest_beside_fp32_and_how_far_off_both_are(asked, told, snapshot):
    answer = asked(checked(made_up.both_kinds()))["precision"]
    assert line(answer) == ("bf16 2.00× fp32 (1.94…2.06), error 0.4 %", "train resnet18 b8", [])
    snapshot("precision", plain(told(checked(made_up.both_kinds()))["precision"]))
    assert answer["weaknesses"] == ["whether training still converges in it was not measured on cuda:0, cpu: dlbench run convergence"]
    _, table = answer["tables"]
    assert {(row["base.value"], row["other.value"], row["base.check.error"], row["other.check.error"]) for row in table["rows"]} == {
        ("fp32", "bf16", 3e-7, 0.004)
    }


def test_where_all_are_slower_the_nearest_is_named_and_none_called_fast(asked):
    slower = [made_up.scaled(each, 2.0) if each.case.params["dtype"] == "bf16" else each for each in made_up.both_kinds()]
    on_cpu = [each for each in slower if each.case.device == "cpu"]
    assert line(asked(slower)["precision"]) == (
        "no gain shown by bf16 over fp32",
        "train resnet18 b8",
        ["noisy", "not checked"],
    )
    answer = asked(on_cpu)["precision"]
    assert line(answer) == ("none beats fp32: 0.500× (0.485…0.515), bf16", "train resnet18 b8", ["not checked"])
    assert answer["sentences"] == ["training, bf16, train_step resnet18 batch=8: ratio 0.500 × (0.485…0.515)."]


def in_precisions(workload="train_step", **seconds):
    cases = [(made_up.case(workload, n=8, dtype=dtype), each) for dtype, each in seconds.items()]
    return [each for case, s in cases for each in made_up.rounds_of(case, made_up.flat([s * factor for factor in made_up.SEVEN]))]


def test_precisions_that_timed_out_are_named_behind_their_kind_of_work(asked):
    within = "not done within 60 s; raise --timeout"
    reasons = {"fp16": within, "amp_fp16": within, "fp64": "its first call"}
    late = [made_up.ended(made_up.case("train_step", n=8, dtype=dtype), Status.TIMEOUT, reason) for dtype, reason in reasons.items()]
    answer = asked([*in_precisions(fp32=1.0, bf16=2.0), *in_precisions("infer_step", fp32=1.0, bf16=2.0), *late])["precision"]
    assert answer["sentences"] == [
        "training, bf16, train_step n=8: ratio 0.500 × (0.485…0.515), timed out fp64, fp16, amp_fp16.",
        "inference, bf16, infer_step n=8: ratio 0.500 × (0.485…0.515).",
    ]


def test_of_an_error_that_was_not_measured_that_of_the_base_is_not_told_either(asked):
    base, other = in_precisions(fp32=1.0), in_precisions(bf16=2.0)
    found = [*checked(base), *other]
    answer = asked(found)["precision"]
    assert answer["sentences"] == ["training, bf16, train_step n=8: ratio 0.500 × (0.485…0.515)."]
    assert answer["tags"] == ["not checked"]


def test_a_wider_precision_is_none_to_choose_for_speed(asked):
    wider = in_precisions(fp32=1.0, fp64=2.0)
    missing = asked(wider)["precision"]
    assert (missing["kind"], missing["reason"]) == ("missing", "only wider precisions were measured")
    answer = asked([*wider, *in_precisions("infer_step", fp32=1.0, bf16=4.0), *in_precisions("infer_step", fp64=2.0)])["precision"]
    assert answer["headline"] == "none beats fp32: 0.250× (0.242…0.258), bf16"
    assert answer["sentences"][0] == "inference, bf16, infer_step n=8: ratio 0.250 × (0.242…0.258)."
    assert [row["other.dtype"] for row in answer["tables"][1]["rows"]] == ["fp64", "bf16", "fp64"]


def test_sentences_tell_three_kinds_of_work_and_the_table_all(asked):
    found = [each for name in ("a", "b", "c", "d", "e") for each in in_precisions(name, fp32=1.0, bf16=0.5)]
    answer = asked(found)["precision"]
    assert [each[0] for each in answer["sentences"]] == ["a", "b", "c"]
    assert [row["fastest.kind"] for row in answer["tables"][0]["rows"]] == ["a", "b", "c", "d", "e"]


def test_a_note_says_why_the_best_of_several_has_a_wider_interval_above_the_table(asked):
    _, two = asked(in_precisions(fp32=1.0, bf16=2.0))["precision"]["tables"]
    _, three = asked(in_precisions(fp32=1.0, bf16=2.0, fp16=3.0))["precision"]["tables"]
    assert two["notes"] == []
    assert three["notes"] == [
        "95 % interval: of that pair alone; above the table it is wider, as it allows for choosing the best of several"
    ]


def test_where_the_ratio_has_an_interval_its_rounds_are_not_called_few(asked):
    """Though a case alone has none of five rounds."""
    answer = asked(made_up.both_kinds(rounds=5))["precision"]
    assert line(answer) == ("bf16 2.00× fp32 (1.92…2.08)", "train resnet18 b8", ["not checked"])


def test_a_precision_of_many_letters_leaves_room_for_its_ratio(asked):
    name = "d" * 200
    cases = {dtype: made_up.case("mine", dtype=dtype) for dtype in ("fp32", name)}
    rounds = [each for dtype, case in cases.items() for each in made_up.rounds_of(case, [[0.5 if dtype == name else 1.0]] * 7)]
    assert asked(rounds)["precision"]["headline"] == f"{cut(name, 11)} 2.00× fp32 (2.00…2.00)"


def test_of_several_machines_the_best_is_told_with_its_name_and_kinds_are_not_mixed(asked):
    def measured(workload, seconds, **params):
        cases = {dtype: made_up.case(workload, **params, dtype=dtype) for dtype in ("fp32", "bf16")}
        return [each for case, s in zip(cases.values(), (1.0, seconds), strict=True) for each in made_up.rounds_of(case, [[s]] * 7)]

    long = measured("matmul", 0.1, name="n" * 200)
    answer = asked([*measured("train_step", 0.8, model="a"), *long], measured("train_step", 0.5, model="a"))["precision"]
    assert line(answer) == ("bf16 2.00× fp32 (2.00…2.00)", "train a on run1 and 1 more", ["not checked"])
    assert answer["sentences"] == ["training, cpu (run1), bf16, train_step a: ratio 2.00 ×."]
    of_table = [(row["place"], row["fastest.kind"], row["ratio.speedup"]) for row in answer["tables"][0]["rows"]]
    assert of_table == [("cpu (run0)", "training", 1.25), ("cpu (run0)", "matmul", pytest.approx(10)), ("cpu (run1)", "training", 2.0)]
    assert line(asked(long)["precision"])[:2] == ("bf16 10.0× fp32 (10.0…10.0)", cut("n" * 200, 38))


@pytest.mark.parametrize(
    ("seconds", "headline", "times"), [(0.0625, "bf16 16.0× fp32", "16.0"), (1.25, "none beats fp32: 0.800×, bf16", "0.800")]
)
def test_of_too_few_rounds_for_an_interval_nothing_is_denied_that_was_measured(asked, seconds, headline, times):
    both = {"fp32": 1.0, "bf16": seconds}
    of_each = (made_up.rounds_of(made_up.case("matmul", n=8, dtype=dtype), made_up.flat([each] * 3)) for dtype, each in both.items())
    answer = asked([each for rounds in of_each for each in rounds])["precision"]
    assert line(answer) == (headline, "matmul n=8", ["few rounds", "not checked"])
    assert answer["sentences"] == [f"matmul, bf16, matmul n=8: ratio {times} ×."]


def test_of_several_the_one_whose_case_in_the_middle_is_fastest_is_named(asked):
    seconds = {"fp32": 1.0, "tf32": 0.5, "bf16": 0.25, "fp64": 2.0}
    measured = []
    for dtype, each in reversed(seconds.items()):
        case = made_up.case("matmul", "cuda:0", n=8, dtype=dtype)
        measured += made_up.rounds_of(case, made_up.flat([each * factor for factor in made_up.SEVEN]), flops=1e6)
    answer = asked(measured)["precision"]
    assert line(answer) == ("bf16 4.00× fp32 (3.88…4.12)", "matmul n=8", ["not checked"])
    assert answer["sentences"] == ["matmul, bf16, matmul n=8: ratio 4.00 × (3.88…4.12)."]
    assert [row["other.dtype"] for row in answer["tables"][1]["rows"]] == ["fp64", "tf32", "bf16"]


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
    assert answer["sentences"] == ["mine, fp8, mine: ratio 2.00 ×."]
    alone = asked([made_up.without_rounds(each) for each in measured], workloads=declared)["precision"]
    assert line(alone) == ("recall 50.0 % in fp8 and 75.0 % in fp32", "mine", [])
    assert alone["sentences"] == ["mine: recall in fp32 75.0 %, recall in fp8 50.0 %."]
    _, table = answer["tables"]
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
    starts = ["training, cuda:0, bf16, train_step resnet18 batch=8", "mine"]
    assert [each.split(": ")[0] for each in answer["sentences"]] == starts


def test_a_precision_that_was_tried_in_a_small_case_too_is_not_behind_for_that(asked):
    """On an H100 bf16 ran 3.05 × in a small product, the only one of it, and 14.0 × in the one that tf32 ran 7.22 × in."""
    seconds = {(1024, "fp32"): 3.05, (1024, "bf16"): 1.0, (8192, "fp32"): 14.0, (8192, "bf16"): 1.0, (8192, "tf32"): 14.0 / 7.22}
    cases = {(n, dtype): made_up.case("matmul", n=n, dtype=dtype) for n, dtype in seconds}
    measured = [each for key, case in cases.items() for each in made_up.rounds_of(case, made_up.flat([seconds[key]] * 7))]
    answer = asked(measured)["precision"]
    assert (answer["headline"], answer["qualifier"]) == ("bf16 14.0× fp32 (14.0…14.0)", "matmul n=8192")
