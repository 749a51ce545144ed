"""Time that each tool takes to an interval of the same width over a suite: dlbench, torch's Timer, pytest-benchmark and pyperf.

Each tool measures every case in as many processes: dlbench and pyperf by commands of several rounds, as a user would run them; Timer and
pytest-benchmark, which have no rounds, by as many scripts and sessions. The tools take turns, the second time in reverse order. What a
process finds is one value. The variance of a mean of k values is variance / k, so to equal width time counts by seconds x variance.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.alternate import environment, python, report, usable_threads
from benchmarks.precision_tools import CASES
from dlbench.core.decoding import convert
from dlbench.core.model import Signature
from dlbench.core.rows.summary import per_round
from dlbench.core.stats import student_quantile
from dlbench.core.store import load
from dlbench.core.units import clock_time, percent
from dlbench.harness.plan import cases as planning
from dlbench.harness.plan import suite
from dlbench.harness.runner import ask_hello

MINUTES = 50
AT_MOST = {"torch adaptive_autorange": 0.5, "pytest-benchmark": 1.0, "pyperf": 0.4}
"""What dlbench may take, as a share of a tool's time to equal width."""
SHARED = {
    "dlbench": "torch imported, by the cases of a round",
    "torch adaptive_autorange": "nothing",
    "pytest-benchmark": "all of a session, by its cases",
    "pyperf": "nothing",
}
"""What the processes in which cases are measured have in common."""
Values = Mapping[str, Sequence[float]]
"""Case to seconds a call, a value a process."""


@dataclass
class Taken:
    """What a tool took, and what it found."""

    seconds: float = 0.0
    values: dict[str, list[Sequence[float]]] = field(default_factory=dict)
    """By case, of each turn."""

    def variance(self, case: str) -> float:
        """Return the variance of the logarithms of a case's values within turns, as the machine may change from one to the next."""
        logs = [[math.log(value) for value in turn] for turn in self.values[case]]
        spread = sum((value - statistics.fmean(turn)) ** 2 for turn in logs for value in turn)
        return spread / sum(len(turn) - 1 for turn in logs)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the tools in turns and compare what they took."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--suite", default="quick")
    parser.add_argument("--rounds", type=int, default=8, help="processes of each case in a turn of a tool, 2 or more")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--without", action="append", default=[], choices=list(SHARED)[1:], help="a tool to leave out")
    options = parser.parse_args(arguments)
    if options.rounds < 2:
        parser.error("one process a turn tells nothing of how processes differ; it takes --rounds 2 or more")
    cases = _planned(options.suite)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "cases.json").write_text(json.dumps(cases))
        os.environ[CASES] = str(folder / "cases.json")
        taken = {tool: Taken() for tool in SHARED if tool not in options.without}
        for turn in range(options.turns):
            tools: list[tuple[str, Callable[[], Values]]] = [
                ("dlbench", lambda turn=turn: _by_dlbench(options.suite, options.rounds, turn, folder)),
                ("torch adaptive_autorange", lambda: _by_torch(cases, options.rounds)),
                ("pytest-benchmark", lambda: _by_pytest_benchmark(options.rounds, folder)),
                ("pyperf", lambda turn=turn: _by_pyperf(options.rounds, turn, folder)),
            ]
            for tool, measure in tools[::-1] if turn % 2 else tools:
                if tool not in taken:
                    continue
                started = time.perf_counter()
                values = measure()
                taken[tool].seconds += time.perf_counter() - started
                for case, each in values.items():
                    taken[tool].values.setdefault(case, []).append(each)
    _print(options.suite, len(cases), options.rounds * options.turns, taken)


def _planned(name: str) -> list[dict[str, Any]]:
    """Return the cases of a suite on the CPU."""
    signatures = {each["name"]: convert(Signature, each) for each in ask_hello()["signatures"]}
    planned = planning.plan([suite.load(name)], signatures, ["cpu"], include_absent=False)
    threads = usable_threads()
    return [{"id": each.id, "workload": each.workload, "params": dict(each.params), "threads": threads} for each in planned]


