"""Matches in answers: which of them a headline is of, each side at its own best, their tables and figures."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, product
from operator import attrgetter, methodcaller
from typing import Literal, Protocol, TypeVar

from dlbench.analysis.answers.engine.question import Lack, Section, Table, detail, table
from dlbench.analysis.presentation.columns import CASE, RATIO, WORK, Figure, Mark, figure, of_side, pair_cells, place, value_columns
from dlbench.analysis.presentation.names import HasRow, by_device, choice, device_label, several_runs
from dlbench.analysis.presentation.wording import value_words
from dlbench.analysis.ratios.matching import (
    DEVICE,
    Match,
    Matches,
    MatchRecord,
    chosen,
    grouped,
    match_rows,
    one_device,
    settings_named,
)
from dlbench.analysis.ratios.ratio import HasRatio, least_and_most, median_by_ratio, speedup_of
from dlbench.analysis.read.table import Results
from dlbench.core.model import Status
from dlbench.core.rows.row import MACHINE, Row
from dlbench.core.units import Column

T = TypeVar("T", bound=HasRow)


_STEPS = ("training", "inference")
"""Tags that are kinds of their own, the first to be told."""


def kind_of_work(row: Row) -> str:
    """Return the kind of work of a row: of a step its tag; of all else, and of a step that is fed in several ways, its workload."""
    step = next((tag for tag in _STEPS if tag in row.declared.tags), None)
    return step if step and not row.declared.having("feeding") else row.case.workload


def by_kind(found: Iterable[T]) -> dict[str, list[T]]:
    """Return records by their kind of work: training and inference first, then those of most records."""
    kinds = grouped(found, lambda each: kind_of_work(each.row))
    order = [*_STEPS, *sorted(kinds, key=lambda name: (-len(kinds[name]), name))]
    return {name: kinds[name] for name in dict.fromkeys(order) if name in kinds}


def foremost(found: Sequence[T]) -> list[T]:
    """Return the records that a headline is of.

    They are of an accelerator rather than of a CPU, of the first kind of work there is, and of the device that is the fastest in the
    first case of it.
    """
    devices = [*by_device(found).values()]
    alike = [each for each in devices if not each[0].row.is_on_cpu] or devices
    first = next(iter(by_kind(chain(*alike))))
    of_first = (kinds[first] for kinds in map(by_kind, alike) if first in kinds)
    return min(of_first, key=lambda records: records[0].row.time.median_s or math.inf)


def span_of(found: Sequence[HasRatio]) -> str:
    """Return between which ratios cases are, where there is little room: ``; cases 1.04…3.19×``; nothing of one, or if one may be 1."""
    least, most = least_and_most(found)
    shown = least.times != most.times and not (least.is_undecided or most.is_undecided)
    return f"; cases {least.brief.removesuffix('×')}…{most.brief}" if shown else ""


Side = Literal["base", "other"]
SIDES: Sequence[Side] = ("base", "other")

_ELSEWHERE = "no accelerator took part; run the same suite on a machine that has one, and give both files to dlbench show"
"""Reason why nothing is compared with an accelerator. A file lists the devices that were asked for, so the machine may have one."""


class _Measured(HasRow, HasRatio, Protocol):
    """A record of a row and a ratio."""


M = TypeVar("M", bound=_Measured)


def medians(found: Sequence[M], preferred: Callable[[Sequence[M]], Sequence[M]] = list) -> list[M]:
    """Return the median case of each kind of work on the device that a headline is of; of the first kind among those preferred."""
    alike = foremost(found)
    kinds = by_kind([each for each in found if one_device(each.row) == one_device(alike[0].row)]).values()
    return [median_by_ratio(preferred(alike)), *(median_by_ratio(kind) for kind in kinds if alike[0] not in kind)]


def no_accelerator(results: Results) -> Lack | None:
    """Say that no row was measured on an accelerator, and no file lists one, where that is so."""
    identities = [environment.get("identity") for environment in results.environments.values()]
    present = any(isinstance(each, Mapping) and each.get("accelerators") for each in identities)
    if present or not all(row.is_on_cpu or row.case.status is Status.SKIPPED for row in results.rows):
        return None
    return Lack(_ELSEWHERE, "no accelerator in these files")


def same_case(pairs: Matches) -> Table:
    """Return the table of rows that differ in one setting: how many times as fast the other is."""
    found = pairs.rows
    return table(same_title(found), same_columns(found), found, whole=pair_cells)


def same_title(found: Sequence[Match]) -> str:
    """Return the title of that table."""
    by = found[0].by if found else None
    differ = "on both sides" if by == DEVICE else f"with another {by.name if by else ''}"
    return f"The same case {differ}: {'how many times as fast' if any(each.speeds for each in found) else 'what it reports'}"


def same_columns(found: Sequence[Match], *more: Column) -> list[Column]:
    """Return its columns, at the end ``more`` and the numbers that workloads declare, of both sides.

    They are called ``p99 (bf16)`` where all pairs share the label of a side, else ``p99 (other)``.
    """
    by, timed = found[0].by if found else None, any(each.speeds for each in found)
    columns = [CASE] if by == DEVICE else [CASE, place(found)]
    for side in SIDES:
        columns += _side(found, side, detail(f"{side}.time_s", "s", "time", f"{side}: one call", methodcaller("time_s", side)))
    columns += [RATIO] if timed else []
    for column, side in product((*more, *value_columns(sides_of(found))), SIDES):
        named = replace(column.on(attrgetter(side)), name=f"{side}.{column.name}")
        columns.append(named.headed(f"{value_words(column)} ({_shared(found, side)[1] or side})", int(timed)))
    return columns


def sides_of(pairs: Iterable[Match | MatchRecord]) -> list[Row]:
    """Return the rows of pairs."""
    return list(chain.from_iterable(each.sides for each in pairs))


def machines_of(pair: Match) -> tuple[str, ...]:
    """Return what tells the devices of a pair from those of others."""
    return tuple(str(each) for side in pair.sides for each in one_device(side))


def standing(pair: Match) -> tuple[bool, float]:
    """Return what sorts accelerators: whether the CPU is that of their own machine, then how many times as fast they are."""
    return has_own_base(pair), speedup_of(pair)


def reported_pairs(results: Results, by: str) -> Matches:
    """Return the pairs of rows that differ in one setting and report values, not times; not those of formats, which have another answer."""
    results = results.where(lambda row: row.declared.parameter("format") is None)
    # Most files report none, and pairing takes a while.
    return match_rows(results, by, timed=False) if any(row.values for row in results.rows) else Matches()


OWN_BEST = "Each side at its own best batch, precision, layout and mode: how many times the throughput"


def best_columns(found: Sequence[Match]) -> list[Column]:
    """Return the columns of throughputs, each side at a batch, precision, layout and mode of its own."""
    columns = [WORK]
    for name in SIDES:
        items, flops = of_side(name, lambda row: row.rate.items_per_s), of_side(name, lambda row: row.rate.flops_per_s, "FLOP/s")
        without = {items.value(each) is None for each in found}  # their workloads count operations only
        columns += _side(found, name, (items if False in without else flops).headed("throughput"))
        columns += [flops] if len(without) > 1 else []
        columns.append(detail(f"{name}.choice", "text", "at", f"{name}: what it chose", choice).on(attrgetter(name)))
    return [*columns, RATIO]


def ratio_figure(title: str, pairs: Sequence[Match], named: Column = CASE) -> Figure:
    """Return the figure of the ratios of pairs, a row each; of devices against the CPU of their own machine, where that was measured."""
    found = with_own_base([each for each in pairs if each.speeds])
    by = (found[0].by if found else None) or DEVICE
    (against, shared), (label, _) = _shared(found, "base"), _shared(found, "other")
    other = detail("other.label", "text", by.name, "the side that is compared with the base", label)
    if not shared:
        other = other.by(lambda pair: label(pair) if has_own_base(pair) else f"{label(pair)} against {against(pair)}")
    return of_ratios(
        title,
        shared or ("the CPU" if by == DEVICE else "the base"),
        found,
        named.headed("case"),
        other,
        *([] if by == DEVICE else [place(found)]),
    )


def with_own_base(pairs: Sequence[Match]) -> list[Match]:
    """Return of each case of a device the pair with the base of its own machine, or all where there is none."""
    own = {(one_device(each.other), each.case) for each in pairs if has_own_base(each)}
    return [each for each in pairs if has_own_base(each) or (one_device(each.other), each.case) not in own]


def has_own_base(pair: Match) -> bool:
    """Whether the base is of the same machine."""
    return pair.base.case.run == pair.other.case.run


def of_ratios(title: str, base: str, found: Sequence[HasRatio], named: Column, *more: Column) -> Figure:
    """Return the figure of the ratios of records to a base, a row each by its name, with dots where several have one."""
    about = f"A value above 1 is faster than {base}; the lines are 95 % intervals over rounds."
    mark: Mark = "dot" if len(found) > len({str(named.value(each)) for each in found}) else "bar"
    return figure(title, about, mark, found, RATIO.headed(f"times as fast as {base}"), named, *more, log="x", reference=1.0)


def _shared(pairs: Sequence[Match], name: Side) -> tuple[Callable[[Match], str], str | None]:
    """Return how a side is labelled, and its label where all pairs have the same."""
    several, side = several_runs(sides_of(pairs)), attrgetter(name)

    def label(pair: Match) -> str:
        return device_label(side(pair), several) if pair.by in (None, DEVICE) else str(pair.value(side(pair)))

    labels = set(map(label, pairs))
    return label, labels.pop() if len(labels) == 1 else None


def _side(pairs: Sequence[Match], name: Side, value: Column) -> list[Column]:
    """Return one column headed by the side's label where all pairs share it, else the labels in a column of their own."""
    label, shared = _shared(pairs, name)
    labels = detail(f"{name}.label", "text", name, f"{name}: which it is", label)
    return [value.headed(shared)] if shared else [labels, value]


