"""The end of a screen: what it may say, at any width, of the committed references and of made-up files."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from io import StringIO
from itertools import chain
from pathlib import Path
from typing import Any

import formats
import front_door
import made_up
import pytest
from rich.cells import cell_len
from rich.console import Console

from dlbench.analysis.answers import answers, topics
from dlbench.analysis.answers.engine.question import CPU_ONLY, MOST, MOST_OF_QUALIFIER, MOST_TAGS, Answer, Missing, Question, Tag, cut
from dlbench.analysis.read.runs import merged
from dlbench.analysis.read.table import Results, collect
from dlbench.analysis.report import sentences, terminal
from dlbench.analysis.report.terminal import End
from dlbench.cli import output
from dlbench.core.measurement import Measurement, SpotCheck
from dlbench.core.model import Status

pytestmark = pytest.mark.usefixtures("earlier_files")

REFERENCES = sorted((front_door.ROOT / "results" / "reference").glob("*/*.jsonl"))
SUITES = {path.stem for path in (front_door.ROOT / "suites").glob("*.toml")}
LONG = "n" * 200
CHECKS = {"fp32": SpotCheck(True, 3e-7, 1e-5, 1e-7), "bf16": SpotCheck(True, 0.003, 0.02, 1e-7)}


def timed(seconds: float, workload: str, device: str = "cuda:0", items: int = 8, **params: Any) -> list[Measurement]:
    """Seven rounds of a case around so many seconds."""
    rounds = made_up.flat([seconds * each for each in made_up.SEVEN])
    return made_up.rounds_of(made_up.case(workload, device, **params), rounds, items=items)


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


def with_formats() -> list[Measurement]:
    """Trainings in many formats at many rates, of which none, some or all converge, with long names."""
    found = []
    for at, name in enumerate(("fp32", "bf16", "binary", *(f"format_{number}" for number in range(9)), LONG)):
        for rate in range(4):
            gap = 0.0 if not at else -0.2 if (at + rate) % 3 == 1 else -0.02 * (at % 2)
            gaps = [gap * (seed != at % 7) for seed in range(6)]
            found += formats.training(name, gaps, diverged=at % 4, rate=rate / 100, network="network" if rate % 2 else LONG)
    return found


SCENES = {
    "one card": lambda: [with_a_card()],
    "two machines": lambda: [with_a_card(), on_machine(1)],
    "five files of five machines": lambda: [on_machine(number) for number in range(5)],
    "trainings in formats": lambda: [with_formats()],
    "failures alone": lambda: [[made_up.ended(each.case, Status.FAILED, f"{LONG} is odd") for each in with_a_card()[::7]]],
    "names of 200 letters": lambda: [with_a_card(LONG), [replace(each, device_name=LONG) for each in on_machine(1, LONG)]],
}
"""Measurements of each file, by what the files are of."""


def results_of(folder: Path, runs: Sequence[Sequence[Measurement]]) -> Results:
    """Files, each of a machine that its header tells."""
    paths = []
    for number, run in enumerate(runs):
        cpu = {"name": next(each.device_name for each in run if each.case.device == "cpu"), "physical_cores": 2, "memory_gib": 24}
        environment = {"identity": {"os": "Linux", "cpu": cpu}, "stack": {"versions": {"python": "3.11.7", "torch": "2.13.0"}}}
        workloads = {"convergence": formats.CONVERGENCE}
        paths.append(made_up.write(folder / f"run{number}.jsonl", run, environment=environment, workloads=workloads))
    return collect(paths)


def ends_of(results: Results, found: Sequence[Answer | Missing], *widths: int) -> dict[int, list[str]]:
    """The lines at the end of a screen of 24 rows, as a run has them, by its width."""
    every = merged(results)
    shared, marks = sentences.shared_marks(every.rows), sentences.marks(every.rows, every)
    end = End(every, found, marks, shared, output.left_open(found, with_time=True), terminal.MOST)
    ends = {}
    for width in widths:
        Console(file=(file := StringIO()), width=width, force_terminal=False).print(end)
        ends[width] = file.getvalue().splitlines()
    return ends


def hold(results: Results) -> None:
    """Hold what is to be true of an end, whatever was measured."""
    found = answers(results)
    first = [each.question.topic for each in found if isinstance(each, Answer) and each.label == CPU_ONLY]
    assert [each.question.topic for each in found] == [*first, *(topic for topic in topics() if topic not in first)]
    labels = [each.label or each.question.topic for each in found if isinstance(each, Answer) and each.lines]
    ends = ends_of(results, found, 100, 60, 40, 20, 10_000)
    for width, end in ends.items():
        assert max(map(cell_len, end)) <= width
        assert width == 20 or len(end) <= terminal.MOST
        first_words = [line[: terminal.LABEL].rstrip() for line in end]
        at = [first_words.index(label) for label in dict.fromkeys(labels)]
        opened = [number for number, word in enumerate(first_words) if word == "open" or word.startswith("open:")]
        assert [*at, *opened] == sorted([*at, *opened])
        assert len(opened) == any(isinstance(each, Missing) and bool(each.commands) for each in found)
        assert not [line for line in end if line.startswith("serving") or "–" in line]
    assert ends[10_000][0].rpartition(" · ")[2].startswith(("usable", "not usable", "nothing measured"))
    assert {each.question.topic: rules for each in found if (rules := broken_rules(each))} == {}


def broken_rules(found: Answer | Missing) -> list[str]:
    """The rules for an answer that one breaks."""
    if isinstance(found, Missing):
        command = (found.command or "dlbench run").removeprefix("dlbench run").strip()
        rules = {f"no suite: {command}": command not in {"", *SUITES}, "a long qualifier": len(found.qualifier) > MOST_OF_QUALIFIER}
        return [rule for rule, is_broken in rules.items() if is_broken]
    rules = {
        "long": len(found.headline) > MOST or len(found.qualifier) > MOST_OF_QUALIFIER,
        "no number": not (re.search(r"\d", found.headline[:30]) or found.headline.startswith("no gain shown")),
        "a ratio that may be 1": any(float(low) <= 1 <= float(high) for low, high in INTERVAL.findall(found.headline)),
        "tags": len(found.tags) > MOST_TAGS or not set(found.tags) <= set(Tag),
        "a long sentence": any(len(each.split()) > 25 for each in (*found.sentences, *found.weaknesses)),
    }
    texts = [f"{found.headline} {found.qualifier}", *chain(*found.lines)]
    unknown = [f"{token} of {text} is in no table" for text in texts for token in not_in_tables(found, text)]
    return [*(rule for rule, is_broken in rules.items() if is_broken), *unknown]


NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:e[-+]\d+)?(?![\w.]*[A-Za-z])")
INTERVAL = re.compile(r"× \(([\d.]+)…([\d.]+)\)")
NAME = re.compile(r"(?<![\w.])(?=[a-zA-Z_]*\d)(?=\d*[A-Za-z])\w+")


def plain(text: str) -> str:
    """The text without separators of thousands."""
    return re.sub(r"(?<=\d),(?=\d{3})", "", text)


def not_in_tables(found: Answer, line: str) -> list[str]:
    """The numbers and the names with digits of a line of an answer that stand in none of its tables, as people see them."""
    shown = [plain(text) for table in found.tables for heading, cells in table.cells() for text in (table.title, heading, *cells)]
    numbers = {number for text in shown for number in NUMBER.findall(text)}
    # An interval that allows for having been chosen among several is wider than the pair's own in the table; sentences have it, too.
    numbers |= {number for text in found.sentences for number in NUMBER.findall(text)}
    line = re.sub(r"and \d+ more", "", plain(line))  # devices, whose rows a reader may count
    names = (name for name in NAME.findall(line) if not any(name in text for text in shown))
    # b64 is short for batch=64
    return [each for each in (*NUMBER.findall(line), *(name.removeprefix("b") for name in names)) if each not in numbers]


@pytest.mark.parametrize("scene", ["all references", *SCENES])
def test_an_end_has_the_answers_in_their_order_and_nothing_wider_than_the_screen(tmp_path: Path, scene: str) -> None:
    hold(results_of(tmp_path, SCENES[scene]()) if scene in SCENES else collect(REFERENCES))


@pytest.mark.parametrize("scene", ["one card", "two machines", "trainings in formats", "failures alone"])
def test_what_they_look_like(tmp_path: Path, snapshot: Callable[[str, str], None], scene: str) -> None:
    results = results_of(tmp_path, SCENES[scene]())
    texts = {f"{width} columns": "\n".join(end) for width, end in ends_of(results, answers(results), 120, 80, 20).items()}
    snapshot(f"ending-{scene.replace(' ', '-')}", front_door.under_titles(texts))


LONG_LINE = ("34.4× fp32 (30.1…38.2) in training ResNet-18", "34.4× fp32 (30.1…38.2)  train resnet18 b8", "34.4× fp32")
TAGS = (Tag.DISTURBED, Tag.FEW_ROUNDS)


def test_a_line_says_the_most_that_has_room_and_its_doubt_stays_the_longest() -> None:
    """Or the worse a run is, the cleaner are its lines."""
    found = Answer(Question("precision", "?"), "", "", TAGS, (), (), (), (), lines=(LONG_LINE,))
    expected = {
        (120, ()): f"{LONG_LINE[0]}  disturbed, few rounds",
        (120, TAGS): f"{LONG_LINE[0]}  disturbed",
        (70, ()): f"{LONG_LINE[0]}  disturbed",
        (59, ()): "34.4× fp32  disturbed",
        (40, ()): "34.4× fp32  disturbed",
        (30, ()): "34.4× fp32",
        (20, ()): "34.4×…",
    }
    assert {room: terminal.lines([found], *room) for room in expected} == {room: [("precision", line)] for room, line in expected.items()}


def test_a_label_stands_once_over_the_lines_that_have_it() -> None:
    def of(topic: str, label: str, *lines: str) -> Answer:
        return Answer(Question(topic, "?"), "", "", "", (), (), (), (), (), label=label, lines=tuple((line,) for line in lines))

    found = [of("speed-up", "worth it", "38×", "9.1×"), of("crossover", "worth it", "from 256"), of("batch", "", "64")]
    assert terminal.lines(found, 20) == [("worth it", "38×"), ("", "9.1×"), ("", "from 256"), ("batch", "64")]
    assert terminal.lines(found, 80) == [("worth it", "38×"), ("", "9.1×; from 256"), ("batch", "64")]


@pytest.mark.parametrize(
    ("stack", "why"),
    [
        ({"versions": {"torch": "2.13.0+cpu", "cuda": None, "hip": None}, "driver": None}, "a CPU build of torch"),
        ({"versions": {"torch": "2.13.0", "cuda": "13.0"}, "driver": None}, "no driver"),
        ({"versions": {"torch": "2.13.0", "cuda": "13.0"}, "driver": "580.1"}, "torch finds none"),
        ({"versions": {"torch": "2.13.0", "cuda": "13.0"}, "environ": {"CUDA_VISIBLE_DEVICES": ""}}, "hidden by CUDA_VISIBLE_DEVICES"),
        ({}, ""),
    ],
)
def test_a_machine_without_accelerator_says_why(tmp_path: Path, stack: dict[str, Any], why: str) -> None:
    refused = made_up.ended(made_up.case("matmul", threads=64), Status.UNSUPPORTED, "64 threads need as many CPUs, and there are 2 to use")
    run = [*timed(0.1, "train_step", "cpu", model="resnet18", batch=8), replace(refused, threads=64)]
    path = made_up.write(tmp_path / "run.jsonl", run, environment={"identity": {"accelerators": []}, "stack": stack})
    parts = terminal.run_in_words(collect([path]))
    assert parts == [f"AMD EPYC 7B13, 2 threads{f', no GPU: {why}' if why else ''}", "quick, 2 cases (1 unsupported), 7 rounds", "usable"]


def test_the_first_line_says_how_long_it_took_and_how_cases_ended(tmp_path: Path) -> None:
    run = [*timed(0.1, "train_step", "cpu", batch=8), made_up.ended(made_up.case("train_step", "cpu", batch=9), Status.OOM, "no")]
    paths = [made_up.write(tmp_path / f"{name}.jsonl", run, footer={"rounds": 7, "seconds": 61.0}) for name in "ab"]
    both = [terminal.run_in_words(collect(some))[1:] for some in (paths[:1], paths)]
    assert both == [["quick, 2 cases (1 oom), 7 rounds, 1:01", "usable"], ["quick, 4 cases (2 oom), 7 rounds, 2:02", "usable"]]


def test_what_is_open_is_one_command_of_the_fewest_suites() -> None:
    def lack(topic: str, *commands: str) -> Missing:
        return Missing(Question(topic, "?"), "", *commands[:1], others=commands[1:])

    batch, serving = lack("batch", "dlbench run batch", "dlbench run cnn"), lack("serving")
    cost, default = lack("cost", "dlbench run cnn", "dlbench run"), lack("default", "dlbench run modes")
    for found, with_time, said in (
        ([batch, cost, serving], True, "batch, cost: dlbench run cnn"),
        ([cost, serving, default], False, "cost, default: dlbench run cnn modes"),
        ([lack("speed-up", "dlbench run"), default], True, "speed-up, default: dlbench run quick modes, 18 min"),
        ([serving], True, ""),
    ):
        assert output.left_open(found, with_time=with_time) == said


def test_each_word_of_trouble_is_explained_in_one_line_where_it_stands() -> None:
    marks = {mark: meaning for mark, (_, meaning) in sentences.MARKS.items()}
    lines = terminal.explanations(list(Tag), marks, (Tag.THROTTLED, Tag.DISTURBED, Tag.NOISY, Tag.UNFINISHED, Tag.FEW_ROUNDS))
    assert ([line for line in lines if len(line) > 80], len(lines)) == ([], len(Tag) + len(marks))
    explained = {"bf16 2.00×  not checked": [Tag.NOT_CHECKED], "products 63 % (gain 26)": ["gain"], "gain: idle 52 %": ["gain"]}
    explained["no gain shown by bf16 over fp32"] = []
    assert {line: [each.partition(":")[0] for each in terminal.explanations(line, {})] for line in explained} == explained
    assert [cut("cut, at a word", most) for most in (6, 8, 14)] == ["cut…", "cut, at…", "cut, at a word"]
    assert (cut(LONG, 8), cut("word", 1)) == ("nnnnnnn…", "…")
