"""Answers as ten lines: what each may say, on a screen of any width, of the committed references and of made-up files."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import formats
import front_door
import made_up
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from dlbench.analysis.answers import answers, topics
from dlbench.analysis.answers.parts.base import Answer, Missing, Question, Table
from dlbench.analysis.answers.parts.headline import DOUBTS, MOST, MOST_OF_QUALIFIER, MOST_TAGS, Tag, cut, fitting
from dlbench.analysis.read.table import collect
from dlbench.analysis.report import ending
from dlbench.analysis.report.terminal import Lines
from dlbench.core.measurement import Measurement, SpotCheck
from dlbench.core.model import Status
from dlbench.core.schema import Column, Unit

TOPICS = topics()
WIDTHS = (100, 80, 60, 40, 20)
REFERENCES = sorted((front_door.ROOT / "results" / "reference").glob("*/*.jsonl"))
SUITES = {path.stem for path in (front_door.ROOT / "suites").glob("*.toml")}
LONG = "n" * 200
CHECKS = {"fp32": SpotCheck(True, 3e-7, 1e-5, 1e-7), "bf16": SpotCheck(True, 0.003, 0.02, 1e-7)}


def timed(seconds: float, workload: str, device: str = "cuda:0", items: int = 8, **params: Any) -> list[Measurement]:
    """Seven rounds of a case around so many seconds."""
    a_case = made_up.case(workload, device, **params)
    return made_up.rounds_of(a_case, made_up.flat([seconds * each for each in made_up.SEVEN]), items=items)


def with_a_card(model: str = "resnet18") -> list[Measurement]:
    """Steps and products on a CPU and a card that answer most of the questions."""
    found = []
    for batch, slower in ((8, 1), (64, 4)):
        for dtype, faster in (("fp32", 1), ("bf16", 2)):
            found += timed(0.4 * slower, "train_step", "cpu", batch, model=model, batch=batch, dtype=dtype)
            found += timed(0.0128 * slower / faster, "train_step", "cuda:0", batch, model=model, batch=batch, dtype=dtype)
    default: dict[str, Any] = {"model": model, "batch": 8, "dtype": "fp32", "layout": "nchw", "mode": "eager"}
    found += timed(0.01, "train_step", **default)
    found += timed(0.004, "train_step", **{**default, "dtype": "amp_bf16", "layout": "channels_last"})
    found += timed(0.02, "train_step", items=256, model="resnet50", batch=256, dtype="amp_bf16")
    for device, seconds in (("cpu", 0.1), ("cuda:0", 0.02)):
        found += timed(seconds, "infer_step", device, model="resnet50", batch=8, dtype="fp32")
    for n in (128, 256, 512, 1024):
        found += timed(n * 1e-5, "matmul", "cpu", n=n, dtype="fp32", copies="none")
        found += timed(0.004, "matmul", n=n, dtype="fp32", copies="none")
        found += timed(0.008, "matmul", n=n, dtype="fp32", copies="pageable")
    found = [made_up.checked(each, CHECKS.get(str(each.case.params["dtype"])), "not compared") for each in found]
    return [made_up.timed_on_device(each, 0.4) if each.case.device != "cpu" else each for each in found]


def on_machine(number: int, model: str = "resnet18") -> list[Measurement]:
    """The same on another machine, of another card and so many times as fast."""
    names = {"cpu": f"CPU of machine {number}", "cuda:0": f"Card of machine {number}"}
    found = [made_up.scaled(each, 1 / (1 + number)) for each in with_a_card(model)]
    return [made_up.renamed(each, names[each.case.device], 2 + number) for each in found]


def with_cards(count: int) -> list[Measurement]:
    """Several cards, each slower than the one before."""
    found = with_a_card()
    for number in range(1, count):
        on_card = [made_up.scaled(each, 1 + number) for each in with_a_card() if each.case.device != "cpu"]
        others = [made_up.moved(each, replace(each.case, id=f"{each.case.id[:-1]}{number}", device=f"cuda:{number}")) for each in on_card]
        found += [replace(each, device_name=f"Card {number}") for each in others]
    return found


def with_formats() -> list[Measurement]:
    """Trainings in many formats at many rates, of which none, some or all converge, with long names."""
    found = []
    for at, name in enumerate(("fp32", "bf16", "binary", *(f"format_{number}" for number in range(9)), LONG)):
        for rate in range(4):
            gap = -0.2 if (at + rate) % 3 == 1 else -0.02 * (at % 2)
            gaps = [gap * (seed != at % 7) for seed in range(6)] if at else [0.0] * 6
            found += formats.training(name, gaps, diverged=at % 4, rate=rate / 100, network="network" if rate % 2 else LONG)
    return found


def products_in_precisions() -> list[Measurement]:
    """Products of which a precision is faster that was trained in, or none."""
    return [each for name, s in (("fp32", 0.02), ("bf16", 0.01), ("binary", 0.001)) for each in formats.products(name, s, 0.004)]


SCENES = {
    "one card": lambda: [with_a_card()],
    "four cards": lambda: [with_cards(4)],
    "two machines": lambda: [with_a_card(), on_machine(1)],
    "ten files of ten machines": lambda: [on_machine(number) for number in range(10)],
    "trainings in formats": lambda: [with_formats()],
    "trainings in formats of two machines": lambda: [with_formats(), [made_up.renamed(each, "another CPU", 4) for each in with_formats()]],
    "trainings in formats beside products": lambda: [[*products_in_precisions(), *with_formats()]],
    "failures alone": lambda: [[made_up.ended(each.case, Status.FAILED, f"{LONG} is odd") for each in with_a_card()[::7]]],
    "one case": lambda: [timed(0.1, "train_step", "cpu", model="resnet18", batch=8)],
    "names of 200 letters": lambda: [with_a_card(LONG), [replace(each, device_name=LONG) for each in on_machine(1, LONG)]],
}
"""Measurements of each file, by what the files are of."""


def answered_of(folder: Path, runs: Sequence[Sequence[Measurement]]) -> Sequence[Answer | Missing]:
    """Return the answers on files, each of a machine that its header tells."""
    paths = []
    for number, run in enumerate(runs):
        cpu = {"name": next(each.device_name for each in run if each.case.device == "cpu"), "physical_cores": 2, "memory_gib": 24}
        environment = {"identity": {"os": "Linux", "cpu": cpu}, "stack": {"versions": {"python": "3.11.7", "torch": "2.13.0"}}}
        workloads = {"convergence": formats.CONVERGENCE}
        paths.append(made_up.write(folder / f"run{number}.jsonl", run, environment=environment, workloads=workloads))
    return answers(collect(paths))


def rendered(found: Sequence[Answer | Missing], width: int) -> list[str]:
    """The lines of a screen so wide, in characters of one column."""
    file = StringIO()
    Console(file=file, width=width, force_terminal=False).print(Lines(found))
    return file.getvalue().splitlines()


def hold(found: Sequence[Answer | Missing]) -> None:
    """Hold what is to be true of ten lines, whatever was measured."""
    assert [each.question.topic for each in found] == TOPICS
    for width in WIDTHS:
        lines = rendered(found, width)
        assert [line[:12].rstrip() for line in lines] == TOPICS
        assert max(map(len, lines)) <= width
    broken = [f"{each.question.topic}: {rule}" for each in found for rule in broken_rules(each)]
    assert broken == []


def broken_rules(found: Answer | Missing) -> Iterator[str]:
    """Yield what is wrong with an answer."""
    if isinstance(found, Missing):
        if found.command and not (found.command == "dlbench run" or found.command.removeprefix("dlbench run ") in SUITES):
            yield f"no suite: {found.command}"
        if len(found.qualifier) > MOST_OF_QUALIFIER:
            yield f"long: {found.qualifier}"
        return
    if len(found.headline) > MOST or len(found.qualifier) > MOST_OF_QUALIFIER:
        yield f"long: {found.headline} | {found.qualifier}"
    if not (re.search(r"\d", found.headline[:30]) or found.headline.startswith("no gain shown")):
        yield f"no number: {found.headline}"
    if any(float(low) <= 1 <= float(high) for low, high in INTERVAL.findall(found.headline)):
        yield f"a ratio that may be 1: {found.headline}"
    if found.interval not in found.headline or (found.interval and not found.qualifier):
        yield f"an interval of nothing: {found.headline} | {found.interval} | {found.qualifier}"
    if len(found.tags) > MOST_TAGS or not set(found.tags) <= set(Tag):
        yield f"tags: {found.tags}"
    yield from (f"{len(each.split())} words: {each}" for each in (*found.sentences, *found.weaknesses) if len(each.split()) > 25)
    yield from (f"in no table: {token} of {found.headline} | {found.qualifier}" for token in not_in_tables(found))


NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:e[-+]\d+)?(?![\w.]*[A-Za-z])")
INTERVAL = re.compile(r"× \(([\d.]+)…([\d.]+)\)")
NAME = re.compile(r"(?<![\w.])(?=[a-zA-Z_]*\d)(?=\d*[A-Za-z])\w+")


def plain(text: str) -> str:
    """The text without separators of thousands."""
    return re.sub(r"(?<=\d),(?=\d{3})", "", text)


def not_in_tables(found: Answer) -> list[str]:
    """The numbers and the names with digits of an answer's line that stand in none of its tables, as people see them."""
    shown = [plain(text) for table in found.tables for heading, cells in table.cells() for text in (table.title, heading, *cells)]
    numbers = {number for text in shown for number in NUMBER.findall(text)}
    # An interval that allows for having been chosen among several is wider than the pair's own in the table; sentences have it, too.
    numbers |= {
        number for text in found.sentences if found.interval and found.interval.strip() in text for number in NUMBER.findall(found.interval)
    }
    line = re.sub(r"and \d+ more", "", plain(f"{found.headline} {found.qualifier}"))  # devices, whose rows a reader may count
    names = (name for name in NAME.findall(line) if not any(name in text for text in shown))
    # b64 is short for batch=64
    return [each for each in (*NUMBER.findall(line), *(name.removeprefix("b") for name in names)) if each not in numbers]


