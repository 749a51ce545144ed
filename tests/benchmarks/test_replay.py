"""Replaying deciders on made-up recordings: what they see, what is missing where, and that dlbench's row is what `compare` says."""

import gzip
import json
import lzma
import math
import random
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import made_up
import pytest
from front_door import ROOT, dlbench

from benchmarks import recordings, replay
from dlbench.analysis.compare.judge import Verdict
from dlbench.core.model import Status

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


def with_variants(path, rounds=60):
    changes = [(percent, False) for percent in (0, 3, 5, 10)] + [(0, True)]
    return write(
        path,
        *(
            recorded(slowed(program, percent, tail), rounds, 1.1 if tail else 1 + percent / 100)
            for program in PROGRAMS
            for percent, tail in changes
        ),
    )


def answer(capsys, *arguments):
    assert replay.main([*map(str, arguments), "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_what_is_equal_is_told_from_what_was_made_slower(tmp_path, capsys):
    found = answer(capsys, with_variants(tmp_path / "recording.jsonl", 52))
    by_name = {row["decider"]: row for row in found["deciders"]}
    gate = by_name[replay.GATE]
    assert (gate["windows"], gate["separate"], gate["separate_suites"]) == (25, 1, 5)
    assert (gate["case"], gate["suite"], gate["changed"]) == (0, 0, 0)
    assert (gate["+10 %"], gate["tail"]) == (1, 1)
    fixed = by_name["github-action-benchmark 200 %"]
    assert (fixed["windows"], fixed["separate"], fixed["+10 %"]) == (51, 26, 0)
    assert [row["layout"] for row in found["coverage"]] == ["interleaved at random", "back to back", "6 minutes apart"]
    assert found["missing"] == []


def test_it_says_the_same_every_time_and_of_a_compressed_file(tmp_path, capsys):
    plain = with_variants(tmp_path / "recording.jsonl", 24)
    (tmp_path / "recording.jsonl.xz").write_bytes(lzma.compress(plain.read_bytes()))
    (tmp_path / "recording.jsonl.gz").write_bytes(gzip.compress(plain.read_bytes()))
    answers = [answer(capsys, f"{plain}{ending}") for ending in ("", "", ".xz", ".gz")]
    assert all(each == answers[0] for each in answers)


def test_without_recorded_slowdowns_times_are_multiplied(tmp_path, capsys):
    path = write(tmp_path / "mine.jsonl", *(recorded(made_up.case("matmul", n=n), 30) for n in (1, 2, 3)))
    found = answer(capsys, path)
    gate = next(row for row in found["deciders"] if row["decider"] == replay.GATE)
    assert (gate["+10 %"], gate["tail"]) == (1, None)
    replay.main([str(path)])
    assert "slower programs: times multiplied, where none were recorded" in capsys.readouterr().out


def test_what_can_not_be_replayed_is_left_out(tmp_path, capsys):
    zero, absent = made_up.case("noop"), made_up.case("matmul", "cuda:0", n=1)
    copies = [recorded(replace(made_up.case("slowed", program="add"), id=f"slowed[program=add]#{n}@cpu"), 14) for n in (1, 2)]
    path = write(tmp_path / "mine.jsonl", *copies, recorded(zero, 14, factor=0.0), [made_up.ended(absent, Status.SKIPPED, "no cuda:0")] * 2)
    assert set(recordings.read(path).suites[recordings.UNCHANGED]) == {"slowed[program=add]#1@cpu", "slowed[program=add]#2@cpu"}
    assert replay.main([str(path)]) == 0
    out = capsys.readouterr().out
    assert all(f"mine.jsonl: {each.id} is left out, as it has no times in some rounds" in out for each in (zero, absent))


def test_the_sides_of_a_run_are_programs_of_their_own(tmp_path):
    sides = [replace(each, side=side) for side in "ab" for each in recorded(made_up.case(), 14, seed=side)]
    assert len(recordings.read(write(tmp_path / "ab.jsonl", sides)).suites[recordings.UNCHANGED]) == 2


def test_files_count_together_and_no_window_reaches_across(tmp_path, capsys):
    paths = [write(tmp_path / f"{n}.jsonl", recorded(made_up.case("matmul", n=1), 14, seed=n)) for n in (1, 2)]
    found = answer(capsys, *paths)
    by_name = {row["decider"]: row for row in found["deciders"]}
    assert (by_name["dlbench compare --by, 7 rounds"]["windows"], by_name["dlbench compare --by, 7 rounds"]["separate"]) == (2, 2)
    assert replay.GATE not in by_name
    assert (
        "dlbench ab, 14 rounds needs 28 rounds of 1 blocks or more; "
        "the longest recording has 14 rounds, the fullest 12 blocks in every round" in found["missing"]
    )


def test_too_short_a_recording_is_said_in_a_sentence(tmp_path, capsys):
    path = write(tmp_path / "short.jsonl", recorded(made_up.case("matmul", n=1), 3, blocks=3))
    assert replay.main([str(path)]) == 0
    out = capsys.readouterr().out
    assert "pyperf compare_to needs 40 rounds of 4 blocks or more; the longest recording has 3 rounds, the fullest 3 blocks" in out
    assert out.endswith("no recording is long enough to tell whether dlbench's own gate is good enough\n")


def test_a_case_without_all_rounds_is_left_out_and_named(tmp_path, capsys):
    whole, part = made_up.case("matmul", n=1), made_up.case("matmul", n=2)
    ended = made_up.ended(part, Status.TIMEOUT, "not done within 1 s", 5)
    path = write(tmp_path / "mine.jsonl", recorded(whole, 14), recorded(part, 5), [ended])
    assert replay.main([str(path)]) == 0
    assert f"mine.jsonl: {part.id} is left out, as it has no times in some rounds" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("none.jsonl", None, "cannot read {}: No such file or directory"),
        ("none.jsonl.xz", None, "cannot read {}: [Errno 2] No such file or directory"),
        ("text.jsonl", b"hello\n", "{}, line 1: no dlbench header; give a file that dlbench run wrote"),
        ("text.jsonl.gz", gzip.compress(b"hello\n"), "{}, line 1: no dlbench header; give a file that dlbench run wrote"),
        (
            "torn.jsonl.xz",
            lzma.compress(b"hello\n")[:20],
            "cannot read {}: Compressed file ended before the end-of-stream marker was reached",
        ),
        ("plain.jsonl.gz", b"hello\n", "cannot read {}: Not a gzipped file (b'he')"),
    ],
)
def test_a_file_that_is_none_is_2_with_a_sentence(tmp_path, capsys, name, content, sentence):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    assert replay.main([str(path)]) == 2
    assert sentence.format(path) in capsys.readouterr().err


