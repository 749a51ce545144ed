"""Matched pairs of rows in answers: the choice of those for a headline, each side at its own best, their tables and figures."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, product
from operator import attrgetter, methodcaller
from typing import Literal, NamedTuple, Protocol, TypeVar

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
from dlbench.analysis.ratios.ratio import HasRatio, median_by_ratio, speedup_of
from dlbench.analysis.read.runs import part
from dlbench.analysis.read.table import Results
from dlbench.core.model import Status
from dlbench.core.rows.row import MACHINE, Row
from dlbench.core.units import Column

T = TypeVar("T", bound=HasRow)


_STEPS = ("training", "inference")
"""Tags that are kinds of their own, and come first."""


def kind_of_work(row: Row) -> str:
    """Return the kind of work of a row: ``training`` or ``inference`` by its tags, else the name of its workload.

    A workload that varies how its steps are fed measures the feeding, so it is a kind of its own.
    """
    step = next((tag for tag in _STEPS if tag in row.declared.tags), None)
    return step if step and not row.declared.having("feeding") else row.case.workload


def by_kind(found: Iterable[T]) -> dict[str, list[T]]:
    """Group records by kind of work: training and inference first, then the others, largest group first."""
    kinds = grouped(found, lambda each: kind_of_work(each.row))
    order = [*_STEPS, *sorted(kinds, key=lambda name: (-len(kinds[name]), name))]
    return {name: kinds[name] for name in dict.fromkeys(order) if name in kinds}


def foremost(found: Sequence[T]) -> list[T]:
    """Return the records for a headline: those of one device in the first kind of work, accelerators before CPUs.

    Of several devices it is the one that is fastest in its first case.
    """
    devices = [*by_device(found).values()]
    preferred = [each for each in devices if not each[0].row.is_on_cpu] or devices
    first_kind = next(iter(by_kind(chain(*preferred))))
    in_first_kind = (kinds[first_kind] for kinds in map(by_kind, preferred) if first_kind in kinds)
    return min(in_first_kind, key=lambda records: records[0].row.time.median_s or math.inf)


Side = Literal["base", "other"]
SIDES: Sequence[Side] = ("base", "other")

_NO_ACCELERATOR = "no accelerator took part; run the same suite on a machine that has one, and give both files to dlbench show"
"""Reason why nothing is compared with an accelerator. A file lists the devices that were asked for, so the machine may have one."""


class _Measured(HasRow, HasRatio, Protocol):
    """A record of a row and a ratio."""


M = TypeVar("M", bound=_Measured)


def median_cases(found: Sequence[M], preferred: Callable[[Sequence[M]], Sequence[M]] = list) -> list[M]:
    """Return the median case of each kind of work on the device of the headline, its first kind of work first.

    ``preferred`` chooses among the cases of that first kind.
    """
    of_headline = foremost(found)
    kinds = by_kind([each for each in found if one_device(each.row) == one_device(of_headline[0].row)]).values()
    return [median_by_ratio(preferred(of_headline)), *(median_by_ratio(kind) for kind in kinds if of_headline[0] not in kind)]


def no_accelerator(results: Results) -> Lack | None:
    """Return the lack of an accelerator; None if a row was measured on one, or a file lists one."""
    is_listed = any(part(environment, "identity", "accelerators") for environment in results.environments.values())
    if is_listed or not all(row.is_on_cpu or row.case.status is Status.SKIPPED for row in results.rows):
        return None
    return Lack(_NO_ACCELERATOR, "no accelerator in these files")


def same_case(pairs: Matches) -> Table:
    """Return the table of pairs whose rows differ in one setting, with the speed-up of the other side."""
    found = pairs.rows
    return table(same_title(found), same_columns(found), found, whole=pair_cells)


def same_title(found: Sequence[Match]) -> str:
    """Return the title of the table of such pairs."""
    by = found[0].by if found else None
    differ = "on both sides" if by == DEVICE else f"with another {by.name if by else ''}"
    return f"The same case {differ}: {'how many times as fast' if any(each.speeds for each in found) else 'what it reports'}"


def same_columns(pairs: Sequence[Match], *more: Column) -> list[Column]:
    """Return the columns of the table of pairs that differ in one setting: case, device, times of both sides, ratio, and values.

    The values are the columns ``more`` and those that the workloads declare. Each value has a column of the base and one of the other side.
    """
    is_timed = any(pair.speeds for pair in pairs)  # rows that report values alone have no speeds
    is_by_device = bool(pairs) and pairs[0].by == DEVICE
    columns = [CASE] if is_by_device else [CASE, place(pairs)]  # by device, the labels of the sides say where they ran
    for side in SIDES:
        time = detail(f"{side}.time_s", "s", "time", f"{side}: one call", methodcaller("time_s", side))
        columns += _labelled_columns(pairs, side, time)
    if is_timed:
        columns.append(RATIO)
    priority = 1 if is_timed else 0  # without times, values are what a narrow screen has to keep
    values = (*more, *value_columns(sides_of(pairs)))
    for column, side in product(values, SIDES):
        column_of_side = column.on(attrgetter(side))  # it takes the value from the row of that side
        heading = f"{value_words(column)} ({_shared_label(pairs, side) or side})"  # "p99 (bf16)"
        columns.append(replace(column_of_side, name=f"{side}.{column.name}", heading=heading, priority=priority))
    return columns


def sides_of(pairs: Iterable[Match | MatchRecord]) -> list[Row]:
    """Return the rows of pairs."""
    return list(chain.from_iterable(each.sides for each in pairs))


def machines_of(pair: Match) -> tuple[str, ...]:
    """Return a key for the two devices of a pair."""
    return tuple(str(each) for side in pair.sides for each in one_device(side))


def accelerator_order(pair: Match) -> tuple[bool, float]:
    """Return a key that sorts accelerators: whether the CPU is that of their own machine, then the speed-up."""
    return has_own_base(pair), speedup_of(pair)


def reported_pairs(results: Results, by: str) -> Matches:
    """Return the pairs of rows that differ in one setting and report values; without formats, which have an answer of their own."""
    results = results.where(lambda row: row.declared.parameter("format") is None)
    # Most files report none, and pairing takes a while.
    return match_rows(results, by, timed=False) if any(row.values for row in results.rows) else Matches()


OWN_BEST = "Each side at its own best batch, precision, layout and mode: how many times the throughput"


def best_columns(pairs: Sequence[Match]) -> list[Column]:
    """Return the columns of pairs whose sides are each at their own best: throughput and settings of both, and the ratio."""
    columns = [WORK]
    for side in SIDES:
        items = of_side(side, lambda row: row.rate.items_per_s)
        flops = of_side(side, lambda row: row.rate.flops_per_s, "FLOP/s")
        number_with_items = sum(items.value(pair) is not None for pair in pairs)
        throughput = items if number_with_items else flops
        columns += _labelled_columns(pairs, side, throughput.headed("throughput"))
        if 0 < number_with_items < len(pairs):  # the others count operations only
            columns.append(flops)
        columns.append(detail(f"{side}.choice", "text", "at", f"{side}: what it chose", choice).on(attrgetter(side)))
    return [*columns, RATIO]


def figure_of_pairs(title: str, pairs: Sequence[Match], name_column: Column = CASE) -> Figure:
    """Return the figure of the ratios of those pairs that have times; ``name_column`` gives the name of each pair.

    It has bars, or dots if several pairs share a name. Devices are compared with the CPU of their own machine if there is one.
    """
    timed = with_own_base([pair for pair in pairs if pair.speeds])
    # All pairs differ in the same setting, so the first tells. Sides that are each at their own best differ in no setting (None), but then
    # they are a CPU and an accelerator.
    differing_setting = timed[0].by if timed else None
    setting = differing_setting or DEVICE
    base_name = _shared_label(timed, "base") or ("the CPU" if setting == DEVICE else "the base")
    about = f"A value above 1 is faster than {base_name}; the lines are 95 % intervals over rounds."
    names = {str(name_column.value(pair)) for pair in timed}
    mark: Mark = "dot" if len(names) < len(timed) else "bar"
    times_as_fast = RATIO.headed(f"times as fast as {base_name}")
    series = detail("other.label", "text", setting.name, "the side that is compared with the base", _series_label(timed))
    where = None if setting == DEVICE else place(timed)  # by device the labels of the series say where it was
    case = name_column.headed("case")
    return figure(title, about, mark, timed, x=times_as_fast, y=case, series=series, place=where, log="x", reference=1.0)


def _series_label(pairs: Sequence[Match]) -> Callable[[Match], str]:
    """Return a function that labels a pair in a figure: its other side, with ``against`` and its base where that is not the usual one.

    The usual base is the one that all pairs share, or else the CPU of the same machine.
    """
    base_label, other_label = _label(pairs, "base"), _label(pairs, "other")
    is_base_shared = _shared_label(pairs, "base") is not None

    def label(pair: Match) -> str:
        if is_base_shared or has_own_base(pair):
            return other_label(pair)
        return f"{other_label(pair)} against {base_label(pair)}"

    return label


def with_own_base(pairs: Sequence[Match]) -> list[Match]:
    """Return the pairs without those whose case and device have another pair with the base of their own machine."""
    own = {(one_device(each.other), each.case) for each in pairs if has_own_base(each)}
    return [each for each in pairs if has_own_base(each) or (one_device(each.other), each.case) not in own]


def has_own_base(pair: Match) -> bool:
    """Whether both sides were measured on one machine."""
    return pair.base.case.run == pair.other.case.run


def _label(pairs: Sequence[Match], side: Side) -> Callable[[Match], str]:
    """Return a function that labels one side of any of these pairs: with its device, or its value of the setting in which they differ."""
    several = several_runs(sides_of(pairs))

    def label(pair: Match) -> str:
        row = pair.base if side == "base" else pair.other
        return device_label(row, several) if pair.by in (None, DEVICE) else str(pair.value(row))

    return label


def _shared_label(pairs: Sequence[Match], side: Side) -> str | None:
    """Return the label of one side that all pairs share; None if they share none."""
    labels = set(map(_label(pairs, side), pairs))
    return labels.pop() if len(labels) == 1 else None


def _labelled_columns(pairs: Sequence[Match], side: Side, value: Column) -> list[Column]:
    """Return a column headed by the side's label where all pairs share it, else a column of labels in front of it."""
    if shared := _shared_label(pairs, side):
        return [value.headed(shared)]
    return [detail(f"{side}.label", "text", side, f"{side}: which it is", _label(pairs, side)), value]


