"""Changes of peak memory, energy and declared values: rank tests of the rounds in a family of their own, apart from that of times.

docs/compare.md gives the reasons.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

from dlbench.analysis.compare.judge import CONSTANT, EQUIVALENCE, LEVEL, RankTest, Verdict, judge_family
from dlbench.analysis.compare.power import DETECT_BY_DEFAULT, MARGINS_TO_SEE, least_rounds
from dlbench.analysis.presentation.columns import of_row, plain
from dlbench.analysis.presentation.wording import cell, difference, few, plural, value_name, value_words
from dlbench.analysis.read import declared
from dlbench.core.declarations import SEARCH_RESOLUTION
from dlbench.core.model import Reported
from dlbench.core.rows.row import Row
from dlbench.core.schema import Column, Unit
from dlbench.core.thresholds import Thresholds

_HOST_FLOOR = 1 << 20
"""Bytes; what a process takes for itself varies by some pages."""
_HOST_SLACK = 64 << 20
"""Bytes of growth on the host that nobody has to exclude: libraries' own buffers vary by tens of MiB from round to round."""
_MEMORY = Column("memory", Unit.BYTES, "peak memory", "lower")
_ENERGY = plain(of_row(lambda row: row.energy.joules_per_item))
_VALUE, _REPEATED_VALUE = 0.1, 0.01
"""Least share of base by which a value changes that matters, and the same of one that is one number in all rounds of each side."""
WORDS = {Verdict.SLOWER: "worse", Verdict.FASTER: "better"}
"""Verdicts of values, as a reader calls them."""


@dataclass(frozen=True, slots=True)
class ValueChange:
    """A quantity on two sides that is judged apart from times: a declared value, energy, or memory."""

    column: Column
    base: Reported | None
    new: Reported | None
    """Median over the rounds, or over the seeds of a value that has them; of another series each point."""
    verdict: Verdict | None = None
    """slower: worse; faster: better; same; inconclusive. None where it is only shown."""
    test: RankTest | None = None
    """In its own unit; of seeds by pairs of them. None where it is only shown, or no test decides."""
    usual: float = 0.0
    """The size that a share is one of: the median of base; 0 where the margin is absolute."""
    to_see: float = 0.0
    """Least shift that must be excluded, whatever share of ``usual`` must be detected."""
    family: int = 1
    """Tests that share the level with it, itself included."""
    remark: str = ""
    """Why it can't be judged, or what else there is to know."""

    @property
    def name(self) -> str:
        """What its workload calls it, or ``memory`` or ``energy``."""
        group, _, _ = self.column.name.partition(".")
        return value_words(self.column) if group == "value" else group

    @property
    def is_memory(self) -> bool:
        """Whether it is memory, of which less changes no verdict, and which alone is no comparison."""
        return self.column == _MEMORY

    @property
    def is_judged(self) -> bool:
        """Whether a test decides it, its seeds do, or what it is: the same number throughout, or beyond a search's resolution."""
        if self.is_of_seeds:
            return self.possible is not None
        return self.test is not None or (not self.is_memory and self.verdict in (Verdict.SAME, *WORDS))

    @property
    def is_of_seeds(self) -> bool:
        """Whether seeds decide it, each of which would give the same again."""
        return self.test is not None and self.test.paired

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
        """The largest worsening that is not excluded, in its own unit; None where the rounds, or seeds, are too few to exclude any."""
        return self.test and self.test.worst

    @property
    def possible_share(self) -> float | None:
        """The same as a fraction of base; None where the margin is absolute, or base is zero."""
        return self.possible / self.usual if self.possible is not None and self.usual else None

    @property
    def matters(self) -> bool:
        """Whether to show it of a case that has times as well."""
        return bool(self.remark) or self.called or bool(self.verdict is Verdict.INCONCLUSIVE and self.test and self.test.beyond)

    def __str__(self) -> str:
        sides = " to ".join(dict.fromkeys(cell(each, self.column) for each in (self.base, self.new)))
        change = f" ({self.change * 100:+.1f} %)" if self.change and not self.is_of_seeds else ""
        word = f" {WORDS[self.verdict]}" if self.verdict in WORDS else ""
        return ", ".join(filter(None, (f"{self.name}{word}: {sides}{change}", *self._of_test(), self.remark)))

    def _of_test(self) -> tuple[str, str]:
        """Return the difference over seeds, and how many rounds or seeds would do, where those at hand can't show anything."""
        if (test := self.test) is None:
            return "", ""
        found = f"{difference(test.shift, test.interval, self.column.unit)} over {plural(test.rounds, 'seed')}" if test.paired else ""
        if self.verdict is not Verdict.INCONCLUSIVE or test.least_p * self.family < LEVEL:
            return found, ""
        have = plural(test.rounds, "seed") if test.paired else f"{plural(test.rounds, 'round')} a side"
        return found, f"{have} {'is' if test.rounds == 1 else 'are'} too few, {least_rounds({'': test}, self.family)} would do"


