"""One recording, many deciders: how often each tool calls identical programs different, and how often it sees a real slowdown.

A recording is any result file of many rounds; one with programs that were really made slower comes from
``dlbench run benchmarks/recording.toml``. Each decider takes the processes and blocks that its tool would have
taken, at every place of the recording where they fit, and applies its documented rule.
"""

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import recordings
from benchmarks.peers import PEERS, PORTED, Called, Peer
from benchmarks.recordings import BACK_TO_BACK, INTERLEAVED, MINUTES_APART, TAIL, UNCHANGED, Placement, Recording, Side
from dlbench.analysis.compare.judge import LEVEL, RankTest, Verdict, rank_tests
from dlbench.analysis.doctor.selftest import verdicts
from dlbench.core.errors import DlbenchError, ExitCode
from dlbench.core.rows.rounds import Blocks
from dlbench.core.rows.summary import Rounds
from dlbench.core.stats import proportion_interval

SEED = 20261121
SLOWER = {"+3 %": 1.03, "+5 %": 1.05, "+10 %": 1.1}
"""What is looked for: recorded where a file has it, else its times are multiplied."""
GATE = "dlbench ab, 14 rounds"
BY_RANKS = "dlbench, 14 rounds, by ranks alone"
COVERAGE_ROUNDS = 14


@dataclass(frozen=True)
class Decider:
    """A plan of sampling and a rule: a test of each case, and what becomes of a suite's tests together."""

    name: str
    rule: str
    processes: int
    layout: Placement
    test: Callable[[Side, Side], Any]
    conclude: Callable[[Sequence[Any]], list[Called]]
    blocks: int = 1


def _of_dlbench(name: str, rounds: int, layout: Placement, threshold: float, paired: bool = False) -> Decider:
    def conclude(cases: Sequence[Mapping[str, RankTest]]) -> list[Called]:
        return [verdict if verdict in (Verdict.SLOWER, Verdict.FASTER) else None for verdict in verdicts(cases, threshold)]

    rule = f"exact rank test of p10 and median{', and of pairs' if paired else ''}, Holm, beyond {threshold:.0%}"
    return Decider(name, rule, rounds, layout, lambda base, new: rank_tests(_rounds(base), _rounds(new), paired=paired), conclude)


def _rounds(side: Side) -> Rounds:
    return Rounds(
        median_s=tuple([each.median_s for each in side]),
        p10_s=tuple([each.p10_s for each in side]),
        mean_s=tuple([each.mean_s for each in side]),
        blocks=Blocks.of([each.blocks for each in side]),
        numbers=tuple(range(len(side))),  # a layout deals the rounds in pairs
    )


def _of_peer(peer: Peer) -> Decider:
    return Decider(peer.name, peer.rule, peer.processes, peer.layout, peer.decide, list, peer.blocks)


DECIDERS = (
    *map(_of_peer, PEERS),
    _of_dlbench("dlbench compare --by, 7 rounds", 7, INTERLEAVED, 0.03),
    _of_dlbench("dlbench compare --by, 10 rounds", 10, INTERLEAVED, 0.03),
    _of_dlbench("dlbench ab --rounds 10", 10, INTERLEAVED, 0.03, paired=True),
    _of_dlbench(BY_RANKS, 14, INTERLEAVED, 0.03),
    _of_dlbench(GATE, 14, INTERLEAVED, 0.03, paired=True),
    _of_dlbench("dlbench ab --rounds 20", 20, INTERLEAVED, 0.03, paired=True),
    _of_dlbench("dlbench, 10 rounds, not interleaved", 10, BACK_TO_BACK, 0.03),
    _of_dlbench("dlbench, 14 rounds, not interleaved", 14, BACK_TO_BACK, 0.03),
    _of_dlbench("dlbench compare of two files, 10 rounds", 10, BACK_TO_BACK, 0.1),
    _of_dlbench("dlbench compare of two files, 14 rounds", 14, BACK_TO_BACK, 0.1),
)


@dataclass
class Tally:
    """What one decider said over all windows."""

    seen: Counter[str] = field(default_factory=Counter)
    of: Counter[str] = field(default_factory=Counter)

    def add(self, what: str, happened: bool) -> None:
        """Count one occasion."""
        self.seen[what] += happened
        self.of[what] += 1

    def rate(self, what: str) -> float | None:
        """Return the share of occasions; None where there was none."""
        return self.seen[what] / self.of[what] if self.of[what] else None


def replay(decider: Decider, recording: Recording, tally: Tally, chance: random.Random) -> None:
    """Let a decider judge every window of a recording: each suite against itself, then each program against its slower variants."""
    for separate, base, new in decider.layout.windows(recording, decider.processes, chance):
        tally.add("windows", separate)
        for suite in recording.suites.values():
            called = decider.conclude([decider.test(_at(side, base), _at(side, new)) for side in suite.values()])
            for verdict in called:
                tally.add("case", verdict is Verdict.SLOWER)
            tally.add("suite", Verdict.SLOWER in called)
            tally.add("suite changed", any(called))
            if separate:
                tally.add("separate suite", Verdict.SLOWER in called)
        _look_for_slower(decider, recording, tally, base, new)


