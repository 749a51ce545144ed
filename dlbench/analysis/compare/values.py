"""Changes of peak memory and of declared values: rank tests of the rounds in a family of their own, apart from that of times.

docs/compare.md gives the reasons.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

from dlbench.analysis.compare.doubts import by_side
from dlbench.analysis.compare.judge import EQUIVALENCE, LEVEL, Verdict
from dlbench.analysis.compare.power import MARGINS_TO_SEE
from dlbench.analysis.presentation.columns import of_row, plain
from dlbench.analysis.presentation.wording import cell, difference, plural, value_name, value_words
from dlbench.analysis.ratios.ratio import PairedDifference
from dlbench.analysis.read import declared
from dlbench.core.declarations import SEARCH_RESOLUTION
from dlbench.core.model import Reported
from dlbench.core.rank_test import rank_test, rounds_for_gate, smallest_p
from dlbench.core.rows.row import Row
from dlbench.core.schema import Column, Unit
from dlbench.core.stats import Interval, holm
from dlbench.core.units import byte_count

_HOST_FLOOR = 1 << 20
"""Bytes; what a process takes for itself varies by some pages."""
_HOST_SLACK = 64 << 20
"""Bytes of growth on the host that nobody has to exclude: libraries' own buffers vary by tens of MiB from round to round."""
_MEMORY = Column("memory", Unit.BYTES, "peak memory", "lower")
_ENERGY = plain(of_row(lambda row: row.energy.joules_per_item))
_VALUE, _REPEATED_VALUE = 0.1, 0.01
"""Least share of base by which a value changes that matters, and the same of one that is one number in all rounds of each side."""
_CONSTANT = Interval(0.0, 0.0, 1.0)
"""Of what is the same number in all rounds of both sides, in however few rounds."""
WORDS = {Verdict.SLOWER: "worse", Verdict.FASTER: "better"}
"""Verdicts of values, as a reader calls them."""


class ShiftTest(NamedTuple):
    """Mann-Whitney test of one quantity's rounds on two sides, turned so that more is worse; all numbers in its own unit.

    Differences and not logarithms: a value may be zero or negative, and a margin absolute. The p is the same of either.
    """

    rounds: int
    """On the side that has fewer."""
    margin: float
    """Shift from which on a change matters."""
    usual: float
    """The size that a share is one of: the median of base; 0 where the margin is absolute."""
    to_see: float
    """Least shift that must be excluded, whatever share of ``usual`` must be detected."""
    p: float
    """Exact and two-sided, of this test alone."""
    least_p: float
    """The smallest that so many rounds can give."""
    shift: float
    """Hodges-Lehmann estimate; above zero: worse."""
    interval: Interval | None
    """Of 90 %; None where the rounds are too few for it."""
    higher: bool = False
    """Whether the quantity is better where it is higher."""
    family: int = 1
    """Tests that share the level with it, itself included."""

    @property
    def possible(self) -> float | None:
        """The largest worsening that is not excluded, in its own unit; None where the rounds are too few to exclude any."""
        return self.interval.high if self.interval else None

    @property
    def enough(self) -> int:
        """The rounds a side that can be significant among all others of the family."""
        return rounds_for_gate(self.family, LEVEL, least=1)

    def verdict(self, p_holm: float) -> Verdict:
        """Return slower (worse), faster (better), same or inconclusive, as `judge.judge` does of times."""
        if p_holm < LEVEL and abs(self.shift) > self.margin:
            return Verdict.SLOWER if self.shift > 0 else Verdict.FASTER
        interval = self.interval
        within = interval is not None and -self.margin <= interval.low and interval.high <= self.margin
        return Verdict.SAME if within else Verdict.INCONCLUSIVE


def _shift_test(base: Sequence[float], new: Sequence[float], threshold: float, floor: float = 0.0, to_see: float = 0.0) -> ShiftTest:
    """Test a quantity that is better where it is lower; its margin is that share of base, and ``floor`` at least."""
    usual = abs(statistics.median(base))
    margin = max(threshold * usual, floor)
    constant = len({*base, *new}) == 1
    p, shift, (interval,) = (1.0, 0.0, (_CONSTANT,)) if constant else rank_test(base, new, (EQUIVALENCE,))
    least_p = smallest_p(len(base), len(new))
    return ShiftTest(min(len(base), len(new)), margin, usual, max(margin, to_see), p, least_p, shift, interval)


