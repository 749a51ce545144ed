"""Answers on made-up measurements: as the JSON document has them, as objects, and as text for a snapshot."""

import json

import front_door
import made_up
import pytest
from plain_answers import plain

from dlbench.analysis import answers
from dlbench.analysis.export.answers_export import as_json
from dlbench.analysis.read.runs import merged
from dlbench.analysis.read.table import collect
from dlbench.core import files


class ByTopic(dict):
    """The answers on result files by topic, each made when a test first reads it."""

    def __init__(self, paths, form):
        super().__init__()
        self.results, self.form = merged(collect(paths)), form

    def __missing__(self, topic):
        (question,) = (each for each in files.ordered(answers.__name__) if each.QUESTION.topic == topic)
        self[topic] = self.form(answers._answer(question, self.results))
        return self[topic]


@pytest.fixture(autouse=True)
def steady(earlier_files):
    """Have every test of answers read those."""


@pytest.fixture
def answer_objects(tmp_path):
    """Each topic with its answer, of files with these measurements."""

    def ask(*files, form=lambda answer: answer, **header):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        return ByTopic([made_up.write(folder / f"run{number}.jsonl", each, **header) for number, each in enumerate(files)], form)

    return ask


@pytest.fixture
def asked(answer_objects):
    """The same as the JSON document has it."""
    return lambda *files, **header: answer_objects(*files, form=lambda answer: json.loads(as_json([answer]))["answers"][0], **header)


@pytest.fixture
def scenes(answer_objects, snapshot):
    """Hold what the answers on a topic say against one snapshot: all of it, and of ``heads`` the first line.

    Each scene is the measurements of a file, or of several.
    """

    def check(name, topic, found, heads=None, **header):
        def answer(measured):
            return answer_objects(*(measured if isinstance(measured, tuple) else (measured,)), **header)[topic]

        texts = []
        for scene, made in ((scene, answer(measured)) for scene, measured in found.items()):
            lines = [f"  on a screen: {made.label}  {each[0]}\n" for each in getattr(made, "lines", ())]
            texts.append(f"== {scene}\n{plain(made)}{''.join(lines)}")
        texts += [f"== {scene}\n{plain(answer(measured)).splitlines()[0]}\n" for scene, measured in (heads or {}).items()]
        snapshot(name, "\n".join(texts))

    return check


@pytest.fixture
def shown(tmp_path):
    """The answer on a topic, of a file with these measurements, that ``dlbench show`` gives with these options."""

    def ask(topic, measured, *options, **header):
        path = made_up.write(tmp_path / f"{len(list(tmp_path.iterdir()))}.jsonl", measured, **header)
        done = front_door.in_process(tmp_path, "show", path.name, "--topic", topic, "--format", "json", *options)
        assert done.code == 0, done.err
        return json.loads(done.out)["answers"][0]

    return ask