def _look_for_slower(decider: Decider, recording: Recording, tally: Tally, base: Sequence[int], new: Sequence[int]) -> None:
    """In a suite of which one program is slower and the others are not: is that one called slower?"""
    suite = recording.suites[UNCHANGED]
    tests = {program: decider.test(_at(side, base), _at(side, new)) for program, side in suite.items()}
    for program, side in suite.items():
        slower = {change: [process.scaled(factor) for process in _at(side, new)] for change, factor in SLOWER.items()}
        recorded = {change: recording.suites.get(change, {}).get(program) for change in (*SLOWER, TAIL)}
        slower |= {change: _at(variant, new) for change, variant in recorded.items() if variant}
        for change, processes in slower.items():
            changed = {**tests, program: decider.test(_at(side, base), processes)}
            called = dict(zip(changed, decider.conclude(list(changed.values())), strict=True))
            tally.add(change, called[program] is Verdict.SLOWER)


def _at(side: Side, rounds: Sequence[int]) -> Side:
    return [side[number] for number in rounds]


def cover(layout: Placement, recording: Recording, tally: Tally, chance: random.Random) -> None:
    """Count how often the 95 % interval of the change of identical programs holds zero, by statistic."""
    for separate, base, new in layout.windows(recording, COVERAGE_ROUNDS, chance):
        tally.add("windows", separate)
        for suite in recording.suites.values():
            for side in suite.values():
                for name, test in rank_tests(_rounds(_at(side, base)), _rounds(_at(side, new))).items():
                    if test.interval:
                        tally.add(name, test.interval.low <= 0 <= test.interval.high)


@dataclass(frozen=True)
class Report:
    """What all deciders said over some recordings."""

    recordings: Sequence[Recording]
    tallies: Mapping[str, Tally]
    """By decider."""
    coverage: Mapping[str, Tally]
    """By layout."""
    missing: Sequence[str]
    """A sentence for each decider that no recording was long enough for."""


def replay_all(files: Sequence[Recording], deciders: Sequence[Decider] = DECIDERS) -> Report:
    """Replay the deciders on every recording; windows never reach from one into another."""
    tallies, missing = {}, []
    for decider in deciders:
        fits = [each for each in files if each.rounds >= 2 * decider.processes and each.blocks >= decider.blocks]
        if not fits:
            longest, most = max(each.rounds for each in files), max(each.blocks for each in files)
            missing.append(
                f"{decider.name} needs {2 * decider.processes} rounds of {decider.blocks} blocks or more; "
                f"the longest recording has {longest} rounds, the fullest {most} blocks in every round"
            )
            continue
        tallies[decider.name] = Tally()
        for recording in fits:
            replay(decider, recording, tallies[decider.name], random.Random(SEED))
    coverage = {layout.name: Tally() for layout in (INTERLEAVED, BACK_TO_BACK, MINUTES_APART)}
    for layout in (INTERLEAVED, BACK_TO_BACK, MINUTES_APART):
        for recording in files:
            cover(layout, recording, coverage[layout.name], random.Random(SEED))
    return Report(files, tallies, coverage, missing)


def rows(report: Report) -> list[dict[str, Any]]:
    """Return a row a decider: rates are fractions, None where nothing was recorded to tell by."""
    found = []
    for decider in DECIDERS:
        if (tally := report.tallies.get(decider.name)) is None:
            continue
        failed, separate = tally.seen["separate suite"], tally.of["separate suite"]
        found.append(
            {
                "decider": decider.name,
                "rule": decider.rule,
                "processes": decider.processes,
                "layout": decider.layout.name,
                "windows": tally.of["windows"],
                "separate": tally.seen["windows"],
                "case": tally.rate("case"),
                "suite": tally.rate("suite"),
                "changed": tally.rate("suite changed"),
                "separate_failed": failed,
                "separate_suites": separate,
                "suite_at_most": proportion_interval(failed, separate).high,
                **{change: tally.rate(change) for change in (*SLOWER, TAIL)},
            }
        )
    return found


def coverage_rows(report: Report) -> list[dict[str, Any]]:
    """Return a row a layout that fits: how often the interval held the truth, by statistic."""
    return [
        {
            "layout": layout,
            "windows": tally.of["windows"],
            "separate": tally.seen["windows"],
            "p10": tally.rate("p10"),
            "median": tally.rate("median"),
        }
        for layout, tally in report.coverage.items()
        if tally.of["windows"]
    ]