def _few(test: ShiftTest) -> str:
    """Say how many rounds would do, where those at hand can't show anything."""
    if test.least_p * test.family < LEVEL:
        return ""
    return f"{plural(test.rounds, 'round')} a side {'is' if test.rounds == 1 else 'are'} too few, {test.enough} would do"


@dataclass(frozen=True, slots=True)
class ValueChange:
    """A quantity on two sides that is judged apart from times: a declared value, or memory."""

    column: Column
    base: Reported | None
    new: Reported | None
    """Median over the rounds; of a series of each point."""
    verdict: Verdict | None = None
    """slower: worse; faster: better; same; inconclusive. None where it is only shown."""
    test: ShiftTest | None = None
    """None where it is only shown, or no test decides."""
    seeds: PairedDifference | None = None
    """Of a value of seeds, new less base; base and new are the medians over the seeds then."""
    remark: str = ""
    """Why it can't be judged, or what else there is to know."""

    @property
    def name(self) -> str:
        """What its workload calls it, or ``memory`` or ``energy``."""
        group, _, _ = self.column.name.partition(".")
        return value_words(self.column) if group == "value" else group

    @property
    def called(self) -> bool:
        """Whether it is known to have changed."""
        return self.verdict in WORDS

    @property
    def change(self) -> float | None:
        """As a fraction of base; None of a series, or of zero."""
        if not isinstance(self.base, int | float) or not isinstance(self.new, int | float) or not self.base:
            return None
        return (self.new - self.base) / abs(self.base)

    @property
    def possible(self) -> float | None:
        """The largest worsening that is not excluded; None where the rounds, or seeds, are too few to exclude any."""
        if self.seeds and self.seeds.interval:
            return -self.seeds.interval.low if self.column.better == "higher" else self.seeds.interval.high
        return self.test.possible if self.test else None

    @property
    def matters(self) -> bool:
        """Whether to show it of a case that has times as well."""
        beyond = self.seeds is not None or (self.test is not None and abs(self.test.shift) > self.test.margin)
        return bool(self.remark) or self.called or (self.verdict is Verdict.INCONCLUSIVE and beyond)

    def __str__(self) -> str:
        sides = " to ".join(dict.fromkeys(cell(each, self.column) for each in (self.base, self.new)))
        change = f" ({self.change * 100:+.1f} %)" if self.change and not self.seeds else ""
        word = f" {WORDS[self.verdict]}" if self.verdict in WORDS else ""
        few = _few(self.test) if self.test and self.verdict is Verdict.INCONCLUSIVE else ""
        return ", ".join(filter(None, (f"{self.name}{word}: {sides}{change}", self._by_seeds(), few, self.remark)))

    def _by_seeds(self) -> str:
        found = self.seeds
        return f"{difference(found.shift, found.interval, self.column.unit)} over {plural(found.pairs, 'seed')}" if found else ""


@dataclass(frozen=True, slots=True)
class MemoryChange(ValueChange):
    """Peak memory on two sides, in bytes: the accelerator's where it has one, else what the process grew by on the host.

    Only the growth on the host is tested: an accelerator's allocator leaves little to chance. The remark says which rounds of an
    accelerator took more than the others, beyond the threshold.
    """

    base: float
    """Median over the rounds."""
    new: float

    @property
    def change(self) -> float | None:
        """As a fraction of base; None where base has no memory."""
        return self.new / self.base - 1 if self.base else None

    @property
    def possible(self) -> float | None:
        """Largest growth on the host that is not excluded, as a fraction of base; None where none is tested."""
        test = self.test
        return test.possible / test.usual if test and test.possible is not None and test.usual else None

    def __str__(self) -> str:
        grew = self.verdict is Verdict.SLOWER
        if not grew and (self.test is None or self.test.shift <= self.test.margin):
            return ""
        sizes = f"from {cell(self.base, self.column)} to {cell(self.new, self.column)}"
        if grew or self.test is None:
            return f"memory grew {sizes}"
        return ", ".join(filter(None, (f"memory {sizes} may be chance", _few(self.test))))


