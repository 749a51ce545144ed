"""Replaying deciders on made-up recordings: what they see, what is missing where, and that dlbench's row is what `compare` says."""

import gzip
import json
import lzma
import random
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import made_up
import pytest
from front_door import ROOT, compared, verdicts

from benchmarks import recordings, replay
from dlbench.analysis.compare.judge import Verdict

pytestmark = pytest.mark.real

START = datetime(2026, 1, 31, 12, tzinfo=UTC)
PROGRAMS = ("add", "conv")


def recorded(case, rounds, factor=1.0, sd=0.01, blocks=12, seed=0):
    """Rounds ten seconds apart, around one second."""
    chance = random.Random(f"{seed}/{case.id}")
    levels = [factor * chance.lognormvariate(0, sd) for _ in range(rounds)]
    timed = [[level * chance.lognormvariate(0, 0.002) for _ in range(blocks)] for level in levels]
    measured = made_up.rounds_of(case, timed)
    return [replace(each, started=(START + timedelta(seconds=10 * each.round)).isoformat()) for each in measured]


def slowed(program, percent=0, tail=False):
    return made_up.case("slowed", program=program, percent=percent, tail=tail)


def write(path, *measurements):
    return made_up.write(path, [each for some in measurements for each in some])


def with_variants(path, rounds):
    changes = [(0, False, 1.0), (3, False, 1.03), (5, False, 1.05), (10, False, 1.1), (0, True, 1.1)]
    variants = [(slowed(program, percent, tail), factor) for program in PROGRAMS for percent, tail, factor in changes]
    return write(path, *(recorded(case, rounds, factor) for case, factor in variants))