@pytest.mark.parametrize(
    "paths", [*([path] for path in REFERENCES), REFERENCES], ids=lambda paths: paths[0].stem if paths[1:] == [] else "all"
)
def test_of_each_reference_and_of_all_together(paths: list[Path]) -> None:
    hold(answers(collect(paths)))


@pytest.mark.parametrize("scene", SCENES)
def test_of_made_up_files(tmp_path: Path, scene: str) -> None:
    hold(answered_of(tmp_path, SCENES[scene]()))


def test_a_number_and_a_name_that_no_table_has_are_found() -> None:
    columns = (("case", Column("case", Unit.TEXT, "")), ("n", Column("n", Unit.COUNT, "")))
    table = Table("Sizes", columns, ({"case": "train_step resnet50 batch=64", "n": 1024},))
    answer = partial(Answer, Question("batch", "?"), interval="", tags=(), sentences=(), cases=(), weaknesses=(), tables=(table,))
    assert not_in_tables(answer("1,024 (64), and 3 more", "resnet50 b64")) == []
    assert not_in_tables(answer("1,025 of 50", "resnet18 b8")) == ["1025", "50", "resnet18", "8"]


@pytest.mark.parametrize("scene", ["one card", "two machines", "trainings in formats", "failures alone"])
def test_what_they_look_like(tmp_path: Path, snapshot: Callable[[str, str], None], scene: str) -> None:
    found = answered_of(tmp_path, SCENES[scene]())
    texts = {f"{width} columns": "\n".join(rendered(found, width)) for width in (120, 80, 20)}
    snapshot(f"ten-lines-{scene.replace(' ', '-')}", front_door.under_titles(texts))


