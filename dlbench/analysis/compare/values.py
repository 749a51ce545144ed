"""Changes of peak memory and of declared values, which a threshold decides and not a test of times."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dlbench.analysis.compare.judge import LEVEL, Verdict
from dlbench.analysis.ratios import Entry
from dlbench.analysis.wording import cell, value_name
from dlbench.core.declarations import SEARCH_RESOLUTION
from dlbench.core.model import ParamValue
from dlbench.core.rank_test import smallest_p
from dlbench.core.schema import Column
from dlbench.core.stats import holm

_HOST_FLOOR = 1 << 20  # bytes; what a process takes for itself varies by some pages
WORDS = {Verdict.SLOWER: "worse", Verdict.FASTER: "better"}
"""Verdicts of values, as a reader calls them."""


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
    """Compare peak memory; None where the sides do not report the same kind.

    An accelerator's allocator gives the same peak each time, so the threshold alone decides. On the host the growth of one program
    varies by half and more between rounds (docs/compare.md), so there every round of new must lie beyond the threshold over every
    round of base, and by a MiB; `significant_growth` says whether that may be chance.
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


def significant_growth(memories: Sequence[MemoryChange | None]) -> list[MemoryChange | None]:
    """Take back growth on the host that may be chance, over all cases together; of an accelerator the threshold has decided."""
    p_values = iter(holm([each.p for each in memories if each and each.p is not None]))
    chance = [bool(each and each.p is not None) and next(p_values) >= LEVEL for each in memories]
    return [replace(each, grew=False) if each and each.grew and may else each for each, may in zip(memories, chance, strict=True)]


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
        """Whether to show it of a case that has times as well."""
        return bool(self.unlike) or self.verdict in WORDS

    def __str__(self) -> str:
        sides = " to ".join(dict.fromkeys(cell(each, self.column) for each in (self.base, self.new)))
        change = f" ({self.change * 100:+.1f} %)" if self.change else ""
        word = f" {WORDS[self.verdict]}" if self.verdict in WORDS else ""
        return f"{value_name(self.column)}{word}: {sides}{change}{f', {self.unlike}' if self.unlike else ''}"


def value_changes(
    base_columns: Sequence[Column], new_columns: Sequence[Column], base: Entry, new: Entry, threshold: float
) -> tuple[ValueChange, ...]:
    """Compare each value that both sides report; the columns say how each side declares them."""
    others = {each.name: each for each in new_columns}
    shared = [(each, others[each.name]) for each in base_columns if each.name in others]
    return tuple(_value_change(*columns, base, new, threshold) for columns in shared)


def _value_change(base_column: Column, new_column: Column, base: Entry, new: Entry, threshold: float) -> ValueChange:
    """Judge a value where it has a direction, and only show it where both sides declare it and not alike; one declaration stands for both.

    It is worse, or better, where every round of new lies beyond the threshold over every round of base, and the same where all rounds of
    both lie within it; `significant_values` says whether the former may be chance.
    """
    column = base_column if base_column.declared and not new_column.declared else new_column
    unlike = _unlike(base_column, new_column) if base_column.declared and new_column.declared else ""
    shown = ValueChange(column, base.row[column.name], new.row[column.name], unlike=unlike)
    before, after = (each.rounds.values.get(value_name(column)) for each in (base, new))
    if unlike or column.series or column.better is None or not before or not after:
        return shown
    # What a search finds without a time of its own is made once a run, and as good as its resolution: no chance, but a wider margin.
    once = all(each.row.get("case.found") is not None and not each.rounds.median_s for each in (base, new))
    usual = abs(statistics.median(before))
    margin = max(threshold * usual, max(1.0, SEARCH_RESOLUTION * usual) if once else 0.0)
    rose, fell = min(after) - max(before) > margin, min(before) - max(after) > margin
    verdict = Verdict.SAME if max(*before, *after) - min(*before, *after) <= margin else Verdict.INCONCLUSIVE
    if rose or fell:
        verdict = Verdict.FASTER if rose is (column.better == "higher") else Verdict.SLOWER
    return replace(shown, verdict=verdict, p=0.0 if once else smallest_p(len(before), len(after)))


def _unlike(base: Column, new: Column) -> str:
    """Say in what two declarations differ."""
    declared = [(each.unit.value, each.better, "series" if each.series else "scalar") for each in (base, new)]
    sides = zip(("unit", "direction", "kind"), *declared, strict=True)
    differ = [f"{what} {one or 'none'} against {other or 'none'}" for what, one, other in sides if one != other]
    return f"not judged, as it is declared with {' and '.join(differ)}" if differ else ""


def significant_values(changes: Sequence[Sequence[ValueChange]]) -> list[list[ValueChange]]:
    """Make undecided what is worse or better by chance perhaps, over all values of all cases together, apart from the tests of times."""
    p_values = iter(holm([each.p if each.verdict in WORDS else 1.0 for values in changes for each in values if each.p is not None]))
    return [
        [
            replace(each, verdict=Verdict.INCONCLUSIVE)
            if each.p is not None and next(p_values) >= LEVEL and each.verdict in WORDS
            else each
            for each in values
        ]
        for values in changes
    ]


def verdict_by_values(changes: Sequence[ValueChange]) -> Verdict | None:
    """Return the verdict of a case that has no times; None where no value of it is judged."""
    verdicts = [each.verdict for each in changes if each.verdict]
    return min(verdicts, key=[Verdict.SLOWER, Verdict.FASTER, Verdict.INCONCLUSIVE, Verdict.SAME].index, default=None)
