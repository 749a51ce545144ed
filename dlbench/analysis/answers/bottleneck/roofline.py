"""Ceilings of each device, and the rows below them: the roofline of Williams and others (2009, https://doi.org/10.1145/1498765.1498785)."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from dlbench.analysis.answers.parts.base import AnswerPart, table
from dlbench.analysis.answers.parts.headline import Headline
from dlbench.analysis.presentation.fields import WORK_OF_ROW, Field, Fields, Headed, device_column, of_row, own
from dlbench.analysis.presentation.figures import Figure, figure
from dlbench.analysis.presentation.names import HasRow, hardware
from dlbench.analysis.presentation.wording import few, plural, short
from dlbench.analysis.ratios.pairing import grouped
from dlbench.analysis.read.ceilings import Ceilings, Machine, computed_in, from_caches, machine, reached_by
from dlbench.analysis.read.table import Results
from dlbench.core.declarations import Ceiling
from dlbench.core.rows.columns import MeasuredCeiling
from dlbench.core.rows.row import Row
from dlbench.core.schema import Column, Unit
from dlbench.core.units import byte_rate, flop_rate, fraction, seconds, three_digits

ORDER = 20
_TIME = of_row(lambda row: row.time.median_s)
_FLOPS, _BYTES = of_row(lambda row: row.rate.flops_per_s), of_row(lambda row: row.rate.bytes_per_s)
_WORKLOAD, _SHARE = of_row(lambda row: row.case.workload), of_row(lambda row: row.rate.ceiling_fraction)
_SHOWN: Mapping[Ceiling, Field[HasRow]] = {"arithmetic": _FLOPS, "memory": _BYTES, "launch": _TIME, "synchronisation": _TIME}
"""What is shown of each kind of ceiling."""
_NOTE = (
    "FLOP/byte is what the workload states of both; caches that hold what a call comes back to, and layers that are fused, "
    "move fewer bytes, so that such a case belongs further right."
)
_FROM_CACHES = "left out, as caches have some of what they move, which then is faster than memory: {}"
_MOST_FIGURES = 4


class Roof(NamedTuple):
    """What a device can do at most."""

    where: Machine
    ceilings: Ceilings
    rows: Sequence[Row]
    """Those of the device that are sound."""
    known: Collection[Machine]
    """All that have a roof."""

    @property
    def memory(self) -> MeasuredCeiling:
        """Most bytes a second of its memory."""
        return self.ceilings["memory", ""]

    def arithmetic(self) -> list[MeasuredCeiling]:
        """Return the most operations a second in each precision, the highest rate first."""
        return sorted((each for each in self.ceilings.values() if each.kind == "arithmetic"), key=lambda each: -each.per_s)

    def place(self, row: Row) -> str:
        """Return what the device is called: where another has the same id, with its hardware, or the place where that is another."""
        device, *_, key = self.where
        others = {other[-1] for other in self.known if other[0] == device and other != self.where}
        words = [*([hardware(row)] if key in others else ()), *([row.case.run] if others - {key} else ())]
        return f"{device} ({', '.join(words)})" if words else str(device)

    def reached(self) -> list["Placed"]:
        """Return the row that reached each ceiling."""
        return [Placed(self, reached_by(each, self.rows), each.kind) for each in self.ceilings.values()]


class Placed(NamedTuple):
    """A row with the ceilings of its device, which it is below or reaches."""

    roof: Roof
    row: Row
    kind: Ceiling | None = None
    """The ceiling that it reached, or that of memory where it only measures it; None of a row below them."""

    @property
    def what(self) -> str | None:
        """The kind of ceiling, of arithmetic with its precision."""
        return f"{self.kind} in {computed_in(self.row)}" if self.kind == "arithmetic" else self.kind

    @property
    def intensity(self) -> float:
        """Stated operations over stated bytes; zero where it does not state both."""
        return (self.row.rate.flops_per_s or 0.0) / (self.row.rate.bytes_per_s or math.inf)


def _of_its_kind(field: Field[HasRow]) -> Field[Placed]:
    """Return a field of rows that reach a ceiling that is shown by it."""
    return Field(field.column, lambda top: field.of(top) if top.kind and _SHOWN[top.kind] is field else None)


_DEVICE: Headed[Placed] = device_column(lambda placed: placed.roof.place(placed.row))
_CEILINGS: Fields[Placed] = (
    _DEVICE,
    own("ceiling", "ceiling.what", Unit.TEXT, "arithmetic and its precision, memory, or what takes that time at least"),
    ("reached by", WORK_OF_ROW),
    ("FLOP/s", _of_its_kind(_FLOPS)),
    ("bytes/s", _of_its_kind(_BYTES)),
    ("time", _of_its_kind(_TIME)),
    ("of the best", _SHARE),
    ("peak", of_row(lambda row: row.rate.peak_fraction)),
    ("of", of_row(lambda row: row.rate.peak)),
)
_INTENSITY: Field[Placed] = Field(
    Column("roofline.intensity", Unit.NUMBER, "stated operations over stated bytes"), lambda point: point.intensity
)
_BELOW: Fields[Placed] = (
    ("case", WORK_OF_ROW),
    _DEVICE,
    ("FLOP/byte", _INTENSITY),
    ("FLOP/s", _FLOPS),
    ("bytes/s", _BYTES),
    ("ceiling", _SHARE),
    own("of", "roofline.nearest", Unit.TEXT, "the nearest ceiling", lambda point: point.row.rate.ceiling and point.row.rate.ceiling.kind),
)


def findings(results: Results) -> AnswerPart:
    """Return what each device can do at most, where memory was measured, and where the cases stand below it."""
    sound = [(machine(row, results.environments), row) for row in results.rows if row.is_sound]
    every = results.ceilings
    known = sorted((where for where in every if ("memory", "") in every[where]), key=lambda where: where[0] == "cpu")
    if not known:
        return AnswerPart()
    roofs = {where: Roof(where, every[where], [row for at, row in sound if at == where], known) for where in known}
    placed = [Placed(roofs[where], row) for where, row in sound if where in roofs]
    stated = [point for point in placed if point.row.is_single_rank and point.intensity]
    below = [point for point in stated if not from_caches(point.row, point.roof.memory)]
    beyond = len(stated) - len(below)
    notes = (_NOTE, *([_FROM_CACHES.format(plural(beyond, "case"))] if beyond else []))
    tables = [table("What each device can do at most", _CEILINGS, [top for roof in roofs.values() for top in _tops(roof)])]
    tables.append(table("Cases below the measured ceilings", _BELOW, below, notes))
    rests = [point.row for point in placed if point.row.declared.ceiling in _SHOWN]
    rests += [top.row for roof in roofs.values() for top in roof.reached()]
    headline = _headline(roofs[known[0]], len(known) > 1)
    return AnswerPart(list(map(_sentences, roofs.values())), rests, tables, _figures(below), headline=headline)


def _tops(roof: Roof) -> list[Placed]:
    """Return the best of each kind, and of memory each case at its best."""
    reached = roof.reached()
    moves = [row for row in roof.rows if row.declared.ceiling == "memory"]
    moves += [top.row for top in reached if top.kind == "memory"]  # which may declare no ceiling
    each_best = {row.key: row for row in sorted(moves, key=lambda row: row.rate.bytes_per_s or 0.0)}
    chosen = [*(top for top in reached if top.kind != "memory"), *(Placed(roof, row, "memory") for row in reversed(each_best.values()))]
    kinds = list(_SHOWN)
    return sorted(chosen, key=lambda top: kinds.index(top.kind or "memory"))


def _headline(roof: Roof, several: bool) -> Headline:
    """Return the highest rate of arithmetic and of memory; the share of a published peak or the latency of a launch qualifies them."""
    memory = reached_by(roof.memory, roof.rows)
    rows, text = [memory], f"{byte_rate(roof.memory.per_s)} memory at most"
    rate = qualifier = ""
    if (launch := roof.ceilings.get(("launch", ""))) is not None:
        qualifier = f"{seconds(1 / launch.per_s)} a launch"
    if arithmetic := roof.arithmetic():
        rate = f"{flop_rate(arithmetic[0].per_s)} {arithmetic[0].precision}"
        rows.insert(0, row := reached_by(arithmetic[0], roof.rows))
        qualifier = f"{fraction(row.rate.peak_fraction)} of the published peak" if row.rate.peak_fraction else qualifier
    where = roof.place(memory) if several else ""
    texts = ", ".join(filter(None, (rate, text))), rate or text
    return Headline(texts, [": ".join(filter(None, (where, qualifier))), where or qualifier], rows=rows)


_RATES = 3
"""Precisions in the first sentence."""


def _sentences(roof: Roof) -> tuple[str, ...]:
    """Say how fast a device can compute, move bytes and launch at most, and what memory bounds."""
    memory, found, arithmetic = roof.memory, roof.ceilings, roof.arithmetic()
    reached = reached_by(memory, roof.rows)
    where, sentences = roof.place(reached), [f"Its memory moves at most {byte_rate(memory.per_s)} ({short(reached.key)})."]
    names: dict[Ceiling, str] = {"launch": "a launch takes {}", "synchronisation": "one that is waited for {}"}
    times = [name.format(seconds(1 / found[kind, ""].per_s)) for kind, name in names.items() if (kind, "") in found]
    if reached.is_on_cpu:
        times = times[:1]  # it is done when a launch returns
    if times:
        sentences.append(f"At the quickest {' and '.join(times)}.")
    if not arithmetic:
        return (sentences[0].replace("Its memory", f"The memory of {where}"), *sentences[1:])
    rates = [f"{flop_rate(each.per_s)} in {each.precision}" for each in arithmetic]
    also = [f"It reaches {few(rates[_RATES:])} as well."] if rates[_RATES:] else []
    top = next((each for each in arithmetic if each.precision == "fp32"), arithmetic[0])
    ridge = f"In {top.precision} memory bounds what has less than {three_digits(top.per_s / memory.per_s)} FLOP a byte."
    return (f"On {where} arithmetic reaches at most {few(rates[:_RATES])}.", *also, *sentences, ridge)


def _figures(below: Sequence[Placed]) -> list[Figure]:
    """Return a roofline for each device and precision that has a roof and rows below it, those with the most rows first."""
    groups = grouped(below, lambda point: (point.roof.where, computed_in(point.row)))
    found = []
    for (_, precision), alike in sorted(groups.items(), key=lambda group: -len(group[1])):
        roof = alike[0].roof
        arithmetic = roof.ceilings.get(("arithmetic", precision or ""))
        if arithmetic is None:
            continue
        bandwidth = roof.memory.per_s
        ridge = arithmetic.per_s / bandwidth
        ends = [point.intensity for point in alike]
        corners = [min(*ends, ridge / 4), ridge, max(*ends, 4 * ridge)]
        about = (
            f"The line is the most that was measured: {byte_rate(bandwidth)} on the slope, {flop_rate(arithmetic.per_s)} from "
            f"{three_digits(ridge)} FLOP a byte on. A dot far below it is held up by something else."
        )
        x, y, series = ("operations a byte", _INTENSITY), ("FLOP/s", _FLOPS), ("workload", _WORKLOAD)
        line = tuple({_INTENSITY.column.name: at, _FLOPS.column.name: min(at * bandwidth, arithmetic.per_s)} for at in corners)
        title = f"Roofline in {precision}: {roof.place(alike[0].row)}"
        found.append(figure(title, about, "dot", alike, x, y, series, log="xy", bound=line))
    return found[:_MOST_FIGURES]