SAME: Section[Match] = Section(
    records="same",
    title=same_title,
    columns=[same_columns],
    whole=pair_cells,
    figures=lambda found: [figure_of_pairs(same_title(found), found)],
)
"""Section of pairs that differ in one setting."""


class SpeedMeasure(NamedTuple):
    """A measure of speed that the best row is chosen by."""

    of_rounds: Callable[[Row], Sequence[float]]
    overall: Callable[[Row], float | None]


_THROUGHPUTS = (
    SpeedMeasure(lambda row: row.rounds.items_per_s, lambda row: row.rate.items_per_s),
    SpeedMeasure(lambda row: row.rounds.flops_per_s, lambda row: row.rate.flops_per_s),
)


def is_untuned(row: Row, rows: Iterable[Row]) -> bool:
    """Whether the best row of a CPU was measured in a single setting, and no search looked for a better one of its step."""
    if not (row.is_on_cpu and row.batch):
        return False

    def step(of: Row) -> tuple[str, object]:
        return kind_of_work(of), of.params.get("model")

    tunable = settings_named(chosen(row))
    here = [each for each in rows if one_device(each) == one_device(row)]
    settings = {choice(each) for each in here if each.differing_from(tunable) == row.differing_from(tunable)}
    return len(settings) == 1 and not any(each.is_tuned and step(each) == step(row) for each in here)


