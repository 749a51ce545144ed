"""Drawings of made-up figures."""

import re
from collections import Counter
from dataclasses import replace
from xml.etree import ElementTree

import altair as alt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.analysis.presentation.figures import Axis, Figure
from dlbench.analysis.report import plots
from dlbench.analysis.report.plot_points import scale_of, ticks, wrapped
from dlbench.core.model import ParamValue
from dlbench.core.rows.summary import Row
from dlbench.core.schema import Column, Unit

CASE = Axis("case", Column("case", Unit.TEXT, "the case"))
KIND = Axis("precision", Column("kind", Unit.TEXT, "which it is"))
RATIO = Axis("times as fast as cpu", Column("ratio", Unit.RATIO, "how many times as fast"), log=True)
ENDS = (Column("low", Unit.RATIO, "lower end"), Column("high", Unit.RATIO, "upper end"))
BATCH = Axis("batch", Column("batch", Unit.COUNT, "items of a call"), log=True)
MEMORY = Axis("memory", Column("memory", Unit.BYTES, "peak"))
HOSTILE = "</svg><script>alert(1)</script>\"'\x1b[31m\u202e" + "y" * 10_000


def bars(*rows: Row, **fields: object) -> Figure:
    given: dict[str, object] = {"reference": 1.0, "interval": ENDS, **fields}
    return Figure("How many times", "More is faster.", "bar", RATIO, CASE, rows, **given)  # type: ignore[arg-type]  # fields of many types


def row(case: ParamValue, ratio: float | None = 2.0, **more: ParamValue | None) -> Row:
    return {"case": case, "ratio": ratio, **more}


def parsed(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)  # noqa: S314  # made a moment ago, by the code under test


def words(svg: str) -> list[str]:
    """The text of a drawing, each piece once."""
    return list(dict.fromkeys(each.text for each in parsed(svg).iter() if each.tag.endswith("text") and each.text))


def wide(svg: str) -> str:
    """Of two drawings the one for wide pages."""
    return svg.partition('<svg class="narrow"')[0]


def drawn(figure: Figure) -> str:
    return wide(plots.svg(plots.draw(figure), "a"))


def axis_of(figure: Figure, name: str, narrow: bool = False) -> tuple[list[float], list[float]]:
    """The ends of an axis and the numbers that it names, as its specification says them."""
    drawing = plots.draw(figure)
    chart = drawing.narrow if narrow else drawing.specification
    assert chart is not None
    found = next(each["encoding"][name] for each in chart["layer"] if "axis" in each["encoding"].get(name, {}))
    return [round(each, 6) for each in found["scale"]["domain"]], found["axis"]["values"]


def test_a_drawing_says_what_it_shows() -> None:
    svg = drawn(bars(row("resnet18", 2.0, low=1.5, high=2.5), row("vgg16", 0.5, low=0.4, high=0.6)))
    root = parsed(svg)
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-labelledby"] == "a-title a-about"
    assert [(each.attrib["id"], each.text) for each in root[:2]] == [("a-title", "How many times"), ("a-about", "More is faster.")]
    assert {"resnet18", "vgg16", "2.00 ×", "0.500 ×", "1 ×", "times as fast as cpu"} <= set(words(svg))


def test_the_parts_of_a_stack_stand_one_behind_the_other_in_the_order_of_the_rows_and_say_their_names() -> None:
    parts = [
        row(case, ratio, kind=kind) for case in ("resnet18", "vgg16") for kind, ratio in (("launch", 0.6), ("copy", 0.3), ("rest", 0.1))
    ]
    whole = Axis("share", Column("ratio", Unit.FRACTION, "of the time of a step"))
    svg = drawn(Figure("Parts", "Further right is more.", "stack", whole, CASE, tuple(parts), KIND))
    left = [float(start) for start in re.findall(r'd="M([\d.]+),[\d.]+h[\d.]+v[\d.]+h-[\d.]+Z" fill', svg)]
    whole = left[2] / 0.9
    assert left == [pytest.approx(share * whole, abs=0.1) for share in (0, 0.6, 0.9)] * 2
    assert [text for text in words(svg) if text in ("launch", "copy", "rest")][:2] == ["launch", "copy"]