def answer(capsys, *arguments):
    assert replay.main([*map(str, arguments), "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_what_is_equal_is_told_from_what_was_made_slower(tmp_path, capsys):
    found = answer(capsys, with_variants(tmp_path / "recording.jsonl", 52))
    gate, fixed = (
        next(row for row in found["deciders"] if row["decider"] == name) for name in (replay.GATE, "github-action-benchmark 200 %")
    )
    names = ("windows", "separate", "separate_suites", "case", "suite", "changed", "+10 %", "tail")
    assert [gate[name] for name in names] == [25, 1, 5, 0, 0, 0, 1, 1]
    assert (fixed["windows"], fixed["separate"], fixed["+10 %"]) == (51, 26, 0)
    assert [row["layout"] for row in found["coverage"]] == ["interleaved at random", "back to back", "6 minutes apart"]
    assert found["missing"] == []


def test_it_says_the_same_every_time_and_of_a_compressed_file_and_sides_are_programs_of_their_own(tmp_path, capsys):
    plain = with_variants(tmp_path / "recording.jsonl", 24)
    (tmp_path / "recording.jsonl.xz").write_bytes(lzma.compress(plain.read_bytes()))
    (tmp_path / "recording.jsonl.gz").write_bytes(gzip.compress(plain.read_bytes()))
    answers = [answer(capsys, f"{plain}{ending}") for ending in ("", "", ".xz", ".gz")]
    assert all(each == answers[0] for each in answers)
    sides = [replace(each, side=side) for side in "ab" for each in recorded(made_up.case(), 14, seed=side)]
    assert len(recordings.read(write(tmp_path / "ab.jsonl", sides)).suites[recordings.UNCHANGED]) == 2


def test_a_file_that_is_none_is_2_with_a_sentence(tmp_path, capsys):
    no_header = "{}, line 1: no dlbench header; give a file that dlbench run wrote"
    for name, content, sentence in (
        ("none.jsonl", None, "cannot read {}: No such file or directory"),
        ("none.jsonl.xz", None, "cannot read {}: [Errno 2] No such file or directory"),
        ("text.jsonl", b"hello\n", no_header),
        ("text.jsonl.gz", gzip.compress(b"hello\n"), no_header),
        (
            "torn.jsonl.xz",
            lzma.compress(b"hello\n")[:20],
            "cannot read {}: Compressed file ended before the end-of-stream marker was reached",
        ),
        ("plain.jsonl.gz", b"hello\n", "cannot read {}: Not a gzipped file (b'he')"),
    ):
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        assert replay.main([str(path)]) == 2
        assert sentence.format(path) in capsys.readouterr().err


@pytest.mark.parametrize("seed", [1, 2])
def test_the_row_of_dlbench_is_what_compare_says(tmp_path, seed):
    # Across files, with their threshold of 10 %; the second program is 12 % slower or so, and one in three rounds of all is disturbed.
    factors = {1: 1.0, 2: 1.12, 3: 0.8}
    files = {
        name: [
            each for n, factor in by.items() for each in recorded(made_up.case("matmul", n=n), 10, factor, sd=0.03, seed=f"{name}{seed}")
        ]
        for name, by in (("base", dict.fromkeys(factors, 1.0)), ("new", factors))
    }
    done = compared(tmp_path, *files.values(), "--format", "json")
    said = {case: row["compare.verdict"] for case, row in verdicts(done).items()}
    base, new = (recordings.read(tmp_path / f"{name}.jsonl").suites[recordings.UNCHANGED] for name in files)
    decider = replay.DECIDERS[-1]
    called = decider.conclude([decider.test(base[program], new[program]) for program in base])
    changed = {f"matmul[n={n}]@cpu": verdict for n, verdict in zip(factors, called, strict=True) if verdict}
    assert changed == {case: verdict for case, verdict in said.items() if verdict in ("slower", "faster")}
    assert Verdict.FASTER in changed.values()


def test_layouts_deal_what_they_say():
    chance = random.Random(0)
    base, new = recordings.INTERLEAVED.deal(10, chance)
    assert sorted(base + new) == list(range(20))
    assert [one // 2 for one in base] == [one // 2 for one in new] == list(range(10))
    assert base != list(range(0, 20, 2))
    assert recordings.BACK_TO_BACK.deal(2, chance) == ([0, 1], [2, 3])
    assert recordings.IN_TURNS.deal(2, chance) == ([0, 2], [1, 3])


QUICK = {"pytest-benchmark min:5%", "asv continuous", "nvbench-compare (robust)"}


def test_the_page_has_what_the_committed_recording_gives():
    # What dlbench does by itself, by one deal of the twelve, and the quickest of the others: the whole table takes ten minutes.
    own = {replay.GATE, "dlbench compare of two files, 10 rounds"}
    deciders = [each for each in replay.DECIDERS if each.name in own or each.name in QUICK]
    recording = recordings.read(ROOT / "results" / "reference" / "intel-xeon-processor" / "recording.jsonl.xz")
    report = replay.replay_all([recording], deciders, deals=1)
    page = (ROOT / "docs" / "reference" / "validation.md").read_text()
    rows = [line for line in replay.as_text(report, markdown=True).splitlines() if line.startswith("| ")]
    assert len(rows) == 2 + len(deciders) + 2 + 3  # each table has headings and a rule
    dealt = (f"| {replay.GATE}: ", "| interleaved at random ")
    assert [row for row in rows if row not in page.splitlines() and not row.startswith(dealt)] == []
    assert all(f"| {each.name}: " in page for each in replay.DECIDERS)
    at_random = [line for line in page.splitlines() if line.startswith("| dlbench") and "interleaved at random" in line]
    assert [line for line in at_random if f" {replay.DEALS} deals " not in line] == []
    shown = next(line for line in page.splitlines() if line.startswith(f"| {replay.GATE}: "))
    ranges = [[float(end) / 100 for end in each] for each in re.findall(r"\(([\d.]+) to ([\d.]+)\)", shown)]
    (gate,) = (row for row in replay.rows(report) if row["decider"] == replay.GATE)
    rates = [gate[name] for name in ("case", "suite", "changed", *replay.SLOWER, recordings.TAIL)]
    assert all(low - 0.0006 <= rate <= high + 0.0006 for rate, (low, high) in zip(rates, ranges, strict=True))
