"""Values of rounds on two sides: properties that hold of any numbers, and memory that nobody has to exclude."""

from collections.abc import Mapping, Sequence
from typing import Any

import made_up
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.analysis.compare.judge import Verdict
from dlbench.analysis.compare.values import ValueChange, compare_values, judge_values
from dlbench.analysis.compare.verdict import worsening
from dlbench.analysis.read.table import named
from dlbench.core.declarations import Declaration, Value
from dlbench.core.measurement import Measurement, Memory
from dlbench.core.model import Status
from dlbench.core.rows.summary import summarise
from dlbench.core.thresholds import Thresholds
from dlbench.core.units import Unit

OPPOSITE = {Verdict.SLOWER: Verdict.FASTER, Verdict.FASTER: Verdict.SLOWER}
MARGIN = 0.5
ROUNDS = st.lists(st.integers(-40, 40).map(lambda eighths: eighths / 8), min_size=4, max_size=9)
"""Eighths, which floats hold exactly, so that differences of them and their doubles do, too."""


def judged(declared: Declaration, sides: Sequence[Sequence[Mapping[str, Any]]], thresholds: Thresholds, detect: float) -> ValueChange:
    """The only change of a case without times; each side has other fields of each of its rounds."""
    rows = []
    for rounds in sides:
        measurements = [Measurement(made_up.case("it"), number, Status.OK, **each) for number, each in enumerate(rounds)]
        rows.append(named(summarise(measurements), "run", declared))
    base, new = rows
    ((found,),) = judge_values([compare_values(base, new, thresholds, detect)])
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


SMALL = [26, 45, 36, 30, 28, 41, 37]


@pytest.mark.parametrize(("factor", "detect", "why"), [(1, 0.25, ""), (10, 0.15, "memory may be up to 80.0 MiB worse")])
def test_growth_on_the_host_by_what_libraries_buffers_vary_need_not_be_excluded(factor, detect, why):
    sides = [[{"memory": Memory(host_peak_bytes=factor * each << 20)} for each in side] for side in (SMALL, SMALL[::-1])]
    assert worsening(judged(Declaration(), sides, Thresholds(memory=0.05), detect))[0] == why
