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
            {"name": "between_s", "unit": "s", "direction": None, "meaning": "c", "optional": True},
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
        step(4.0, "helped", helpers=2, waited_s=2.0, between_s=3.0),
        step(4.1, "helped", helpers=4),
        step(0.5, "there", batch=8, waited_s=0.0),
    )
    assert answer["sentences"] == [
        "On cuda:0 fed batch=64 is fed best by there: 64.0 /s.",
        "Getting its batch takes 12.5 % of a call.",
        "By helped helpers=4 it is 0.244 × (0.234…0.254) as fast.",
        "At its best batch=8 has 0.250 × (0.240…0.260) the throughput of this step at its best.",
    ]
    assert (answer["headline"], answer["qualifier"], answer["tags"]) == ("64.0 /s at best, fed by there", "fed b64", [])
    (table,) = [each for each in answer["tables"] if each["title"] == "Throughput by how a step gets its batch"]
    names = ("feeding.way", "feeding.input_share", "feeding.transfer_share", "value.between_s")
    assert [tuple(row[name] for name in names) for row in table["rows"]] == [
        ("there", 0.125, None, None),
        ("sent", 0.25, 0.125, None),
        ("helped helpers=2", 0.5, None, 3.0),
        ("helped helpers=4", None, None, None),
        ("there", 0.0, None, None),
    ]
    assert [row["ratio.speedup"] for row in table["rows"]] == pytest.approx([1, 1 / 2, 1 / 4, 1 / 4.1, 1])
    assert [row.get("feeding.of_largest") for row in table["rows"]] == [None, None, None, None, pytest.approx(0.25)]
    (figure,) = [each for each in answer["figures"] if each["title"] == "Throughput by how a step gets its batch: fed on cuda:0"]
    assert figure["mark"] == "dot"
    assert len(figure["rows"]) == 5


def test_of_too_few_rounds_it_says_how_many_an_interval_takes(asked):
    few = [each for batch, seconds in ((64, 1.0), (8, 0.5)) for each in step(seconds, "there", batch=batch) if each.round < 3]
    assert found(asked, few)["sentences"] == [
        "On cuda:0 fed batch=64 is fed best by there: 64.0 /s.",
        "At its best batch=8 has 0.250 × (no interval before 4 rounds) the throughput of this step at its best.",
    ]


def test_devices_have_a_sentence_each_accelerators_first_and_one_way_alone_has_its_share(asked):
    answer = found(asked, step(1.0, "there", device="cpu", waited_s=0.5), step(0.5, "there"))
    assert answer["sentences"] == [
        "On cuda:0 fed batch=64 is fed best by there: 128 /s.",
        "On cpu fed batch=64 is fed best by there: 64.0 /s.",
        "Getting its batch takes 50.0 % of a call.",
    ]
    assert (answer["headline"], answer["qualifier"]) == ("128 /s at best, fed by there", "fed b64 on cuda:0")
    long = found(asked, step(1.0, "w" * 200), step(1.02, "there"))
    assert long["headline"] == "64.0 /s at best"


def test_what_is_odd_or_did_not_go_well_takes_no_part_and_breaks_nothing(asked):
    case = made_up.case("fed", "cuda:0", way="there", helpers=0, batch=8)
    ended = [made_up.ended(case, Status.OOM, "full")]
    odd = made_up.rounds_of(made_up.case("fed", "cuda:0", way=3, batch="many"), [[1.0]] * 2, items=1e12)
    nothing = made_up.rounds_of(made_up.case("fed", "cuda:0", way="idle", batch=2), [[0.0]] * 2)
    answer = found(asked, ended, odd, nothing, step(1e-9, "there", waited_s=1e300), step(2.0, "sent", waited_s=(1.0, 2.0)))
    (table,) = [each for each in answer["tables"] if each["title"] == "Throughput by how a step gets its batch"]
    assert {row["feeding.way"] for row in table["rows"]} <= {"there", "sent", "the only way"}


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
KEEPS_UP, WAITS = "The loader keeps up: for mine the step waits {} of a call.", "For mine the step waits {} of a call."
INPUT = "data prepared beforehand or kept on the device, or more loader workers"
SLOWED = "less work for mine, which takes CPU time from the step"