def answered(headlines: st.SearchStrategy[str]) -> st.SearchStrategy[Answer | Missing]:
    """Answers under such headlines, some of them missing; letters tell headlines, intervals and qualifiers apart."""
    question, qualifier = (
        st.sampled_from([Question(topic, "?") for topic in TOPICS]),
        st.text("q ", max_size=36).map(lambda text: f"q{text}q"),
    )
    tags = st.lists(st.sampled_from(Tag), max_size=MOST_TAGS, unique=True).map(tuple)
    of_case = st.tuples(headlines, st.just(" (12.8…13.4)"), qualifier) | st.tuples(headlines, st.just(""), qualifier | st.just(""))
    found = st.builds(
        lambda question, line, tags: Answer(question, fitting(line[0] + line[1]), line[2], line[1], tags, (), (), (), ()),
        question,
        of_case,
        tags,
    )
    return found | st.builds(Missing, question, st.just("as it is"), st.none(), qualifier)


@given(st.lists(answered(st.text(max_size=60)), min_size=10, max_size=10), st.integers(1, 130))
def test_there_is_a_line_for_each_and_none_is_wider_than_the_screen(found: list[Answer | Missing], width: int) -> None:
    lines = rendered(found, width)
    assert len(lines) == 10
    assert max(map(cell_len, lines)) <= width
    assert max(len(each.headline) for each in found) <= MOST


