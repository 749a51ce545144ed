"""Replays of recordings by several deciders: how often each tool calls identical programs different, and how often it sees a slowdown.

A recording is any result file of many rounds; one with programs that were really made slower comes from
``dlbench run benchmarks/recording.toml``. Each decider takes the processes and blocks that its tool would have
taken, at every place of the recording where they fit, and applies its documented rule.
"""

import argparse
import json
import random
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import recordings
from benchmarks.deciders import DECIDERS, GATE, Decider, as_rounds
from benchmarks.peers import PEERS, PORTED
from benchmarks.recordings import BACK_TO_BACK, INTERLEAVED, MINUTES_APART, TAIL, UNCHANGED, Placement, Recording, Side
from dlbench.analysis.compare.judge import MEAN, Verdict, rank_tests
from dlbench.analysis.export.tabular import markdown_table
from dlbench.core.errors import DlbenchError, ExitCode
from dlbench.core.stats import proportion_interval

SEED = 20261123
"""Seed of the deals; the weights of dlbench's rule were chosen with other seeds."""
DEALS = 12
"""How often the rounds of a recording are dealt to the two sides, where chance deals them."""
SLOWER = {"+3 %": 1.03, "+5 %": 1.05, "+10 %": 1.1}
"""Slowdowns that deciders are to see, with their factor: recorded ones if the file has them, else times are multiplied."""
COVERAGE_ROUNDS = 14
COVERED = ("p10", "median", MEAN)


@dataclass
class Tally:
    """Counts over all windows by event, such as "suite": how often a decider could see it, and how often it did."""

    seen: Counter[str] = field(default_factory=Counter)
    occasions: Counter[str] = field(default_factory=Counter)

    def add(self, event: str, happened: bool) -> None:
        """Count one occasion for an event."""
        self.seen[event] += happened
        self.occasions[event] += 1

    def rate(self, event: str) -> float | None:
        """Return the share of occasions on which an event was seen; None without any occasion."""
        return self.seen[event] / self.occasions[event] if self.occasions[event] else None


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
    """Count whether a decider calls a program slower that is the only slower one in its suite, for each program and slowdown."""
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
                for name, test in rank_tests(as_rounds(_at(side, base)), as_rounds(_at(side, new)), 0.0).items():
                    if test.interval:
                        tally.add(name, test.interval.low <= 0 <= test.interval.high)


@dataclass(frozen=True)
class Report:
    """The tallies of all deciders over some recordings."""

    recordings: Sequence[Recording]
    tallies: Mapping[str, Sequence[Tally]]
    """By decider, a tally for each deal."""
    coverage: Mapping[str, Sequence[Tally]]
    """By layout, a tally for each deal."""
    missing: Sequence[str]
    """A sentence for each decider that no recording was long enough for."""


def _chances(layout: Placement, deals: int, seed: int) -> list[random.Random]:
    """Return a generator for each deal of the rounds to the sides; a single one for a layout that leaves nothing to chance."""
    return [random.Random(f"{seed}/{deal}") for deal in range(deals if layout is INTERLEAVED else 1)]


def replay_all(files: Sequence[Recording], deciders: Sequence[Decider] = DECIDERS, deals: int = DEALS, seed: int = SEED) -> Report:
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
        tallies[decider.name] = found = []
        for chance in _chances(decider.layout, deals, seed):
            found.append(Tally())
            for recording in fits:
                replay(decider, recording, found[-1], chance)
    coverage: dict[str, list[Tally]] = {}
    for layout in (INTERLEAVED, BACK_TO_BACK, MINUTES_APART):
        coverage[layout.name] = found = []
        for chance in _chances(layout, deals, seed):
            found.append(Tally())
            for recording in files:
                cover(layout, recording, found[-1], chance)
    return Report(files, tallies, coverage, missing)


