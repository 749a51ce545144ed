"""Points of a figure as they are drawn: plain numbers and words, and how the numbers of an axis read best."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from dlbench.analysis.presentation.figures import MOST_DRAWN, Axis, Figure
from dlbench.analysis.presentation.wording import cell, number
from dlbench.core import units
from dlbench.core.model import ParamValue
from dlbench.core.rows.row import Cells
from dlbench.core.schema import Unit, text

MOST_SERIES = 12
"""Series of a figure that can still be told apart."""

_LONG = 90
"""Letters of a label: more would not fit beside the drawing."""


class Scale(NamedTuple):
    """Numbers of an axis as they are drawn: divided, in a format of d3, with a suffix."""

    divisor: float
    form: str
    suffix: str


def is_category(axis: Axis) -> bool:
    """Whether an axis has words, not numbers."""
    return axis.column.unit in (Unit.TEXT, Unit.FLAG)


def shown(row: Cells, axis: Axis) -> str:
    """Return what an axis of words has for a row."""
    return brief(cell(row.get(axis.column.name), axis.column)) or "none"


def brief(words: str) -> str:
    """Return a text as one line, of a very long one the beginning and the end."""
    line = units.one_line(words)
    return line if len(line) <= _LONG else f"{line[: _LONG - 30]}…{line[-29:]}"


def limited(figure: Figure) -> tuple[Figure, list[str]]:
    """Return the figure with its first categories and series, and what that leaves out."""
    rows, notes = figure.rows, []
    limits = [(axis, MOST_DRAWN) for axis in (figure.x, figure.y) if is_category(axis)]
    limits += [(figure.series, MOST_SERIES)] if figure.series else []
    for axis, most in limits:
        kept = dict.fromkeys(shown(row, axis) for row in rows)
        if len(kept) > most:
            notes.append(f"{len(kept) - most} of {len(kept)}, behind the first {most} by {axis.title}")
            first = set(list(kept)[:most])
            rows = tuple(row for row in rows if shown(row, axis) in first)
    return replace(figure, rows=rows), notes


def value_axis(figure: Figure) -> str:
    """Return which axis has the number that intervals, bands and the reference are of: where both have, ``y`` of lines and else ``x``."""
    if is_category(figure.x) or (figure.mark == "line" and not is_category(figure.y)):
        return "y"
    return "x"


def plotted(figure: Figure) -> list[Cells]:
    """Return a row of plain fields for each that can be drawn: x, y, series, and ends of interval and band, in base units."""
    found: list[Cells] = []
    for row in figure.rows:
        point: dict[str, ParamValue | None] = {name: _place(row, axis) for name, axis in (("x", figure.x), ("y", figure.y))}
        if None in point.values():
            continue
        if figure.series:
            point["series"] = shown(row, figure.series)
        for kind, columns in (("", figure.interval), ("band_", figure.band)):
            values = [row.get(column.name) for column in columns or ()]
            if columns and None not in values:
                point |= zip((f"{kind}low", f"{kind}high"), values, strict=True)
        axis = getattr(figure, value_axis(figure))
        if not is_category(axis):
            point["text"] = text(number(row[axis.column.name]), axis.column.unit)
        found.append(point)
    return found


def _place(row: Cells, axis: Axis) -> str | float | None:
    if is_category(axis):
        return shown(row, axis)
    value = row.get(axis.column.name)
    if value is None or isinstance(value, str) or (axis.log and value <= 0):
        return None
    return float(value)


def scale_of(axis: Axis, points: Sequence[Cells], name: str) -> Scale:
    """Return how the numbers of an axis read best, from its unit and the largest of them."""
    values, unit = [abs(number(point[name])) for point in points], axis.column.unit
    most = max(values)
    if unit is Unit.SECONDS and most >= 600 and not axis.log:
        return Scale(3600, "~g", " h") if most >= 7200 else Scale(60, "~g", " min")
    if unit is Unit.BYTES and not (axis.log and most > 1024 * min(values)):  # there several prefixes, at the decimal ticks of a log axis
        power = next((power for power in (3, 2, 1) if most >= 1024**power), 0)
        return Scale(1024**power, ",~r" if axis.log else ",~g", f" {('B', 'KiB', 'MiB', 'GiB')[power]}")
    if unit is Unit.FRACTION:
        return Scale(1, "~e" if axis.log or most < 1e-3 else "~%", "")
    if unit is Unit.ITEMS_PER_S and min(values) < 1:  # with prefixes a half would be 500 m/s
        return Scale(1, ",~g", "/s")
    return Scale(1, *_FORMATS.get(unit, ("~s", unit.value)))


_FORMATS = {
    Unit.COUNT: (",d", ""),
    Unit.NUMBER: ("~g", ""),
    Unit.RATIO: ("~g", " ×"),
    Unit.PER_S: ("~s", "/s"),
    Unit.ITEMS_PER_S: ("~s", "/s"),
    Unit.BYTES: ("~s", "B"),
    Unit.BYTES_PER_S: ("~s", "B/s"),
}


def divided(point: Cells, scales: Mapping[str, Scale], value: str) -> Cells:
    """Return a point in the units that its axes show; the ends of intervals and bands are on the axis ``value``."""
    where = {**dict.fromkeys(("low", "high", "band_low", "band_high"), value), **{name: name for name in scales}}
    return {**point, **{name: number(point[name]) / scales[axis].divisor for name, axis in where.items() if name in point}}
