"""Commands that read say of small files what they said before; ``python -m tests.golden`` holds all of it."""

import golden
import pytest

EVERY = 23
"""Of the calls; a file has fifty of them, so files take turns in which."""


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return golden.Scene("small", tmp_path_factory.mktemp("small"))


def test_what_is_kept_is_of_the_files_and_calls_that_there_are(small):
    before = small.before()
    assert before["files"] == small.digests(), "keep what is said of them: python -m tests.golden small --write"
    assert list(before["said"]) == [golden.key(call) for call in small.calls()]


def test_commands_that_read_say_what_they_said_before(small):
    before = small.before()["said"]
    found = [(call, list(golden.differences(before[golden.key(call)], said))) for call, said in small.said(list(small.calls())[::EVERY])]
    changed = [golden.told(call, lines) for call, lines in found if lines]
    assert not changed, "\n".join([*changed, "is this meant? See all of it, and keep it: python -m tests.golden --write"])


def test_what_differs_is_named_with_its_place():
    before = {"exit": 0, "out": "a\nb\n", "out/verdict.json": {"cases": [{"p": 0.5}, {"p": 1}]}}
    now = {"exit": 3, "out": "a\nc\n", "out/verdict.json": {"cases": [{"p": 0.25}, {"p": 1.0}, {}]}, "err": ""}
    assert list(golden.differences(before, now)) == [
        "exit: 0 → 3",
        "out: -b",
        "out: +c",
        "out/verdict.json.cases[0].p: 0.5 → 0.25",
        "out/verdict.json.cases[1].p: 1 → 1.0",
        "out/verdict.json.cases[2]: nothing → {}",
        "err: nothing → ''",
    ]
    assert list(golden.differences(before, before)) == []
