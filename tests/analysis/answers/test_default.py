"""What the plain defaults leave on the table: from made-up steps, whatever the workload and its switches are called."""

from dataclasses import replace

import made_up
import pytest
from plain_answers import columns_of, rows_of

from dlbench.core.model import Status

SWITCHES = {"mode": {"switch": "plain"}, "order": {"switch": "rows"}}
ONCE = [
    {"name": name, "unit": unit, "direction": None, "meaning": "a", "optional": True, **role}
    for name, unit, role in (("built_cold_s", "s", {"role": "once"}), ("built_warm_s", "s", {"role": "once"}), ("breaks", "count", {}))
]
SEARCHED = {name: {**switch, "searched": ""} for name, switch in SWITCHES.items()}
DECLARED = {
    "step": {"parameters": SWITCHES, "values": ONCE},
    "search": {"parameters": {"batch": {"searched": ""}, **SEARCHED, "threads": {"searched_cores": ""}}},
    "largest": {
        "parameters": {"mode": {"switch": "plain"}, "batch": {"searched": ""}},
        "values": [{"name": "most", "unit": "count", "role": "largest"}],
    },
}
NOTHING = "no step was measured both with its plain defaults and with another tuning option than its precision"


def step(seconds, workload="step", device="cpu", found=None, values=None, items=8, **params):
    rounds = made_up.around(made_up.case(workload, device, **params), seconds, items=items)
    return [replace(each, found=found or {}, values=values or {}) for each in rounds]


def plain(seconds=1.0, **others):
    return step(seconds, **{"mode": "plain", "order": "rows", "batch": 8, **others})


def built(seconds, **values):
    return step(seconds, mode="built", order="rows", batch=8, values=values)


FOUND = {"batch": 64, "mode": "built", "order": "rows"}
COLUMNS = step(0.5, mode="plain", order="columns", batch=8)
SEARCH = [*plain(workload="search"), *step(1.0, "search", found=FOUND, items=64)]
REASON = "unfinished: batch=64, mode=built is the fastest so far; the budget ran out after 9 tries"
CUT = replace(made_up.ended(made_up.case("search"), Status.SKIPPED, REASON), found={"batch": 64, "mode": "built"}, unfinished=True)


@pytest.fixture
def found(asked):
    return lambda measured, **header: asked(measured, **{"workloads": DECLARED, **header})["default"]


def test_what_it_says(scenes):
    on_card = [*plain(0.5, workload="search", device="cuda:0"), *step(0.25, "search", "cuda:0", {**FOUND, "batch": 16}, items=16)]
    found = {
        "each switch alone, and both": [
            *plain(), *built(0.5, built_cold_s=100.0, built_warm_s=3.0, breaks=2.0), *step(0.8, mode="plain", order="columns", batch=8),
            *step(0.25, mode="built", order="columns", batch=8),
        ],
        "searches on a card and on a CPU, which found other batches": [*SEARCH, *on_card],
        "a search that was cut short": [*plain(), *built(0.5), CUT],
        "the default is the fastest": [*plain(), *built(2.0)],
        "another may be as fast as the default": [*plain(), *built(1.01)],
        "two machines": ([*plain(), *built(0.8)], [made_up.renamed(each, "Faster", 4) for each in (*plain(), *built(0.5))]),
        "a search cut short, and nothing beside": [*plain(), CUT],
    }  # fmt: skip
    heads = {"few rounds": [*plain()[:3], *built(0.5)[:3]], "a search": SEARCH}
    scenes("defaults", "default", found, heads, workloads=DECLARED)


def test_a_switch_beside_others_is_not_said_to_be_alone(found):
    rows = rows_of(found([*plain(), *COLUMNS, *step(0.1, mode="built", order="columns", batch=8)]), "The same case")
    assert columns_of(rows, "default.switch", "default.alone") == [("order", True), ("mode", False)]
    rows = rows_of(found([*plain(), *built(1.01)]), "Each step")
    assert columns_of(rows, "ratio.speedup", "ratio.ci_low", "ratio.ci_high") == [pytest.approx((0.99, 0.96, 1.021), abs=5e-4)]


@pytest.mark.parametrize(("seconds", "steps"), [(0.5, 200), (1.0, None), (1.02, None), (2.0, None)])
def test_what_is_spent_once_pays_off_only_where_a_step_saves(found, seconds, steps):
    rows = rows_of(found([*plain(), *built(seconds, built_cold_s=100.0)]), "The same case")
    assert columns_of(rows, "default.spent_s", "default.break_even_steps") == [(100.0, steps)]


def test_without_a_search_the_suite_that_makes_one_is_named_and_one_cut_short_says_how_far_it_came(found):
    named, cut = (
        "only what a suite planned was compared; dlbench run fastest searches for more",
        f"the search for the fastest search: {REASON}",
    )
    assert named in found([*plain(), *built(0.5)])["weaknesses"]
    assert named not in found(SEARCH)["weaknesses"]
    weaknesses = found([*plain(), *built(0.5), CUT])["weaknesses"]
    assert (weaknesses[0], named in weaknesses) == (cut, False)
    other = replace(CUT, case=made_up.case("largest"))
    failed = replace(CUT, case=made_up.case("search", n=1), reason="not done within 60 s", unfinished=None)
    assert "the search for" not in " ".join(found([*plain(), *built(0.5), other, failed])["weaknesses"])
    assert found([*plain(), CUT])["reason"] == f"{NOTHING}; {cut}"


@pytest.mark.parametrize(
    "measured",
    [
        # The one row with the plain default was skipped: whether there is another is luck, as cases run in random order.
        [made_up.ended(made_up.case("step", mode="plain", order="rows", batch=8), Status.SKIPPED, "this machine has none"), *built(0.5)],
        # Where only precisions were tried they are left to the answer on them.
        [each for dtype, s in (("fp32", 1.0), ("bf16", 2.0)) for each in step(s, "train_step", model="resnet18", batch=8, dtype=dtype)],
        [each for dtype, s in (("fp32", 1.0), ("bf16", 0.5)) for each in step(s, "train_step", model="resnet18", batch=8, dtype=dtype)],
    ],
    ids=["skipped", "slower precision", "faster precision"],
)
def test_what_has_no_base_or_differs_in_its_precision_alone_is_missing(asked, measured):
    header = {"workloads": DECLARED} if measured[-1].case.workload == "step" else {}
    missing = asked(measured, **header)["default"]
    assert (missing["command"], missing["reason"]) == ("dlbench run modes", NOTHING)


@pytest.mark.parametrize("value", [{"built_cold_s": -1.0}, {"built_cold_s": 1e100}, {"built_cold_s": [1.0, 2.0]}, {"breaks": 1e100}])
def test_edited_files_end_no_reading(found, value):
    odd = [*built(1e-200, **value), *plain(0.0, batch=9), *step(0.5, found={"batch": "x, y=", "mode": 3})]
    assert found([*plain(), *odd])["kind"] == "answer"
    declared = {"step": {"parameters": {"mode": {"switch": "gone"}, "other": {"switch": "x"}}}}
    assert found([*plain(), *built(0.5)], workloads=declared)["kind"] == "missing"