def fed_by_own(asked, call_s, waited_s, pace_s, **case):
    """What is said of a step of a second that a user's loader feeds."""
    params = {"way": "mine", "batch": 64, **case}
    found = step(call_s, **params, waited_s=waited_s, pace_s=pace_s, itself_s=1.0)
    return asked(found, workloads=OWN)["bottleneck"]


@pytest.mark.parametrize(
    ("call_s", "waited_s", "pace_s", "helpers", "said", "bound", "verdict"),
    [
        # It sleeps a fifth of the step, as long as the step, and five times as long; with workers what is hidden costs nothing.
        (1.2, 0.2, 0.2, 0, WAITS.format("16.7 %"), "the step itself", "the step itself 83.3 %"),
        (1.0, 0.0, 0.2, 1, KEEPS_UP.format("0.0 %"), "the step itself", "the step itself all"),
        (2.1, 1.1, 1.1, 0, WAITS.format("52.4 %"), "waiting for its batch", f"waiting for mine 52.4 %: {INPUT}"),
        (1.0, 0.0, 1.0, 1, KEEPS_UP.format("0.0 %"), "the step itself", "the step itself all"),
        (6.0, 5.0, 5.0, 0, WAITS.format("83.3 %"), "waiting for its batch", f"waiting for mine 83.3 %: {INPUT}"),
        (5.0, 4.0, 5.0, 1, WAITS.format("80.0 %"), "waiting for its batch", f"waiting for mine 80.0 %: {INPUT}"),
        (2.5, 1.5, 2.5, 2, WAITS.format("60.0 %"), "waiting for its batch", f"waiting for mine 60.0 %: {INPUT}"),
        # It copies a lot: in the process of the step that is waiting, in workers it takes CPU time from the step.
        (4.0, 3.0, 3.0, 0, WAITS.format("75.0 %"), "waiting for its batch", f"waiting for mine 75.0 %: {INPUT}"),
        (4.0, 0.1, 2.0, 4, KEEPS_UP.format("2.5 %"), None, f"unexplained 72.5 %: {SLOWED}"),
    ],
)
def test_a_verdict_names_the_users_loader_where_the_step_waits_for_it(asked, call_s, waited_s, pace_s, helpers, said, bound, verdict):
    answer = fed_by_own(asked, call_s, waited_s, pace_s, helpers=helpers, device="cpu")
    table = {each["title"]: each["rows"] for each in answer["tables"]}
    (row,) = table["What bounds each step"]
    assert (row["step.bound"], row["step.verdict"]) == (bound, verdict)
    (way,) = table["Throughput by how a step gets its batch"]
    assert (way["feeding.supply_per_s"], way["feeding.need_per_s"]) == pytest.approx((64 / pace_s, 64))
    assert said in answer["sentences"]
    slowed = "The rest of a call takes 3.90 times as long as the step alone: copies, or workers in its way."
    assert (slowed in answer["sentences"]) is (helpers == 4)


def test_the_headline_of_a_step_that_waits_names_its_loader(asked):
    answer = fed_by_own(asked, 6.0, 5.0, 5.0, helpers=0, device="cpu")
    assert (answer["headline"], answer["qualifier"]) == ("1 of 1 feeding steps wait for mine", "fed mine helpers=0…: 100.0 % explained")
    assert answer["sentences"] == [
        "1 of 1 feeding steps on cpu wait for mine.",
        "The longest is fed mine helpers=0 batch=64: waiting for mine takes 5.00 s of 6.00 s (83.3 %).",
        "Alone, mine gives 12.8 /s, and the step takes 64.0 /s.",
        "Data prepared beforehand or kept on the device, or more loader workers would help most.",
        "On cpu fed batch=64 is fed best by mine: 10.7 /s.",
        "For mine the step waits 83.3 % of a call.",
    ]


def test_a_wait_beside_a_device_that_computes_costs_what_the_call_takes_longer(asked):
    answer = fed_by_own(asked, 1.25, 1.0, 1.0)
    assert "For mine the step waits 20.0 % of a call." in answer["sentences"]