def _tested(
    shown: ValueChange,
    base: Sequence[float],
    new: Sequence[float],
    share: float = 0.0,
    margin: float | None = None,
    floor: float = 0.0,
    slack: float = 0.0,
    paired: bool = False,
) -> ValueChange:
    """Test a quantity, to be judged by a margin in its unit or, without one, by that share of base and ``floor`` at least."""
    usual = abs(statistics.median(base)) if margin is None else 0.0
    limit = max(share * usual, floor) if margin is None else margin
    higher, equivalent = shown.column.better == "higher", 1 - LEVEL if paired else EQUIVALENCE
    test = RankTest(tuple(base), tuple(new), True, higher, equivalent, paired=paired, margin=limit).ranked()
    if not limit and test.equivalence != CONSTANT:
        advice = "" if shown.column == _ENERGY else "; declare one in the value's own unit, Value(…, margin=…)"
        return replace(shown, verdict=Verdict.INCONCLUSIVE, remark=f"not judged, as a share of zero is no margin{advice}")
    to_see = max(limit, slack) if margin is None else MARGINS_TO_SEE * margin
    return replace(shown, verdict=test.verdict, test=test, usual=usual, to_see=to_see)


def compared_values(base: Row, new: Row, limits: Thresholds) -> list[ValueChange]:
    """Compare memory, energy and each value that both sides report. `judge_values` judges them."""
    metered = filter(None, (memory_change(base, new, limits.memory), energy_change(base, new, limits.energy)))
    return [*metered, *value_changes(base, new, limits.value, limits.detect or DETECT_BY_DEFAULT)]


def memory_change(base: Row, new: Row, threshold: float) -> ValueChange | None:
    """Compare peak memory; None where the sides do not report the same kind, or searched for what fits into it.

    An accelerator's allocator gives the same peak nearly each time, so there the threshold alone decides on the medians. On the host the
    growth of one program varies by half and more between rounds, so there it is tested by ranks.
    """
    device, host = ([getattr(each.rounds, name) for each in (base, new)] for name in ("peak_bytes", "host_peak_bytes"))
    both = device if all(device) else host
    if _searched(base, new) or not all(both) or (both is host and any(device)):
        return None
    before, after = map(statistics.median, both)
    shown = ValueChange(_MEMORY, before, after)
    if both is host:
        return _tested(shown, host[0], host[1], threshold, floor=_HOST_FLOOR, slack=_HOST_SLACK)
    return replace(shown, verdict=Verdict.SLOWER if after > before * (1 + threshold) else None)


def energy_change(base: Row, new: Row, threshold: float) -> ValueChange | None:
    """Compare the energy of an item; None where a side has rounds without."""
    before, after = base.rounds.joules_per_item, new.rounds.joules_per_item
    if not before or not after:
        return None
    shown = ValueChange(_ENERGY, statistics.median(before), statistics.median(after))
    if base.energy.source != new.energy.source:
        return replace(shown, remark=f"not judged, as {base.energy.source} metered it and now {new.energy.source}")
    return _tested(shown, before, after, threshold)


