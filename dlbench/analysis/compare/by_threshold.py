"""Changes that a threshold decides, and not a test of times: those of peak memory and of declared values."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from dlbench.analysis.compare.judge import LEVEL, Verdict
from dlbench.analysis.ratios import Entry
from dlbench.analysis.wording import cell, value_name
from dlbench.core.model import ParamValue
from dlbench.core.rank_test import smallest_p
from dlbench.core.schema import Column
from dlbench.core.stats import holm
from dlbench.core.thresholds import Thresholds

_HOST_FLOOR = 1 << 20  # bytes; what a process takes for itself varies by some pages


@dataclass(frozen=True, slots=True)
class MemoryChange:
    """Peak memory on two sides, in bytes: the accelerator's where it has one, else what the process grew by on the host."""

    base_bytes: float
    new_bytes: float
    grew: bool
    """Whether beyond the threshold, and on the host in every round."""
    p: float | None = None
    """Of that growth on the host, two-sided; None of an accelerator, whose allocator leaves nothing to chance."""

    @property
    def change(self) -> float | None:
        """As a fraction of base; None where base has no memory."""
        return self.new_bytes / self.base_bytes - 1 if self.base_bytes else None


def memory_change(base: Entry, new: Entry, threshold: float) -> MemoryChange | None:
    """Compare peak memory; None where the sides do not tell the same kind.

    An accelerator's allocator gives the same peak each time, so the threshold alone decides. On the host the growth of one program
    varies by half and more between rounds (docs/compare.md), so there every round of new must lie beyond the threshold over every
    round of base, and by a MiB; whether that is no accident is for all cases together to say, by ``p``.
    """
    peak, new_peak = (each.row["memory.peak_bytes"] for each in (base, new))
    if peak is not None and new_peak is not None:
        return MemoryChange(float(peak), float(new_peak), grew=float(new_peak) > float(peak) * (1 + threshold))
    if peak is not None or new_peak is not None:
        return None
    before, after = base.rounds.host_peak_bytes, new.rounds.host_peak_bytes
    if not before or not after:
        return None
    grew = min(after) > max(before) * (1 + threshold) and min(after) - max(before) >= _HOST_FLOOR
    p = smallest_p(len(before), len(after)) if grew else 1.0
    return MemoryChange(statistics.median(before), statistics.median(after), grew, p)


def grown(memories: Sequence[MemoryChange | None]) -> list[MemoryChange | None]:
    """Hold what grew on the host against chance, over all cases together; of an accelerator the threshold has decided."""
    p_values = iter(holm([each.p for each in memories if each and each.p is not None]))
    return [each if each is None or each.p is None else replace(each, grew=bool(next(p_values) < LEVEL and each.grew)) for each in memories]


class Worth(NamedTuple):
    """What both sides declare of a value."""

    column: Column
    unlike: str = ""
    """Why it can't be judged, where they declare it differently."""


def worths(base: Sequence[Column], new: Sequence[Column]) -> tuple[Worth, ...]:
    """Pair what the sides declare of each value that both report."""
    others = {each.name: each for each in new}
    return tuple(_worth(each, others[each.name]) for each in base if each.name in others)


def _worth(base: Column, new: Column) -> Worth:
    if not (base.declared and new.declared):
        return Worth(base if base.declared else new)
    differ = [
        f"{what} {one or 'none'} against {other or 'none'}"
        for what, one, other in (
            ("unit", base.unit.value, new.unit.value),
            ("direction", base.better, new.better),
            ("kind", "series" if base.series else "scalar", "series" if new.series else "scalar"),
        )
        if one != other
    ]
    return Worth(new, f"not judged, as it is declared with {' and '.join(differ)}" if differ else "")


@dataclass(frozen=True, slots=True)
class ValueChange:
    """A declared value on two sides."""

    column: Column
    base: ParamValue | None
    new: ParamValue | None
    """Median over the rounds; of a series as a JSON list."""
    verdict: Verdict | None = None
    """slower: worse; faster: better; same; inconclusive. None where it is only shown."""
    p: float | None = None
    """The least that so many rounds allow; None where it is only shown."""
    unlike: str = ""
    """Why it can't be judged, where the sides declare it differently."""

    @property
    def change(self) -> float | None:
        """As a fraction of base; None of a series, or of zero."""
        if isinstance(self.base, str | None) or isinstance(self.new, str | None) or not self.base:
            return None
        return (float(self.new) - float(self.base)) / abs(float(self.base))

    @property
    def matters(self) -> bool:
        """Whether it is told of a case that has times as well."""
        return bool(self.unlike) or self.verdict in _WORDS

    def __str__(self) -> str:
        sides = " to ".join(dict.fromkeys(cell(each, self.column) for each in (self.base, self.new)))
        change = f" ({self.change * 100:+.1f} %)" if self.change else ""
        word = f" {_WORDS[self.verdict]}" if self.verdict in _WORDS else ""
        return f"{value_name(self.column)}{word}: {sides}{change}{f', {self.unlike}' if self.unlike else ''}"


_WORDS = {Verdict.SLOWER: "worse", Verdict.FASTER: "better"}


def value_change(worth: Worth, base: Entry, new: Entry, limits: Thresholds) -> ValueChange:
    """Set a value beside that of the other side, and judge it where it has a direction.

    It is worse, or better, where every round of new lies beyond the threshold over every round of base, and the same where all rounds of
    both lie within it; whether the former is no accident is for all values together to say, by ``p``.
    """
    column, name = worth.column, value_name(worth.column)
    shown = ValueChange(column, base.row[column.name], new.row[column.name], unlike=worth.unlike)
    before, after = base.rounds.values.get(name), new.rounds.values.get(name)
    if worth.unlike or column.series or column.better is None or not before or not after:
        return shown
    margin = limits.value * abs(statistics.median(before))
    rose, fell = min(after) - max(before) > margin, min(before) - max(after) > margin
    verdict = Verdict.SAME if max(*before, *after) - min(*before, *after) <= margin else Verdict.INCONCLUSIVE
    if rose or fell:
        verdict = Verdict.FASTER if rose is (column.better == "higher") else Verdict.SLOWER
    return replace(shown, verdict=verdict, p=smallest_p(len(before), len(after)))


def valued(changes: Sequence[Sequence[ValueChange]]) -> list[list[ValueChange]]:
    """Hold what is worse or better against chance, over all values of all cases together, apart from the tests of times."""
    called = [[each.p if each.verdict in _WORDS else 1.0 for each in of_case if each.p is not None] for of_case in changes]
    p_values = iter(holm([p for of_case in called for p in of_case if p is not None]))
    return [[each if each.p is None else _held(each, next(p_values)) for each in of_case] for of_case in changes]


def _held(change: ValueChange, p: float) -> ValueChange:
    return replace(change, verdict=Verdict.INCONCLUSIVE) if change.verdict in _WORDS and p >= LEVEL else change


def by_values(changes: Sequence[ValueChange]) -> Verdict | None:
    """Return the verdict of a case that has no times; None where no value of it is judged."""
    verdicts = [each.verdict for each in changes if each.verdict]
    return min(verdicts, key=[Verdict.SLOWER, Verdict.FASTER, Verdict.INCONCLUSIVE, Verdict.SAME].index, default=None)
