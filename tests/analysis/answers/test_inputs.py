"""How steps get their batches: ways to feed them, a user's loader, and storage, whatever workloads and parameters are called."""

import made_up
import pytest
from plain_answers import columns_of, rows_of

from dlbench.core.model import Status


def reported(**roles):
    """Seconds that a workload may report, by the role of each."""
    return [{"name": n, "unit": "s", "direction": None, "meaning": "a", "role": role, "optional": True} for n, role in roles.items()]


FEEDING = {"way": {"feeding": ""}, "helpers": {"feeding": ""}}
DECLARED = {
    "shelf": {"tags": ["supply", "pictures"], "values": [], "parameters": {"from": {"supply": "disk"}}},
    "eat": {"tags": ["training", "pictures"], "values": []},
    "drink": {"tags": ["training"], "values": []},
    "look": {"tags": ["inference", "pictures"], "values": []},
    "fed": {"parameters": FEEDING, "values": reported(waited_s="input", sent_s="transfer")},
    "own": {"tags": ["training"], "parameters": FEEDING, "values": reported(waited_s="input", pace_s="input_alone", itself_s="step_alone")},
}
TABLE = "Throughput by how a step gets its batch"


def rows(workload, seconds, device="cpu", items=64, **params):
    return made_up.around(made_up.case(workload, device, **params), seconds, items=items, flops=None, bytes=items * 1000)


def shelf(seconds, where="disk", **params):
    return rows("shelf", seconds, **{"from": where}, **params)


def step(seconds, way, helpers=0, batch=64, device="cuda:0", workload="fed", **values):
    """Seven rounds of a step that gets its batch in that way."""
    found = rows(workload, seconds, device, batch, way=way, helpers=helpers, batch=batch)
    return [made_up.with_values(each, **values) for each in found]


def own(call_s, waited_s, pace_s, helpers=0, device="cpu"):
    """A step of a second that a user's loader feeds."""
    return step(call_s, "mine", helpers, device=device, workload="own", waited_s=waited_s, pace_s=pace_s, itself_s=1.0)


ODD = [([[1.0]] * 2, 1e12), ([[0.0]] * 2, 8)]
ODD_CASES = made_up.case("fed", "cuda:0", way=3, batch="many"), made_up.case("fed", "cuda:0", way="idle", batch=2)
ODD_READINGS = made_up.case("shelf", **{"from": 3}, way="flies"), made_up.case("shelf", **{"from": "disk"}, way="idles")
ODD_STEPS, ODD_SHELVES = (
    [each for case, (rounds, items) in zip(cases, ODD, strict=True) for each in made_up.rounds_of(case, rounds, items=items)]
    for cases in (ODD_CASES, ODD_READINGS)
)
ODD_STEPS.append(made_up.ended(made_up.case("fed", "cuda:0", way="there", helpers=0, batch=8), Status.OOM, "full"))
ODD_SHELVES.append(made_up.ended(made_up.case("shelf", **{"from": "disk"}, way="crawls"), Status.FAILED, "gone"))
SHELVES = [
    *[each for seconds, way in ((1.0, "hops"), (0.5, "walks"), (0.25, "runs")) for each in shelf(seconds, way=way)],
    *shelf(0.001, "memory", way="runs"),
]


def test_what_it_says(scenes):
    found = {
        "ways to feed a step, of two batches": [
            *step(1.0, "there", waited_s=0.125), *step(2.0, "sent", waited_s=0.5, sent_s=0.25), *step(4.0, "helped", 2, waited_s=2.0),
            *step(4.1, "helped", 4), *step(0.5, "there", batch=8, waited_s=0.0),
        ],
        "a card before a CPU": [*step(1.0, "there", device="cpu", waited_s=0.5), *step(0.5, "there")],
        "storage for two steps on pictures, one on none, and an inference": [
            *SHELVES, *rows("eat", 0.5, "cuda:0", batch=64), *rows("eat", 8.0, batch=64), *rows("drink", 0.5, batch=64),
            *rows("look", 0.5, batch=64),
        ],
        "samples of a network, which count for its own steps alone": [
            *shelf(1.0), *shelf(2.0, model="mine"), *rows("eat", 0.5, model="mine"), *rows("eat", 0.25, model="other"),
        ],
        "samples of a network that no step takes": [*shelf(2.0, model="mine"), *rows("eat", 0.25, model="other")],
        "storage alone": [*shelf(1.0, way="hops"), *rows("drink", 1.0)],
        "a step that waits for its loader five times as long as it computes": own(6.0, 5.0, 5.0),
        "a wait beside a card that computes costs what the call takes longer": own(1.25, 1.0, 1.0, device="cuda:0"),
    }  # fmt: skip
    heads = {
        "a long name": step(1.0, "w" * 200) + step(1.02, "there"),
        "both rates in place of their ratio, whose interval holds 1": shelf(1.0, way="hops") + rows("eat", 1.0, batch=64),
        "few rounds": [each for each in shelf(0.5) + rows("eat", 1.0) if each.round < 3],
    }
    scenes("inputs", "bottleneck", found, heads, workloads=DECLARED)


def test_what_is_odd_or_did_not_go_well_takes_no_part_and_breaks_nothing(asked):
    timed = [*step(1e-9, "there", waited_s=1e300), *step(2.0, "sent", waited_s=(1.0, 2.0))]
    answer = asked([*ODD_STEPS, *timed], workloads=DECLARED)["bottleneck"]
    assert {row["feeding.way"] for row in rows_of(answer, TABLE)} <= {"there", "sent", "way=3"}
    answer = asked([*ODD_SHELVES, *shelf(1.0, way="hops"), *rows("drink", 1.0)], workloads=DECLARED)["bottleneck"]
    assert (answer["headline"], answer["qualifier"]) == ("storage feeds 64.0/s at worst", "shelf disk hops")
    assert asked(ODD_SHELVES, workloads=DECLARED)["bottleneck"]["question"]


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
    answer = asked(own(call_s, waited_s, pace_s, helpers), workloads=DECLARED)["bottleneck"]
    kinds = {row["kind.name"]: row for row in rows_of(answer, "Kinds of operations")}
    assert next(iter(kinds), None) == most
    if most:
        assert kinds["waiting for its batch"]["kind.gain"] == pytest.approx(gain, abs=1e-6)
    (found,) = columns_of(rows_of(answer, TABLE), "feeding.supply_per_s", "feeding.need_per_s", "feeding.waits")
    assert found == (pytest.approx(64 / pace_s), pytest.approx(64), pytest.approx(waits, abs=5e-4))