def memory_change(base: Row, new: Row, threshold: float) -> MemoryChange | None:
    """Compare peak memory; None where the sides do not report the same kind, or searched for what fits into it.

    An accelerator's allocator gives the same peak nearly each time, so there the threshold alone decides on the medians. On the host the
    growth of one program varies by half and more between rounds, so there it is tested by ranks; see `judge_values`.
    """
    sides = base.rounds, new.rounds
    if _searched(base, new):
        return None
    if all(each.peak_bytes for each in sides):
        before, after = (statistics.median(each.peak_bytes) for each in sides)
        odd = [_odd_rounds(side, each.peak_bytes, threshold) for side, each in by_side(*sides)]
        grown = Verdict.SLOWER if after > before * (1 + threshold) else None
        return MemoryChange(_MEMORY, before, after, grown, remark="; ".join(filter(None, odd)))
    one, other = (each.host_peak_bytes for each in sides)
    if any(each.peak_bytes for each in sides) or not one or not other:
        return None
    test = _shift_test(one, other, threshold, _HOST_FLOOR, _HOST_SLACK)
    return MemoryChange(_MEMORY, test.usual, statistics.median(other), test=test)


def _odd_rounds(side: str, peaks: Sequence[int], threshold: float) -> str:
    usual = statistics.median(peaks)
    larger = sum(each > usual * (1 + threshold) for each in peaks)
    return f"in {larger} of {plural(len(peaks), 'round')} of {side} its memory reached {byte_count(max(peaks))}" if larger else ""


def energy_change(base: Row, new: Row, threshold: float) -> ValueChange | None:
    """Compare the energy of an item; None where a side has rounds without. `judge_values` judges it."""
    before, after = base.rounds.joules_per_item, new.rounds.joules_per_item
    if not before or not after:
        return None
    test = _shift_test(before, after, threshold)
    shown = ValueChange(_ENERGY, test.usual, statistics.median(after))
    if base.energy.source != new.energy.source:
        return replace(shown, remark=f"not judged, as {base.energy.source} metered it and now {new.energy.source}")
    if not test.usual:
        return replace(shown, verdict=Verdict.INCONCLUSIVE, remark="not judged, as a share of zero is no margin")
    return replace(shown, verdict=Verdict.INCONCLUSIVE, test=test)


def value_changes(base: Row, new: Row, threshold: float | None, detect: float) -> tuple[ValueChange, ...]:
    """Compare each value that both sides report, as each side declares it. `judge_values` judges them.

    ``threshold``: None where nobody set one. ``detect``: the worsening up to which what a search found may differ by its resolution.
    """
    if not (base.values and new.values):
        return ()
    others = {each.name: each for each in declared.columns(new)}
    shared = [(each, others[each.name]) for each in declared.columns(base) if each.name in others]
    return tuple(_value_change(*columns, base, new, threshold, detect) for columns in shared)


def _value_change(base_column: Column, new_column: Column, base: Row, new: Row, threshold: float | None, detect: float) -> ValueChange:
    """Test a value that has a direction; one without, or that both sides declare and not alike, is only shown.

    One declaration stands for both. The margin is that of base, if it declares one: a new file can't loosen its own gate.
    """
    column = base_column if base_column.declared and not new_column.declared else new_column
    unlike = _unlike(base_column, new_column) if base_column.declared and new_column.declared else ""
    name = value_name(column)
    shown = ValueChange(column, base.values.get(name), new.values.get(name), remark=unlike)
    before, after = base.rounds.values.get(name), new.rounds.values.get(name)
    if unlike or column.series or column.better is None or not before or not after:
        return shown
    if _searched(base, new):
        failed = (new if after[0] < before[0] else base).in_role("failing_rate")
        return _by_resolution(shown, statistics.median(before), statistics.median(after), threshold or _VALUE, detect, failed)
    higher = column.better == "higher"
    one, other = ([-each if higher else each for each in side] for side in (before, after))
    margin = new_column.margin if base_column.margin is None else base_column.margin
    if margin is None:
        repeats = all(len(side) > 1 and len({*side}) == 1 for side in (one, other))
        test = _shift_test(one, other, threshold or (_REPEATED_VALUE if repeats else _VALUE))._replace(higher=higher)
    else:
        test = _shift_test(one, other, 0.0, margin, MARGINS_TO_SEE * margin)._replace(usual=0.0, higher=higher)
    if not test.margin and test.interval != _CONSTANT:
        none = "not judged, as a share of zero is no margin; declare one in the value's own unit, Value(…, margin=…)"
        return replace(shown, verdict=Verdict.INCONCLUSIVE, remark=none)
    return replace(shown, verdict=Verdict.INCONCLUSIVE, test=test)


