"""Charts of made-up figures: what Vega-Lite is told, and what it makes of that.

``python -m tests.analysis.report.test_chart`` writes the specifications in tests/files/charts anew.
"""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from dlbench.analysis.presentation.columns import Figure
from dlbench.analysis.report.chart import STYLE, chart
from dlbench.core.rows.row import Cells
from dlbench.core.units import Column, Unit

KEPT = Path(__file__).parents[2] / "files" / "charts"
CASE = Column("case", Unit.TEXT, "the case", heading="case")
KIND = Column("kind", Unit.TEXT, "which it is", heading="precision")
PLACE = Column("place", Unit.TEXT, "where", heading="device")
RATIO = Column("ratio", Unit.RATIO, "how many times as fast", heading="times as fast as cpu")
SHARE = Column("ratio", Unit.FRACTION, "of the time of a step", heading="share")
BATCH = Column("batch", Unit.COUNT, "items of a call", heading="batch")
MEMORY = Column("memory", Unit.BYTES, "peak", heading="memory")
TIME = Column("time", Unit.SECONDS, "of a call", heading="time")
ENDS = (Column("low", Unit.RATIO, "lower end"), Column("high", Unit.RATIO, "upper end"))
BAND = (Column("least", Unit.RATIO, "lower end"), Column("most", Unit.RATIO, "upper end"))
HOSTILE = "</svg><script>alert(1)</script>\"'\x1b[31m\u202e var(--ink)" + "y" * 10_000
LONG = "train_step resnet50 batch=8 channels_last amp_bf16 on cuda:0"


def row(case: str, ratio: float | None = 2.0, **more: Any) -> Cells:
    return {"case": case, "ratio": ratio, **more}


def bars(*rows: Cells, **fields: Any) -> Figure:
    return Figure("Speed", "More is faster.", "bar", RATIO, CASE, rows, **{"reference": 1.0, "interval": ENDS, "log": "x", **fields})


LINES = tuple(
    {"batch": batch, "memory": batch << at, "kind": kind, "place": where}
    for at, (kind, where) in enumerate((kind, where) for kind in ("fp32", "bf16") for where in ("cpu", "cuda:0"))
    for batch in (1, 4)
)
PARTS = tuple(row("resnet18", ratio, kind=kind) for kind, ratio in (("launch", 0.6), ("copy", 0.0), ("rest", 0.4)))
VERDICTS = (
    row(LONG, 1.5, kind="slower", low=1.4, high=9.0, least=0.97, most=1.03),
    row("vgg16", 8.0, kind="same", low=None, high=None, least=0.9, most=1.1),
)
FIGURES = {
    "bar": bars(row("resnet18", 2.0, kind="fp32", low=1.5, high=2.5), row("vgg16", 0.5, kind="bf16"), series=KIND),
    "stack": Figure("Parts", "Further right is more.", "stack", SHARE, CASE, PARTS, KIND),
    "line": Figure("Memory", "By batch.", "line", BATCH, MEMORY, LINES, KIND, PLACE, reference=8 << 20, log="xy"),
    "dot": Figure("Change", "By case.", "dot", RATIO, CASE, VERDICTS, KIND, None, ENDS, 1.0, BAND, clip=(1.0, 3.0), log="x"),
    "cloud": Figure("Roofline", "", "dot", BATCH, MEMORY, LINES, bound=({"batch": 1, "memory": 8}, {"batch": 9, "memory": 90}), log="xy"),
}


def drawn(figure: Figure, which: int = 0) -> ElementTree.Element:
    return ElementTree.fromstring(chart(figure).svg()[which])  # noqa: S314  # made a moment ago, by the code under test


def words(figure: Figure, which: int = 0) -> set[str]:
    return {each.text for each in drawn(figure, which).iter() if each.tag.endswith("text") and each.text and each.get("opacity") != "0"}


def told(figure: Figure) -> Any:
    """What Vega-Lite is told of a figure, apart from how all charts look; as JSON."""
    return [{name: each for name, each in json.loads(json.dumps(spec)).items() if name != "config"} for spec in chart(figure).specs]


