"""Values of rounds on two sides: properties that hold of any numbers, and memory that nobody has to exclude."""

from collections.abc import Mapping, Sequence
from typing import Any

import made_up
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.analysis.compare.judge import Verdict
from dlbench.analysis.compare.values import ValueChange, compare_values, judge_values, memory_change
from dlbench.analysis.compare.verdict import worsening
from dlbench.analysis.read.table import named
from dlbench.core.declarations import Declaration, Value
from dlbench.core.measurement import Measurement, Memory
from dlbench.core.model import Status
from dlbench.core.rows.row import Row
from dlbench.core.rows.summary import summarise
from dlbench.core.thresholds import Thresholds
from dlbench.core.units import Unit

OPPOSITE = {Verdict.SLOWER: Verdict.FASTER, Verdict.FASTER: Verdict.SLOWER}
MARGIN = 0.5
ROUNDS = st.lists(st.integers(-40, 40).map(lambda eighths: eighths / 8), min_size=4, max_size=9)
"""Eighths, which floats hold exactly, so that differences of them and their doubles do, too."""


def row(rounds: Sequence[Mapping[str, Any]]) -> Row:
    """A case without times, from other fields of each of its rounds."""
    return summarise([Measurement(made_up.case("it"), number, Status.OK, **each) for number, each in enumerate(rounds)])


def change(
    base: list[float], new: list[float], better: str = "lower", margin: float | None = MARGIN, threshold: float | None = 0.1
) -> ValueChange:
    """One value of one case, judged."""
    declared = Declaration(values=(Value("it", Unit.NUMBER, better, "it", margin=margin),))  # type: ignore[arg-type]  # a direction
    one, other = (named(row([{"values": {"it": each}} for each in side]), "run", declared) for side in (base, new))
    ((found,),) = judge_values([compare_values(one, other, Thresholds(value=threshold), 0.25)])
    return found


@pytest.mark.parametrize(
    ("base", "new", "threshold", "verdict"),
    [
        ([0.98] * 7, [0.89] * 7, None, Verdict.SLOWER),
        ([0.89] * 7, [0.98] * 7, None, Verdict.FASTER),
        ([0.98] * 7, [0.9701] * 7, None, Verdict.SLOWER),
        ([0.98] * 7, [0.9703] * 7, None, Verdict.SAME),
        ([0.98] * 7, [0.89] * 7, 0.1, Verdict.SAME),
        ([0.98] * 6 + [0.981], [0.89] * 7, None, Verdict.SAME),
        ([0.98], [0.89], None, Verdict.INCONCLUSIVE),
        ([0.0] * 7, [0.01] * 7, None, Verdict.INCONCLUSIVE),
        ([0.0] * 7, [0.0] * 7, None, Verdict.SAME),
    ],
)
def test_what_is_one_number_in_all_rounds_of_each_side_may_change_by_one_percent(base, new, threshold, verdict):
    assert change(base, new, "higher", None, threshold).verdict is verdict


def test_a_margin_that_is_declared_holds_of_such_a_number_too():
    assert change([0.98] * 7, [0.89] * 7, "higher", 0.1, None).verdict is Verdict.SAME


def memory(base: list[int], new: list[int], detect: float = 0.25) -> ValueChange:
    """Growth on the host in MiB, judged."""
    one, other = (row([{"memory": Memory(host_peak_bytes=each << 20)} for each in side]) for side in (base, new))
    tested = memory_change(one, other, 0.05, detect)
    assert tested is not None
    ((found,),) = judge_values([[tested]])
    return found


@given(ROUNDS, ROUNDS)
def test_sides_that_change_places_change_the_verdict_to_its_opposite(base, new):
    there, back = change(base, new), change(new, base)
    assert back.verdict is OPPOSITE.get(there.verdict, there.verdict)


@given(ROUNDS, ROUNDS)
def test_the_other_direction_is_the_opposite_verdict(base, new):
    lower, higher = change(base, new), change(base, new, better="higher")
    assert higher.verdict is OPPOSITE.get(lower.verdict, lower.verdict)


@given(ROUNDS, ROUNDS, st.sampled_from([2.0**-30, 0.5, 2.0, 2.0**20]))
def test_another_unit_changes_no_verdict(base, new, factor):
    scaled = [[factor * each for each in side] for side in (base, new)]
    assert change(*scaled, margin=factor * MARGIN).verdict is change(base, new).verdict
    assert change(*scaled, margin=None).verdict is change(base, new, margin=None).verdict


@given(ROUNDS, st.sampled_from([MARGIN, None]))
def test_identical_sides_are_never_called(rounds, margin):
    found = change(rounds, rounds, margin=margin)
    assert found.verdict not in OPPOSITE
    assert len(set(rounds)) > 1 or found.verdict is Verdict.SAME


@given(ROUNDS, ROUNDS)
def test_what_is_the_same_is_known_not_to_be_worse_by_what_must_be_seen(base, new):
    found = change(base, new)
    if found.verdict is Verdict.SAME:
        assert worsening(found)[0] == ""


def test_growth_on_the_host_by_what_libraries_buffers_vary_need_not_be_excluded():
    small = [26, 45, 36, 30, 28, 41, 37]
    assert worsening(memory(small, small[::-1]))[0] == ""
    large = [10 * each for each in small]
    assert worsening(memory(large, large[::-1], 0.15))[0] == "memory may be up to 80.0 MiB worse"
