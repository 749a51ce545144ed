"""Occasions of identical code on this machine: how often two of them are called slower or faster, by the time between them."""

import argparse
import itertools
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.alternate import report
from dlbench.analysis.compare.judge import Verdict
from dlbench.analysis.compare.provenance import gap_s
from dlbench.analysis.compare.sides import compare
from dlbench.analysis.read.runs import part
from dlbench.analysis.read.table import Results, collect
from dlbench.cli.options import CALIBRATIONS
from dlbench.core.errors import DlbenchError, ExitCode
from dlbench.core.units import percent, seconds

FEWEST = 12
"""Occasions from which on rates say anything: the pairs of fewer share most of their files."""
APART_S = 3600.0
"""Between two occasions, at least: two runs within an hour see the same machine."""
_UP_TO_S = (6 * 3600.0, 24 * 3600.0, 7 * 24 * 3600.0, float("inf"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare each two occasions of the newest file's machine, software and code at compare's own threshold, without a calibration."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.drift", description=__doc__)
    parser.add_argument(
        "folder", nargs="?", type=Path, default=CALIBRATIONS, help="of result files, an occasion each (default: %(default)s)"
    )
    try:
        _say_rates(parser.parse_args(arguments).folder)
    except DlbenchError as error:
        print(f"drift: {error}", file=sys.stderr)
        return error.exit_code
    return ExitCode.OK


def _say_rates(folder: Path) -> None:
    files = sorted(folder.glob("*.jsonl"))
    results = collect(files) if files else None
    occasions = apart(results) if results else []
    if results is None or len(occasions) < FEWEST:
        print(
            f"{len(occasions)} of {len(files)} files in {folder} are occasions of the same code that lie {seconds(APART_S)} apart or more; "
            f"{FEWEST - len(occasions)} more and there are rates: make drift, every two hours, such as from cron"
        )
        return
    lines, above = [], 0.0
    pairs = list(itertools.combinations(occasions, 2))
    for up_to in _UP_TO_S:
        some = [pair for pair in pairs if above < _gap(results, *pair) <= up_to]
        lines += [_line(results, some, above, up_to)] if some else []
        above = up_to
    columns = ("time apart", "pairs of occasions", "suites called", "cases called")
    report(f"{len(occasions)} occasions of identical code", columns, lines, f"{FEWEST} occasions or more, an hour apart or more", True)


def apart(results: Results) -> list[str]:
    """Return the occasions of the newest file's code and machine, the earliest first, without those within an hour of the one before."""
    began = {name: when for name, each in results.environments.items() if isinstance(when := part(each, "provenance", "utc"), str)}
    in_order = sorted(began, key=lambda name: began[name])
    alike = [name for name in in_order if _code(results, name) == _code(results, in_order[-1])]
    chosen: list[str] = []
    for name in alike:
        if not chosen or _gap(results, chosen[-1], name) >= APART_S:
            chosen.append(name)
    return chosen


def _code(results: Results, name: str) -> tuple[object, ...]:
    where = results.environments[name]
    return where.get("machine_key"), where.get("stack_key"), part(where, "provenance", "dlbench"), part(where, "provenance", "git")


def _gap(results: Results, one: str, other: str) -> float:
    return gap_s(results.environments[one], results.environments[other]) or 0.0


def _line(results: Results, pairs: Sequence[tuple[str, str]], above: float, up_to: float) -> tuple[str, str, str, str]:
    """Return the line of pairs of occasions that lie so far apart."""
    suites, cases, called = 0, 0, 0
    for base, new in pairs:
        judged = [each.verdict for each in compare(results.of_run(base), results.of_run(new)).cases if each.tests]
        wrong = sum(verdict in (Verdict.SLOWER, Verdict.FASTER) for verdict in judged)
        suites, cases, called = suites + bool(wrong), cases + len(judged), called + wrong
    time = f"{seconds(max(above, APART_S))} to {seconds(up_to)}" if up_to < float("inf") else f"more than {seconds(above)}"
    return time, str(len(pairs)), percent(suites / len(pairs)), f"{percent(called / max(cases, 1))} of {cases:,}"


if __name__ == "__main__":
    sys.exit(main())
