"""Points of a figure as they are drawn: plain numbers and words, and how the numbers of an axis read best."""

import math
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from dlbench.analysis.presentation.figures import MOST_DRAWN, Axis, Figure
from dlbench.analysis.presentation.names import without_folders
from dlbench.analysis.presentation.wording import cell, number
from dlbench.core import units
from dlbench.core.model import ParamValue
from dlbench.core.rows.row import Cells
from dlbench.core.schema import Unit, text

MOST_SERIES = 15
"""Series of a figure that can still be told apart; lines of several places count each."""
MOST_PLACES = 5
"""Places of the lines of a series that can be told apart by a dash."""
_ROUNDING = 1e-9
"""Relative difference of numbers that are meant to be the same, such as of shares that add up."""
_ROOM = 0.04
"""How far a logarithmic axis goes beyond its numbers, as a fraction of its length."""

LETTER = 6.5
"""Width of a letter in pixels, in the widest of usual fonts at 12 pixels."""
_LONG = 90
"""Letters of a label: more would not fit beside the drawing."""


class Scale(NamedTuple):
    """Numbers of an axis as they are drawn: divided, in a format of d3, with a suffix."""

    divisor: float
    form: str
    suffix: str


class Ticks(NamedTuple):
    """Ends of an axis, and the numbers between them that it names."""

    low: float
    high: float
    values: list[float]


def ticks(numbers: Iterable[float], log: bool, most: int, also: float | None = None) -> Ticks:
    """Return an axis that holds all numbers, with about so many ticks, and one at ``also``, such as the reference.

    A logarithmic one names 1, 2 and 5 of each decade where there are two at most, else decades, of very many every second or third;
    where that leaves fewer than three, it names round numbers at even distances, as an axis that is not logarithmic does.
    """
    known = [*numbers, *(() if also is None else (also,))]
    low, high = min(known), max(known)
    if not log:
        values = _even(low, high, most)
        low, high = min(low, values[0]), max(high, values[-1])
    else:
        room, few = max((high / low) ** _ROOM, 1.02), high <= 100 * low
        low, high = low / room, high * room
        values = _within(_decades(low, high, most, few), low, high)
        if few and len(values) < 3:
            values = spaced(_within(_even(low, high, most), low, high), low, high, log, most)
    if also is not None and also not in values:
        apart = (high - low) / most / 2
        values = sorted([also, *(each for each in values if log or abs(each - also) > apart)])
    return Ticks(low, high, values)


def _within(values: Sequence[float], low: float, high: float) -> list[float]:
    return [each for each in values if low <= each <= high]


def _decades(low: float, high: float, most: int, few: bool) -> list[float]:
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    fine = [float(f"{digit}e{exponent}") for exponent in exponents for digit in (1, 2, 5)]
    if few and len(_within(fine, low, high)) <= most:
        return fine
    return [float(f"1e{exponent}") for exponent in exponents if exponent % math.ceil(len(exponents) / most) == 0]


def _even(low: float, high: float, most: int) -> list[float]:
    """Return round numbers at even distances, the first at or below ``low`` and the last at or above ``high``."""
    least = ((high - low) or abs(high) or 1.0) / most
    exponent = math.floor(math.log10(least))
    step = next(digit for digit in (1, 2, 5, 10) if float(f"{digit}e{exponent}") >= least * (1 - _ROUNDING))
    whole = float(f"{step}e{exponent}")
    first = math.floor(low / whole + _ROUNDING)
    last = max(math.ceil(high / whole - _ROUNDING), first + 1)
    return [float(f"{at * step}e{exponent}") for at in range(first, last + 1)]


def spaced(numbers: Iterable[float], low: float, high: float, log: bool, most: int) -> list[float]:
    """Return of these numbers those with room for a name each where an axis has room for so many: the largest, and what is apart."""
    at = math.log if log else float
    apart, kept = (at(high) - at(low)) / most, list[float]()
    for each in sorted(numbers, reverse=True):
        if not kept or at(kept[-1]) - at(each) >= apart * (1 - _ROUNDING):
            kept.append(each)
    return kept[::-1]


def is_category(axis: Axis) -> bool:
    """Whether an axis has words, not numbers."""
    return axis.column.unit in (Unit.TEXT, Unit.FLAG)


def shown(row: Cells, axis: Axis) -> str:
    """Return what an axis of words has for a row."""
    return brief(cell(row.get(axis.column.name), axis.column)) or "none"


def brief(words: str) -> str:
    """Return a text as one line without folders of the user's, of a very long one the beginning and the end."""
    line = without_folders(units.one_line(words))
    return line if len(line) <= _LONG else f"{line[: _LONG - 30]}…{line[-29:]}"


def wrapped(words: str, letters: int) -> str:
    """Return a text in lines of so many letters; a number at its end stays with its unit."""
    return "\n".join(textwrap.wrap(re.sub(r"(?<=\d) (?=\S{1,3}$)", "\N{NO-BREAK SPACE}", words), letters, break_on_hyphens=False))


def limited(figure: Figure) -> tuple[Figure, list[str]]:
    """Return the figure with its first categories and series, of these those of most places first, and what that leaves out.

    More places than there are dashes make series of their own.
    """
    if figure.series and figure.place and len(places_of(figure)) > MOST_PLACES:
        name, where = figure.series.column.name, figure.place
        named = ({**row, name: f"{shown(row, figure.series)} on {shown(row, where)}"} for row in figure.rows)
        figure = replace(figure, rows=tuple(named), place=None)
    rows, notes = figure.rows, []
    limits = [(axis, MOST_DRAWN) for axis in (figure.x, figure.y) if is_category(axis)]
    limits += [(figure.series, max(1, MOST_SERIES // len(places_of(figure))))] if figure.series else []
    for axis, most in limits:
        kept: dict[str, set[str]] = {}
        for row in rows:
            kept.setdefault(shown(row, axis), set()).add(shown(row, figure.place) if figure.place else "")
        if len(kept) > most:
            notes.append(f"{len(kept) - most} of {len(kept)}, behind the first {most} by {axis.title}")
            first = set(sorted(kept, key=lambda name: -len(kept[name]))[:most])
            rows = tuple(row for row in rows if shown(row, axis) in first)
    return replace(figure, rows=rows), notes


def places_of(figure: Figure) -> list[str]:
    """Return the places of its rows; ``[""]`` where it has none."""
    return list(dict.fromkeys(shown(row, figure.place) for row in figure.rows)) if figure.place and figure.rows else [""]


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
        for name, named in (("series", figure.series), ("place", figure.place)):
            if named:
                point[name] = shown(row, named)
        for kind, columns in (("", figure.interval), ("band_", figure.band)):
            values = [row.get(column.name) for column in columns or ()]
            if columns and None not in values:
                point |= zip((f"{kind}low", f"{kind}high"), values, strict=True)
        axis = getattr(figure, value_axis(figure))
        if not is_category(axis):
            point["text"] = text(number(row[axis.column.name]), axis.column.unit)
        found.append(_clipped(point, figure))
    return found


def _clipped(point: Cells, figure: Figure) -> Cells:
    """Return a point within the ends of what is drawn; where it was beyond, with ``beyond`` as the shape that says so."""
    if figure.clip is None:
        return point
    low, high = figure.clip
    name, shapes = ("x", ("triangle-left", "triangle-right")) if is_category(figure.y) else ("y", ("triangle-down", "triangle-up"))
    within = {each: min(max(number(point[each]), low), high) for each in (name, "low", "high") if each in point}
    value = number(point[name])
    return {**point, **within, **({} if low <= value <= high else {"beyond": shapes[value > high]})}


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