def _rates(tallies: Sequence[Tally], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the mean over the deals of an event's rate, by name, and its range in ``NAME_low`` and ``NAME_high`` if there are several.

    ``names``: the event for each name.
    """
    found: dict[str, Any] = {}
    for name, event in names.items():
        rates = [rate for tally in tallies if (rate := tally.rate(event)) is not None]
        found[name] = statistics.fmean(rates) if rates else None
        if len(rates) > 1:
            found |= {f"{name}_low": min(rates), f"{name}_high": max(rates)}
    return found


def rows(report: Report) -> list[dict[str, Any]]:
    """Return a row for each decider: rates are fractions, None where the recordings have no occasion.

    Counts of windows and of suites that share no round are those of the deal in which most of these suites fail.
    """
    found = []
    for decider in DECIDERS:
        tallies = report.tallies.get(decider.name)
        if tallies is None:
            continue
        tally = max(tallies, key=lambda each: each.seen["separate suite"])
        failed, separate = tally.seen["separate suite"], tally.occasions["separate suite"]
        found.append(
            {
                "decider": decider.name,
                "rule": decider.rule,
                "processes": decider.processes,
                "layout": decider.layout.name,
                "deals": len(tallies),
                "windows": tally.occasions["windows"],
                "separate": tally.seen["windows"],
                "separate_failed": failed,
                "separate_suites": separate,
                "suite_at_most": proportion_interval(failed, separate).high,
                **_rates(
                    tallies, {"case": "case", "suite": "suite", "changed": "suite changed"} | {each: each for each in (*SLOWER, TAIL)}
                ),
            }
        )
    return found


def coverage_rows(report: Report) -> list[dict[str, Any]]:
    """Return a row for each layout that has windows: how often the interval held the truth, by statistic."""
    return [
        {
            "layout": layout,
            "deals": len(tallies),
            "windows": tallies[0].occasions["windows"],
            "separate": tallies[0].seen["windows"],
            **_rates(tallies, {each: each for each in COVERED}),
        }
        for layout, tallies in report.coverage.items()
        if tallies[0].occasions["windows"]
    ]


def verdict(report: Report) -> tuple[bool, str] | None:
    """Return whether ``dlbench ab`` by default reaches its aims, with a sentence about these; None where the recordings can't tell."""
    by_name = {row["decider"]: row for row in rows(report)}
    covered = next((row for row in coverage_rows(report) if row["layout"] == INTERLEAVED.name), None)
    gate = by_name.get(GATE)
    if gate is None or covered is None or gate["+10 %"] is None:
        return None
    peers = [by_name[peer.name] for peer in PEERS if peer.name in by_name]
    best = max((row["+10 %"] for row in peers if row["suite"] < 0.15), default=0.0)
    reached = (
        gate["suite"] <= 0.01
        and all(0.93 <= covered[each] <= 0.98 for each in COVERED)
        and gate["+5 %"] >= 0.76
        and gate["+10 %"] >= 0.9
        and gate["+10 %"] > best
    )
    return reached, (
        f"at {COVERAGE_ROUNDS} interleaved rounds, mean of all deals: at most 1 % of A/A suites fail, coverage of 93 to 98 %, +5 % seen in "
        f"at least 76 % and +10 % in at least 90 %, more often than by any peer whose suites fail in less than 15 % ({_share(best)})"
    )


_COLUMNS = {
    "tool and rule": lambda row: f"{row['decider']}: {row['rule']}",
    "processes a side": lambda row: f"{row['processes']}, {row['layout']}",
    "windows": lambda row: _windows(row),
    "A/A, a case": lambda row: _cell(row, "case"),
    "A/A, suite fails": lambda row: _cell(row, "suite"),
    "apart, at most": lambda row: f"{row['separate_failed']} of {row['separate_suites']}, {_share(row['suite_at_most'])}",
    "any change": lambda row: _cell(row, "changed"),
    **{change: lambda row, change=change: _cell(row, change) for change in (*SLOWER, TAIL)},
}
_COVERAGE_COLUMNS = {
    f"two sides of {COVERAGE_ROUNDS} rounds": lambda row: row["layout"],
    "windows": lambda row: _windows(row),
    **{name: lambda row, name=name: _cell(row, name) for name in COVERED},
}


def _windows(row: Mapping[str, Any]) -> str:
    deals = f", {row['deals']} deals" if row["deals"] > 1 else ""
    return f"{row['windows']:,} ({row['separate']}){deals}"


def _cell(row: Mapping[str, Any], name: str) -> str:
    """Return a rate, and its range over the deals: ``0.58 % (0.12 to 1.16)``."""
    if f"{name}_low" not in row:
        return _share(row[name])
    digits = 2 if row[f"{name}_high"] < 0.05 else 1
    mean, low, high = (f"{100 * rate:.{digits}f}" for rate in (row[name], row[f"{name}_low"], row[f"{name}_high"]))
    return f"{mean} % ({low} to {high})"


def _share(rate: float | None) -> str:
    return "" if rate is None else f"{100 * rate:.1f} %"


def as_text(report: Report, markdown: bool) -> str:
    """Return the recordings, the two tables, the origin of the deciders, and whether the aims are reached."""
    files = [
        f"{each.path.name}: {len(each.suites[UNCHANGED])} programs, {each.rounds} rounds, {each.blocks} blocks in each"
        for each in report.recordings
    ]
    slowed = all(set(SLOWER) <= set(each.suites) for each in report.recordings)
    decided = [peer for peer in PEERS if peer.name in report.tallies]
    own = ", ".join(f"{peer.name} ({peer.origin})" for peer in decided if peer.origin != PORTED) or "none"
    ported = ", ".join(peer.name for peer in decided if peer.origin == PORTED) or "none"
    conclusion = "no recording is long enough to tell whether dlbench's own gate is good enough"
    aims = verdict(report)
    if aims:
        is_reached, sentence = aims
        conclusion = f"{'reached' if is_reached else 'MISSED'}: {sentence}"
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
        conclusion,
    ]
    return "\n".join(parts)


def _table(columns: Mapping[str, Callable[[Any], str]], found: Sequence[Mapping[str, Any]], markdown: bool) -> list[str]:
    rows = [[cell(row) for cell in columns.values()] for row in found]
    if markdown:  # docs/reference/validation.md says that rates are in percent
        bare = ((first, *(cell.replace(" %", "") for cell in rest)) for first, *rest in rows)
        return [line.rstrip("\n") for line in markdown_table(list(columns), bare)]
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in (list(columns), *rows)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay all deciders on the recordings given, and print their verdicts."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replay", description=__doc__.partition("\n")[0])
    parser.add_argument("recording", type=Path, nargs="+", help="result files of many rounds: .jsonl, .jsonl.xz or .jsonl.gz")
    parser.add_argument("--deals", type=int, default=DEALS, help=f"of rounds to sides, where chance deals them (default: {DEALS})")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--all-blocks", action="store_true", help="count blocks, too, in which a thread waited for a CPU")
    parser.add_argument("--format", choices=("table", "json", "md"), default="table")
    options = parser.parse_args(arguments)
    try:
        files = [recordings.read(path, all_blocks=options.all_blocks) for path in options.recording]
        report = replay_all(files, deals=options.deals, seed=options.seed)
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
