"""Ceilings of each device, and the rows below them: the roofline of Williams and others (2009, https://doi.org/10.1145/1498765.1498785)."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from dlbench.analysis.answers.parts.base import Section
from dlbench.analysis.presentation.columns import CASE, of_row, place
from dlbench.analysis.presentation.figures import Figure, figure
from dlbench.analysis.ratios.pairing import grouped
from dlbench.analysis.read.ceilings import Ceilings, computed_in, from_caches, machine, reached_by
from dlbench.analysis.read.table import Results
from dlbench.core.declarations import Ceiling
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


class Placed(NamedTuple):
    """A row with the ceilings of its device, which it is below or reaches."""

    row: Row
    ceilings: Ceilings
    kind: Ceiling | None = None
    """The ceiling that it reached, or that of memory where it only measures it; None of a row below them."""
    below: Sequence[Row] = ()
    """All rows of its device, where it is one that reached a ceiling."""

    @property
    def what(self) -> str | None:
        """The kind of ceiling, of arithmetic with its precision."""
        return f"{self.kind} in {self.precision}" if self.kind == "arithmetic" else self.kind

    @property
    def launch(self) -> str | None:
        """What a launch takes at the quickest."""
        ceiling = self.ceilings.get(("launch", ""))
        return seconds(1 / ceiling.per_s) if ceiling else None

    @property
    def precision(self) -> str | None:
        """What its products are computed in."""
        return computed_in(self.row)

    @property
    def intensity(self) -> float:
        """Stated operations over stated bytes; zero where it does not state both."""
        return (self.row.rate.flops_per_s or 0.0) / (self.row.rate.bytes_per_s or math.inf)


def _roofs(results: Results) -> list[tuple[Ceilings, list[Row]]]:
    """Return the ceilings of each device whose memory was measured, and its sound rows; accelerators first."""
    rows = grouped((row for row in results.rows if row.is_sound), lambda row: machine(row, results.environments))
    known = sorted(results.ceilings.items(), key=lambda each: each[0][0] == "cpu")
    return [(ceilings, rows[where]) for where, ceilings in known if ("memory", "") in ceilings]


def tops(results: Results) -> list[Placed]:
    """Return what each device can do at most: the best of each kind, the fastest precision first, and of memory each case at its best."""
    found, kinds = list[Placed](), list(_SHOWN)
    for ceilings, rows in _roofs(results):
        best = [Placed(reached_by(each, rows), ceilings, each.kind, rows) for each in ceilings.values()]
        moves = [row for row in rows if row.declared.ceiling == "memory"]
        moves += [top.row for top in best if top.kind == "memory"]  # which may declare no ceiling
        each_best = {row.key: row for row in sorted(moves, key=lambda row: row.rate.bytes_per_s or 0.0)}
        best = [top for top in best if top.kind != "memory"] + [
            Placed(row, ceilings, "memory", rows) for row in reversed(each_best.values())
        ]
        found += sorted(
            best, key=lambda top: (kinds.index(top.kind or "memory"), -(top.row.rate.flops_per_s or 0.0) * (top.kind == kinds[0]))
        )
    return found


def _foremost(found: Sequence[Placed]) -> list[Placed]:
    """Return the first of each kind on the first device."""
    return [alike[0] for alike in grouped((top for top in found if top.ceilings is found[0].ceilings), lambda top: top.kind).values()]


def _of_its_kind(column: Column) -> Column:
    """Return a column for what reaches a ceiling that is shown by it."""
    return column.by(lambda top: column.value(top) if top.kind and _SHOWN[top.kind] is column else None)


def _figures(found: Sequence[Placed]) -> Iterator[Figure]:
    """Yield a roofline for each device and precision that has a roof and rows below it, those with the most rows first.

    Rows are of one rank and state both operations and bytes, of which caches have none.
    """
    where = place(found)
    devices = [alike[0] for alike in grouped(found, lambda top: id(top.ceilings)).values()]
    points = [Placed(row, top.ceilings) for top in devices for row in top.below if row.is_single_rank]
    shown = [each for each in points if each.intensity and not from_caches(each.row, each.ceilings["memory", ""])]
    groups = grouped(shown, lambda point: (where.value(point), point.precision))
    for (device, precision), alike in sorted(groups.items(), key=lambda group: -len(group[1]))[:_MOST_FIGURES]:
        ceilings = alike[0].ceilings
        arithmetic, bandwidth = ceilings.get(("arithmetic", precision or "")), ceilings["memory", ""].per_s
        if arithmetic is None:
            continue
        ridge = arithmetic.per_s / bandwidth
        ends = [point.intensity for point in alike]
        corners = [min(*ends, ridge / 4), ridge, max(*ends, 4 * ridge)]
        about = (
            f"The line is the most that was measured: {byte_rate(bandwidth)} on the slope, {flop_rate(arithmetic.per_s)} from "
            f"{three_digits(ridge)} FLOP a byte on. A dot far below it is held up by something else."
        )
        line = tuple({_INTENSITY.name: at, _FLOPS.name: min(at * bandwidth, arithmetic.per_s)} for at in corners)
        workload = of_row(lambda row: row.case.workload, "workload")
        x = _INTENSITY.headed("operations a byte")
        yield figure(f"Roofline in {precision}: {device}", about, "dot", alike, x, _FLOPS, workload, log="xy", bound=line)


_INTENSITY = Column("roofline.intensity", Unit.NUMBER, "stated operations over stated bytes", heading="FLOP/byte")
SECTIONS = [
    Section(
        records=tops,
        title="What each device can do at most",
        columns=[
            place,
            Column(
                "ceiling.what",
                Unit.TEXT,
                "arithmetic and its precision, memory, or what takes that time at least",
                heading="ceiling",
                priority=0,
                of=lambda top: top.what,
            ),
            CASE.by(lambda top: top.row.key, "reached by"),
            _of_its_kind(_FLOPS),
            _of_its_kind(_BYTES),
            _of_its_kind(_TIME),
            of_row(lambda row: row.rate.ceiling_fraction, "of the best"),
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
        figures=[_figures],
    ),
]
