"""What the plain defaults leave on the table: from made-up steps, whatever the workload and its switches are called."""

from dataclasses import replace

import made_up
import pytest

from dlbench.core.model import Status

DECLARED = {
    "step": {
        "parameters": {"mode": {"switch": "plain"}, "order": {"switch": "rows"}},
        "values": [
            {"name": "built_cold_s", "unit": "s", "direction": None, "meaning": "a", "role": "once", "optional": True},
            {"name": "built_warm_s", "unit": "s", "direction": None, "meaning": "b", "role": "once", "optional": True},
            {"name": "breaks", "unit": "count", "direction": None, "meaning": "c", "optional": True},
        ],
    },
    "search": {
        "parameters": {
            "batch": {"searched": ""},
            "mode": {"switch": "plain", "searched": ""},
            "order": {"switch": "rows", "searched": ""},
            "threads": {"searched_cores": ""},
        }
    },
    "largest": {
        "parameters": {"mode": {"switch": "plain"}, "batch": {"searched": ""}},
        "values": [{"name": "most", "unit": "count", "role": "largest"}],
    },
}


def line(answer):
    return answer["headline"], answer["qualifier"], answer["tags"]


def step(seconds, workload="step", device="cpu", found=None, values=None, items=8, **params):
    case = made_up.case(workload, device, **params)
    rounds = made_up.rounds_of(case, made_up.flat([seconds * factor for factor in made_up.SEVEN]), items=items)
    return [replace(each, found=found or {}, values=values or {}) for each in rounds]


def plain(seconds=1.0, **others):
    return step(seconds, **{"mode": "plain", "order": "rows", "batch": 8, **others})


def built(seconds, **values):
    return step(seconds, mode="built", order="rows", batch=8, values=values)


@pytest.fixture
def found(asked):
    def ask(*measurements, **header):
        return asked([each for some in measurements for each in some], **{"workloads": DECLARED, **header})["default"]

    return ask


def table_of(answer, title):
    (table,) = [each for each in answer["tables"] if each["title"].startswith(title)]
    return table["rows"]


def test_each_switch_alone_and_the_best_stand_beside_the_plain_default(found):
    answer = found(
        plain(),
        built(0.5, built_cold_s=100.0, built_warm_s=3.0, breaks=2.0),
        step(0.8, mode="plain", order="columns", batch=8),
        step(0.25, mode="built", order="columns", batch=8),
    )
    assert line(answer) == ("4.00× left on the table (3.84…4.16)", "step b8: built, columns", ["estimate"])
    assert answer["sentences"] == [
        "step batch=8: fastest other 32.0 /s, at built, columns, ratio 4.00 × (3.84…4.16).",
        "step rows batch=8, mode, built: ratio 2.00 × (1.94…2.06), spent once 100 s, pays off after 200.",
    ]
    few = found(plain()[:3], built(0.5)[:3])
    assert line(few) == ("2.00× left on the table", "step b8: built", ["few rounds"])
    rows = table_of(answer, "The same case")
    assert [(row["default.setting"], row["default.alone"], row.get("default.break_even_steps")) for row in rows] == [
        ("built", True, 200),
        ("columns", True, None),
        ("built", False, None),
        ("columns", False, None),
    ]
    figures = {each["title"]: each for each in answer["figures"]}
    switches = figures["What each tuning option brings alone: step on cpu"]
    assert [row["default.setting"] for row in switches["rows"]] == ["built", "columns"]
    assert switches["reference"] == 1


def test_a_default_that_did_not_go_well_is_no_base(asked):
    """The one row with the plain default was skipped: whether there is another is luck, as cases run in random order."""
    skipped = made_up.ended(made_up.case("step", mode="plain", order="rows", batch=8), Status.SKIPPED, "this machine has none")
    answer = asked([skipped, *built(0.5)], workloads=DECLARED)["default"]
    assert answer["reason"] == "no step was measured both with its plain defaults and with another tuning option than its precision"


def test_a_switch_beside_others_is_not_said_to_be_alone(found):
    both, more = (step(seconds, mode=mode, order="columns", batch=8) for seconds, mode in ((0.5, "plain"), (0.1, "built")))
    rows = table_of(found(plain(), both, more), "The same case")
    assert [(row["default.switch"], row["default.alone"]) for row in rows] == [("order", True), ("mode", False)]


@pytest.mark.parametrize("seconds", [1.0, 1.02, 2.0])
def test_what_saves_nothing_never_pays_off(found, seconds):
    (row,) = table_of(found(plain(), built(seconds, built_cold_s=100.0)), "The same case")
    assert (row["default.spent_s"], row["default.break_even_steps"]) == (100.0, None)


