"""Figures as SVG, and as specifications of Vega-Lite. The door to Altair and vl-convert.

Colours are custom properties of CSS, such as ``var(--ink)``, so one drawing serves light and dark pages; a file of its own gets the
light ones.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import altair as alt
import vl_convert
from altair.utils.schemapi import debug_mode

from dlbench.analysis.presentation.figures import Axis, Figure
from dlbench.analysis.presentation.wording import number, plural
from dlbench.analysis.report.plot_points import Scale, brief, divided, is_category, limited, plotted, scale_of, value_axis
from dlbench.core import units
from dlbench.core.rows.row import Cells
from dlbench.core.schema import Unit

LIGHT = {
    "paper": "#ffffff", "ink": "#1d2329", "dim": "#56606b", "line": "#d5dae0", "band": "#dfe5ec", "edge": "#6b7682",
    "s1": "#0062a3", "s2": "#b84a00", "s3": "#00735a", "s4": "#9c3f78", "s5": "#7a6000", "s6": "#4a4f57", "s7": "#8a2f2f",
}  # fmt: skip
DARK = {
    "paper": "#14181d", "ink": "#e8ebef", "dim": "#a9b3be", "line": "#38414b", "band": "#2b3641", "edge": "#8c98a5",
    "s1": "#56b4e9", "s2": "#f0a202", "s3": "#33c79b", "s4": "#e29ac6", "s5": "#e6db5a", "s6": "#c3c9d1", "s7": "#ff9d8f",
}  # fmt: skip
"""After Okabe and Ito's palette, whose order they keep: every colour of a series has 4.5:1 or more against its paper."""
_COLOUR = re.compile(rf"var\(--({'|'.join(LIGHT)})\)")
_SERIES = [f"var(--{name})" for name in LIGHT if re.fullmatch(r"s\d", name)]
_GREY = "var(--s6)"
_SHAPES = ("circle", "square", "triangle-up", "diamond", "cross")
_DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [4, 4])
"""One fewer than colours, so that of thirty series no two are alike in both."""

_MARKED = 40
"""Points of a line from which on they are no longer marked one by one."""
_TICKS = 12
"""Most different counts, such as batch sizes, that each have a tick of their own."""
_WIDTH, _HEIGHT, _STEP = 480, 260, 18
_LETTER = 6.5
"""Width of a letter, roughly: a part of a stack that is narrower than its name has none."""
_PREFIX_APART = "replace({}, /[^0-9.]?$/, ' $&')"
"""Of Vega: d3 writes a prefix of the SI right behind its number."""
_NUMBERS = re.compile(r"\d+\.\d{2,}")


