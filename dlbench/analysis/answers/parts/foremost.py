"""Choice of what a headline is of, and its names: neither kinds of work nor devices are mixed into one middle."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import TypeVar

from dlbench.analysis.answers.parts.headline import MOST_OF_QUALIFIER, Tag, cut, unsure
from dlbench.analysis.presentation.names import HasRow, row_of, several_runs
from dlbench.analysis.presentation.wording import brief
from dlbench.analysis.ratios.pairing import grouped
from dlbench.analysis.ratios.ratio import HasRatio, Ratio, speedup_of
from dlbench.core.rows.row import Row

T = TypeVar("T", bound=Row | HasRow)
_STEPS = ("training", "inference")
"""Tags that are kinds of their own, the first to be told."""
_LABEL = 12
"""Characters of what tells a device from others."""


def kind_of_work(row: Row) -> str:
    """Return the kind of work of a row: of a step its tag; of all else, and of a step that is fed in several ways, its workload."""
    step = next((tag for tag in _STEPS if tag in row.declared.tags), None)
    return step if step and not row.declared.having("feeding") else row.case.workload


def by_kind(found: Iterable[T]) -> dict[str, list[T]]:
    """Return records by their kind of work: training and inference first, then those of most records."""
    kinds = grouped(found, lambda each: kind_of_work(row_of(each)))
    order = [*_STEPS, *sorted(kinds, key=lambda name: (-len(kinds[name]), name))]
    return {name: kinds[name] for name in dict.fromkeys(order) if name in kinds}


def foremost(devices: Mapping[str, list[T]], value: Callable[[list[T]], float]) -> tuple[list[T], str]:
    """Return the records that a headline is of, and what tells their device from others: `` on cuda:0 and 3 more``; nothing of one alone.

    They are of an accelerator rather than of a CPU, of the first kind of work there is, and of the device with the greatest value.
    """
    found = [*devices.values()]
    alike = [each for each in found if not row_of(each[0]).is_on_cpu] or found
    first = next(iter(by_kind(chain(*alike))))
    best = max((kinds[first] for kinds in map(by_kind, alike) if first in kinds), key=value)
    return best, which(row_of(best[0]), chain(*alike), len(alike) - 1)


def which(row: Row, found: Iterable[Row | HasRow], others: int) -> str:
    """Return what tells the device of a row from others, of several machines its machine: `` on cuda:0 and 3 more``; nothing of one alone.

    ``found`` has rows of all of them.
    """
    named = row.case.run if several_runs(found) else row.case.device
    return f" on {cut(named, _LABEL)} and {others} more" if others else ""


def names_of(case: str) -> tuple[str, str]:
    """Return the name of a case where there is little room, and that without its workload: ``train resnet18 b8``, ``resnet18 b8``."""
    name = brief(case)
    return name, name.partition(" ")[2] or name


def qualifiers(names: Sequence[str], where: str, *details: str) -> list[str]:
    """Return the first of the names and where it ran, with each detail, and without; then the others; at last the last name is cut."""
    ends = [f"{where}{detail}" for detail in details]
    cut_name = cut(names[-1], MOST_OF_QUALIFIER - len(where))
    return [*(f"{names[0]}{end}" for end in ends), *(f"{name}{where}" for name in (*names, cut_name))]


def limits(ratio: Ratio) -> tuple[Tag, ...]:
    """Return the tag of a ratio that has no interval, or one that holds both a gain and a loss."""
    # Of its rows alone it is not known: one that was chosen among several takes more rounds.
    return (Tag.FEW_ROUNDS,) if ratio.interval is None else unsure(ratio)


def span_of(found: Sequence[HasRatio]) -> str:
    """Return between which ratios cases are, where there is little room: ``; cases 1.04…3.19×``; nothing of one ratio alone."""
    least, most = _ends(found)
    return f"; cases {least.brief.removesuffix('×')}…{most.brief}" if least.times != most.times else ""


def of_the_middle(found: Sequence[HasRatio]) -> tuple[str, ...]:
    """Return the sentence that says between which ratios the case in the middle stands; none of one ratio alone."""
    least, most = _ends(found)
    return (f"This is the middle of {len(found)} cases, from {least.times} to {most.times}.",) if least.times != most.times else ()


def _ends(found: Sequence[HasRatio]) -> tuple[Ratio, Ratio]:
    return min(found, key=speedup_of).ratio, max(found, key=speedup_of).ratio
