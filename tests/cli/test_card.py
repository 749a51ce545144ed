"""A card to paste: ``dlbench show --topic card``."""

from dataclasses import replace

import front_door
import made_up
import pytest

from dlbench.analysis.answers import answers
from dlbench.analysis.answers.engine.question import Answer
from dlbench.analysis.export.answers_export import card
from dlbench.analysis.read.table import collect
from dlbench.core.conditions import Throttling
from dlbench.core.model import Status

pytestmark = pytest.mark.usefixtures("earlier_files")

REFERENCES = sorted((front_door.ROOT / "results" / "reference").glob("*/*.jsonl"))
COMMAND = [["run", "/home/somebody/my suites/mine.toml"], ["/home/somebody/net.py"], ["--set", "path=/home/somebody/d"]]
ENVIRONMENT = {
    "stack": {"versions": {"torch": "2.13.0+cu130"}},
    "provenance": {"dlbench": "0.2.0", "utc": "2026-11-21T15:40:55+00:00", "command": [*COMMAND, ["--rounds", "7"]]},
}


TWO_KINDS = made_up.both_kinds()
ON_CPU = [each for each in TWO_KINDS if each.case.device == "cpu"]
CARDS = {
    "a run": ([TWO_KINDS], ()),
    "a run and a price": ([TWO_KINDS], ("--price", "cuda=2/h")),
    "several machines": ([[made_up.renamed(each, f"CPU {number}", 2) for each in ON_CPU] for number in range(4)], ()),
    "a run that is not usable": ([[replace(each, throttling=Throttling(thermal=0.5)) for each in TWO_KINDS]], ()),
    "nothing that went well": ([[made_up.ended(made_up.case("matmul", n=n), Status.FAILED, "no") for n in (8, 16)]], ()),
}


def test_a_card_of_each_kind(tmp_path, snapshot):
    texts = {}
    for what, (files, options) in CARDS.items():
        names = [f"run{number}.jsonl" for number in range(len(files))]
        for name, measured in zip(names, files, strict=True):
            made_up.write(tmp_path / what / name, measured, environment=ENVIRONMENT)
        done = front_door.in_process(tmp_path / what, "show", *names, "--topic", "card", *options)
        texts[f"{what}, exit {done.code}"] = done.out + done.err
    snapshot("cards", front_door.under_titles(texts))


@pytest.mark.parametrize("path", REFERENCES, ids=lambda path: path.stem)
def test_each_committed_reference_has_the_lines_of_its_answers(path):
    results = collect([path])
    lines = [line for line in card(results).splitlines() if line.startswith("- ")]
    found = [each for each in answers(results) if isinstance(each, Answer)]
    labels = dict.fromkeys(each.label or each.question.topic for each in found if each.lines)
    assert list(dict.fromkeys(line[2:].partition(": ")[0] for line in lines)) == [*labels]
    assert not [line for line in lines if "/home/" in line or "results/" in line]


def test_names_are_text_and_no_markup_and_never_too_long(tmp_path):
    name = "<b>a|b\x1b[2J*" + "`x|" * 20
    measured = [replace(each, device_name=name) for each in TWO_KINDS]
    command = [["run", "quick"], ["-k", "`" * 5 + "x" * 2000]]
    made_up.write(tmp_path / "run.jsonl", measured, environment={"provenance": {"dlbench": "0.2.0", "command": command}})
    text = front_door.in_process(tmp_path, "show", "run.jsonl", "--topic", "card").out
    assert len(text) < 3000
    assert not {"<", "\x1b"} & set(text)
    assert "a\\|b[2J\\*" in text
