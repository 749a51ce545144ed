"""Charts of figures: the encoding that the layers of one share, and these layers. A door to Altair.

A chart is laid out for the pixels that it may take, and for text that is as wide as in the widest of usual fonts.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import altair as alt

from dlbench.analysis.presentation.figures import Axis, Figure
from dlbench.analysis.presentation.wording import number
from dlbench.analysis.ratios.pairing import grouped
from dlbench.analysis.report.plot_points import (
    LETTER,
    Scale,
    divided,
    is_category,
    places_of,
    plotted,
    scale_of,
    spaced,
    ticks,
    value_axis,
    wrapped,
)
from dlbench.core import units
from dlbench.core.rows.row import Cells
from dlbench.core.schema import Unit

WIDE, NARROW = 590, 316
"""Pixels that a drawing may take: half of a screen, and a telephone."""
SERIES = [f"var(--s{place})" for place in range(1, 8)]
_REST = "var(--band)"
"""Colour of the last part of a stack, which is what the others leave of the whole."""
_SHAPES = ("circle", "square", "triangle-up", "diamond", "cross")
_DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [4, 4])
"""One fewer than colours, so that of thirty series no two are alike in both."""
_VERDICTS = {
    "slower": ("var(--s2)", "triangle-right"),
    "faster": ("var(--s1)", "triangle-left"),
    "same": ("var(--s6)", "circle"),
    "inconclusive": ("var(--edge)", "square"),
}
"""Colour and shape of each, whichever others occur."""
_HOLLOW = "inconclusive"
_MARKED = 40
"""Points of a line from which on they are no longer marked one by one."""
_COUNTS = 12
"""Most different counts, such as batch sizes, that each have a tick of their own."""
_LINE, _MARKS, _BAR = 15, 18, 16
"""Heights of a line of a name, of the marks of a row, and of one of several bars in it."""
_NUMBER = 5
"""Letters of a number without its unit."""
_ROOMY, _CROWDED, _LEAST = 215, 260, 140
"""Pixels between the axes that the names of rows have to leave to stand beside these and not above, where marks are bars, and where
they are dots, which may lie on each other; and what is left at least."""
_SYMBOL = 30
"""Pixels of a legend's symbol, and between its columns."""
_CUT = "length(datum.label) > {0} ? slice(datum.label, 0, {1}) + '…' + slice(datum.label, -{1}) : datum.label"
"""Of Vega: of a label that is too long its beginning and its end, as what tells it from others may be either."""
_ONE: Sequence[Cells] = [{}]
"""Data of a layer that has none."""
_PREFIX_APART = "replace({}, /[^0-9.]?$/, ' $&')"
"""Of Vega: d3 writes a prefix of the SI right behind its number."""


class _Room(NamedTuple):
    """Pixels between the axes, and how much higher a row is for its name."""

    width: int
    height: int
    name: int = 0


def _categories(points: Sequence[Cells], name: str) -> list[Any]:
    return list(dict.fromkeys(point[name] for point in points))


def _letters(scale: Scale) -> int:
    """Return how long a number of an axis is."""
    return len(scale.suffix) + _NUMBER


