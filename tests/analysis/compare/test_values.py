"""Values of rounds on two sides: properties that hold of any numbers, and memory that nobody has to exclude."""

from collections.abc import Mapping, Sequence
from typing import Any

import compared
import made_up
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.analysis.compare.judge import Verdict
from dlbench.analysis.compare.values import ValueChange, compare_values, judge_values
from dlbench.analysis.compare.verdict import worsening
from dlbench.analysis.read.table import named
from dlbench.core.declarations import Declaration, Value
from dlbench.core.measurement import Measurement, Memory, MeteredWindow
from dlbench.core.model import Status
from dlbench.core.rows.summary import summarise
from dlbench.core.thresholds import Thresholds
from dlbench.core.units import Unit

OPPOSITE = {Verdict.SLOWER: Verdict.FASTER, Verdict.FASTER: Verdict.SLOWER}
MARGIN = 0.5
ROUNDS = st.lists(st.integers(-40, 40).map(lambda eighths: eighths / 8), min_size=4, max_size=9)
"""Eighths, which floats hold exactly, so that differences of them and their doubles do, too."""


def judged(declared: Declaration, sides: Sequence[Sequence[Mapping[str, Any]]], thresholds: Thresholds, detect: float) -> ValueChange:
    """The first change of a case without times; each side has other fields of each of its rounds."""
    rows = []
    for rounds in sides:
        measurements = [Measurement(made_up.case("it"), number, Status.OK, **each) for number, each in enumerate(rounds)]
        rows.append(named(summarise(measurements), "run", declared))
    base, new = rows
    ((found, *_),) = judge_values([compare_values(base, new, thresholds, detect)])
    return found


def change(
    base: Sequence[float], new: Sequence[float], better: str = "lower", margin: float | None = MARGIN, threshold: float | None = 0.1
) -> ValueChange:
    declared = Declaration(values=(Value("it", Unit.NUMBER, better, "it", margin=margin),))  # type: ignore[arg-type]  # a direction
    sides = [[{"values": {"it": each}} for each in side] for side in (base, new)]
    return judged(declared, sides, Thresholds(value=threshold), 0.25)


@pytest.mark.parametrize(
    ("base", "new", "margin", "threshold", "verdict"),
    [
        ([0.98] * 7, [0.89] * 7, None, None, "slower"),
        ([0.89] * 7, [0.98] * 7, None, None, "faster"),
        ([0.98] * 7, [0.9701] * 7, None, None, "slower"),
        ([0.98] * 7, [0.9703] * 7, None, None, "same"),
        ([0.98] * 7, [0.89] * 7, None, 0.1, "same"),
        ([0.98] * 6 + [0.981], [0.89] * 7, None, None, "same"),
        ([0.98], [0.89], None, None, "inconclusive"),
        ([0.0] * 7, [0.01] * 7, None, None, "inconclusive"),
        ([0.0] * 7, [0.0] * 7, None, None, "same"),
        ([0.98] * 7, [0.89] * 7, 0.1, None, "same"),  # a declared margin holds of such a number, too
    ],
)
def test_what_is_one_number_in_all_rounds_of_each_side_may_change_by_one_percent(base, new, margin, threshold, verdict):
    assert change(base, new, "higher", margin, threshold).verdict.value == verdict


@given(ROUNDS, ROUNDS, st.sampled_from([2.0**-30, 0.5, 2.0, 2.0**20]))
def test_sides_direction_and_unit_change_a_verdict_as_they_must(base, new, factor):
    found = change(base, new)
    opposite = OPPOSITE.get(found.verdict, found.verdict)
    assert (change(new, base).verdict, change(base, new, "higher").verdict) == (opposite, opposite)
    assert found.verdict is not Verdict.SAME or worsening(found)[0] == ""  # which is known not to be worse by what must be seen
    scaled = [[factor * each for each in side] for side in (base, new)]
    assert change(*scaled, margin=factor * MARGIN).verdict is found.verdict
    assert change(*scaled, margin=None).verdict is change(base, new, margin=None).verdict


@given(ROUNDS, st.sampled_from([MARGIN, None]))
def test_identical_sides_are_never_called(rounds, margin):
    found = change(rounds, rounds, margin=margin)
    assert found.verdict not in OPPOSITE
    assert len(set(rounds)) > 1 or found.verdict is Verdict.SAME


STEPS = "within two steps of its search"


