"""Figures as Vega-Lite, which lays them out, and as SVG. The door to vl-convert.

Colours are custom properties of page.css, such as ``var(--ink)``, so one drawing serves light and dark pages; a file of its own gets the
light ones.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import vl_convert

from dlbench.analysis.presentation.columns import Figure, has_words
from dlbench.analysis.presentation.names import without_folders
from dlbench.analysis.presentation.wording import cell, plural
from dlbench.core import units
from dlbench.core.rows.row import Cells
from dlbench.core.units import Column, Unit

Spec = dict[str, Any]
"""A part of Vega-Lite."""

STYLE = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
_VEGA: Spec = json.loads(Path(__file__).with_name("vega.json").read_text(encoding="utf-8"))
"""How all charts look, every layer that one may have, in their order, and labels.

A layer is called like the mark, or the field of the points, that asks for it. The label of a number is in the format of d3 that its unit
has, or with a prefix of the SI; empty where Vega leaves a line of a logarithmic axis without its number. Of a long name it is the
beginning and the end, as what tells it from others may be either.
"""
WIDE, NARROW = 590, 316
"""Pixels that a chart may take: half of a screen, and a telephone."""
_MOST_ROWS = 20
"""Names of a categorical axis that can still be read."""
_MOST_SERIES = 15
"""Series of a figure that a reader can still distinguish."""
_LETTER = 6
"""Pixels of a letter, at most on average."""
_UNSEEN = (
    r'<path [^>]*(?:d="M0,0h0v0h0Z"|display="none")[^>]*/>|'
    r' (?:(?:xmlns:xlink|version|class|role|aria-[a-z]+|pointer-events|stroke-miterlimit)="[^"]*"|(?:fill-)?opacity="1")(?=[^<>]*>)'
)
"""Parts of an SVG that do not show."""
_VERDICTS = ("faster", "slower", "same", "inconclusive")
"""Series that look the same on every chart, whichever of them occur."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure, as far as it is drawn."""

    figure: Figure
    left_out: tuple[str, ...]
    """A sentence for each thing that is in its table only."""
    specs: tuple[Spec, ...]
    """As Vega-Lite: none where there is nothing to draw, one, or one for wide pages and one for narrow ones."""

    def svg(self) -> list[str]:
        """Return each as an element for a page."""
        return list(map(_render_svg, self.specs))

    def standalone(self) -> str:
        """Return the one for wide pages as a file of its own, with its title on white."""
        drawn = _render_svg({**self.specs[0], "title": {"text": shorten(self.figure.title), "limit": WIDE}, "background": "var(--paper)"})
        light = dict(re.findall(r"--(\w+): (#\w+)", STYLE.partition("@media")[0]))
        return re.sub(r"var\(--(\w+)\)(?=[^<>]*>)", lambda name: light[name[1]], drawn) + "\n"


