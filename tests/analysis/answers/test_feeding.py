"""Findings from rows of one step that differ in how it gets its batch, whatever the workload and its parameters are called."""

import made_up
import pytest

from dlbench.core.model import Status

DECLARED = {
    "fed": {
        "parameters": {"way": {"feeding": ""}, "helpers": {"feeding": ""}},
        "values": [
            {"name": "waited_s", "unit": "s", "direction": None, "meaning": "a", "role": "input", "optional": True},
            {"name": "sent_s", "unit": "s", "direction": None, "meaning": "b", "role": "transfer", "optional": True},
        ],
    }
}


def step(seconds, way, helpers=0, batch=64, device="cuda:0", **values):
    """Seven rounds of a step that gets its batch in that way."""
    case = made_up.case("fed", device, way=way, helpers=helpers, batch=batch)
    rounds = made_up.flat([seconds * factor for factor in made_up.SEVEN])
    return [made_up.with_values(each, **values) for each in made_up.rounds_of(case, rounds, items=batch, flops=None)]


def found(asked, *measurements, **header):
    return asked([each for some in measurements for each in some], workloads=DECLARED, **header)["bottleneck"]


def test_each_way_stands_beside_the_best_with_what_it_takes_of_a_call(asked):
    answer = found(
        asked,
        step(1.0, "there", waited_s=0.125),
        step(2.0, "sent", waited_s=0.5, sent_s=0.25),
        step(4.0, "helped", helpers=2, waited_s=2.0),
        step(4.1, "helped", helpers=4),
        step(0.5, "there", batch=8, waited_s=0.0),
    )
    assert answer["sentences"] == ["fed batch=64, there: items 64.0 /s (62.1…66.0 /s), ratio 1.00 ×, getting them 12.5 %."]
    assert (answer["headline"], answer["qualifier"], answer["tags"]) == ("64.0/s at best, fed by there", "fed b64", [])
    (table,) = [each for each in answer["tables"] if each["title"] == "Throughput by how a step gets its batch"]
    names = ("feeding.way", "feeding.input_share", "feeding.transfer_share")
    assert [tuple(row[name] for name in names) for row in table["rows"]] == [
        ("there", 0.125, None),
        ("sent", 0.25, 0.125),
        ("helped helpers=2", 0.5, None),
        ("helped helpers=4", None, None),
        ("there", 0.0, None),
    ]
    assert [row["ratio.speedup"] for row in table["rows"]] == pytest.approx([1, 1 / 2, 1 / 4, 1 / 4.1, 1])


def test_accelerators_come_first(asked):
    answer = found(asked, step(1.0, "there", device="cpu", waited_s=0.5), step(0.5, "there"))
    assert (answer["headline"], answer["qualifier"]) == ("128/s at best, fed by there", "fed b64")
    long = found(asked, step(1.0, "w" * 200), step(1.02, "there"))
    assert long["headline"] == "64.0/s at best"


def test_what_is_odd_or_did_not_go_well_takes_no_part_and_breaks_nothing(asked):
    case = made_up.case("fed", "cuda:0", way="there", helpers=0, batch=8)
    ended = [made_up.ended(case, Status.OOM, "full")]
    odd = made_up.rounds_of(made_up.case("fed", "cuda:0", way=3, batch="many"), [[1.0]] * 2, items=1e12)
    nothing = made_up.rounds_of(made_up.case("fed", "cuda:0", way="idle", batch=2), [[0.0]] * 2)
    answer = found(asked, ended, odd, nothing, step(1e-9, "there", waited_s=1e300), step(2.0, "sent", waited_s=(1.0, 2.0)))
    (table,) = [each for each in answer["tables"] if each["title"] == "Throughput by how a step gets its batch"]
    assert {row["feeding.way"] for row in table["rows"]} <= {"there", "sent", "way=3"}


