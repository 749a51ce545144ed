"""A card to paste: ``dlbench show --topic card``."""

from dataclasses import replace
from pathlib import Path

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


def shown(folder, *words):
    return front_door.in_process(folder, "show", *words, "--topic", "card")


def test_it_is_what_a_reader_of_card_txt_sees(tmp_path):
    made_up.write(tmp_path / "run.jsonl", made_up.both_kinds(), environment=ENVIRONMENT)
    assert shown(tmp_path, "run.jsonl") == front_door.Done(0, Path(__file__).with_name("card.txt").read_text(), "")


@pytest.mark.parametrize("path", REFERENCES, ids=lambda path: path.stem)
def test_each_committed_reference_has_the_lines_of_its_answers(path):
    results = collect([path])
    lines = [line for line in card(results).splitlines() if line.startswith("- ")]
    found = [each for each in answers(results) if isinstance(each, Answer)]
    labels = dict.fromkeys(each.label or each.question.topic for each in found if each.lines)
    assert list(dict.fromkeys(line[2:].partition(": ")[0] for line in lines)) == [*labels]
    assert not [line for line in lines if "/home/" in line or "results/" in line]


def test_a_file_without_a_case_that_went_well_is_refused_in_a_sentence(tmp_path):
    cases = [made_up.case("matmul", n=n) for n in (8, 16)]
    made_up.write(tmp_path / "run.jsonl", [made_up.ended(each, Status.FAILED, "no") for each in cases])
    sentence = "no case went well, so there is no card (quick, 2 cases (2 failed)); dlbench show has the reasons"
    assert shown(tmp_path, "run.jsonl") == front_door.Done(2, "", f"dlbench: {sentence}\n")


def test_several_machines_share_a_card(tmp_path):
    for number in range(4):
        named = [made_up.renamed(each, f"CPU {number}", 2) for each in made_up.both_kinds() if each.case.device == "cpu"]
        made_up.write(tmp_path / f"{number}.jsonl", named)
    first, *_ = shown(tmp_path, *(f"{number}.jsonl" for number in range(4))).out.splitlines()
    assert first == f"**{'; '.join(f'cpu ({number}): CPU {number}, 2 threads' for number in range(4))}**"


def test_names_are_text_and_no_markup_and_never_too_long(tmp_path):
    name = "<b>a|b\x1b[2J*" + "`x|" * 20
    measured = [replace(each, device_name=name) for each in made_up.both_kinds()]
    command = [["run", "quick"], ["-k", "`" * 5 + "x" * 2000]]
    made_up.write(tmp_path / "run.jsonl", measured, environment={"provenance": {"dlbench": "0.2.0", "command": command}})
    text = shown(tmp_path, "run.jsonl").out
    assert len(text) < 3000
    assert not {"<", "\x1b"} & set(text)
    assert "a\\|b[2J\\*" in text


def test_a_run_that_is_not_usable_is_said_to_be(tmp_path):
    made_up.write(tmp_path / "hot.jsonl", [replace(each, throttling=Throttling(thermal=0.5)) for each in made_up.both_kinds()])
    _, second, *_ = shown(tmp_path, "hot.jsonl").out.splitlines()
    assert second.startswith("not usable: 8 of 8 cases throttled in most rounds; ")


def test_it_has_what_a_training_costs_where_a_price_is_given(tmp_path):
    made_up.write(tmp_path / "run.jsonl", made_up.both_kinds())
    lines = shown(tmp_path, "run.jsonl", "--price", "cuda=2/h").out.splitlines()
    text = "resnet18 trains at 4.00 k images/s: 50,000 images in 12.5 s (12.1…12.9), 0.00694; 21 min on the CPU; estimate"
    assert [each for each in lines if "your data" in each] == [f"- your data: {text}"]
    assert "your data" not in shown(tmp_path, "run.jsonl").out