def test_a_search_takes_part_with_what_it_found_at_any_batch(found):
    answer = found(
        plain(workload="search"),
        step(1.0, "search", found={"batch": 64, "mode": "built", "order": "rows"}, items=64),
        plain(workload="search", device="cuda:0", seconds=0.5),
        step(0.25, "search", "cuda:0", found={"batch": 16, "mode": "built", "order": "columns"}, items=16),
    )
    assert line(answer) == ("4.00× left on the table (3.88…4.12)", "search: built, columns, batch=16", [])
    assert answer["sentences"] == ["search, cuda:0: fastest other 64.0 /s, at built, columns, batch=16, ratio 4.00 × (3.88…4.12)."]
    assert [(row["other.batch"], row["other.mode"], row["default.searched"]) for row in table_of(answer, "Each step")] == [
        (16, "built", True),
        (64, "built", True),
    ]


def test_without_a_search_it_names_the_suite_that_makes_one(found):
    named = "only what a suite planned was compared; dlbench run fastest searches for more"
    assert named in found(plain(), built(0.5))["weaknesses"]
    searched = found(plain(workload="search"), step(1.0, "search", found={"batch": 64, "mode": "built", "order": "rows"}, items=64))
    assert named not in searched["weaknesses"]


def test_a_search_that_was_cut_short_says_what_is_the_fastest_so_far(found):
    reason = "unfinished: batch=64, mode=built is the fastest so far; the budget ran out after 9 tries"
    cut = made_up.ended(made_up.case("search"), Status.SKIPPED, reason)
    cut = replace(cut, found={"batch": 64, "mode": "built"}, unfinished=True)
    said = f"the search for the fastest search: {reason}"
    answer = found(plain(), built(0.5), [cut])
    assert answer["tags"] == ["unfinished"]
    assert answer["weaknesses"][0] == said
    assert "dlbench run fastest" not in " ".join(answer["weaknesses"])
    other = replace(cut, case=made_up.case("largest"), reason=reason)
    failed = replace(cut, case=made_up.case("search", n=1), reason="not done within 60 s", unfinished=None)
    assert "the search for" not in " ".join(found(plain(), built(0.5), [other, failed])["weaknesses"])
    assert found(plain(), [cut])["reason"].endswith(f"with another tuning option than its precision; {said}")


def test_where_the_default_is_the_fastest_it_says_so(found):
    answer = found(plain(), built(2.0))
    assert line(answer) == ("0.500× (0.485…0.515): nothing left on the table", "step b8: built", [])
    assert answer["sentences"][0] == "step batch=8: fastest other 4.00 /s, at built, ratio 0.500 × (0.485…0.515)."


def test_where_another_may_be_as_fast_as_the_default_no_gain_is_shown(found):
    answer = found(plain(), built(1.01))
    assert line(answer) == ("no gain shown over the default", "step b8: built", ["noisy"])
    assert answer["sentences"][1] == "step rows batch=8, mode, built: ratio 0.990 × (0.960…1.02)."
    (row,) = table_of(answer, "Each step")
    assert [round(row[f"ratio.{name}"], 3) for name in ("speedup", "ci_low", "ci_high")] == [0.99, 0.96, 1.021]


@pytest.mark.parametrize("seconds", [2.0, 0.5])
def test_where_only_precisions_were_tried_they_are_left_to_the_answer_on_them(asked, seconds):
    both = [step(each, "train_step", model="resnet18", batch=8, dtype=dtype) for dtype, each in (("fp32", 1.0), ("bf16", seconds))]
    missing = asked([*both[0], *both[1]])["default"]
    assert (missing["kind"], missing["command"]) == ("missing", "dlbench run modes")
    assert missing["reason"] == "no step was measured both with its plain defaults and with another tuning option than its precision"


def test_of_several_devices_the_most_is_told_with_its_name(asked):
    slow = [*plain(), *built(0.8)]
    fast = [made_up.renamed(each, "Faster", 4) for each in (*plain(), *built(0.5))]
    answer = asked(slow, fast, workloads=DECLARED)["default"]
    assert line(answer) == ("2.00× left on the table (1.94…2.06)", "step b8 on run1 and 1 more: built", [])


@pytest.mark.parametrize(
    "value",
    [{"built_cold_s": -1.0}, {"built_cold_s": 1e100}, {"built_cold_s": [1.0, 2.0]}, {"breaks": 1e100}],
)
def test_edited_files_end_no_reading(found, value):
    assert found(plain(), built(1e-200, **value), plain(0.0, batch=9), step(0.5, found={"batch": "x, y=", "mode": 3}))["kind"] == "answer"
    declared = {"step": {"parameters": {"mode": {"switch": "gone"}, "other": {"switch": "x"}}}}
    assert found(plain(), built(0.5), workloads=declared)["kind"] == "missing"
