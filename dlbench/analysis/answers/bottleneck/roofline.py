"""Ceilings of each device, and the rows below them: the roofline of Williams and others (2009, https://doi.org/10.1145/1498765.1498785)."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from dlbench.analysis.answers.parts.base import Section
from dlbench.analysis.presentation.columns import CASE, PLACE, of_row
from dlbench.analysis.presentation.figures import Figure, figure
from dlbench.analysis.presentation.names import hardware
from dlbench.analysis.presentation.wording import plural
from dlbench.analysis.ratios.pairing import grouped
from dlbench.analysis.read.ceilings import Ceilings, Machine, computed_in, from_caches, machine, reached_by
from dlbench.analysis.read.table import Results
from dlbench.core.declarations import Ceiling
from dlbench.core.rows.columns import MeasuredCeiling
from dlbench.core.rows.row import Row
from dlbench.core.schema import Column, Unit
from dlbench.core.units import byte_rate, flop_rate, seconds, three_digits

ORDER = 20
_FLOPS = of_row(lambda row: row.rate.flops_per_s, "FLOP/s", 0)
_BYTES = of_row(lambda row: row.rate.bytes_per_s, "bytes/s", 0)
_TIME = of_row(lambda row: row.time.median_s, "time", 0)
_SHOWN: Mapping[Ceiling, Column] = {"arithmetic": _FLOPS, "memory": _BYTES, "launch": _TIME, "synchronisation": _TIME}
"""What is shown of each kind of ceiling."""
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
    def place(self) -> str:
        """What its device is called."""
        return self.roof.place(self.row)

    @property
    def launch(self) -> str | None:
        """What a launch takes at the quickest."""
        ceiling = self.roof.ceilings.get(("launch", ""))
        return ceiling and seconds(1 / ceiling.per_s)

    @property
    def precision(self) -> str | None:
        """What its products are computed in."""
        return computed_in(self.row)

    @property
    def intensity(self) -> float:
        """Stated operations over stated bytes; zero where it does not state both."""
        return (self.row.rate.flops_per_s or 0.0) / (self.row.rate.bytes_per_s or math.inf)


def _roofs(results: Results) -> list[Roof]:
    """Return the devices whose memory was measured, accelerators first."""
    sound, every = [(machine(row, results.environments), row) for row in results.rows if row.is_sound], results.ceilings
    known = sorted((where for where in every if ("memory", "") in every[where]), key=lambda where: where[0] == "cpu")
    return [Roof(where, every[where], [row for at, row in sound if at == where], known) for where in known]


def ceilings(results: Results) -> list[Placed]:
    """Return what each device can do at most: the best of each kind, and of memory each case at its best."""
    return [top for roof in _roofs(results) for top in _tops(roof)]


def below(results: Results) -> list[Placed]:
    """Return the cases of one rank that state both operations and bytes."""
    placed = (Placed(roof, row) for roof in _roofs(results) for row in roof.rows)
    return [point for point in placed if point.row.is_single_rank and point.intensity and not from_caches(point.row, point.roof.memory)]


def doubts(results: Results) -> Iterator[str]:
    """Yield how many cases stand below no ceiling."""
    placed = (Placed(roof, row) for roof in _roofs(results) for row in roof.rows)
    if cached := sum(from_caches(each.row, each.roof.memory) for each in placed if each.row.is_single_rank and each.intensity):
        yield f"{plural(cached, 'case')} below no ceiling: caches have some of what they move, which then is faster than memory"


def _tops(roof: Roof) -> list[Placed]:
    reached = roof.reached()
    moves = [row for row in roof.rows if row.declared.ceiling == "memory"]
    moves += [top.row for top in reached if top.kind == "memory"]  # which may declare no ceiling
    each_best = {row.key: row for row in sorted(moves, key=lambda row: row.rate.bytes_per_s or 0.0)}
    chosen = [*(top for top in reached if top.kind != "memory"), *(Placed(roof, row, "memory") for row in reversed(each_best.values()))]
    kinds = list(_SHOWN)
    return sorted(chosen, key=lambda top: (kinds.index(top.kind or "memory"), -(top.row.rate.flops_per_s or 0.0) * (top.kind == kinds[0])))


def _foremost(found: Sequence[Placed]) -> list[Placed]:
    """Return the first of each kind on the first device."""
    return [tops[0] for tops in grouped((top for top in found if top.roof is found[0].roof), lambda top: top.kind).values()]


def _of_its_kind(column: Column) -> Column:
    """Return a column for what reaches a ceiling that is shown by it."""
    return column.by(lambda top: column.value(top) if top.kind and _SHOWN[top.kind] is column else None)


def _figures(below: Sequence[Placed]) -> Iterator[Figure]:
    """Yield a roofline for each device and precision that has a roof and rows below it, those with the most rows first."""
    groups = grouped(below, lambda point: (point.roof.where, computed_in(point.row)))
    for (_, precision), alike in sorted(groups.items(), key=lambda group: -len(group[1]))[:_MOST_FIGURES]:
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
        x, series = _INTENSITY.headed("operations a byte"), of_row(lambda row: row.case.workload, "workload")
        line = tuple({_INTENSITY.name: at, _FLOPS.name: min(at * bandwidth, arithmetic.per_s)} for at in corners)
        title = f"Roofline in {precision}: {alike[0].place}"
        yield figure(title, about, "dot", alike, x, _FLOPS, series, log="xy", bound=line)


_INTENSITY = Column("roofline.intensity", Unit.NUMBER, "stated operations over stated bytes", heading="FLOP/byte")
_WORK = CASE.by(lambda placed: placed.row.key)
_SHARE = of_row(lambda row: row.rate.ceiling_fraction)
SECTIONS = [
    Section(
        records=ceilings,
        title="What each device can do at most",
        columns=[
            PLACE,
            Column(
                "ceiling.what",
                Unit.TEXT,
                "arithmetic and its precision, memory, or what takes that time at least",
                heading="ceiling",
                priority=0,
                of=lambda top: top.what,
            ),
            _WORK.headed("reached by"),
            _of_its_kind(_FLOPS),
            _of_its_kind(_BYTES),
            _of_its_kind(_TIME),
            _SHARE.headed("of the best"),
            of_row(lambda row: row.rate.peak_fraction, "peak", 0),
            of_row(lambda row: row.rate.peak, "of"),
        ],
        foremost=_foremost,
        by=lambda top: top.kind or "",
        headline={
            "arithmetic": ("{flops_per_s} {precision}{more}", "{flops_per_s} {precision}"),
            "memory": "{bytes_per_s} memory at most",
            **dict.fromkeys(("launch", "synchronisation"), "{median_s} at the quickest"),
        },
        more={"memory": ", {bytes_per_s} memory at most"},
        qualifier=("{peak_fraction} of the published peak{where}", "{launch} a launch{where}"),
    ),
    Section(
        records=below,
        title="Cases below the measured ceilings",
        columns=[
            _WORK,
            PLACE,
            _INTENSITY,
            _FLOPS,
            _BYTES,
            _SHARE.headed("ceiling"),
            Column("roofline.nearest", Unit.TEXT, "the nearest ceiling", heading="of").by(
                lambda point: point.row.rate.ceiling and point.row.rate.ceiling.kind
            ),
        ],
        notes=[
            "FLOP/byte is what the workload states of both; caches that hold what a call comes back to, and layers that are fused, move "
            "fewer bytes, so that such a case belongs further right."
        ],
        figures=[_figures],
    ),
]
