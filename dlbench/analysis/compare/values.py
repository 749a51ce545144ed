"""Changes of peak memory, energy and declared values: rank tests of the rounds in a family of their own, apart from that of times.

docs/compare.md gives the reasons.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

from dlbench.analysis.compare.judge import CONSTANT, EQUIVALENCE, LEVEL, RankTest, Verdict, judge_family
from dlbench.analysis.compare.power import MARGINS_TO_SEE, least_rounds
from dlbench.analysis.presentation.columns import of_row, plain
from dlbench.analysis.presentation.wording import cell, difference, few, plural, value_name, value_words
from dlbench.core.declarations import SEARCH_RESOLUTION, Value
from dlbench.core.model import Reported
from dlbench.core.rows.row import Row
from dlbench.core.stats import known
from dlbench.core.thresholds import Thresholds
from dlbench.core.units import Column, Unit

_HOST_FLOOR = 1 << 20
"""Smallest change on the host that matters, in bytes: what a process takes for itself varies by some pages."""
_HOST_SLACK = 64 << 20
"""Bytes of growth on the host that nobody has to exclude: libraries' own buffers vary by tens of MiB from round to round."""
_MEMORY = Column("memory", Unit.BYTES, "peak memory", "lower", heading="memory")
_ENERGY = plain(of_row(lambda row: row.energy.joules_per_item, "energy"))
_VALUE_SHARE, _CONSTANT_VALUE_SHARE = 0.1, 0.01
"""Smallest change of a value that matters, as a share of base; the second is for a value that is one number in all rounds of each side."""
WORDS = {Verdict.SLOWER: "worse", Verdict.FASTER: "better"}
"""What a verdict on a value means, as it shares the verdicts of times: ``slower`` stands for worse."""


@dataclass(frozen=True, slots=True)
class ValueChange:
    """A quantity on two sides that is judged apart from times: a declared value, energy, or memory."""

    column: Column
    base: Reported | None
    new: Reported | None
    """Median over the rounds, or over the seeds of a value that has them; of another series each point."""
    untested_verdict: Verdict | None = None
    """Its verdict where no test decides; None where it has a test, or is only shown."""
    test: RankTest | None = None
    """In its own unit; of seeds by pairs of them. None where it is only shown, or no test decides."""
    limit: float = 0.0
    """Shift for the worse that must be called or excluded."""
    family: int = 1
    """Number of tests that share the level, this one included."""
    remark: str = ""
    """Why it can't be judged, or only by a resolution; may be empty."""

    @property
    def verdict(self) -> Verdict | None:
        """slower: worse; faster: better; same; inconclusive. None where it is only shown."""
        return self.test.verdict if self.test else self.untested_verdict

    @property
    def name(self) -> str:
        """What its workload calls it, or ``memory`` or ``energy``."""
        return self.column.heading or value_words(self.column)

    @property
    def is_memory(self) -> bool:
        """Whether it is memory: less of it changes no verdict, and memory alone is no comparison."""
        return self.column == _MEMORY

    @property
    def is_judged(self) -> bool:
        """Whether a test decides it, of pairs only if they are enough, or the resolution of a search; of memory only a test counts."""
        if self.test:
            return not self.test.paired or self.possible is not None
        return self.untested_verdict not in (None, Verdict.INCONCLUSIVE) and not self.is_memory

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
    def matters(self) -> bool:
        """Whether to show it of a case that has times as well."""
        doubtful = self.verdict is Verdict.INCONCLUSIVE and self.test and self.test.exceeds_margin and self.test.is_worse
        return bool(self.remark or self.verdict in WORDS or doubtful)

    def __str__(self) -> str:
        sides = " to ".join(dict.fromkeys(cell(each, self.column) for each in (self.base, self.new)))
        word = f" {WORDS[self.verdict]}" if self.verdict in WORDS else ""
        found, too_few = f" ({self.change * 100:+.1f} %)" if self.change else "", ""
        if test := self.test:
            have = plural(test.rounds, "seed") if test.paired else f"{plural(test.rounds, 'round')} a side"
            if test.paired:
                found = f", {difference(test.shift, test.interval, self.column.unit)} over {have}"
            if self.verdict is Verdict.INCONCLUSIVE and test.least_p * self.family >= LEVEL:
                enough = least_rounds({"": test}, self.family)
                too_few = f"{have} {'is' if test.rounds == 1 else 'are'} too few, {enough} would do"
        return ", ".join(filter(None, (f"{self.name}{word}: {sides}{found}", too_few, self.remark)))


