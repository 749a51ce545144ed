"""Calls of ``make gpu`` on a scripted card: what each of them brings, with the real runner behind it."""

import contextlib
import io
import re
from collections import Counter
from pathlib import Path

import pytest
import scripted_card
from scripted_pieces import words_after

from benchmarks.reference import main
from benchmarks.reference_suites import SHORT
from dlbench.core.store import load

CALL_S = 540


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    """Of each of the first five calls: its seconds, how the files stood after it, its commands, and what it said."""
    folder = tmp_path_factory.mktemp("calls")
    machine = scripted_card.ScriptedCard(folder)
    took, standings, slices, said = [], [], [], []
    for _ in range(5):
        began = machine.now
        with contextlib.redirect_stdout(io.StringIO()) as out:
            assert main(["--into", str(folder), "--no-tests"], machine, machine.ask, machine.clock) == 0
        said.append(out.getvalue())
        took.append(machine.now - began)
        standings.append({path.stem: rounds_of(path) for path in folder.glob("*/*.jsonl")})
        slices.append(machine.slices)
        machine.slices = []
    return took, standings, slices, said


def rounds_of(path):
    """How many measurements each case has, and how many are planned."""
    run = load(path)
    return Counter(each.case.id for each in run.measurements if each.status == "ok"), run.header["planned"]["count"], run


def complete(standing):
    counts, planned, run = standing
    ended = {each.case.id for each in run.measurements if each.status == "unsupported"}
    return len(counts.keys() | ended) == planned and set(counts.values()) <= {4, 7}


def test_the_first_call_brings_quick_and_begins_another_suite(calls):
    took, standings, _, _ = calls
    assert took[0] <= CALL_S
    first = standings[0]
    assert complete(first["quick"])
    assert {name.partition("@")[2] for name in first["quick"][0]} == {"cpu", "cuda:0"}
    assert sum(first["cnn"][0].values()) > 0


def test_no_call_spends_a_slice_on_starts_alone(calls):
    took, _, slices, _ = calls
    assert max(took) <= CALL_S
    assert [(words[3:5], measured, waited) for call in slices for words, measured, waited in call if measured <= waited] == []


def test_five_calls_complete_the_short_set(calls):
    _, standings, _, _ = calls
    assert {name: complete(standings[4][name]) for name in SHORT} == dict.fromkeys(SHORT, True)


def test_the_estimate_said_beforehand_holds(calls):
    """To a third, in either direction: what a case takes beyond the policy, and what its warm-up does, only a run shows."""
    _, _, slices, said = calls
    first, short = re.match(r"quick: about ([\d:]+) to its 4 rounds; the short set: about ([\d:]+), 4 calls of 9:00\n", said[0]).groups()
    words, measured, waited = slices[0][0]
    assert words[3] == "quick"
    assert seconds(first) == pytest.approx(measured + waited, rel=1 / 3)
    spent = [measured + waited for call in slices for words, measured, waited in call if is_short(words)]
    assert seconds(short) == pytest.approx(sum(spent), rel=1 / 3)
    assert any("; all suites to 4 rounds: about " in line for line in said[4].splitlines())


def seconds(clock):
    minutes, rest = clock.split(":")
    return 60 * int(minutes) + int(rest)


def is_short(words):
    return Path(words[4] if "--resume" in words else words[-1]).stem in SHORT


def test_searches_are_made_once_and_their_suite_comes_to_its_end(tmp_path, capsys):
    machine = scripted_card.ScriptedCard(tmp_path)
    arguments = ["--into", str(tmp_path), "--no-tests", "--suites", "memory"]
    for _ in range(3):
        assert main(arguments, machine, machine.ask, machine.clock) == 0
    out = capsys.readouterr().out
    assert out.endswith("everything is done\n")
    said = re.match(r"memory: about ([\d:]+) to its 4 rounds; ", out)
    first = [measured + waited for words, measured, waited in machine.slices if words_after(words, "--rounds") == ["4"]]
    assert seconds(said[1]) == pytest.approx(sum(first), rel=1 / 3)
    run = load(tmp_path / "nvidia-h200" / "memory.jsonl")
    found = Counter(each.case.id for each in run.measurements if each.found)
    assert (len(found) > 5, set(found.values())) == (True, {1})
    assert {count for case, count in Counter(each.case.id for each in run.measurements).items() if case not in found} == {1, 7}
    begun = len(machine.slices)
    assert main(arguments, machine, machine.ask, machine.clock) == 0
    assert len(machine.slices) == begun  # no process was started for what is there