def _ratios(found: Sequence[Match]) -> Iterator[Figure]:
    yield ratio_figure(same_title(found), found)


SAME: Section[Match] = Section(records="same", title=same_title, columns=[same_columns], whole=pair_cells, figures=[_ratios])
"""Rows that differ in one setting."""


Speeds = tuple[Callable[[Row], Sequence[float]], Callable[[Row], float | None]]
"""What the best may be chosen by: of each round, and of all."""
_THROUGHPUTS: tuple[Speeds, ...] = (
    (lambda row: row.rounds.items_per_s, lambda row: row.rate.items_per_s),
    (lambda row: row.rounds.flops_per_s, lambda row: row.rate.flops_per_s),
)


def is_untuned(row: Row, rows: Iterable[Row]) -> bool:
    """Whether of what a row of a CPU is at its best in these measured one setting alone, and no search looked for others of that step."""
    if not (row.is_on_cpu and row.batch):
        return False
    free, step = settings_named(chosen(row)), (kind_of_work(row), row.params.get("model"))
    here, work = [each for each in rows if one_device(each) == one_device(row)], row.differing_from(free)
    settings = {choice(each) for each in here if each.differing_from(free) == work}
    return len(settings) == 1 and not any(each.is_tuned and (kind_of_work(each), each.params.get("model")) == step for each in here)