def value_changes(base: Row, new: Row, threshold: float | None, detect: float) -> tuple[ValueChange, ...]:
    """Compare each value that both sides report, as each side declares it.

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
    if not unlike and column.series:
        return _of_seeds(shown, base, new)
    if unlike or column.better is None or not before or not after:
        return shown
    if _searched(base, new):
        return _by_resolution(shown, statistics.median(before), statistics.median(after), threshold or _VALUE, detect)
    repeats = all(len(side) > 1 and len({*side}) == 1 for side in (before, after))
    share = threshold or (_REPEATED_VALUE if repeats else _VALUE)
    return _tested(shown, before, after, share, new_column.margin if base_column.margin is None else base_column.margin)


def _of_seeds(shown: ValueChange, base: Row, new: Row) -> ValueChange:
    """Test a series by its seeds, each with itself, if a side declares it so; any other is only shown."""
    described = [each for row in (base, new) for each in row.described if each.name == value_name(shown.column)]
    value = next((each for each in described if each.paired), None)
    before, after = shown.base, shown.new
    if value is None or not isinstance(before, Sequence) or not isinstance(after, Sequence):
        return shown
    if len(before) != len(after) or not before or len({each.points for each in described}) > 1:
        unlike = len(before) == len(after) and before
        sides = [few(each.points, 2) for each in described] if unlike else [plural(len(each), "seed") for each in (before, after)]
        return replace(shown, verdict=Verdict.INCONCLUSIVE, remark=f"not judged, as its seeds are others: {' against '.join(sides)}")
    medians = replace(shown, base=statistics.median(before), new=statistics.median(after))
    return _tested(medians, before, after, margin=value.margin or 0.0, paired=True)


def _searched(base: Row, new: Row) -> bool:
    """Whether both stand for a search of what has no time of its own, such as the largest batch."""
    return all(each.case.found and not each.rounds.median_s for each in (base, new))


def _by_resolution(shown: ValueChange, base: float, new: float, threshold: float, detect: float) -> ValueChange:
    """Judge what a search found: once a run, as good as its resolution and no chance, so by a margin alone.

    Each side is a step of the search off at most. Of what is small two steps may be as much as must be detected, so that nothing is known.
    """
    usual = max(abs(base), abs(new))
    worse = base - new if shown.column.better == "higher" else new - base
    if abs(worse) > max(threshold * usual, 2 * max(1.0, SEARCH_RESOLUTION * usual)):
        return replace(shown, verdict=Verdict.SLOWER if worse > 0 else Verdict.FASTER)
    if worse >= share_to_see(detect, shown) * abs(base) > 0:
        return replace(shown, verdict=Verdict.INCONCLUSIVE, remark="within two steps of its search")
    return replace(shown, verdict=Verdict.SAME)


def share_to_see(detect: float, change: ValueChange) -> float:
    """Return the share of base that must be detected: of what is better higher a fall by as many times."""
    return detect / (1 + detect) if change.column.better == "higher" else detect


def _unlike(base: Column, new: Column) -> str:
    """Say in what two declarations differ."""
    declared = [(each.unit.value, each.better, "series" if each.series else "scalar") for each in (base, new)]
    sides = zip(("unit", "direction", "kind"), *declared, strict=True)
    differ = [f"{what} {one or 'none'} against {other or 'none'}" for what, one, other in sides if one != other]
    return f"not judged, as it is declared with {' and '.join(differ)}" if differ else ""


def judge_values(cases: Sequence[Sequence[ValueChange]]) -> list[tuple[ValueChange, ...]]:
    """Judge what rounds decide in all cases as one family, with a level apart from that of times; seeds stay judged by themselves."""
    tests = [each.test for each in chain.from_iterable(cases) if each.test and not each.is_of_seeds]
    judged = iter(judge_family([{"": test} for test in tests], [test.margin for test in tests]))

    def with_judged(change: ValueChange) -> ValueChange:
        if change.test is None or change.is_of_seeds:
            return change
        test = next(judged)[""]
        return replace(change, verdict=test.verdict, test=test, family=len(tests))

    return [tuple(map(with_judged, case)) for case in cases]


def to_exclude(changes: Sequence[ValueChange]) -> list[ValueChange]:
    """Return the quantities of a case of which a worsening must be excluded, or called.

    Where seeds repeat, another round would give the same again: what a single one reports apart from them has not to be excluded.
    """
    repeats = any(each.is_of_seeds for each in changes)
    return [each for each in changes if not repeats or (each.test and (each.is_of_seeds or each.test.rounds > 1))]


def verdict_by_values(changes: Sequence[ValueChange]) -> Verdict | None:
    """Return the verdict of a case that has no times; None where no value of it is judged."""
    verdicts = [each.verdict for each in changes if each.verdict and not each.is_memory]
    return min(verdicts, key=[Verdict.SLOWER, Verdict.FASTER, Verdict.INCONCLUSIVE, Verdict.SAME].index, default=None)
