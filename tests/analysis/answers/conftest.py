"""Answers of ``dlbench show --answers`` on made-up measurements."""

import json

import front_door
import made_up
import pytest


@pytest.fixture
def asked(tmp_path):
    """Each topic with its answer, as the JSON document has it, of files with these measurements."""

    def ask(*files, **header):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        names = [made_up.write(folder / f"run{number}.jsonl", each, **header).name for number, each in enumerate(files)]
        done = front_door.in_process(folder, "show", *names, "--answers", "--format", "json")
        assert done.code == 0, done.err
        return {each["question"]["topic"]: each for each in json.loads(done.out)["answers"]}

    return ask