OWN = {
    "fed": {
        "tags": ["training"],
        "parameters": {"way": {"feeding": ""}, "helpers": {"feeding": ""}},
        "values": [
            {"name": "waited_s", "unit": "s", "direction": None, "meaning": "a", "role": "input", "optional": True},
            {"name": "pace_s", "unit": "s", "direction": None, "meaning": "b", "role": "input_alone", "optional": True},
            {"name": "itself_s", "unit": "s", "direction": None, "meaning": "c", "role": "step_alone", "optional": True},
        ],
    }
}


def fed_by_own(asked, call_s, waited_s, pace_s, **case):
    """What is said of a step of a second that a user's loader feeds."""
    params = {"way": "mine", "batch": 64, **case}
    found = step(call_s, **params, waited_s=waited_s, pace_s=pace_s, itself_s=1.0)
    return asked(found, workloads=OWN)["bottleneck"]


@pytest.mark.parametrize(
    ("call_s", "waited_s", "pace_s", "helpers", "waits", "most", "gain"),
    [
        # It sleeps a fifth of the step, as long as the step, and five times as long; with workers what is hidden costs nothing.
        (1.2, 0.2, 0.2, 0, 0.167, "the rest", 0.2 / 1.2),
        (1.0, 0.0, 0.2, 1, 0.000, None, None),
        (2.1, 1.1, 1.1, 0, 0.524, "waiting for its batch", 1.0 / 2.1),
        (1.0, 0.0, 1.0, 1, 0.000, None, None),
        (6.0, 5.0, 5.0, 0, 0.833, "waiting for its batch", 1.0 / 6.0),
        (5.0, 4.0, 5.0, 1, 0.800, "waiting for its batch", 0.0),
        (2.5, 1.5, 2.5, 2, 0.600, "waiting for its batch", 0.0),
        # It copies a lot: in the process of the step that is waiting, in workers it takes CPU time from the step.
        (4.0, 3.0, 3.0, 0, 0.750, "waiting for its batch", 0.25),
        (4.0, 0.1, 2.0, 4, 0.025, "the rest", 0.025),
    ],
)
def test_a_step_says_where_it_waits_for_the_users_loader(asked, call_s, waited_s, pace_s, helpers, waits, most, gain):
    """What is to gain is what a loader that works meanwhile would hide."""
    answer = fed_by_own(asked, call_s, waited_s, pace_s, helpers=helpers, device="cpu")
    table = {each["title"].partition(" in the")[0]: each["rows"] for each in answer["tables"]}
    kinds = {row["kind.name"]: row for row in table.get("Kinds of operations", [])}
    assert next(iter(kinds), None) == most
    if most:
        assert kinds["waiting for its batch"]["kind.gain"] == pytest.approx(gain, abs=1e-6)
    (way,) = table["Throughput by how a step gets its batch"]
    assert (way["feeding.supply_per_s"], way["feeding.need_per_s"]) == pytest.approx((64 / pace_s, 64))
    assert way["feeding.waits"] == pytest.approx(waits, abs=5e-4)


def test_a_step_that_waits_for_its_loader_says_so_with_both_rates(asked):
    answer = fed_by_own(asked, 6.0, 5.0, 5.0, helpers=0, device="cpu")
    assert answer["headline"] == "input 83 % (gain 17) → prefetch or more workers"
    assert answer["qualifier"] == "fed mine helpers=0 b64"
    assert answer["sentences"][-1] == (
        "fed batch=64, mine: items 10.7 /s (10.4…11.0 /s), ratio 1.00 ×, getting them 83.3 %, supply 12.8 /s, need 64.0 /s, waits 83.3 %."
    )


def test_a_wait_beside_a_device_that_computes_costs_what_the_call_takes_longer(asked):
    answer = fed_by_own(asked, 1.25, 1.0, 1.0)
    (way,) = next(each["rows"] for each in answer["tables"] if each["title"] == "Throughput by how a step gets its batch")
    assert way["feeding.waits"] == pytest.approx(0.2)