def best_pairs(results: Results, measures: Sequence[SpeedMeasure] = _THROUGHPUTS) -> list[Match]:
    """Compare each accelerator at its best with each CPU at its best, once for each workload, model and shape.

    Each side has its own best batch, precision, layout, mode and other switches; what a search found takes part. The best is the sound
    row of highest speed, by the first measure that all rows have.
    """
    sound = (row for row in results.rows if row.is_sound and row.is_single_rank)
    by_work = grouped(sound, lambda row: row.differing_from((*MACHINE, *settings_named(chosen(row)))))
    return list(chain.from_iterable(_best_pairs(rows, measures) for rows in by_work.values()))


def _best_pairs(rows: Sequence[Row], measures: Sequence[SpeedMeasure]) -> Iterator[Match]:
    """Yield the pairs of `best_pairs` for one work; none if its rows have no measure in common."""
    known = (each for each in measures if all(min(each.of_rounds(row), default=0) > 0 for row in rows))
    measure = next(known, None)
    if measure is None:
        return
    by_device = grouped(rows, one_device).values()
    cpus = [alike for alike in by_device if alike[0].is_on_cpu]
    accelerators = [alike for alike in by_device if not alike[0].is_on_cpu]
    for on_cpu, on_accelerator in product(cpus, accelerators):
        cpu, accelerator = (max(side, key=lambda row: measure.overall(row) or 0) for side in (on_cpu, on_accelerator))
        speeds = measure.of_rounds(cpu), measure.of_rounds(accelerator)
        # Both sides were chosen for their speed, so the interval allows for the best of all pairs of their rows.
        yield Match(cpu, accelerator, None, chosen(cpu), speeds, among=len(on_cpu) * len(on_accelerator))