def verdict(report: Report) -> tuple[bool, str] | None:
    """Say whether what ``dlbench ab`` does by itself reaches what is asked of it; None where nothing tells."""
    by_name = {row["decider"]: row for row in rows(report)}
    covered = next((row for row in coverage_rows(report) if row["layout"] == INTERLEAVED.name), None)
    gate, by_ranks = by_name.get(GATE), by_name.get(BY_RANKS)
    if gate is None or by_ranks is None or covered is None or gate["+10 %"] is None:
        return None
    best = max((row["+10 %"] for row in map(by_name.get, (peer.name for peer in PEERS)) if row and row["suite"] < 0.15), default=0.0)
    reached = (
        gate["case"] <= 0.01
        and gate["suite"] <= LEVEL
        and all(0.93 <= covered[each] <= 0.98 for each in ("p10", "median"))
        and gate["+10 %"] >= 0.88
        and gate["+10 %"] > best
        and gate["+5 %"] >= by_ranks["+5 %"]
    )
    return reached, (
        f"at {COVERAGE_ROUNDS} interleaved rounds A/A at most 1 % a case and 5 % a suite, coverage of 93 to 98 %, "
        f"+10 % seen in at least 88 % and more often than by any peer whose suites fail in less than 15 % ({_share(best)}), "
        f"and +5 % no less often than without pairs"
    )


_COLUMNS = {
    "tool and rule": lambda row: f"{row['decider']}: {row['rule']}",
    "processes a side": lambda row: f"{row['processes']}, {row['layout']}",
    "windows": lambda row: f"{row['windows']:,} ({row['separate']})",
    "A/A, a case": lambda row: _share(row["case"]),
    "A/A, suite fails": lambda row: _share(row["suite"]),
    "apart, at most": lambda row: f"{row['separate_failed']} of {row['separate_suites']}, {_share(row['suite_at_most'])}",
    "any change": lambda row: _share(row["changed"]),
    **{change: lambda row, change=change: _share(row[change]) for change in (*SLOWER, TAIL)},
}
_COVERAGE_COLUMNS = {
    f"two sides of {COVERAGE_ROUNDS} rounds": lambda row: row["layout"],
    "windows": lambda row: f"{row['windows']:,} ({row['separate']})",
    "p10": lambda row: _share(row["p10"]),
    "median": lambda row: _share(row["median"]),
}


def _share(rate: float | None) -> str:
    return "" if rate is None else f"{100 * rate:.1f} %"


def as_text(report: Report, markdown: bool) -> str:
    """Return the two tables, what they stand on, and whether the aim is reached."""
    files = [
        f"{each.path.name}: {len(each.suites[UNCHANGED])} programs, {each.rounds} rounds, {each.blocks} blocks in each"
        for each in report.recordings
    ]
    slowed = all(set(SLOWER) <= set(each.suites) for each in report.recordings)
    decided = [peer for peer in PEERS if peer.name in report.tallies]
    own = ", ".join(f"{peer.name} ({peer.origin})" for peer in decided if peer.origin != PORTED) or "none"
    ported = ", ".join(peer.name for peer in decided if peer.origin == PORTED) or "none"
    last = "no recording is long enough to tell whether dlbench's own gate is good enough"
    if reached := verdict(report):
        last = f"{'reached' if reached[0] else 'MISSED'}: {reached[1]}"
    parts = [
        *files,
        *(note for each in report.recordings for note in each.notes),
        f"slower programs: {'recorded' if slowed else 'times multiplied, where none were recorded'}",
        "",
        *_table(_COLUMNS, rows(report), markdown),
        "",
        *_table(_COVERAGE_COLUMNS, coverage_rows(report), markdown),
        "",
        f"decided by the tool's own code: {own}; by a port of its rule: {ported}",
        *report.missing,
        last,
    ]
    return "\n".join(parts)


def _table(columns: Mapping[str, Callable[[Any], str]], found: Sequence[Mapping[str, Any]], markdown: bool) -> list[str]:
    lines = [list(columns), *([cell(row) for cell in columns.values()] for row in found)]
    if markdown:
        shown = [f"| {' | '.join(line)} |" for line in lines]
        return [shown[0], "|" + "---|" * len(columns), *shown[1:]]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay all deciders on the recordings given, and print what they said."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replay", description=__doc__.partition("\n")[0])
    parser.add_argument("recording", type=Path, nargs="+", help="result files of many rounds: .jsonl, .jsonl.xz or .jsonl.gz")
    parser.add_argument("--format", choices=("table", "json", "md"), default="table")
    options = parser.parse_args(arguments)
    try:
        report = replay_all([recordings.read(path) for path in options.recording])
    except DlbenchError as error:
        print(f"replay: {error}", file=sys.stderr)
        return error.exit_code
    if options.format == "json":
        origins = {peer.name: peer.origin for peer in PEERS}
        answer = {"deciders": rows(report), "coverage": coverage_rows(report), "missing": report.missing, "rules": origins}
        print(json.dumps(answer, indent=2))
    else:
        print(as_text(report, options.format == "md"))
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main())