def test_specifications_are_valid() -> None:
    place = Axis("device", Column("place", Unit.TEXT, "where"))
    line = {"batch": 1, "memory": 1 << 20, "kind": "fp32", "place": "cpu"}
    lines = (line, {**line, "batch": 2, "place": "cuda:0"})
    figures = [
        bars(row("a", 2, kind="fp32", low=1, high=3), row("a", 3, kind="bf16"), series=KIND, band=ENDS),
        Figure("", "", "stack", replace(RATIO, log=False), CASE, (row("a", 1, kind="fp32"), row("a", 2, kind="bf16")), KIND),
        Figure("", "", "line", BATCH, MEMORY, lines, KIND, place=place, limits=(("most", 1 << 24),), bound=lines),
        Figure("", "", "dot", RATIO, CASE, (row("a", 9, kind="slower"), row("b", 1, kind="inconclusive")), KIND, clip=(1, 3)),
        Figure("", "", "dot", BATCH, MEMORY, lines),
    ]
    for figure in figures:
        drawing = plots.draw(figure, interactive=True)
        for each in (drawing.specification, drawing.narrow):
            if each is not None:
                alt.LayerChart.from_dict(each)  # raises SchemaValidationError


def test_colours_are_those_of_the_page_and_of_a_file_of_its_own_the_light_ones() -> None:
    drawing = plots.draw(bars(row("resnet18", kind="fp32"), row("vgg16", kind="bf16"), series=KIND))
    named = re.compile(r'(?:fill|stroke)="(?!none)([^"]*)"')
    assert {colour for colour in named.findall(plots.svg(drawing, "a")) if not re.fullmatch(r"var\(--\w+\)", colour)} == set()
    alone = plots.standalone(drawing)
    assert set(named.findall(alone)) <= set(plots.LIGHT.values())
    assert "How many times" in words(alone)
    assert "var(" not in alone


def test_a_drawing_is_the_same_each_time() -> None:
    figure = bars(row("resnet18", kind="fp32"), row("vgg16", kind="bf16"), series=KIND)
    assert plots.standalone(plots.draw(figure)) == plots.standalone(plots.draw(figure))


def test_colour_never_tells_alone() -> None:
    both = (row("resnet18", 2, kind="fp32"), row("resnet18", 4, kind="bf16"))
    assert {"fp32 · 2.00 ×", "bf16 · 4.00 ×"} <= set(words(drawn(bars(*both, series=KIND))))
    lines = [{"batch": batch, "memory": batch << 20, "kind": kind} for batch in (1, 2) for kind in ("fp32", "bf16")]
    svg = drawn(Figure("Memory", "By batch.", "line", BATCH, MEMORY, tuple(lines), KIND))
    assert len(set(re.findall(r'stroke-dasharray="([^"]*)"', svg))) == 2
    assert {"1", "2", "fp32", "bf16"} <= set(words(svg))
    assert [each for each in words(svg) if each.endswith("MiB")]


def test_an_interval_a_reference_and_a_band_are_drawn() -> None:
    def lines(figure: Figure) -> list[int]:
        return [len(re.findall(f"<line [^>]*{sign}", drawn(figure))) for sign in ('stroke="var\\(--ink\\)"', 'stroke-dasharray="4,3"')]

    assert lines(bars(row("resnet18", low=1.5, high=2.5))) == [1, 1]
    assert lines(bars(row("resnet18", low=1.5, high=None))) == [0, 1]
    assert lines(bars(row("resnet18"), reference=None)) == [0, 0]
    banded = bars(row("resnet18", low=0.9, high=1.1), band=ENDS)
    assert drawn(banded).count("var(--band)") == 1


def test_a_bound_is_a_line_through_its_corners_and_none_of_the_marks() -> None:
    batches = [{"batch": batch, "memory": batch << 20} for batch in (1, 4)]
    corners = tuple({"batch": batch, "memory": 8 << 20} for batch in (1, 2, 8))
    plain, bounded = (drawn(Figure("Memory", "By batch.", "dot", BATCH, MEMORY, tuple(batches), bound=each)) for each in ((), corners))
    assert [len(re.findall(r'd="M[^"]*L[^"]*L[^"]*"', svg)) for svg in (plain, bounded)] == [0, 1]


@pytest.mark.parametrize(
    ("ratios", "named"),
    [
        pytest.param((2, 80), [1, 2, 5, 10, 20, 50], id="two decades: 1, 2 and 5"),
        pytest.param((0.02, 2), [0.02, 0.05, 0.1, 0.2, 0.5, 1, 2], id="down to small ones"),
        pytest.param((0.5, 4000), [1, 10, 100, 1000], id="more: the decades"),
        pytest.param((0.9, 1.3), [0.9, 0.95, 1.0, 1.05, 1.1, 1.15, 1.2, 1.3], id="less: even distances, and the reference"),
        pytest.param((2e-9, 1), [1e-9 * 10**power for power in (1, 3, 5, 7, 9)], id="very many: every second decade"),
    ],
)
def test_a_logarithmic_axis_names_its_decades_and_its_reference(ratios: tuple[float, ...], named: list[float]) -> None:
    (low, high), values = axis_of(bars(*(row(f"case {ratio}", ratio) for ratio in ratios)), "x")
    assert values == pytest.approx(named)
    assert low < min(ratios)
    assert high > max(ratios)
    assert 1.0 in values


