"""Answers of ``dlbench show --topic all`` on made-up measurements."""

import json
from dataclasses import replace

import costs
import front_door
import made_up
import pytest

from dlbench.analysis.answers import answers
from dlbench.analysis.read.table import collect


@pytest.fixture(autouse=True)
def steady(earlier_files):
    """Have every test of answers read those."""


@pytest.fixture
def asked(tmp_path):
    """Each topic with its answer, as the JSON document has it, of files with these measurements."""

    def ask(*files, **header):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        names = [made_up.write(folder / f"run{number}.jsonl", each, **header).name for number, each in enumerate(files)]
        done = front_door.in_process(folder, "show", *names, "--topic", "all", "--format", "json")
        assert done.code == 0, done.err
        return {each["question"]["topic"]: each for each in json.loads(done.out)["answers"]}

    return ask


@pytest.fixture
def told(tmp_path):
    """Each topic with its answer, of files with these measurements: for `plain_answers.plain`, and a snapshot."""

    def ask(*files, **header):
        paths = [made_up.write(tmp_path / f"run{number}.jsonl", each, **header) for number, each in enumerate(files)]
        return {each.question.topic: each for each in answers(collect(paths))}

    return ask


@pytest.fixture
def cost(tmp_path):
    """The answer on cost, of a file with these measurements, at the prices of these options, where devices take so many watts."""

    def ask(measured, *options, watts=None, **header):
        if watts is not None:
            measured = [replace(each, energy=costs.window(each, watts)) for each in measured]
        path = made_up.write(tmp_path / f"{len(list(tmp_path.iterdir()))}.jsonl", measured, **header)
        before = path.read_bytes()
        done = front_door.in_process(tmp_path, "show", path.name, "--topic", "cost", "--format", "json", *options)
        assert done.code == 0, done.err
        assert path.read_bytes() == before
        return json.loads(done.out)["answers"][0]

    return ask