@given(st.lists(answered(st.text("ab 1×", max_size=30).map(lambda text: f"a{text}")), min_size=1, max_size=4), st.integers(20, 130))
def test_what_says_nothing_alone_goes_first(found: list[Answer | Missing], width: int) -> None:
    for each, (topic, text) in zip(found, ending.lines(found, width), strict=True):
        room = width - ending.LABEL
        assert topic == each.question.topic
        assert len(text) <= room
        if isinstance(each, Missing):
            assert re.fullmatch(rf"– *({each.qualifier}|.*…)", text)
            continue
        bare = each.headline.replace(each.interval, "")
        own = [tag for tag in each.tags if width >= 60 or tag in DOUBTS]
        shown = [tag for tag in own if tag in text]
        if "q" in text:
            assert width >= 100
            assert {*own} & {*DOUBTS} <= {*shown}
            assert (text.startswith(each.headline), each.qualifier in text, shown) == (True, True, own[: len(shown)])
        else:
            assert "(" not in text
            assert re.sub(" {2,}", "  ", text) == (
                "  ".join(filter(None, (bare, ", ".join(shown)))) if len(bare) <= room else cut(bare, room)
            )
            assert shown == own[: len(shown)]


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (120, ["34.4× fp32 (30.1…38.2)  train resnet18 b8  disturbed, unsteady", "27.8× left on the table  resnet18 b8  disturbed"]),
        (60, ["34.4× fp32  disturbed, unsteady", "27.8× left on the table  disturbed"]),
        (40, ["34.4× fp32  disturbed", "27.8× left on the table"]),
    ],
)
def test_a_doubt_that_all_answers_share_stays_on_each_line(width: int, expected: list[str]) -> None:
    """Or the worse a run is, the cleaner are its lines."""
    make = partial(Answer, sentences=(), cases=(), weaknesses=(), tables=())
    found = [
        make(
            Question("precision", "?"),
            "34.4× fp32 (30.1…38.2)",
            "train resnet18 b8",
            " (30.1…38.2)",
            (Tag.DISTURBED, Tag.FEW_ROUNDS, Tag.UNSTEADY),
        ),
        make(Question("default", "?"), "27.8× left on the table", "resnet18 b8", "", (Tag.DISTURBED, Tag.FEW_ROUNDS)),
    ]
    told = [re.sub(" {2,}", "  ", text) for _, text in ending.lines(found, width, {Tag.DISTURBED, Tag.FEW_ROUNDS})]
    assert told == expected


@pytest.mark.parametrize(
    ("text", "most", "expected"),
    [
        ("as it is", 8, "as it is"),
        ("cut at a word", 12, "cut at a…"),
        ("cut at a word", 9, "cut at a…"),
        ("cut at a word", 8, "cut at…"),
        ("cut, at a word", 6, "cut…"),
        (LONG, 8, "nnnnnnn…"),
        ("  of blanks", 3, "  …"),
        (" " * 9, 3, "  …"),
        ("word", 1, "…"),
    ],
)
def test_a_text_is_cut_at_a_word_and_a_cut_shows(text: str, most: int, expected: str) -> None:
    assert cut(text, most) == expected