def _searched(base: Row, new: Row) -> bool:
    """Whether both stand for a search of what has no time of its own, such as the largest batch."""
    return all(each.case.found and not each.rounds.median_s for each in (base, new))


def _by_resolution(shown: ValueChange, base: float, new: float, threshold: float, detect: float, failed: float | None) -> ValueChange:
    """Judge what a search found: once a run, as good as its resolution and no chance, so by a margin alone.

    Each side is a step of the search off at most, a rate as far as the lowest that ``failed``: which may be as much as must be detected.
    """
    usual, higher = max(abs(base), abs(new)), shown.column.better == "higher"
    if abs(new - base) <= max(threshold * usual, failed - min(base, new) if failed else 2 * max(1.0, SEARCH_RESOLUTION * usual)):
        if (base - new if higher else new - base) >= share_to_see(detect, higher) * abs(base) > 0:
            return replace(shown, verdict=Verdict.INCONCLUSIVE, remark="within two steps of its search")
        return replace(shown, verdict=Verdict.SAME)
    return replace(shown, verdict=Verdict.FASTER if (new > base) is higher else Verdict.SLOWER)


def share_to_see(detect: float, higher: bool) -> float:
    """Return the share of base that must be detected: of what is better higher a fall by as many times."""
    return detect / (1 + detect) if higher else detect


def _unlike(base: Column, new: Column) -> str:
    """Say in what two declarations differ."""
    declared = [(each.unit.value, each.better, "series" if each.series else "scalar") for each in (base, new)]
    sides = zip(("unit", "direction", "kind"), *declared, strict=True)
    differ = [f"{what} {one or 'none'} against {other or 'none'}" for what, one, other in sides if one != other]
    return f"not judged, as it is declared with {' and '.join(differ)}" if differ else ""


def judge_values(cases: Sequence[Sequence[ValueChange]]) -> list[tuple[ValueChange, ...]]:
    """Judge growth on the host and values of all cases as one family, with Holm's correction and a level apart from that of times."""
    p_values = holm([each.test.p for each in chain.from_iterable(cases) if each.test])
    left = iter(p_values)

    def judged(change: ValueChange) -> ValueChange:
        test = change.test
        return replace(change, verdict=test.verdict(next(left)), test=test._replace(family=len(p_values))) if test else change

    return [tuple(map(judged, case)) for case in cases]


def to_exclude(changes: Sequence[ValueChange]) -> list[ValueChange]:
    """Return the quantities of a case of which a worsening must be excluded, or called.

    Where seeds repeat, another round would give the same again: what a single one reports apart from them has not to be excluded.
    """
    repeats = any(each.seeds for each in changes)
    return [each for each in changes if not repeats or each.seeds or (each.test and each.test.rounds > 1)]


def least_p_values(changes: Sequence[ValueChange]) -> list[float]:
    """Return of each value that is judged the smallest p that its rounds can give, 0 where chance has no part in it; and of memory.

    Empty where no value is judged: memory alone is no comparison.
    """
    judged = list(filter(_is_judged, changes))
    only_memory = all(isinstance(each, MemoryChange) for each in judged)
    return [] if only_memory else [each.test.least_p if each.test else 0.0 for each in judged]


def _is_judged(change: ValueChange) -> bool:
    """Whether a test decides it, its seeds do, or, of a value, what it is: the same number throughout, or beyond a search's resolution."""
    by_margin = change.verdict in (Verdict.SAME, *WORDS) and not isinstance(change, MemoryChange)
    return bool(change.test or by_margin or (change.seeds and change.seeds.interval))


def verdict_by_values(changes: Sequence[ValueChange]) -> Verdict | None:
    """Return the verdict of a case that has no times; None where no value of it is judged."""
    verdicts = [each.verdict for each in changes if each.verdict]
    return min(verdicts, key=[Verdict.SLOWER, Verdict.FASTER, Verdict.INCONCLUSIVE, Verdict.SAME].index, default=None)