@pytest.mark.parametrize("kind", FIGURES)
def test_each_kind_of_mark_makes_the_kept_specification_which_is_valid_vega_lite(kind: str) -> None:
    assert told(FIGURES[kind]) == json.loads((KEPT / f"{kind}.json").read_text())
    altair = pytest.importorskip("altair", reason="has the schema")
    for spec in chart(FIGURES[kind]).specs:
        altair.LayerChart.from_dict(json.loads(json.dumps(spec)))  # raises SchemaValidationError


def times(*seconds: float) -> Figure:
    return Figure("Times", "", "dot", TIME, CASE, tuple({"case": f"c{each}", "time": each} for each in seconds))


@pytest.mark.parametrize(
    ("figure", "shown"),
    [
        (FIGURES["bar"], {"0.500 ×", "2.00 ×", "1 ×", "resnet18 · fp32", "vgg16 · bf16", "times as fast as cpu"}),
        (FIGURES["stack"], {"launch", "rest", "0 %", "100 %", "share"}),
        (FIGURES["line"], {"fp32 on cpu", "bf16 on cuda:0", "1", "2", "4", "100 B", "1 MB", "memory", "batch"}),
        (FIGURES["dot"], {"faster", "slower", "same", "inconclusive", LONG, "vgg16", "1 ×", "3 ×"}),
        (FIGURES["cloud"], {"1", "8", "10 B"}),
        (times(0.001, 0.004), {"1 ms", "4 ms"}),
        (times(0, 4000), {"1,000 s", "4,000 s"}),
    ],
)
def test_the_words_of_a_chart_and_units_of_its_axes_are_in_its_drawing(figure: Figure, shown: set[str]) -> None:
    assert shown <= words(figure)


def test_what_is_beyond_a_clipped_axis_is_an_arrow_at_its_end() -> None:
    def dots(**changed: Any) -> list[tuple[float, str]]:
        svg = chart(replace(FIGURES["dot"], **changed)).svg()[0]
        found = re.findall(r'<path transform="translate\(([\d.]+),[\d.]+\)" d="([^"]*)" fill="var\(--s\d\)"', svg)
        return [(float(at), shape) for at, shape in found[:2]]  # behind these are those of the legend

    (near, square), (end, arrow) = dots()
    (_, same_square), (_, triangle) = dots(clip=None)
    _, (also_end, same_arrow) = dots(rows=(VERDICTS[0], {**VERDICTS[1], "ratio": 1000.0}))
    assert (square, near < end) == (same_square, True)
    assert (end, arrow) == (also_end, same_arrow)
    assert arrow != triangle


def test_colour_never_tells_alone() -> None:
    many = [{"batch": n, "memory": n << at, "kind": f"k{at}", "place": "cpu"} for at in range(15) for n in (1, 2)]
    drawing = chart(replace(FIGURES["line"], rows=tuple(many), reference=None)).svg()[0]
    dots = re.findall(r'<path transform="[^"]*" d="([^"]*)" fill="var\(--(s\d)\)"', drawing)
    looks = {each for each in dots if dots.count(each) > 1}  # what is there once is of the legend
    assert len(looks) == 15
    assert len({shape for shape, colour in looks if colour == "s1"}) == 3
    lines = re.findall(r'd="M[\d.]+,[\d.]+L[\d.]+,[\d.]+" stroke="([^"]*)"[^>]*?stroke-dasharray="([^"]*)"', drawing)
    assert len(set(lines)) == 15


def test_colours_are_those_of_the_page_and_of_a_file_of_its_own_the_light_ones() -> None:
    named = re.compile(r'(?:fill|stroke)="(?!none)([^"]*)"')
    light = set(re.findall(r"--\w+: (#\w+)", STYLE.partition("@media")[0]))
    for figure in FIGURES.values():
        made = chart(figure)
        assert {colour for svg in made.svg() for colour in named.findall(svg) if not re.fullmatch(r"var\(--\w+\)", colour)} == set()
        alone = made.standalone()
        assert set(named.findall(alone)) <= light
        assert f">{figure.title}</text>" in alone
        assert alone == chart(figure).standalone()