@pytest.mark.parametrize(
    ("base", "new", "better", "threshold", "verdict", "remark"),
    [
        (100, 89, "higher", None, "slower", ""),
        (100, 90, "higher", None, "same", ""),  # two steps of 5 %
        (30, 20, "higher", None, "slower", ""),
        (8, 10, "higher", None, "same", ""),
        (8, 11, "higher", None, "faster", ""),
        (10, 8, "higher", None, "inconclusive", STEPS),  # a fall by a quarter of what is left is just what must be seen
        (10, 9, "higher", None, "same", ""),
        (8, 10, "lower", None, "inconclusive", STEPS),
        (10, 12, "lower", None, "same", ""),
        (100, 85, "higher", 0.2, "same", ""),
        (0, 0, "higher", None, "same", ""),
        # Of rates, the step reaches up to the lowest that failed, here those behind the points.
        (100.2, 50.1, "higher", None, "inconclusive", STEPS),
        (100.2, 50.099, "higher", None, "slower", ""),
        (50.099, 100.2, "higher", None, "faster", ""),
    ],
)
def test_what_a_search_found_may_be_off_by_a_step_on_each_side(base, new, better, threshold, verdict, remark):
    declared = Declaration(
        values=(Value("most", Unit.ITEMS_PER_S, better, role="highest_rate"), Value("failed", Unit.ITEMS_PER_S, role="failing_rate"))
    )
    fails = {100.2: (100, 200), 50.1: (50, 100), 50.099: (50, 99)}
    rates = [fails.get(each, (each, None)) for each in (base, new)]
    sides = [[{"values": {"most": most} | ({"failed": failed} if failed else {}), "found": {"batch": 1}}] for most, failed in rates]
    found = judged(declared, sides, Thresholds(value=threshold), 0.25)
    assert (found.verdict.value, found.remark) == (verdict, remark)


@pytest.mark.parametrize(("limit", "verdict"), [(105, "inconclusive"), (106, "incomparable"), (95, "incomparable"), (None, "inconclusive")])
def test_searches_that_could_take_other_memory_are_not_compared(limit, verdict):
    found = {"values": {"most": 1.0}, "found": {"batch": 1}}
    base, new = ([Measurement(made_up.case("it"), 0, Status.OK, limit_bytes=each, **found)] for each in (100, limit))
    assert compared.verdict(base, new).verdict.value == verdict


MIB = 1 << 20


@pytest.mark.parametrize(
    ("fields", "better", "margin", "matters", "must_be_seen"),
    [
        ([{"values": {"it": each}} for each in (10, 10.5, 11)], "lower", None, 1.05, 2.625),
        ([{"values": {"it": each}} for each in (10, 10.5, 11)], "higher", None, 1.05, 2.1),
        ([{"values": {"it": each}} for each in (10, 10.5, 11)], "lower", 3.0, 3, 6),
        ([{"values": {"it": each}} for each in (-8, -8, -8)], "lower", None, 0.08, 2),
        ([{"memory": Memory(host_peak_bytes=each * MIB)} for each in (9, 10, 11)], "lower", None, MIB, 64 * MIB),
        ([{"memory": Memory(host_peak_bytes=each * MIB)} for each in (900, 1000, 1100)], "lower", None, 50 * MIB, 250 * MIB),
        ([{"energy": MeteredWindow(1.0, 10, "rapl", each)} for each in (90, 100, 110)], "lower", None, 0.4, 2.5),
    ],
)
def test_changes_that_matter_and_those_that_must_be_seen(fields, better, margin, matters, must_be_seen):
    declared = Declaration(values=(Value("it", Unit.NUMBER, better, margin=margin),))
    found = judged(declared, [fields, fields], Thresholds(memory=0.05, energy=0.04), 0.25)
    assert (found.test.margin, found.limit) == pytest.approx((matters, must_be_seen))


def test_energy_of_two_meters_is_only_shown():
    sides = [[{"energy": MeteredWindow(1.0, 10, meter, 100)}] * 4 for meter in ("rapl", "nvml_power")]
    found = judged(Declaration(), sides, Thresholds(), 0.25)
    assert (found.base, found.new, found.verdict, found.test) == (10, 10, None, None)
    assert found.remark == "not judged, as rapl metered it and now nvml_power"


SMALL = [26, 45, 36, 30, 28, 41, 37]


@pytest.mark.parametrize(("factor", "detect", "why"), [(1, 0.25, ""), (10, 0.15, "memory may be up to 80.0 MiB worse")])
def test_growth_on_the_host_by_what_libraries_buffers_vary_need_not_be_excluded(factor, detect, why):
    sides = [[{"memory": Memory(host_peak_bytes=factor * each << 20)} for each in side] for side in (SMALL, SMALL[::-1])]
    assert worsening(judged(Declaration(), sides, Thresholds(memory=0.05), detect))[0] == why