def _test_value(
    column: Column,
    sides: Sequence[Sequence[float]],
    detect: float,
    share: float = 0.0,
    margin: float | None = None,
    least_margin: float = 0.0,
    least_limit: float = 0.0,
    paired: bool = False,
) -> ValueChange:
    """Return the change of a quantity with its test, which `judge_values` judges.

    ``sides`` are the values of base and those of new: one a round, or if ``paired`` one a seed.

    A change matters from a margin on, and a worsening from a limit on has to be called or excluded. With ``margin``, in the quantity's
    unit, the limit is `MARGINS_TO_SEE` times that. Without it, the margin is ``share`` of base, but at least ``least_margin``. The limit is
    then the larger of that margin, ``least_limit`` and the share of base that `_share_to_see` returns for the slowdown ``detect``.
    """
    base, new = map(statistics.median, sides)
    if margin is None:
        margin = max(share * abs(base), least_margin)
        limit = max(margin, least_limit, abs(base) * _share_to_see(detect, column))
    else:
        limit = MARGINS_TO_SEE * margin
    test = RankTest(
        tuple(sides[0]),
        tuple(sides[1]),
        linear=True,
        higher_is_better=column.better == "higher",
        equivalence_confidence=1 - LEVEL if paired else EQUIVALENCE,
        paired=paired,
        margin=margin,
    ).ranked()
    if margin or test.equivalence == CONSTANT:  # without a margin only a value that never varies can be judged
        return ValueChange(column, base, new, test=test, limit=limit)
    advice = "" if column == _ENERGY else "; declare one in the value's own unit, Value(…, margin=…)"
    return ValueChange(column, base, new, Verdict.INCONCLUSIVE, remark=f"not judged, as a share of zero is no margin{advice}")


def compare_values(base: Row, new: Row, thresholds: Thresholds, detect: float) -> list[ValueChange]:
    """Compare memory, energy and each value that both sides report, as each declares it. `judge_values` judges them."""
    changes = known([memory_change(base, new, thresholds.memory, detect), _energy_change(base, new, thresholds.energy, detect)])
    new_columns = {each.name: each for each in new.value_columns}
    for column in base.value_columns:
        if column.name in new_columns:
            changes.append(_value_change(column, new_columns[column.name], base, new, thresholds.value, detect))
    return changes


def memory_change(base: Row, new: Row, threshold: float, detect: float) -> ValueChange | None:
    """Compare peak memory; None if the sides do not report the same kind, or searched for what fits into memory.

    An accelerator's allocator gives the same peak nearly each time, so there the threshold alone decides on the medians. On the host the
    growth of one program varies by half and more between rounds, so there a rank test decides.
    """
    if _are_searches(base, new):
        return None
    device_peaks = [row.rounds.peak_bytes for row in (base, new)]
    host_peaks = [row.rounds.host_peak_bytes for row in (base, new)]
    if all(device_peaks):
        before, after = (statistics.median(peaks) for peaks in device_peaks)
        # SLOWER stands for worse. There is no other verdict: memory that shrank, or grew by less, is only shown.
        return ValueChange(_MEMORY, before, after, Verdict.SLOWER if after > before * (1 + threshold) else None)
    if any(device_peaks) or not all(host_peaks):
        return None
    return _test_value(_MEMORY, host_peaks, detect, threshold, least_margin=_HOST_FLOOR, least_limit=_HOST_SLACK)


def _energy_change(base: Row, new: Row, threshold: float, detect: float) -> ValueChange | None:
    """Compare the energy of an item; None if a side has rounds without it. It is judged only if the same meter read both sides."""
    sides = [row.rounds.joules_per_item for row in (base, new)]
    base_meter, new_meter = (row.energy.source for row in (base, new))
    if not all(sides):
        return None
    if base_meter == new_meter:
        return _test_value(_ENERGY, sides, detect, threshold)
    before, after = map(statistics.median, sides)
    return ValueChange(_ENERGY, before, after, remark=f"not judged, as {base_meter} metered it and now {new_meter}")


