"""How often rules call identical and slower programs: on recordings, by the rules of other tools, and over real occasions."""

import gzip
import json
import lzma
import random
import re
import statistics
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import chain

import made_up
import pytest
from front_door import ROOT, compared, verdicts

from benchmarks import drift, peers, recordings, replay
from dlbench.analysis.compare.judge import Verdict
from dlbench.core.units import percent

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
    return made_up.write(path, [*chain.from_iterable(measurements)])


def with_variants(path, rounds):
    changes = [(0, False, 1.0), (3, False, 1.03), (5, False, 1.05), (10, False, 1.1), (0, True, 1.1)]
    variants = [(slowed(program, percent, tail), factor) for program in PROGRAMS for percent, tail, factor in changes]
    return write(path, *(recorded(case, rounds, factor) for case, factor in variants))


def answer(capsys, *arguments):
    assert replay.main([*map(str, arguments), "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_what_is_equal_is_told_from_what_was_made_slower(tmp_path, capsys):
    found = answer(capsys, with_variants(tmp_path / "recording.jsonl", 52))
    by_name = {row["decider"]: row for row in found["deciders"]}
    gate, fixed = by_name[replay.GATE], by_name["github-action-benchmark 200 %"]
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
    text, no_header, torn = (
        b"hello\n",
        "{}, line 1: no dlbench header; give a file that dlbench run wrote",
        "cannot read {}: Compressed file",
    )
    for name, content, sentence in (
        ("none.jsonl", None, "cannot read {}: No such file or directory"),
        ("none.jsonl.xz", None, "cannot read {}: [Errno 2] No such file or directory"),
        ("text.jsonl", text, no_header),
        ("text.jsonl.gz", gzip.compress(text), no_header),
        ("torn.jsonl.xz", lzma.compress(text)[:20], torn),
        ("plain.jsonl.gz", text, "cannot read {}: Not a gzipped file (b'he')"),
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
    files = {}
    for name, by in (("base", dict.fromkeys(factors, 1.0)), ("new", factors)):
        timed = (recorded(made_up.case("matmul", n=n), 10, factor, sd=0.03, seed=f"{name}{seed}") for n, factor in by.items())
        files[name] = [*chain.from_iterable(timed)]
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


def process(level):
    """A process of forty blocks that lie evenly around a level, in a shuffled order that is always the same."""
    blocks = [level + 0.001 * (number - 19.5) / 40 for number in range(40)]
    random.Random(3).shuffle(blocks)
    return recordings.Process(tuple(blocks), statistics.median(blocks), min(blocks), statistics.fmean(blocks))


SLOWER, FASTER = Verdict.SLOWER, Verdict.FASTER
# The rules of other tools; where a tool is installed, its own code decides.
MARGINS = {
    "pytest-benchmark mean:5%": {1.04: None, 1.06: SLOWER, 0.5: None},
    "pytest-benchmark min:5%": {1.06: SLOWER},
    "BenchmarkTools.jl judge": {0.94: FASTER, 1.04: None},
    "github-action-benchmark 110 %": {1.09: None, 1.11: SLOWER},
    "github-action-benchmark 200 %": {1.99: None},
    "nvbench_compare (legacy)": {1.001: SLOWER, 0.999: FASTER},
    "nvbench-compare (robust)": {1.005: None, 1.01: SLOWER},
    "google-benchmark compare.py": {1.01: SLOWER},
    "criterion.rs": {1.005: None, 1.02: SLOWER, 0.98: FASTER},
    "tango": {1.009: None, 1.02: SLOWER},
    "asv continuous": {1.09: None, 1.11: SLOWER, 0.9: FASTER},
    "hyperfine welch_ttest.py": {1.01: SLOWER},
    "pyperf compare_to": {1.01: SLOWER, 0.99: FASTER},
}


@pytest.mark.parametrize("peer", peers.PEERS, ids=lambda peer: peer.name)
def test_each_rule_has_its_margin_and_calls_what_is_twice_as_slow_and_not_what_is_equal(peer):
    base = [process(1.0 + 0.0001 * number) for number in range(peer.processes)]
    expected = MARGINS.get(peer.name, {}) | {1.0: None, 2.1: SLOWER}
    assert {factor: peer.decide(base, [each.scaled(factor) for each in base]) for factor in expected} == expected
    assert MARGINS.keys() <= {peer.name for peer in peers.PEERS}


def test_blocks_are_averaged_in_equal_groups_and_intervals_and_p_values_are_known():
    assert peers.grouped([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 100.0], 3) == [1.5, 3.5, 5.5]
    # Of ten samples their range: 1 - 2 / 2^10 is above 99 %, 1 - 2 / 2^7 is not.
    assert peers.asv_interval([float(n) for n in range(10)]) == (0.0, 9.0)
    assert peers.asv_interval([1.0] * 7) == (float("-inf"), float("inf"))
    # Computed with scipy 1.17.
    a, b = [27.5, 21.0, 19.0, 23.6, 17.0, 17.9, 16.9, 20.1, 21.9, 22.6], [27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8, 22.0, 24.8, 20.2]
    assert peers.welch_p(a, b) == pytest.approx(0.059253737007745, abs=1e-9)
    assert peers.mann_whitney_p(a, b) == pytest.approx(0.06382218419183608)


def occasion(folder, hours, factor=1.0, sha="abc"):
    """A file of identical code, the second program of which took so many times as long."""
    where = {"machine_key": "m", "stack_key": "s", "provenance": {"utc": (START + timedelta(hours=hours)).isoformat(), "git": {"sha": sha}}}
    rounds = (made_up.around(made_up.case("matmul", n=n), seconds) for n, seconds in ((1, 1.0), (2, factor)))
    made_up.write(folder / f"{hours}-{sha}.jsonl", [*chain.from_iterable(rounds)], environment=where, footer={"seconds": 180.0})


def test_fewer_than_twelve_occasions_an_hour_apart_give_no_rate(tmp_path, capsys):
    drift.main([str(tmp_path)])
    for number in range(11):
        for after, sha in ((0, "abc"), (0.5, "abc"), (1, "another")):
            occasion(tmp_path, 2 * number + after, sha=sha)
    drift.main([str(tmp_path)])
    assert capsys.readouterr().out.splitlines() == [
        f"{found} files in {tmp_path} are occasions of the same code that lie 60 min apart or more; "
        f"{lacking} more and there are rates: make drift, every two hours, such as from cron"
        for found, lacking in (("0 of 0", 12), ("11 of 33", 1))
    ]


@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_rates_by_the_time_between_occasions(tmp_path, monkeypatch, factor):
    reports = []
    monkeypatch.setattr(drift, "report", lambda *arguments: reports.append(arguments))
    for number in range(12):
        occasion(tmp_path, 3 * number, factor if number == 11 else 1.0)
    drift.main([str(tmp_path)])
    ((title, _, rows, *_),) = reports
    expected = []
    for time, pairs, called in (("60 min to 6 h", 21, 2), ("6 h to 24 h", 39, 6), ("24 h to 7 days", 6, 3)):
        suites, cases = (percent(each) for each in (called / pairs, called / pairs / 2)) if factor > 1 else ("0.0 %", "0.0 %")
        expected.append((time, str(pairs), suites, f"{cases} of {2 * pairs}"))
    assert (title, rows) == ("12 occasions of identical code", expected)