def test_a_narrow_page_has_a_drawing_of_its_own_with_long_names_cut_in_the_middle() -> None:
    figure = bars(*(row(f"{LONG} {end}", 2.0) for end in ("first", "second")))
    assert [float(drawn(figure, which).attrib["width"]) for which in (0, 1)] == [590, 316]
    cut = {"train_step resnet50 batch=…t amp_bf16 on cuda:0 first", "train_step resnet50 batch=… amp_bf16 on cuda:0 second"}
    assert cut <= words(figure, 1)
    assert [len(chart(FIGURES[kind]).specs) for kind in ("bar", "cloud")] == [2, 1]


@pytest.mark.parametrize(
    ("figure", "left_out"),
    [
        (bars(*(row(f"case {n}", 1 + n) for n in range(50))), ("30 of 50 by case, evenly spread",)),
        (bars(row("resnet18"), row("vgg16", None), row("alexnet", 0.0)), ("2 rows without a number to draw",)),
        (bars(*(row("resnet18", kind=f"k{n}") for n in range(17)), series=KIND), ("2 of 17 by precision, evenly spread",)),
        (bars(row("vgg16", None)), ("1 row without a number to draw",)),
        (bars(), ()),
    ],
)
def test_what_is_not_drawn_is_said(figure: Figure, left_out: tuple[str, ...]) -> None:
    assert chart(figure).left_out == left_out


def test_of_many_names_those_that_are_drawn_go_from_the_first_to_the_last_and_of_nothing_there_is_no_drawing() -> None:
    points = chart(bars(*(row(f"case {n:02}", 1 + n) for n in range(50)))).specs[0]["datasets"]["points"]
    drawn = [point["y"] for point in points]
    assert (len(drawn), drawn[0], drawn[1], drawn[-1]) == (20, "case 00", "case 02", "case 49")
    assert [chart(figure).svg() for figure in (bars(), bars(row("vgg16", None)))] == [[], []]


def test_hostile_words_stay_words() -> None:
    axis = replace(CASE, heading=HOSTILE)
    rows = (row(HOSTILE, 2, kind=HOSTILE), row("var(--evil)", 1, kind="fp32"))
    made = chart(Figure(HOSTILE, HOSTILE, "dot", replace(RATIO, heading=HOSTILE), axis, rows, replace(KIND, heading=HOSTILE), log="x"))
    for svg in (*made.svg(), made.standalone()):
        tags = {each.tag.rpartition("}")[2] for each in ElementTree.fromstring(svg).iter()}  # noqa: S314  # as above
        assert tags <= {"svg", "g", "path", "line", "text", "tspan", "rect"}
        assert not re.search("[\x1b\u202e]", svg)
        assert ">var(--evil)</text>" in svg


@pytest.mark.parametrize("scheme", STYLE.partition("* {")[0].split("@media"))
def test_words_and_marks_can_be_seen(scheme: str) -> None:
    colours = dict(re.findall(r"--(\w+): #(\w+)", scheme))

    def luminance(name: str) -> float:  # as WCAG 2.1 defines it
        parts = [int(colours[name][at : at + 2], 16) / 255 for at in (0, 2, 4)]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    def contrast(one: str, other: str) -> float:
        low, high = sorted((luminance(one), luminance(other)))
        return (high + 0.05) / (low + 0.05)

    series = [f"s{place}" for place in range(1, 8)]
    assert [name for name in ("ink", "dim", *series) if contrast(name, "paper") < 4.5] == []
    assert [name for name in ("ink", "edge", *series) if contrast(name, "band") < 3] == []


if __name__ == "__main__":
    KEPT.mkdir(exist_ok=True)
    for name, figure in FIGURES.items():
        (KEPT / f"{name}.json").write_text(json.dumps(told(figure), indent=1, ensure_ascii=False) + "\n")
