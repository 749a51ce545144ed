"""Figures as SVG, and as specifications of Vega-Lite. A door to Altair, and the one to vl-convert.

Colours are custom properties of CSS, such as ``var(--ink)``, so one drawing serves light and dark pages; a file of its own gets the
light ones.
"""

import re
from dataclasses import dataclass
from html import escape
from typing import Any

import altair as alt
import vl_convert

from dlbench.analysis.presentation.figures import Figure
from dlbench.analysis.presentation.names import without_folders
from dlbench.analysis.presentation.wording import plural
from dlbench.analysis.report.layers import NARROW, WIDE, Layers
from dlbench.analysis.report.plot_points import brief, limited, plotted
from dlbench.core import units

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
_NUMBERS = re.compile(r"\d+\.\d{2,}")


@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure, as far as it is drawn."""

    figure: Figure
    left_out: tuple[str, ...]
    """A sentence for each thing that is in its table only."""
    specification: dict[str, Any] | None
    """As Vega-Lite; None where there is nothing to draw."""
    narrow: dict[str, Any] | None = None
    """The same for a narrow page; None where one drawing serves both."""


def draw(figure: Figure, interactive: bool = False) -> Drawing:
    """Return the drawing of a figure, in as many categories and series as can be told apart; ``interactive`` adds hints to its marks."""
    few, left_out = limited(figure)
    points = plotted(few)
    if lacking := len(few.rows) - len(points):
        left_out.append(f"{plural(lacking, 'row')} without a number to draw")
    if not points:
        return Drawing(figure, tuple(left_out), None)
    if figure.is_small:
        return Drawing(figure, tuple(left_out), Layers(few, points, NARROW, interactive).specification())
    wide, narrow = (Layers(few, points, *how).specification() for how in ((WIDE, interactive), (NARROW,)))
    return Drawing(figure, tuple(left_out), wide, narrow)


def svg(drawing: Drawing, name: str) -> str:
    """Return the drawing as an element for a page, or an empty text; ``name`` begins the ids of its title and its description.

    Where a narrow page has a drawing of its own these are two elements, of the classes ``wide`` and ``narrow``, one of which is to show.
    """
    if drawing.specification is None:
        return ""
    if drawing.narrow is None:
        return _element(drawing, drawing.specification, name, "")
    both = ((drawing.specification, name, "wide"), (drawing.narrow, f"{name}-narrow", "narrow"))
    return "".join(_element(drawing, *each) for each in both)


def _element(drawing: Drawing, chart: dict[str, Any], name: str, kind: str) -> str:
    titled = f'<title id="{name}-title">{_plain(drawing.figure.title)}</title><desc id="{name}-about">{_plain(drawing.figure.about)}</desc>'
    classed = f'class="{kind}" ' if kind else ""
    head = f'{classed}role="img" aria-labelledby="{name}-title {name}-about"'
    return re.sub(r"<svg ([^>]*)>", lambda found: f"<svg {head} {found[1]}>{titled}", _rendered(chart), count=1)


def standalone(drawing: Drawing) -> str:
    """Return the drawing as a file of its own, with its title on white, or an empty text."""
    if drawing.specification is None:
        return ""
    heading = {"text": brief(drawing.figure.title), "anchor": "start", "fontSize": 14, "color": "var(--ink)", "limit": WIDE}
    chart = {**drawing.specification, "title": heading, "background": "var(--paper)"}
    return re.sub(r"<[^>]*>", lambda tag: _COLOUR.sub(lambda colour: LIGHT[colour[1]], tag[0]), _rendered(chart)) + "\n"


def script(snippet: str) -> str:
    """Return one script of Vega, Vega-Lite and Vega-Embed as vl-convert brings them, that ends with a snippet of ours."""
    return str(vl_convert.javascript_bundle(snippet, vl_version=_VERSION))


_VERSION = ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])
"""Of Vega-Lite, that Altair writes."""


def _plain(words: str) -> str:
    return escape(without_folders(units.one_line(words)))


def _rendered(chart: dict[str, Any]) -> str:
    """Return the SVG that Vega makes, without what does not show."""
    drawn = vl_convert.vegalite_to_svg(chart, vl_version=_VERSION)
    drawn = re.sub(r'<path [^>]*(?:d="M0,0h0v0h0Z"|display="none")[^>]*/>', "", drawn)
    return re.sub(r"<[^>]*>", _slim, drawn)


def _slim(tag: re.Match[str]) -> str:
    kept = re.sub(r' (?:xmlns:xlink|version|class|role|aria-[a-z]+|pointer-events|stroke-miterlimit)="[^"]*"', "", tag[0])
    kept = re.sub(r' (?:opacity="1"|fill-opacity="1")', "", kept)
    return _NUMBERS.sub(lambda found: f"{float(found[0]):.1f}".removesuffix(".0"), kept)