def _value_change(base_column: Column, new_column: Column, base: Row, new: Row, threshold: float | None, detect: float) -> ValueChange:
    """Compare a value that both sides report; each side declares it by a column.

    A value without a direction, or with another declaration on each side, is only shown. The margin is that of base, if it declares one:
    a new file can't loosen its own gate. ``threshold`` is a share of base, and None if nobody set one.
    """
    # A file may have a value that its workload did not declare; then the other side's declaration is used.
    column = base_column if base_column.declared and not new_column.declared else new_column
    name = value_name(column)
    declarations = {(each.unit, each.better, each.series) for each in (base_column, new_column) if each.declared}
    is_unlike = len(declarations) > 1
    remark = "not judged, as its unit, direction or kind is declared otherwise on each side" if is_unlike else ""
    unjudged = ValueChange(column, base.values.get(name), new.values.get(name), remark=remark)
    if column.series and not is_unlike:
        return _compare_seeds(unjudged, [value for row in (base, new) for value in row.described if value.name == name], detect)
    sides = [row.rounds.values.get(name, ()) for row in (base, new)]
    if is_unlike or column.better is None or not all(sides):
        return unjudged
    if _are_searches(base, new):
        # The side that found the lower rate, if both searched for the highest. Other searches have no failing rate on either side.
        worse_row = min((base, new), key=lambda row: row.in_role("highest_rate") or 0.0)
        return _judge_by_resolution(column, sides, threshold or _VALUE_SHARE, detect, worse_row.in_role("failing_rate"))
    is_constant = all(len(side) > 1 and len({*side}) == 1 for side in sides)
    share = threshold or (_CONSTANT_VALUE_SHARE if is_constant else _VALUE_SHARE)
    return _test_value(column, sides, detect, share, new_column.margin if base_column.margin is None else base_column.margin)


def _compare_seeds(unjudged: ValueChange, described: Sequence[Value], detect: float) -> ValueChange:
    """Compare a series seed by seed if a side declares it paired; any other series is only shown.

    ``described`` are the declarations of both sides.
    """
    margin = next((value.margin for value in described if value.paired), None)
    before = unjudged.base
    after = unjudged.new
    if margin is None or not isinstance(before, Sequence) or not isinstance(after, Sequence):
        return unjudged
    if len(before) != len(after) or not before or len({value.points for value in described}) > 1:
        sides = " against ".join(few(value.points, 2) for value in described)
        return replace(unjudged, untested_verdict=Verdict.INCONCLUSIVE, remark=f"not judged, as its seeds are others: {sides}")
    return _test_value(unjudged.column, (before, after), detect, margin=margin, paired=True)


def _are_searches(base: Row, new: Row) -> bool:
    """Whether both are results of a search for something without a time, such as the largest batch."""
    return all(row.case.found and not row.rounds.median_s for row in (base, new))


def _judge_by_resolution(
    column: Column, sides: Sequence[Sequence[float]], threshold: float, detect: float, failing_rate: float | None = None
) -> ValueChange:
    """Return the change of what a search found, judged without a test, as a run finds it only once.

    A change is called if it exceeds both ``threshold``, a share of the larger value, and what the steps of the searches leave uncertain.
    ``failing_rate`` is the lowest rate that failed in the worse run, if the search was for a rate. The verdict is inconclusive if that
    uncertainty hides a change that must be detected.
    """
    base, new = map(statistics.median, sides)
    larger = max(abs(base), abs(new))
    worsening = base - new if column.better == "higher" else new - base
    # The worse run may sustain any rate below the one that failed. In any other search each side may be off by one step, which is the share
    # `SEARCH_RESOLUTION` of the value, and at least 1.
    uncertainty = failing_rate - min(base, new) if failing_rate else 2 * max(1.0, SEARCH_RESOLUTION * larger)
    if abs(worsening) > max(threshold * larger, uncertainty):
        return ValueChange(column, base, new, Verdict.SLOWER if worsening > 0 else Verdict.FASTER)
    # The steps may hide a worsening that must be detected. It is a share of base, so a base of zero has none.
    if worsening >= _share_to_see(detect, column) * abs(base) > 0:
        return ValueChange(column, base, new, Verdict.INCONCLUSIVE, remark="within two steps of its search")
    return ValueChange(column, base, new, Verdict.SAME)


def _share_to_see(detect: float, column: Column) -> float:
    """Return the worsening that must be detected, as a share of base: ``detect`` is the share of more time.

    A value that is better higher, such as a rate, falls by the factor 1 + ``detect`` where a time grows by it.
    """
    return detect / (1 + detect) if column.better == "higher" else detect


def judge_values(cases: Sequence[Sequence[ValueChange]]) -> list[tuple[ValueChange, ...]]:
    """Judge the changes of all cases that rounds decide as one family; seeds, which repeat exactly, are judged alone."""
    tests = [{"test": each.test} for each in chain.from_iterable(cases) if each.test and not each.test.paired]
    judged = iter(judge_family(tests))  # in the order of the changes

    def judge(change: ValueChange) -> ValueChange:
        if change.test is None or change.test.paired:
            return change
        return replace(change, family=len(tests), test=next(judged)["test"])

    return [tuple(map(judge, case)) for case in cases]