@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure, as far as it is drawn."""

    figure: Figure
    left_out: tuple[str, ...]
    """A sentence for each thing that is in its table only."""
    chart: "alt.LayerChart | None"
    """None where there is nothing to draw."""


def draw(figure: Figure, interactive: bool = False) -> Drawing:
    """Return the drawing of a figure, in as many categories and series as can be told apart; ``interactive`` adds hints to its marks."""
    few, left_out = limited(figure)
    points = plotted(few)
    if lacking := len(few.rows) - len(points):
        left_out.append(f"{plural(lacking, 'row')} without a number to draw")
    with debug_mode(False):  # Altair's checks of each part take as long as all else
        return Drawing(figure, tuple(left_out), _Layers(few, points, interactive).chart() if points else None)


def svg(drawing: Drawing, name: str) -> str:
    """Return the drawing as an element for a page, or an empty text; ``name`` begins the ids of its title and its description."""
    if drawing.chart is None:
        return ""
    titled = f'<title id="{name}-title">{_plain(drawing.figure.title)}</title><desc id="{name}-about">{_plain(drawing.figure.about)}</desc>'
    head = f'role="img" aria-labelledby="{name}-title {name}-about"'
    return re.sub(r"<svg ([^>]*)>", lambda found: f"<svg {head} {found[1]}>{titled}", _rendered(drawing.chart), count=1)


def standalone(drawing: Drawing) -> str:
    """Return the drawing as a file of its own, with its title on white, or an empty text."""
    if drawing.chart is None:
        return ""
    heading = alt.TitleParams(brief(drawing.figure.title), anchor="start", fontSize=14, color="var(--ink)", limit=_WIDTH + 300)
    chart = drawing.chart.properties(title=heading, background="var(--paper)")
    return re.sub(r"<[^>]*>", lambda tag: _COLOUR.sub(lambda colour: LIGHT[colour[1]], tag[0]), _rendered(chart)) + "\n"


def specification(drawing: Drawing) -> dict[str, Any] | None:
    """Return the drawing as Vega-Lite, or None where there is nothing to draw."""
    return None if drawing.chart is None else drawing.chart.to_dict()


def script(snippet: str) -> str:
    """Return one script of Vega, Vega-Lite and Vega-Embed as vl-convert brings them, that ends with a snippet of ours."""
    return str(vl_convert.javascript_bundle(snippet, vl_version=_VERSION))


_VERSION = ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])
"""Of Vega-Lite, that Altair writes."""


def _plain(words: str) -> str:
    return escape(units.one_line(words))


def _rendered(chart: "alt.LayerChart") -> str:
    """Return the SVG that Vega makes, without what does not show."""
    drawn = vl_convert.vegalite_to_svg(chart.to_dict(validate=False), vl_version=_VERSION)
    drawn = re.sub(r'<path [^>]*(?:d="M0,0h0v0h0Z"|display="none")[^>]*/>', "", drawn)
    return re.sub(r"<[^>]*>", _slim, drawn)


def _slim(tag: re.Match[str]) -> str:
    kept = re.sub(r' (?:xmlns:xlink|version|class|role|aria-[a-z]+|pointer-events|stroke-miterlimit)="[^"]*"', "", tag[0])
    kept = re.sub(r' (?:opacity="1"|fill-opacity="1")', "", kept)
    return _NUMBERS.sub(lambda found: f"{float(found[0]):.1f}".removesuffix(".0"), kept)


def _categories(points: Sequence[Cells], name: str) -> list[Any]:
    return list(dict.fromkeys(point[name] for point in points))


def _position(name: str, axis: Axis, points: Sequence[Cells], scale: Scale | None, bars: bool) -> Any:
    channel, title = (alt.X if name == "x" else alt.Y), units.one_line(axis.title)
    if scale is None:
        domain = alt.Scale(domain=_categories(points, name))
        if name == "y":  # the figure's caption says what its rows are
            return channel("y:N", title=None, sort=None, scale=domain, axis=alt.Axis(labelLimit=440, grid=not bars))
        return channel("x:N", title=title, sort=None, scale=domain, axis=alt.Axis(labelLimit=200, labelAngle=-35))
    counts = sorted({number(point[name]) for point in points}) if axis.column.unit is Unit.COUNT else []
    ticks: dict[str, Any] = {"values": counts} if 0 < len(counts) <= _TICKS else {"tickCount": 6}
    label = f"{_PREFIX_APART if scale.form.endswith('s') else '{}'} + '{scale.suffix}'".format(f"format(datum.value, '{scale.form}')")
    form: dict[str, Any] = {"type": "log", "nice": False, "padding": 12} if axis.log else {"zero": bars, "nice": True}
    return channel(
        f"{name}:Q", title=title, scale=alt.Scale(**form), axis=alt.Axis(labelExpr=label, labelOverlap="greedy", labelSeparation=8, **ticks)
    )


class _Layers:
    """Layers of a chart: the encoding that they share, and the points in the units that its axes show."""

    def __init__(self, figure: Figure, points: Sequence[Cells], interactive: bool) -> None:
        axes = {"x": figure.x, "y": figure.y}
        self.figure, self.interactive = figure, interactive
        self.value, across = ("x", "y") if value_axis(figure) == "x" else ("y", "x")
        scales = {name: scale_of(axis, points, name) for name, axis in axes.items() if not is_category(axis)}
        self.points, self.bound = (
            [divided(each, scales, self.value) for each in rows]
            for rows in (points, plotted(replace(figure, rows=figure.bound, series=None)))
        )
        self.axis, self.across = axes[self.value], (across, axes[across])
        self.origin = (figure.reference or 0) / scales[self.value].divisor
        self.bars = figure.mark in ("bar", "stack") and (figure.reference is not None or not self.axis.log)
        self.encoding: dict[str, Any] = {name: _position(name, axis, points, scales.get(name), self.bars) for name, axis in axes.items()}
        self.names = _categories(points, "series") if figure.series else []
        self.grouped = self.bars and figure.mark == "bar" and bool(self.names) and len(points) > len(_categories(points, across))
        if self.grouped:
            offset = alt.YOffset if self.value == "x" else alt.XOffset
            self.encoding[f"{across}Offset"] = offset("series:N", scale=alt.Scale(domain=self.names))
        colours = _SERIES
        if figure.series and figure.mark == "stack":  # they stand in their order, and what is last, the rest, is as grey as one
            colours = [*[each for each in _SERIES if each != _GREY][: len(self.names) - 1], _GREY]
            self.points = [{**each, "rank": self.names.index(each["series"])} for each in self.points]
            self.encoding["order"] = alt.Order("rank:Q")
        self.encoding |= self._told_apart("color", alt.Color, colours)

    def _told_apart(self, name: str, channel: Any, signs: Sequence[Any]) -> dict[str, Any]:
        """Return an encoding of the series, if any, by colour, shape or dash; Vega joins those of one legend."""
        if not self.figure.series:
            return {}
        scale = alt.Scale(domain=self.names, range=[signs[at % len(signs)] for at in range(len(self.names))])
        legend = alt.Legend(orient="top", columns=3, labelLimit=240)
        return {name: channel("series:N", title=units.one_line(self.figure.series.title), scale=scale, legend=legend)}

    def chart(self) -> "alt.LayerChart":
        """Return the chart of those that the figure asks for, the lowest first."""
        layers = [*self._behind(), *self._marks(), *self._in_front()]
        height: Any = alt.Step(18 if self.grouped else _STEP) if is_category(self.figure.y) else _HEIGHT
        width: Any = alt.Step(_STEP + 10) if is_category(self.figure.x) else _WIDTH
        # At once: each change of a chart would copy its points.
        return alt.LayerChart(layer=layers, width=width, height=height, config=_style())

    def _of(self, points: Sequence[Cells], *without: str, **more: Any) -> "alt.Chart":
        kept = {name: each for name, each in self.encoding.items() if name not in without}
        return alt.Chart(alt.InlineData(values=[{**each} for each in points])).encode(**kept, **more)

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
        """Yield the band, the bound and the reference."""
        points = self._between("band_low", "band_high")
        if points:
            chart = self._of(points, self.value, "color", "xOffset", "yOffset", **self._span("band_low", "band_high"))
            yield chart.mark_bar(color="var(--band)") if is_category(self.across[1]) else chart.mark_area(color="var(--band)")
        if self.bound:
            yield self._of(self.bound, "color").mark_line(color="var(--edge)", strokeWidth=2)
        if self.figure.reference is not None:
            rule = alt.Chart(alt.InlineData(values=[{}])).mark_rule(color="var(--edge)", strokeDash=[4, 3])
            yield rule.encode(**{self.value: alt.datum(self.origin)})

    def _marks(self) -> "Iterator[alt.Chart]":
        more: dict[str, Any] = {"tooltip": self._hints()} if self.interactive else {}
        plain: dict[str, Any] = {} if self.figure.series else {"color": _SERIES[0]}
        if self.bars:
            to = {f"{self.value}2": alt.datum(self.origin)} if self.axis.log else {}
            yield self._of(self.points, **to, **more).mark_bar(**plain)
            return
        few = len(self.points) < 3 * _MARKED or is_category(self.figure.x) or is_category(self.figure.y)
        shape = self._told_apart("shape", alt.Shape, _SHAPES)
        dots = self._of(self.points, **shape, **more).mark_point(filled=True, opacity=1, size=60 if few else 16, **plain)
        if self.figure.mark == "line":
            yield self._of(self.points, **self._told_apart("strokeDash", alt.StrokeDash, _DASHES)).mark_line(strokeWidth=2, **plain)
        if self.figure.mark != "line" or max(Counter(point.get("series") for point in self.points).values()) < _MARKED:
            yield dots

    def _hints(self) -> "list[alt.Tooltip]":
        axes = (self.across, ("series", self.figure.series), ("text", self.axis))
        return [alt.Tooltip(f"{name}:N", title=units.one_line(axis.title)) for name, axis in axes if axis]

    def _in_front(self) -> "Iterator[alt.Chart]":
        """Yield the intervals, and words in stacks or at the ends of horizontal bars, so that colour never tells alone."""
        points = self._between("low", "high")
        if points:
            plain: dict[str, Any] = {"color": "var(--ink)"} if self.bars or not self.figure.series else {}
            yield self._of(points, self.value, *plain, **self._span("low", "high")).mark_rule(strokeWidth=1.5, **plain)
        if self.bars and self.value == "x":
            yield self._inside() if self.figure.mark == "stack" else self._at_ends()

    def _at_ends(self) -> Any:
        fields = ["series", "text"] if len({point.get("series") for point in self.points}) > 1 else ["text"]
        words: list[Cells] = [
            {
                **point,
                "words": " · ".join(str(point[name]) for name in fields if name in point),
                "end": max(number(point["x"]), number(point.get("high", point["x"])), self.origin),
            }
            for point in self.points
        ]
        label = self._of(words, "x", "color", x=self._at("end"), text=alt.Text("words:N"))
        return label.mark_text(align="left", dx=5, color="var(--ink)", limit=240)

    def _inside(self) -> Any:
        """Return the layer of words within the parts of stacks, as far as they have room."""
        wholes: dict[Any, float] = {}
        for point in self.points:
            wholes[point["y"]] = wholes.get(point["y"], 0.0) + number(point["x"])
        most = max(wholes.values())
        words: list[Cells] = [
            {**point, "words": point["series"] if number(point["x"]) * _WIDTH >= most * _LETTER * (len(str(point["series"])) + 1) else ""}
            for point in self.points
        ]
        middle = self.encoding["x"].copy()
        middle.stack, middle.bandPosition = "zero", 0.5
        label = self._of(words, "x", "color", x=middle, text=alt.Text("words:N"), detail=alt.Detail("series:N"))
        return label.mark_text(color="var(--paper)")


def _style() -> Any:
    words: dict[str, Any] = {
        "labelColor": "var(--ink)",
        "titleColor": "var(--ink)",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
    }
    return alt.Config(
        background="transparent",
        aria=False,
        font="sans-serif",
        padding=6,
        axis=alt.AxisConfig(**words, gridColor="var(--line)", domainColor="var(--edge)", tickColor="var(--edge)"),
        legend=alt.LegendConfig(**words, symbolSize=70),
        view=alt.ViewConfig(stroke=None),
        text=alt.MarkConfig(fontSize=12),
    )