def test_every_tick_has_its_number_in_the_drawing() -> None:
    lines = [{"batch": batch, "memory": batch << 20, "kind": "fp32"} for batch in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)]
    figure = Figure("Memory", "By batch.", "line", BATCH, replace(MEMORY, log=True), tuple(lines), KIND)
    assert axis_of(figure, "x")[1] == [2**power for power in range(12)]
    assert axis_of(figure, "y")[1] == [1e6, 1e7, 1e8, 1e9]
    assert {"1", "2", "1,024", "2,048", "1 MB", "10 MB", "100 MB", "1 GB"} <= set(words(drawn(figure)))
    assert axis_of(figure, "x", narrow=True)[1] == [2, 8, 32, 128, 512, 2048]  # as many as have room


def test_every_number_that_an_axis_names_is_in_the_drawing_and_so_is_the_reference() -> None:
    change = Axis("change", Column("change", Unit.NUMBER, "by how much"))
    rows = tuple({"batch": batch, "change": value, "kind": "fp32"} for batch, value in ((16, -0.29), (32, 0.29)))
    figure = Figure("Change", "By batch.", "line", BATCH, change, rows, KIND, reference=0.0)
    assert axis_of(figure, "y")[1] == [-0.3, -0.2, -0.1, 0.0, 0.1, 0.2, 0.3]
    assert {"\N{MINUS SIGN}0.3", "\N{MINUS SIGN}0.2", "\N{MINUS SIGN}0.1", "0", "0.1", "0.2", "0.3"} <= set(words(drawn(figure)))


@given(st.lists(st.floats(1e-12, 1e15), min_size=1, max_size=5), st.booleans(), st.integers(3, 12))
def test_an_axis_holds_its_numbers_and_names_a_few_round_ones(numbers: list[float], log: bool, most: int) -> None:
    found = ticks(numbers, log, most)
    assert found.low <= min(numbers) <= max(numbers) <= found.high
    assert found.values == sorted(set(found.values))
    assert all(found.low <= each <= found.high for each in found.values)
    assert 1 <= len(found.values) <= 2 * most + 1


@given(st.floats(0.01, 100), st.floats(0.01, 100))
def test_the_reference_is_always_named(one: float, other: float) -> None:
    for log in (True, False):
        assert 1.0 in ticks([one, other], log, 6, 1.0).values


def test_what_is_last_of_a_stack_is_pale_and_its_legend_has_what_occurs() -> None:
    parts = [row("resnet18", ratio, kind=kind) for kind, ratio in (("launch", 0.6), ("copy", 0.0), ("rest", 0.4))]
    svg = drawn(Figure("Parts", "", "stack", Axis("share", Column("ratio", Unit.FRACTION, "")), CASE, tuple(parts), KIND))
    assert re.findall(r'd="M[\d.]+,[\d.]+h[\d.]+v[\d.]+h-[\d.]+Z" fill="([^"]*)"', svg) == ["var(--s1)", "var(--band)"]
    assert {"launch", "rest"} <= set(words(svg))
    assert "copy" not in words(svg)


def test_lines_of_several_places_have_a_colour_by_series_and_a_dash_and_a_shape_by_place() -> None:
    place = Axis("device", Column("place", Unit.TEXT, "where"))
    told = [(kind, where) for kind in ("fp32", "bf16") for where in ("cpu", "cuda:0")]
    lines = [{"batch": n, "memory": n << 20, "kind": kind, "place": where} for kind, where in told for n in (1, 2)]
    figure = Figure("Memory", "By batch.", "line", BATCH, MEMORY, tuple(lines), KIND, place=place, limits=(("all of it: 8 MiB", 8 << 20),))
    svg = drawn(figure)
    looks = set(re.findall(r'd="M[\d.]+,[\d.]+L[\d.]+,[\d.]+" stroke="([^"]*)"[^>]*?stroke-dasharray="([^"]*)"', svg))
    assert looks == {(colour, dash) for colour in ("var(--s1)", "var(--s2)") for dash in ("1,0", "6,3")}
    dots = re.findall(r'<path transform="[^"]*" d="([^"]*)" fill="(var\(--s\d\))"', svg)
    assert sorted(Counter(dots).values()) == [1, 1, 2, 2, 2, 2]  # those of the legend of series, and of four lines
    assert {"device", "cpu", "cuda:0", "precision", "fp32", "bf16", "all of it: 8 MiB"} <= set(words(svg))
    alone = replace(figure, rows=tuple(each for each in figure.rows if each["place"] == "cpu"))
    assert "device" not in words(drawn(alone))


