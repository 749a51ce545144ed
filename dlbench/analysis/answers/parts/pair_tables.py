"""Tables of pairs: how many times as fast one side is, or how many times its throughput."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from operator import itemgetter
from typing import TypeVar

from dlbench.analysis.answers.parts.base import Missing, Question, Table, table
from dlbench.analysis.answers.parts.headline import Headline, cut
from dlbench.analysis.presentation import pair_columns
from dlbench.analysis.presentation.fields import (
    CASE,
    RATIO,
    SIDES,
    SPEEDUP,
    WORK,
    Field,
    Fields,
    Headed,
    Side,
    device_column,
    of_side,
    own,
    value_fields,
)
from dlbench.analysis.presentation.figures import Figure, Mark, figure
from dlbench.analysis.presentation.names import HasRow, by_device, choice, device_label, hardware, several_runs
from dlbench.analysis.presentation.wording import brief, cell, plural, short, value_words
from dlbench.analysis.ratios.pairing import DEVICE, DTYPE, MODE, RUN, Pair, Pairs, grouped, match_rows, one_device
from dlbench.analysis.ratios.ratio import HasRatio, middle, speedup_of
from dlbench.analysis.read.table import Results
from dlbench.core.declarations import ParameterRole
from dlbench.core.errors import UsageError
from dlbench.core.model import Status
from dlbench.core.rows.row import Row, Setting
from dlbench.core.schema import Column, Unit

S = TypeVar("S", bound=HasRatio)

_ELSEWHERE = "no accelerator took part; run the same suite on a machine that has one, and give both files to dlbench show"
"""Reason why nothing is compared with an accelerator. A file lists the devices that were asked for, so the machine may have one."""
OTHERS = Column("others", Unit.COUNT, "how many other accelerators there are in these files; null for none")
_DEVICE_TIME = "device: by the device's own events; the wall time of a cold call, which is timed alone, also holds its launch and a wait"

_OVER_ROUNDS = (
    "ratio: the middle of what all pairs of rounds give, which on a noisy machine differs from the quotient of the two medians shown"
)
_APART = 0.05
"""Difference between the two from which on a reader would wonder."""
_MOST_VALUES = 4
"""Values of a device that sentences tell; the table has all."""
_NAME = 20
"""Characters of a name in a headline."""

_AT: Mapping[Setting | None, str] = {DEVICE: "on", DTYPE: "in", MODE: "in", RUN: "in"}
_WHICH: Field[Pair] = Field(pair_columns.TIME, lambda pair: "device" if pair.on_device else "wall")


def beside_defaults(results: Results, role: ParameterRole) -> list[Pairs]:
    """Return the pairs of rows that differ in one parameter of a role, against the plain default that workloads declare of it.

    One for each name and default that rows have, in their order.
    """
    declared = (((name, row.declared.plain_default(name) or ""), row) for row in results.rows for name in row.declared.having(role))
    found = []
    for (name, plain), having in grouped(declared, itemgetter(0)).items():
        with suppress(UsageError):  # no row that went well has the default
            found.append(match_rows(replace(results, rows=tuple(row for _, row in having)), name, plain))
    return found


def without_accelerator(question: Question, results: Results) -> Missing | None:
    """Return what is missing where no row was measured on an accelerator, and no file lists one; None where one was."""
    identities = [environment.get("identity") for environment in results.environments.values()]
    present = any(isinstance(each, Mapping) and each.get("accelerators") for each in identities)
    if present or not all(row.is_on_cpu or row.case.status is Status.SKIPPED for row in results.rows):
        return None
    return Missing(question, _ELSEWHERE, why="no accelerator in these files")


def same_case(pairs: Pairs, *more: Field[HasRow]) -> Table:
    """Return the table of rows that differ in one setting: how many times as fast the other is.

    Behind that stand ``more`` fields, and the numbers that workloads declare, of both sides: ``p99_s in bf16`` where all pairs share the
    label of a side, else ``p99_s of other``.
    """
    found, by = pairs.rows, pairs.by
    several, on_devices = several_runs(sides_of(found)), by == DEVICE
    timed = any(each.speeds for each in found)
    which = any(each.on_device for each in found)
    fields: Fields[Pair] = (("case", CASE),)
    if not on_devices:
        fields += (device_column(lambda pair: device_label(pair.other, several and by != RUN)),)
    fields += (("which time", _WHICH),) if which else ()
    for name in SIDES:
        fields += _side(found, name, _time(name))
    fields += RATIO if timed else ()
    shared_labels = {name: _shared(found, name)[1] for name in SIDES}
    for field in [*more, *value_fields(sides_of(found))]:
        for name, side in SIDES.items():
            shared = shared_labels[name]
            where = f"{_AT.get(by, 'at')} {shared}" if shared else f"of {name}"
            column = replace(field.column, name=f"{name}.{field.column.name}")
            fields += ((f"{value_words(field.column)} {where}", Field(column, field.on(side).of)),)
    differ = "on both sides" if on_devices else f"with another {by.name if by else ''}"
    title = f"The same case {differ}: {'how many times as fast' if timed else 'what it reports'}"
    notes = (*((_DEVICE_TIME,) if which else ()), *over_rounds(found))
    return table(title, fields, found, notes, whole=pair_columns.cells)


def _time(name: Side) -> Headed[Pair]:
    """Return the time of a side that the ratio is of."""
    return own("time", f"{name}.time_s", Unit.SECONDS, f"{name}: one call", lambda pair: pair.time_s(SIDES[name](pair)))


def sides_of(pairs: Iterable[Pair]) -> list[Row]:
    """Return the rows of pairs."""
    return list(chain.from_iterable(each.sides for each in pairs))


def machines_of(pair: Pair) -> tuple[str, ...]:
    """Return what tells the devices of a pair from those of others."""
    return tuple(str(each) for side in pair.sides for each in one_device(side))


def standing(pair: Pair) -> tuple[bool, float]:
    """Return what sorts accelerators: whether the CPU is that of their own machine, then how many times as fast they are."""
    return has_own_base(pair), speedup_of(pair)


def others_than(best: Pair, pairs: Iterable[Pair]) -> int:
    """Return how many accelerators there are besides the one of a pair."""
    return len({one_device(each.other) for each in pairs} - {one_device(best.other)})


def both_names(pair: Pair, pairs: Iterable[Pair]) -> tuple[str, str]:
    """Return what the CPU and the accelerator of one of these pairs are called in a sentence, of cards with one name also which it is."""
    known = list(pairs)
    several = several_runs(sides_of(known))
    cpu, name = (hardware(side, several) for side in pair.sides)
    alike = {each.other.case.device for each in known if hardware(each.other, several) == name}
    return cpu, f"{name} ({pair.other.case.device})" if len(alike) > 1 else name


def over_rounds(pairs: Iterable[Pair]) -> tuple[str, ...]:
    """Return the note on what a ratio is, where one of these lies far from the quotient that a reader would expect."""
    return (_OVER_ROUNDS,) if any(map(_is_apart, pairs)) else ()


def _is_apart(pair: Pair) -> bool:
    """Whether the ratio is far from the quotient of the two times in its row."""
    base, other = pair.time_s(pair.base), pair.time_s(pair.other)
    return bool(pair.speeds and base and other and abs(base / other / speedup_of(pair) - 1) > _APART)


def reported(results: Results, by: str) -> tuple[Pairs, Table, list[tuple[str, ...]]]:
    """Return the pairs of rows that differ in one setting and report values, not times; their table; what each device's first reports.

    That is a sentence a value, of many for the first ones. Trainings in formats of numbers are told in the answer on precisions.
    """
    results = results.where(lambda row: row.declared.parameter("format") is None)
    # Most files report none, and pairing takes a while.
    pairs = match_rows(results, by, timed=False) if any(row.values for row in results.rows) else Pairs()
    with_values = ((each, declared_values(each)) for each in _firsts(pairs))
    return pairs, same_case(pairs), [tuple(_reports(each, values)) for each, values in with_values if values]


def _firsts(pairs: Pairs) -> list[Pair]:
    """Return the first pair of each device."""
    return [found[0] for found in by_device(pairs.rows).values()]


def _reports(pair: Pair, values: Sequence[str]) -> Iterable[str]:
    yield from (f"{short(pair.case)} reports {value}." for value in values[:_MOST_VALUES])
    if (more := len(values) - _MOST_VALUES) > 0:
        yield f"The table has {plural(more, 'more value')}."


def reported_headline(pairs: Pairs) -> Headline:
    """Return the first value that the first device's first pair reports as a headline: ``p99_s 12.3 ms in bf16 and 12.5 ms in fp32``.

    Raises StopIteration where no pair reports a number.
    """
    pair, (name, *texts) = next((each, values[0]) for each in _firsts(pairs) if (values := _declared(each)))
    told = [f"{cut(name, _NAME)} {value}" for value in (" and ".join(texts), texts[0])]
    return Headline(told, [brief(pair.case)], rows=pair.sides)


def declared_values(pair: Pair) -> list[str]:
    """Return for example ``p99_s 12.3 ms in bf16 and 12.5 ms in fp32``, for each value that the workload of a pair declares."""
    return [f"{name} {other} and {base}" for name, other, base in _declared(pair)]


def _declared(pair: Pair) -> list[tuple[str, str, str]]:
    """Return the name of each number that the workload of a pair declares, and what it is on the other side and on the base."""
    at, several = _AT.get(pair.by, "at"), several_runs(pair.sides)
    where_other, where_base = (f"{at} {side_label(pair, side, several)}" for side in (pair.other, pair.base))
    return [
        (value_words(field.column), f"{cell(other, field.column)} {where_other}", f"{cell(base, field.column)} {where_base}")
        for field in value_fields(pair.sides)
        for other, base in [(field.of(pair.other), field.of(pair.base))]
        if isinstance(other, int | float) and isinstance(base, int | float)
    ]


def side_label(pair: Pair, side: Row, several: bool) -> str:
    """Return what tells a side from the other: its device, or its value of the setting in which they differ."""
    return device_label(side, several) if pair.by in (None, DEVICE) else str(pair.value(side))


def furthest(pairs: Sequence[Pair]) -> tuple[Pair, list[Pair]]:
    """Return the pair in the middle of those whose other side has the value that is furthest ahead of the base, and all of these.

    Where there are cases that all values have, these alone count: a value that was tried in small cases, too, is not behind for that.
    """
    others = grouped(pairs, lambda each: each.value(each.other)).values()
    shared = set.intersection(*({pair.base.case.id for pair in each} for each in others))
    compared = [[pair for pair in each if pair.base.case.id in shared] or each for each in others]
    found = max(compared, key=lambda each: speedup_of(middle(each)))
    return middle(found).chosen(len(others)), found


def own_best(pairs: Pairs) -> Table:
    """Return the table of throughputs, each side at a batch, precision, layout and mode of its own."""
    found = pairs.rows
    fields: Fields[Pair] = (("work", WORK),)
    for name, side in SIDES.items():
        items, flops = of_side(name, lambda row: row.rate.items_per_s), of_side(name, lambda row: row.rate.flops_per_s)
        without = [side(each).rate.items_per_s is None for each in found]  # their workloads count operations only
        fields += _side(found, name, ("throughput", flops if all(without) else items))
        if any(without) and not all(without):
            fields += (("FLOP/s", flops),)
        at = Column(f"{name}.choice", Unit.TEXT, f"{name}: what it chose")
        fields += (("at", Field(at, choice).on(side)),)
    title = "Each side at its own best batch, precision, layout and mode: how many times the throughput"
    return table(title, (*fields, *RATIO), found, whole=pair_columns.cells)


def ratio_figure(title: str, pairs: Pairs, named: Field[Pair] = CASE) -> Figure:
    """Return the figure of the ratios of pairs, a row each; of devices against the CPU of their own machine, where that was measured."""
    found, by = [each for each in pairs.rows if each.speeds], pairs.by or DEVICE
    if by == DEVICE:
        found = with_own_base(found)
    else:
        named = on_its_device(named, found)
    (against, shared), (label, _) = _shared(found, "base"), _shared(found, "other")
    several = shared is None and not all(map(has_own_base, found))
    base = shared or ("the CPU" if all(each.base.is_on_cpu for each in found) else "the other side")
    about = f"A value above 1 is faster than {base}; the lines are 95 % intervals over rounds."
    other: Headed[Pair] = own(
        by.name,
        "other.label",
        Unit.TEXT,
        "the side that is compared with the base",
        lambda pair: f"{label(pair)} against {against(pair)}" if several else label(pair),
    )
    return of_ratios(title, about, f"times as fast as {base}", mark_of(named, found), found, ("case", named), other)


def on_its_device(named: Field[Pair], pairs: Sequence[Pair]) -> Field[Pair]:
    """Return the field that names pairs, with the device where they are of several: the same case there is two lines."""
    several = several_runs(sides_of(pairs))
    if len({device_label(each.other, several) for each in pairs}) <= 1:
        return named
    return Field(named.column, lambda pair: f"{short(str(named.of(pair)))} on {device_label(pair.other, several)}")


def with_own_base(pairs: Sequence[Pair]) -> list[Pair]:
    """Return of each case of a device the pair with the base of its own machine, or all where there is none."""
    own = {(one_device(each.other), each.case) for each in pairs if has_own_base(each)}
    return [each for each in pairs if has_own_base(each) or (one_device(each.other), each.case) not in own]


def has_own_base(pair: Pair) -> bool:
    """Whether the base is of the same machine."""
    return pair.base.case.run == pair.other.case.run


def mark_of(named: Field[S], found: Sequence[S]) -> Mark:
    """Return how to draw a row for each record: as dots where several have one name."""
    return "dot" if len(found) > len({str(named.of(each)) for each in found}) else "bar"


def of_ratios(title: str, about: str, times: str, mark: Mark, found: Sequence[S], *named: Headed[S]) -> Figure:
    """Return the figure of the ratios of records, a row each, by their name and the series that they are of; ``times`` says of what."""
    ratio, *ends = SPEEDUP
    return figure(title, about, mark, found, (times, ratio), *named, log="x", interval=ends, reference=1.0, spread=speedup_of)


def _shared(pairs: Sequence[Pair], name: Side) -> tuple[Callable[[Pair], str], str | None]:
    """Return how a side is labelled, and its label where all pairs have the same."""
    several = several_runs(sides_of(pairs))

    def label(pair: Pair) -> str:
        return side_label(pair, SIDES[name](pair), several)

    labels = set(map(label, pairs))
    return label, labels.pop() if len(labels) == 1 else None


def _side(pairs: Sequence[Pair], name: Side, value: Headed[Pair]) -> Fields[Pair]:
    """Return one column headed by the side's label where all pairs share it, else the labels in a column of their own."""
    label, shared = _shared(pairs, name)
    return ((shared, value[1]),) if shared else (own(name, f"{name}.label", Unit.TEXT, f"{name}: which it is", label), value)