def chart(figure: Figure) -> Chart:
    """Return the chart of a figure, with as many categories and series as a reader can distinguish."""
    points = _points(figure)
    undrawn, left_out = len(figure.rows) - len(points), list[str]()
    for name, axis, most in (("y", figure.y, _MOST_ROWS), ("series", figure.series, _MOST_SERIES)):
        names = _names(points, name)
        if axis and has_words(axis) and len(names) > most:
            left_out.append(f"{len(names) - most} of {len(names)} by {axis.heading}, evenly spread")
            chosen = {names[step * (len(names) - 1) // (most - 1)] for step in range(most)}
            points = [point for point in points if point[name] in chosen]
    if undrawn:
        left_out.append(f"{plural(undrawn, 'row')} without a number to draw")
    widths = ((WIDE, NARROW) if figure.series or has_words(figure.y) else (NARROW,)) if points else ()
    return Chart(figure, tuple(left_out), tuple(_spec(figure, points, width) for width in widths))


def shorten(words: str) -> str:
    """Return a text as one line without folders of the user's, of a very long one the beginning and the end."""
    line = without_folders(units.one_line(words))
    return line if len(line) <= 90 else f"{line[:60]}…{line[-29:]}"


def _names(points: Sequence[Spec], field: str) -> list[str]:
    return list(dict.fromkeys(point[field] for point in points if field in point))


def _words(row: Cells, axis: Column) -> str:
    return shorten(cell(row.get(axis.name), axis)) or "none"


def _position(row: Cells, axis: Column, log: bool) -> Any:
    """Return the number, or the words, of a row on an axis; None without a number, and for one that a logarithmic axis can't show."""
    value = row.get(axis.name)
    if has_words(axis):
        return _words(row, axis)
    return None if value is None or (log and value <= 0) else float(value)


def _points(figure: Figure) -> list[Spec]:
    """Return the fields of a point for each row that can be drawn; the layers of `_VEGA` read these fields.

    The name of a series has the words of the column ``series`` and of the column ``place``. A column with the same words in all rows is
    left out of it. If both have the same words in all rows, the name has those of ``series``.
    """
    axes_of_names = [axis for axis in (figure.series, figure.place) if axis]
    distinguishing = [axis for axis in axes_of_names if len({_words(row, axis) for row in figure.rows}) > 1]
    number_axis = "y" if figure.mark == "line" else "x"  # the axis of an interval
    points = list[Spec]()
    for rank, row in enumerate(figure.rows):
        point: Spec = {"x": _position(row, figure.x, "x" in figure.log), "y": _position(row, figure.y, "y" in figure.log)}
        if None in point.values():
            continue  # no number, or one that a logarithmic axis can't show
        point["rank"] = rank  # the order of the parts of a stack
        point["hint"] = " · ".join(_words(row, axis) for axis in figure.axes)
        if figure.series:
            point["series"] = " on ".join(_words(row, axis) for axis in distinguishing or [figure.series])
        point |= _ends(number_axis, figure.interval, row) | _ends("band", figure.band, row)
        if figure.mark == "bar":
            point |= _bar(figure, point, row, distinguishing)
        points.append(point)
    return points


def _ends(name: str, ends: Sequence[Column], row: Cells) -> Spec:
    """Return the two fields of an interval or band of a row: ``x_low`` and ``x_high``; none where an end is missing."""
    numbers = [row.get(end.name) for end in ends]
    if not numbers or None in numbers:
        return {}
    low, high = numbers
    return {f"{name}_low": low, f"{name}_high": high}


def _bar(figure: Figure, point: Spec, row: Cells, distinguishing: Sequence[Column]) -> Spec:
    """Return the further fields of a bar: where it begins, where its number is written, behind bar and interval, and its name."""
    start = figure.reference if "x" in figure.log else 0  # a logarithmic axis has no zero
    return {
        "from": start,
        "end": max(start, point["x"], point.get("x_high", 0)),
        "words": _words(row, figure.x),
        # The name of the bar includes the series, so that no reader has to rely on colour.
        "y": " · ".join([point["y"], *(_words(row, axis) for axis in distinguishing)]),
    }


def _spec(figure: Figure, points: Sequence[Spec], width: int) -> Spec:
    """Return the chart of these points as Vega-Lite, ``width`` pixels wide."""
    axes = (("x", figure.x), ("y", figure.y))
    encoding: Spec = {name: _numbers(name, axis, name in figure.log) for name, axis in axes if not has_words(axis)}
    if figure.clip:
        clipped_axis = "x" if has_words(figure.y) else "y"
        encoding[clipped_axis]["scale"] |= {"domain": figure.clip, "clamp": True}
    height = 220 if figure.series else 150  # pixels; several lines need more height to be told apart
    room_for_marks = width
    if has_words(figure.y):
        encoding_of_y, height, room_for_marks = _rows(points, width)
        encoding |= encoding_of_y
    encoding["tooltip"] = {"field": "hint"}
    layers = _layers(figure, points)
    if figure.series:
        series = encoding["color"] = _series(points, room_for_marks)
        # Dashes and shapes tell series apart, too, so that no reader has to rely on colour.
        for name, channel in (("line", "strokeDash"), ("dot", "shape")):
            if name in layers:
                conditions = layers[name]["encoding"].get(channel, {})  # those by which a dot beyond the axis is an arrow
                layers[name] = {**layers[name], "encoding": {channel: {**conditions, **series}}}  # a copy: all charts share `_VEGA`
    levels = [] if figure.reference is None else [{"at": figure.reference}]
    # Each data set is drawn by its own layers. The corners of the bound become points as the rows of the figure do.
    return {
        "data": {"name": "points"},
        "datasets": {"points": points, "levels": levels, "bound": _points(replace(figure, rows=figure.bound))},
        "width": width,
        "height": height,
        "encoding": encoding,
        "layer": list(layers.values()),
        "config": _VEGA["config"],
    }


def _layers(figure: Figure, points: Sequence[Spec]) -> dict[str, Spec]:
    """Return the layers of a chart in the order of `_VEGA`: its mark, the fields that its points have, and what the figure asks for."""
    wanted = {figure.mark, *chain.from_iterable(points)}  # a layer is called like the mark, or the field of points, that it draws
    if figure.mark == "line":
        wanted.add("dot")
    if figure.bound:
        wanted.add("bound")
    if figure.reference is not None:
        wanted.add("level_y" if figure.mark == "line" else "level_x")
    return {name: layer for name, layer in _VEGA["layers"].items() if name in wanted}


def _numbers(name: str, axis: Column, log: bool) -> Spec:
    """Return the encoding of an axis of numbers."""
    form, unit = _VEGA["formats"].get(axis.unit.value, ["'.4~s'", axis.unit.value])
    scale: Spec = {"type": "log", "base": 2 if axis.unit is Unit.COUNT else 10} if log else {}
    label = {"labelExpr": _VEGA["label"].format(form, unit)}
    return {"field": name, "type": "quantitative", "title": shorten(axis.heading), "scale": {**scale, "nice": False}, "axis": label}


def _rows(points: Sequence[Spec], width: int) -> tuple[Spec, int, int]:
    """Return the encoding of an axis of words, its height, and the width left for marks in pixels; long names stand above their marks."""
    names = _names(points, "y")
    most = width // _LETTER
    is_above = max(map(len, names)) > most // 2
    step = 30 if is_above else 20
    scale = {"type": "band", "paddingInner": 1 - 15 / step, "paddingOuter": 0.5 - 7.5 / step, "align": int(is_above)}
    axis = {"style": ["above"] * is_above, "labelLimit": width, "labelExpr": _VEGA["cut"].format(most, most // 2)}
    rows = {"field": "y", "type": "nominal", "title": None, "sort": None, "scale": scale, "axis": axis}
    return {"y": rows}, step * len(names), width if is_above else width // 2


def _series(points: Sequence[Spec], room: int) -> Spec:
    """Return the encoding of series with their legend, ``room`` pixels wide."""
    names = _names(points, "series")
    if names and set(names) <= set(_VERDICTS):
        names = list(_VERDICTS)  # so that each keeps its colour
    most = room // _LETTER - 5
    legend = {"columns": max(1, (most - 10) // (5 + max(map(len, names), default=0))), "labelExpr": _VEGA["cut"].format(most, most // 2)}
    return {"field": "series", "scale": {"domain": names}, "legend": {**legend, "labelLimit": room}}


def _render_svg(spec: Spec) -> str:
    """Return the SVG that Vega makes, without invisible parts, and with coordinates to a tenth of a pixel."""
    drawn = re.sub(_UNSEEN, "", vl_convert.vegalite_to_svg(spec))
    return re.sub(r"\d+\.\d{2,}(?=[^<>]*>)", lambda found: f"{float(found[0]):.1f}".removesuffix(".0"), drawn)