def test_a_file_without_times_is_2_with_a_sentence(tmp_path, capsys):
    path = write(tmp_path / "mine.jsonl", [made_up.ended(made_up.case(), Status.CRASHED, "its process was killed")])
    assert replay.main([str(path)]) == 2
    assert "no case has times; give a file that dlbench run wrote" in capsys.readouterr().err


@pytest.mark.parametrize("seed", [1, 2])
def test_the_row_of_dlbench_is_what_compare_says(tmp_path, seed):
    # Across files, with their threshold of 10 %; the second program is 12 % slower or so, and one in three rounds of all is disturbed.
    cases = [made_up.case("matmul", n=n) for n in (1, 2, 3)]
    factors = (1.0, 1.12, 0.8)
    sides = {
        name: [
            recorded(case, 10, factor if name == "new" else 1.0, sd=0.03, seed=f"{name}{seed}")
            for case, factor in zip(cases, factors, strict=True)
        ]
        for name in ("base", "new")
    }
    for name, measurements in sides.items():
        write(tmp_path / f"{name}.jsonl", *measurements)
    done = dlbench("compare", "base.jsonl", "new.jsonl", "--format", "json", cwd=tmp_path)
    said = {row["compare.case"]: row["compare.verdict"] for row in json.loads(done.out)}
    base, new = (recordings.read(tmp_path / f"{name}.jsonl").suites[recordings.UNCHANGED] for name in sides)
    decider = replay.DECIDERS[-1]
    called = decider.conclude([decider.test(base[program], new[program]) for program in base])
    changed = {f"matmul[n={n}]@cpu": verdict for n, verdict in zip((1, 2, 3), called, strict=True) if verdict}
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


def test_minutes_apart_are_minutes_by_the_clock(tmp_path):
    recording = recordings.read(write(tmp_path / "mine.jsonl", recorded(made_up.case(), 60)))
    windows = list(recordings.MINUTES_APART.windows(recording, 10, random.Random(0)))
    assert [(separate, base[0], new[0], new[-1]) for separate, base, new in windows[:2]] == [(True, 0, 36, 45), (False, 1, 37, 46)]
    assert windows[-1][2][-1] == 59


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
    ranges = [[float(end) / 100 for end in each] for each in re.findall(r"% \(([\d.]+) to ([\d.]+)\)", shown)]
    (gate,) = (row for row in replay.rows(report) if row["decider"] == replay.GATE)
    rates = [gate[name] for name in ("case", "suite", "changed", *replay.SLOWER, recordings.TAIL)]
    assert all(low - 0.0006 <= rate <= high + 0.0006 for rate, (low, high) in zip(rates, ranges, strict=True))


def test_a_rate_is_the_mean_of_its_deals_with_their_range(tmp_path, capsys):
    path = write(tmp_path / "mine.jsonl", *(recorded(slowed(program), 30, sd=0.01) for program in PROGRAMS))
    three = answer(capsys, path, "--deals", "3")
    (gate,) = (row for row in three["deciders"] if row["decider"] == replay.GATE)
    report = replay.replay_all([recordings.read(path)], [each for each in replay.DECIDERS if each.name == replay.GATE], deals=3)
    rates = [tally.rate("+3 %") for tally in report.tallies[replay.GATE]]
    assert (gate["deals"], len(set(rates)) > 1) == (3, True)
    assert (gate["+3 %"], gate["+3 %_low"], gate["+3 %_high"]) == (pytest.approx(sum(rates) / 3), min(rates), max(rates))
    (files,) = (row for row in three["deciders"] if row["decider"] == "dlbench compare of two files, 10 rounds")
    assert (files["deals"], "+3 %_low" in files) == (1, False)


def test_a_case_of_few_blocks_has_no_p10():
    (few,) = (each for each in replay.DECIDERS if each.name == f"{replay.GATE} of 5 blocks")
    side = [recordings.process([level * (1 + 0.001 * at) for at in range(12)]) for level in (1.0, 1.01, 0.99)]
    assert set(few.test(side, side)) == {"median", "mean", "paired"}
    assert few.test(side, side)["median"].base[0] == pytest.approx(math.log(1.002))