def best(results: Results, by: Sequence[Speeds] = _THROUGHPUTS) -> list[Match]:
    """Set each accelerator at its best against the CPU at its best: batch, precision, layout, mode and other switches.

    Each side chooses its own. One comparison for each workload and set of parameters other than those (a model, a shape); a case that
    searched for the fastest takes part with what it found. Chosen is the ``ok`` row of highest throughput,
    in items a second, or in FLOP/s where the workload has no items: ``by`` the first that all rows have. Rows flagged implausible
    take no part. The interval allows for both having been chosen for being fast, among all pairs of a row here and a row there.
    """
    pairs = list[Match]()
    sound = (row for row in results.rows if row.is_sound and row.is_single_rank)
    for group in grouped(sound, lambda row: row.differing_from((*MACHINE, *settings_named(chosen(row))))).values():
        known = [each for each in by if all(min(each[0](row), default=0) > 0 for row in group)]
        for speeds, rate in known[:1]:
            champions = [(max(rows, key=lambda row: rate(row) or 0), len(rows)) for rows in grouped(group, one_device).values()]
            for (cpu, of_cpu), (other, of_other) in product(champions, champions):
                if cpu.is_on_cpu and not other.is_on_cpu:
                    both = speeds(cpu), speeds(other)
                    pairs.append(Match(cpu, other, None, chosen(cpu), both, among=of_cpu * of_other))
    return pairs