class Layers:
    """Layers of the chart of a figure in so many pixels; ``points`` are as of `plotted`."""

    def __init__(self, figure: Figure, points: Sequence[Cells], total: int, interactive: bool = False) -> None:
        axes = {"x": figure.x, "y": figure.y}
        self.figure, self.total, self.interactive = figure, total, interactive
        self.value, across = ("x", "y") if value_axis(figure) == "x" else ("y", "x")
        self.axis, self.across = axes[self.value], (across, axes[across])
        held = [*points, *({self.value: at} for _, at in figure.limits)]
        scales = {name: scale_of(axis, [p for p in held if name in p], name) for name, axis in axes.items() if not is_category(axis)}
        self.points, self.bound = (
            [divided(each, scales, self.value) for each in rows]
            for rows in (points, plotted(replace(figure, rows=figure.bound, series=None, place=None)))
        )
        divisor = scales[self.value].divisor
        self.origin, self.limits = (figure.reference or 0) / divisor, [(name, at / divisor) for name, at in figure.limits]
        self.bars = figure.mark in ("bar", "stack") and (figure.reference is not None or not self.axis.log)
        self.names = _categories(points, "series") if figure.series else []
        self.grouped = self.bars and figure.mark == "bar" and bool(self.names) and len(points) > len(_categories(points, across))
        self.points = [{**each, "words": self._words_of(each)} for each in self.points]
        # By dash and shape; colour always tells series apart.
        self.apart = "place" if len(places_of(figure)) > 1 else "series"
        of_line = Counter((point.get("series"), point.get("place")) for point in self.points)
        self.marked = figure.mark != "line" or max(of_line.values()) < _MARKED
        self.datasets: dict[str, Sequence[Cells]] = {}
        self.room = self._room(scales)
        self.encoding: dict[str, Any] = {
            name: self._numbers(name, axis, scales[name]) if name in scales else self._rows(name, axis) for name, axis in axes.items()
        }
        if self.grouped:
            offset = alt.YOffset if self.value == "x" else alt.XOffset
            self.encoding[f"{across}Offset"] = offset("series:N", scale=alt.Scale(domain=self.names))
        colours = SERIES
        if self.names and figure.mark == "stack":  # they stand in their order
            colours = [*SERIES[: len(self.names) - 1], _REST]
            self.points = [{**each, "rank": self.names.index(each["series"])} for each in self.points]
            self.encoding["order"] = alt.Order("rank:Q")
        self.encoding |= self._told_apart("color", alt.Color, colours)

    def specification(self) -> dict[str, Any]:
        """Return the chart of those that the figure asks for, the lowest first, as Vega-Lite."""
        layers = [*self._behind(), *self._marks(), *self._in_front()]
        left, right = (max(len(str(point[name])) for point in self.points) for name in ("y", "words"))
        beside = left if is_category(self.figure.y) and not self.room.name else _NUMBER
        size: dict[str, Any] = {"width": self.room.width, "height": self.room.height, "config": _style(beside, right)}
        # Points stand behind the chart, as Altair copies what is in it with each change; and it is slow to check what tests hold already.
        return {**alt.layer(*layers, **size).to_dict(validate=False), "datasets": self.datasets}

    def _words_of(self, point: Cells) -> str:
        """Return what stands at the end of a horizontal bar, so that colour never tells alone."""
        if not self.bars or self.value == "y" or self.figure.mark == "stack":
            return ""
        fields = ["series", "text"] if len(self.names) > 1 else ["text"]
        return " · ".join(str(point[name]) for name in fields if name in point)

    def _room(self, scales: Mapping[str, Scale]) -> _Room:
        """Return how large the drawing is, and break the names of rows that stand above their marks into lines."""
        narrow = self.total == NARROW
        if "y" in scales:
            width = self.total - round(_letters(scales["y"]) * LETTER) - 20
            plain = self.figure.mark == "dot" and not self.names
            return _Room(width, 130 if plain else 180 if narrow else 220)
        longest, ends = (max(len(str(point[name])) for point in self.points) for name in ("y", "words"))
        beside = round(self.total - 20 - (ends + longest) * LETTER)
        roomy = _CROWDED if self.figure.mark == "dot" else _ROOMY
        above = narrow or beside < max(roomy, _SYMBOL + LETTER * max(map(len, self.names), default=0))
        if above:
            self.points = [{**point, "y": wrapped(str(point["y"]), int(self.total / LETTER) - 1)} for point in self.points]
        # Above, where numbers of the axis stand out on both sides.
        width = max(_LEAST, round(self.total - 32 - ends * LETTER)) if above else beside
        marks = _BAR * len(self.names) + 4 if self.grouped else _MARKS
        name = _LINE * max(str(point["y"]).count("\n") + 1 for point in self.points) if above else 0
        return _Room(width, (marks + name) * len(_categories(self.points, "y")), name)

    def _rows(self, name: str, axis: Axis) -> Any:
        """Return the encoding of an axis of words; the figure's caption says what its rows are."""
        domain = _categories(self.points, name)
        if name == "x":
            words: dict[str, Any] = {"labelLimit": 200, "labelAngle": -35}
            return alt.X("x:N", title=units.one_line(axis.title), sort=None, scale=alt.Scale(domain=domain), axis=alt.Axis(**words))
        step = self.room.height / len(domain)
        bars = step - self.room.name
        inner = 1 - 0.85 * bars / step
        above: dict[str, Any] = {"ticks": False, "domain": False, "labelAlign": "left", "labelPadding": 0, "labelLineHeight": _LINE}
        above |= {"labelBaseline": "top", "labelOffset": 2 - self.room.name - bars / 2}
        scale = alt.Scale(type="band", domain=domain, paddingInner=inner, paddingOuter=inner / 2, align=1 if self.room.name else 0.5)
        more = above if self.room.name else {}
        names = alt.Axis(labelLimit=900, grid=not self.bars, labelExpr="split(datum.value, '\\n')", **more)
        return alt.Y("y:N", title=None, sort=None, scale=scale, axis=names)

    def _numbers(self, name: str, axis: Axis, scale: Scale) -> Any:
        length = self.room.width if name == "x" else self.room.height
        most = max(3, int(length / (_letters(scale) * LETTER if name == "x" else 26)))
        known, also = self._extent(name), self.origin if name == self.value and self.figure.reference is not None else None
        found = ticks(known, axis.log, most, also)
        counts = {number(point[name]) for point in self.points} if axis.column.unit is Unit.COUNT else ()
        values = spaced(counts, found.low, found.high, axis.log, most) if 0 < len(counts) <= _COUNTS else found.values
        label = f"{_PREFIX_APART if scale.form.endswith('s') else '{}'} + '{scale.suffix}'".format(f"format(datum.value, '{scale.form}')")
        form: dict[str, Any] = {"type": "log"} if axis.log else {"zero": False}
        # Without their count Vega leaves out every second of many.
        shown = alt.Axis(values=values, tickCount=len(values), labelExpr=label, labelOverlap=False, labelFlush=False)
        if name == "y":  # level, above the numbers, which may be wider than where the drawing was made
            for key, value in {"titleAngle": 0, "titleAlign": "left", "titleX": 0, "titleY": -12}.items():
                shown[key] = value
        channel = alt.X if name == "x" else alt.Y
        range_ = alt.Scale(domain=[found.low, found.high], nice=False, **form)
        return channel(f"{name}:Q", title=units.one_line(axis.title), scale=range_, axis=shown)

    def _extent(self, name: str) -> list[float]:
        """Return the numbers that an axis has to hold."""
        points = [*self.points, *self.bound]
        if name != self.value:
            return [number(point[name]) for point in points]
        known = [number(point[field]) for point in points for field in (name, "low", "high", "band_low", "band_high") if field in point]
        if self.figure.mark == "stack":
            wholes: dict[Any, float] = defaultdict(float)
            for point in self.points:
                wholes[point[self.across[0]]] += number(point[name])
            known = list(wholes.values())
        return [*known, *(at for _, at in self.limits), *([0.0] if self.bars and not self.axis.log else [])]

    def _told_apart(self, name: str, channel: Any, signs: Sequence[Any], by: str = "series") -> dict[str, Any]:
        """Return an encoding of series or places, if any, by colour, shape or dash; Vega joins those of one legend."""
        axis = self.figure.series if by == "series" else self.figure.place
        if not axis or not self.names:
            return {}
        names = self.names if by == "series" else places_of(self.figure)
        scale = alt.Scale(domain=names, range=[signs[at % len(signs)] for at in range(len(names))])
        if by == "series" and names and _VERDICTS.keys() >= set(names) and name in ("color", "shape"):
            scale = alt.Scale(domain=names, range=[_VERDICTS[each][name == "shape"] for each in names])
        occurs = [each for each in names if self.figure.mark != "stack" or any(number(p["x"]) for p in self.points if p["series"] == each)]
        letters = max(map(len, occurs), default=0)
        columns = max(1, int(self.room.width / (letters * LETTER + _SYMBOL)))
        words: dict[str, Any] = {"columns": columns, "columnPadding": 10 + letters, "labelLimit": 0, "values": occurs}
        room, offset = (self.total, 18) if is_category(self.figure.y) else (self.room.width, 30)
        most = int((room - _SYMBOL) / LETTER)
        words["labelExpr"] = _CUT.format(most, most // 2)
        if by == "place":  # below, as two legends above would stand side by side
            words |= {"orient": "bottom", "offset": 8, "symbolStrokeColor": "var(--ink)"}
        else:
            words |= {"orient": "top", "offset": offset}
        if self.figure.mark == "line":  # a dash would fray the edge of a mark
            words |= {"symbolStrokeWidth": 0} if self.marked else {"symbolType": "stroke", "symbolSize": 600}
        return {name: channel(f"{by}:N", title=units.one_line(axis.title), scale=scale, legend=alt.Legend(**words))}

    def _of(self, points: Sequence[Cells], *without: str, **more: Any) -> "alt.Chart":
        kept = {name: each for name, each in self.encoding.items() if name not in without}
        return self._with(points).encode(**kept, **more)

    def _with(self, points: Sequence[Cells]) -> "alt.Chart":
        """Return a chart of points without an encoding."""
        name = next((name for name, known in self.datasets.items() if known is points), f"points{len(self.datasets)}")
        self.datasets[name] = points
        return alt.Chart(alt.NamedData(name))

    def _between(self, low: str, high: str) -> "list[Cells]":
        return [point for point in self.points if low in point and high in point]

    def _at(self, field: str) -> Any:
        """Return the encoding of a field on the axis of numbers, which keeps the scale and the ticks of the marks."""
        encoding = self.encoding[self.value].copy()
        encoding.shorthand = f"{field}:Q"
        return encoding

    def _span(self, low: str, high: str) -> dict[str, Any]:
        return {self.value: self._at(low), f"{self.value}2": f"{high}:Q"}

    def _behind(self) -> "Iterator[alt.Chart]":
        """Yield the band, the bound, the reference and the limits with their words."""
        points = self._between("band_low", "band_high")
        if points:
            chart = self._of(points, self.value, "color", "xOffset", "yOffset", **self._span("band_low", "band_high"))
            yield chart.mark_bar(color="var(--band)") if is_category(self.across[1]) else chart.mark_area(color="var(--band)")
        if self.bound:
            yield self._of(self.bound, "color").mark_line(color="var(--edge)", strokeWidth=2)
        if self.figure.reference is not None:
            yield self._across(self.origin, strokeDash=[4, 3])
        for name, at in self.limits:
            yield self._across(at)
            words = self._with(_ONE).encode(x=alt.value(4), y=alt.datum(at), text=alt.value(units.one_line(name)))
            yield words.mark_text(align="left", baseline="bottom", color="var(--ink)", limit=self.room.width)

    def _across(self, at: float, **look: Any) -> "alt.Chart":
        rule = self._with(_ONE).encode(**{self.value: alt.datum(at)})
        drawn: alt.Chart = rule.mark_rule(color="var(--edge)", **look)
        return drawn

    def _marks(self) -> "Iterator[alt.Chart]":
        more: dict[str, Any] = {"tooltip": self._hints()} if self.interactive else {}
        plain: dict[str, Any] = {} if self.figure.series else {"color": SERIES[0]}
        if self.bars:
            to = {f"{self.value}2": alt.datum(self.origin)} if self.axis.log else {}
            edge: dict[str, Any] = {"stroke": "var(--edge)", "strokeWidth": 0.5} if self.figure.mark == "stack" else {}
            yield self._of(self.points, **to, **more).mark_bar(**plain, **edge)
            return
        if self.figure.mark == "line":
            dash = self._told_apart("strokeDash", alt.StrokeDash, _DASHES, self.apart)
            yield self._of(self.points, **dash).mark_line(strokeWidth=2, **plain)
        if self.marked:
            yield from self._dots(more, plain)

    def _dots(self, more: dict[str, Any], plain: dict[str, Any]) -> "Iterator[alt.Chart]":
        """Yield the points, and those that are beyond the axis as arrows at its end."""
        size = 60 if len(self.points) < 3 * _MARKED or is_category(self.figure.x) or is_category(self.figure.y) else 16
        shape = self._told_apart("shape", alt.Shape, _SHAPES, self.apart)
        if _HOLLOW in self.names:
            filled = ["var(--paper)" if name == _HOLLOW else _VERDICTS.get(name, (SERIES[0],))[0] for name in self.names]
            shape |= self._told_apart("fill", alt.Fill, filled)
        by_arrow = grouped(self.points, lambda point: str(point.get("beyond", "")))
        yield self._of(by_arrow.pop("", []), **shape, **more).mark_point(filled=_HOLLOW not in self.names, opacity=1, size=size, **plain)
        for arrow, beyond in by_arrow.items():
            yield self._of(beyond, **more).mark_point(filled=True, opacity=1, size=60, shape=arrow, **plain)

    def _hints(self) -> "list[alt.Tooltip]":
        axes = (self.across, ("series", self.figure.series), ("place", self.figure.place), ("text", self.axis))
        return [alt.Tooltip(f"{name}:N", title=units.one_line(axis.title)) for name, axis in axes if axis]

    def _in_front(self) -> "Iterator[alt.Chart]":
        """Yield the intervals, and words in stacks or at the ends of horizontal bars."""
        points = self._between("low", "high")
        if points:
            plain: dict[str, Any] = {"color": "var(--ink)"} if self.bars or not self.figure.series else {}
            yield self._of(points, self.value, *plain, **self._span("low", "high")).mark_rule(strokeWidth=1.5, **plain)
        if self.bars and self.value == "x":
            yield from self._inside() if self.figure.mark == "stack" else [self._at_ends()]

    def _at_ends(self) -> Any:
        words: list[Cells] = [
            {**point, "end": max(number(point["x"]), number(point.get("high", point["x"])), self.origin)} for point in self.points
        ]
        label = self._of(words, "x", "color", x=self._at("end"), text=alt.Text("words:N"))
        return label.mark_text(align="left", dx=5, color="var(--ink)")

    def _inside(self) -> "Iterator[Any]":
        """Yield the words within the parts of stacks, as far as they have room."""
        most = max(self._extent("x"))
        middle = self.encoding["x"].copy()
        middle.stack, middle.bandPosition = "zero", 0.5
        for colour, of_rest in (("var(--paper)", False), ("var(--ink)", True)):
            words = [{**point, "words": self._word_in(point, most, of_rest)} for point in self.points]
            label = self._of(words, "x", "color", x=middle, text=alt.Text("words:N"), detail=alt.Detail("series:N"))
            yield label.mark_text(color=colour)

    def _word_in(self, point: Cells, most: float, of_rest: bool) -> str:
        """Return the name of a part that is the rest, or that is not, where it has room."""
        name = str(point["series"])
        has_room = number(point["x"]) * self.room.width >= most * LETTER * (len(name) + 1)
        return name if has_room and (name == self.names[-1]) is of_rest else ""


def _style(left: int, right: int) -> dict[str, Any]:
    """Return the colours of the page, and room for letters at the left and right of a chart that are wider there."""
    words = {"labelColor": "var(--ink)", "titleColor": "var(--ink)", "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal"}
    return {
        "background": "transparent",
        "aria": False,
        "font": "sans-serif",
        "padding": {"left": 4 + 0.8 * left, "right": 8 + 0.8 * right, "top": 4, "bottom": 4},
        "axis": {**words, "gridColor": "var(--line)", "domainColor": "var(--edge)", "tickColor": "var(--edge)"},
        "legend": {**words, "symbolSize": 70, "symbolStrokeWidth": 1.5},
        "view": {"stroke": None},
        "text": {"fontSize": 12},
    }