def _run(*command: str) -> str:
    done = subprocess.run(python(*command), env=environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}: {(done.stderr or done.stdout)[-2000:]}")
    return done.stdout


def _by_dlbench(suite_name: str, rounds: int, turn: int, folder: Path) -> Values:
    path = folder / f"{turn}.jsonl"
    # A longer budget than the suite's, so that no slow machine gets fewer rounds than the other tools.
    limits = ("--rounds", str(rounds), "--budget", "10h")
    _run("-m", "dlbench", "run", suite_name, "--device", "cpu", *limits, "--seed", str(turn), "-o", str(path))
    found: dict[str, list[float]] = {}
    for each in load(path).measurements:
        if each.samples:
            found.setdefault(each.case.id, []).extend(per_round([each]).median_s)
    return found


def _by_torch(cases: Sequence[Mapping[str, Any]], rounds: int) -> Values:
    found: dict[str, list[float]] = {case["id"]: [] for case in cases}
    for _ in range(rounds):
        for case, values in found.items():
            values.append(float(_run("-m", "benchmarks.precision_tools", "torch", case)))
    return found


def _by_pytest_benchmark(rounds: int, folder: Path) -> Values:
    path = folder / "pytest.json"
    script = str(Path(__file__).with_name("precision_tools.py"))
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        _run("-m", "pytest", "-q", "-p", "no:cacheprovider", "--benchmark-only", f"--benchmark-json={path}", script)
        for each in json.loads(path.read_text())["benchmarks"]:
            found.setdefault(each["params"]["case"]["id"], []).append(each["stats"]["median"])
    return found


def _by_pyperf(rounds: int, turn: int, folder: Path) -> Values:
    path = folder / f"pyperf-{turn}.json"
    inherited = f"PYTHONPATH,{CASES}"
    options = ("--processes", str(rounds), "--inherit-environ", inherited, "-o", str(path))
    _run("-m", "benchmarks.precision_tools", "pyperf", *options)
    found = json.loads(path.read_text())
    # What all benchmarks of a file have in common stands at its top: of a single one its name, too.
    names = [{**found.get("metadata", {}), **each.get("metadata", {})}["name"] for each in found["benchmarks"]]
    values = [[statistics.median(run["values"]) for run in each["runs"] if run.get("values")] for each in found["benchmarks"]]
    return dict(zip(names, values, strict=True))


def _print(name: str, planned: int, processes: int, taken: Mapping[str, Taken]) -> None:
    own, rows, within = taken["dlbench"], [], True
    cases = [case for case in own.values if all(case in other.values for other in taken.values())]
    if not cases:
        raise SystemExit(f"{name}: no case was measured by every tool")
    for tool, other in taken.items():
        ratio = own.seconds / other.seconds
        logs = [math.log(ratio * own.variance(case) / other.variance(case)) for case in cases]
        equal, interval = statistics.fmean(logs), ""
        if len(logs) > 1 and other is not own:
            margin = student_quantile(0.95, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
            interval = f" ({math.exp(equal - margin):.2f} to {math.exp(equal + margin):.2f})"
        within &= math.exp(equal) <= AT_MOST.get(tool, 1.0)
        spread = percent(statistics.median(math.sqrt(other.variance(case)) for case in cases))
        rows.append((tool, SHARED[tool], clock_time(other.seconds), spread, f"{ratio:.2f}", f"{math.exp(equal):.2f}{interval}"))
    *others, last = (f"{most} x {tool}" for tool, most in AT_MOST.items() if tool in taken)
    aims = f"{', '.join(others)} and {last}" if others else last
    report(
        f"{name}: {len(cases)} of {planned} cases, {processes} processes of each by every tool",
        ("tool", "processes share", "all", "sd of a process, median case", "dlbench / tool", "the same to equal width (95 % interval)"),
        rows,
        f"to equal width at most {aims}",
        within,
    )


if __name__ == "__main__":
    main()