def test_verdicts_have_their_colour_and_shape_whichever_occur() -> None:
    verdict = Axis("verdict", Column("kind", Unit.TEXT, "which it is"))

    def looks(*verdicts: str) -> list[tuple[str, ...]]:
        rows = tuple(row(f"case of {each}", 2, kind=each) for each in verdicts)
        drawing = plots.draw(Figure("Change", "", "dot", RATIO, CASE, rows, verdict, reference=1.0))
        assert drawing.specification is not None
        (dots,) = (each["encoding"] for each in drawing.specification["layer"] if "shape" in each["encoding"])
        kinds = [dots[name]["scale"] for name in ("color", "fill", "shape") if name in dots]
        assert [each["domain"] for each in kinds] == [list(verdicts)] * len(kinds)
        return list(zip(*(each["range"] for each in kinds), strict=True))

    assert looks("same", "slower", "faster") == [
        ("var(--s6)", "circle"), ("var(--s2)", "triangle-right"), ("var(--s1)", "triangle-left"),
    ]  # fmt: skip
    assert looks("inconclusive", "slower") == [
        ("var(--edge)", "var(--paper)", "square"), ("var(--s2)", "var(--s2)", "triangle-right"),
    ]  # fmt: skip


def test_of_many_lines_those_of_most_places_are_drawn() -> None:
    place = Axis("device", Column("place", Unit.TEXT, "where"))
    told = [*((f"k{n}", "cpu") for n in range(9)), ("k8", "cuda:0")]
    lines = [{"batch": n, "memory": n << 20, "kind": kind, "place": where} for kind, where in told for n in (1, 2)]
    drawing = plots.draw(Figure("Memory", "By batch.", "line", BATCH, MEMORY, tuple(lines), KIND, place=place))
    assert drawing.left_out == ("2 of 9, behind the first 7 by precision",)
    assert {"k8", "k5"} <= set(words(wide(plots.svg(drawing, "a"))))
    assert "k6" not in words(wide(plots.svg(drawing, "a")))


def test_more_places_than_dashes_make_series_of_their_own() -> None:
    place = Axis("device", Column("place", Unit.TEXT, "where"))
    lines = [{"batch": n, "memory": n << at, "kind": "fp32", "place": f"cuda:{at}"} for at in range(8) for n in (1, 2)]
    svg = drawn(Figure("Memory", "By batch.", "line", BATCH, replace(MEMORY, log=True), tuple(lines), KIND, place=place))
    looks = re.findall(r'd="M[\d.]+,[\d.]+L[\d.]+,[\d.]+" stroke="([^"]*)"[^>]*?stroke-dasharray="([^"]*)"', svg)
    assert len(looks) == len(set(looks)) == 8
    assert {"fp32 on cuda:0", "fp32 on cuda:7"} <= set(words(svg))


def test_a_narrow_page_has_a_drawing_of_its_own_with_the_names_of_rows_above_them() -> None:
    name = "train_step resnet50 batch=8 channels_last amp_bf16 on cuda:0"
    svg = plots.svg(plots.draw(bars(row(name, 2.0), row("vgg16", 0.5))), "a")
    broad, narrow = ElementTree.fromstring(f"<p>{svg}</p>")  # noqa: S314  # made a moment ago, by the code under test
    assert [each.attrib["class"] for each in (broad, narrow)] == ["wide", "narrow"]
    assert [each.attrib["aria-labelledby"] for each in (broad, narrow)] == ["a-title a-about", "a-narrow-title a-narrow-about"]
    assert float(broad.attrib["width"]) <= 620
    assert float(narrow.attrib["width"]) <= 330
    text = [each.text for each in narrow.iter() if each.tag.rpartition("}")[2] in ("text", "tspan")]
    assert {"train_step resnet50 batch=8 channels_last", "amp_bf16 on cuda:0", "2.00 ×"} <= set(text)


def test_a_number_in_the_name_of_a_row_stays_with_its_unit() -> None:
    assert wrapped("train_step resnet50 on cuda:0, 1.29 s", 35) == "train_step resnet50 on cuda:0,\n1.29\N{NO-BREAK SPACE}s"


def test_long_names_of_series_keep_their_beginning_and_their_end() -> None:
    kinds = [f"a_network_of_a_long_name_{'x' * 30}_{end}" for end in ("first", "second")]
    narrow = plots.svg(plots.draw(bars(*(row("a", 2, kind=kind) for kind in kinds), series=KIND)), "a").partition('class="narrow"')[2]
    assert {"a_network_of_a_long_na…xxxxxxxxxxxxxxxx_first", "a_network_of_a_long_na…xxxxxxxxxxxxxxx_second"} <= set(
        re.findall(r">([^<]*)</text>", narrow)
    )


def test_a_cloud_of_dots_has_one_small_drawing() -> None:
    dots = [{"batch": batch, "memory": batch << 20} for batch in (1, 2, 4)]
    drawing = plots.draw(Figure("Memory", "By batch.", "dot", BATCH, MEMORY, tuple(dots)))
    assert drawing.narrow is None
    assert float(parsed(plots.svg(drawing, "a")).attrib["width"]) <= 330


def test_what_is_not_drawn_is_said() -> None:
    many = plots.draw(bars(*(row(f"case {n}", 1 + n) for n in range(50))))
    assert many.left_out == ("30 of 50, behind the first 20 by case",)
    assert {"case 0", "case 19"} <= set(words(wide(plots.svg(many, "a"))))
    assert "case 40" not in words(wide(plots.svg(many, "a")))
    holes = plots.draw(bars(row("resnet18"), row("vgg16", None), row("alexnet", 0.0)))
    assert holes.left_out == ("2 rows without a number to draw",)  # zero has no place on a logarithmic axis
    series = plots.draw(bars(*(row("resnet18", 2, kind=f"k{n}") for n in range(17)), series=KIND))
    assert series.left_out == ("2 of 17, behind the first 15 by precision",)


def test_nothing_to_draw_is_no_drawing() -> None:
    for figure in (bars(), bars(row("vgg16", None))):
        drawing = plots.draw(figure)
        assert (plots.svg(drawing, "a"), plots.standalone(drawing), drawing.specification) == ("", "", None)


def test_hostile_words_stay_words() -> None:
    figure = Figure(HOSTILE, HOSTILE, "dot", RATIO, CASE, (row(HOSTILE, 2, kind=HOSTILE), row("vgg16", 1, kind="fp32")), KIND)
    drawing = plots.draw(figure)
    for svg in (wide(plots.svg(drawing, "a")), plots.standalone(drawing)):
        tags = {each.tag.rpartition("}")[2] for each in parsed(svg).iter()}
        assert tags <= {"svg", "title", "desc", "g", "path", "line", "text", "tspan", "rect"}
        assert "\x1b" not in svg
        assert "\u202e" not in svg
    assert words(plots.standalone(drawing))


def test_words_that_look_like_a_colour_of_the_page_are_words() -> None:
    svg = plots.standalone(plots.draw(bars(row("var(--evil)"), row("var(--ink)"))))
    assert {"var(--evil)", "var(--ink)"} < set(words(svg))


@pytest.mark.parametrize("scheme", [plots.LIGHT, plots.DARK])
def test_words_and_marks_can_be_seen(scheme: dict[str, str]) -> None:
    def luminance(colour: str) -> float:  # as WCAG 2.1 defines it
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    def contrast(one: str, other: str) -> float:
        low, high = sorted((luminance(scheme[one]), luminance(scheme[other])))
        return (high + 0.05) / (low + 0.05)

    assert [name for name in ("ink", "dim", "s1", "s2", "s3", "s4", "s5", "s6") if contrast(name, "paper") < 4.5] == []
    assert [name for name in ("ink", "edge", "s1", "s2", "s3", "s4", "s5", "s6") if contrast(name, "band") < 3] == []


def test_bytes_over_several_decades_have_a_prefix_each():
    axis = Axis("bytes", MEMORY.column, log=True)
    wide, narrow = ([{"x": 4096.0}, {"x": most}] for most in (2.0**30, 2.0**20))
    assert scale_of(axis, wide, "x") == (1, "~s", "B")
    assert scale_of(axis, narrow, "x").suffix == " MiB"


def test_a_rate_below_one_a_second_is_no_number_of_metres():
    axis = Axis("throughput", Column("rate", Unit.ITEMS_PER_S, "items a second"), log=True)
    assert scale_of(axis, [{"x": 0.5}, {"x": 40.0}], "x") == (1, ",~g", "/s")
    assert scale_of(axis, [{"x": 5.0}, {"x": 40e3}], "x") == (1, "~s", "/s")
