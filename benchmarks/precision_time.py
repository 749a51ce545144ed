"""Time that each tool takes to an interval of the same width over a suite: dlbench, torch's Timer, pytest-benchmark and pyperf.

Turn after turn each tool measures every case once: dlbench a round, Timer a fresh process a case, pytest-benchmark a session. pyperf is one
command that can't be divided, so it has its turn half-way, with as many processes a case. A process counts as one value, as the
processes of a tool agree less than what it repeats within one.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.alternate import environment, python, report, usable_threads
from benchmarks.precision_tools import CASES
from dlbench.core.records import signature_from_json
from dlbench.core.rows.summary import per_round
from dlbench.core.stats import relative_half_width
from dlbench.core.store import load
from dlbench.core.units import clock_time, percent
from dlbench.harness.plan import cases as planning
from dlbench.harness.plan import suite
from dlbench.harness.runner import ask_hello

LEAST_TURNS = 6
"""Fewer values have no 95 % interval of their median."""
Values = Mapping[str, Sequence[float]]
"""Case to seconds a call, a value a process."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the tools in turns and compare what they took."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--suite", default="quick")
    parser.add_argument("--turns", type=int, default=LEAST_TURNS, help=f"processes of each case and tool, at least {LEAST_TURNS}")
    options = parser.parse_args(arguments)
    if options.turns < LEAST_TURNS:
        parser.error(f"{options.turns} turns give no interval; it takes {LEAST_TURNS} or more")
    cases = _planned(options.suite)
    found: dict[str, dict[str, list[float]]] = {}
    took_s = dict.fromkeys(("dlbench", "torch adaptive_autorange", "pytest-benchmark", "pyperf"), 0.0)

    def take_turn(tool: str, measure: Callable[[], Values]) -> None:
        started = time.perf_counter()
        values = measure()
        took_s[tool] += time.perf_counter() - started
        for case, each in values.items():
            found.setdefault(tool, {}).setdefault(case, []).extend(each)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "cases.json").write_text(json.dumps(cases))
        os.environ[CASES] = str(folder / "cases.json")
        for turn in range(options.turns):
            tools: list[tuple[str, Callable[[], Values]]] = [
                ("dlbench", lambda turn=turn: _by_dlbench(options.suite, turn, folder)),
                ("torch adaptive_autorange", lambda: _by_torch(cases)),
                ("pytest-benchmark", lambda: _by_pytest_benchmark(folder)),
            ]
            # Another begins in each turn, as what a tool leaves behind (clock speed, caches of files) may help the next.
            for tool, measure in tools[turn % 3 :] + tools[: turn % 3]:
                take_turn(tool, measure)
            if turn + 1 == options.turns // 2:
                take_turn("pyperf", lambda: _by_pyperf(options.turns, folder))
    _print(options.suite, cases, options.turns, found, took_s)


def _planned(name: str) -> list[dict[str, Any]]:
    """Return the cases of a suite on the CPU."""
    signatures = {each["name"]: signature_from_json(each) for each in ask_hello()["signatures"]}
    planned = planning.plan([suite.load(name)], signatures, ["cpu"])
    threads = usable_threads()
    return [{"id": each.id, "workload": each.workload, "params": dict(each.params), "threads": threads} for each in planned]


def _run(*command: str) -> str:
    done = subprocess.run(python(*command), env=environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}: {(done.stderr or done.stdout)[-2000:]}")
    return done.stdout


def _by_dlbench(suite_name: str, turn: int, folder: Path) -> Values:
    path = folder / f"{turn}.jsonl"
    _run("-m", "dlbench", "run", suite_name, "--device", "cpu", "--rounds", "1", "--seed", str(turn), "-o", str(path))
    return {each.case.id: per_round([each]).median_s for each in load(path).measurements}


def _by_torch(cases: Sequence[Mapping[str, Any]]) -> Values:
    return {case["id"]: [float(_run("-m", "benchmarks.precision_tools", "torch", case["id"]))] for case in cases}


def _by_pytest_benchmark(folder: Path) -> Values:
    path = folder / "pytest.json"
    script = str(Path(__file__).with_name("precision_tools.py"))
    _run("-m", "pytest", "-q", "-p", "no:cacheprovider", "--benchmark-only", f"--benchmark-json={path}", script)
    listed = json.loads(path.read_text())["benchmarks"]
    return {each["params"]["case"]["id"]: [each["stats"]["median"]] for each in listed}


def _by_pyperf(processes: int, folder: Path) -> Values:
    path = folder / "pyperf.json"
    inherited = f"PYTHONPATH,{CASES}"
    options = ("--processes", str(processes), "--inherit-environ", inherited, "-o", str(path))
    _run("-m", "benchmarks.precision_tools", "pyperf", *options)
    found = json.loads(path.read_text())
    # What all benchmarks of a file have in common stands at its top: of a single one its name, too.
    names = [{**found.get("metadata", {}), **each.get("metadata", {})}["name"] for each in found["benchmarks"]]
    values = [[statistics.median(run["values"]) for run in each["runs"] if run.get("values")] for each in found["benchmarks"]]
    return dict(zip(names, values, strict=True))


def _print(name: str, cases: Sequence[Any], turns: int, found: Mapping[str, Values], took_s: Mapping[str, float]) -> None:
    rows, slowest = [], 0.0
    for tool, seconds in took_s.items():
        widths = {case: relative_half_width(values) for case, values in found[tool].items()}
        # An interval narrows with the square root of the processes, and the time grows with their number.
        longer = statistics.median((widths[case] / relative_half_width(found["dlbench"][case])) ** 2 for case in widths)
        ratio = took_s["dlbench"] / seconds
        slowest = max(slowest, ratio / longer if tool != "dlbench" else 0.0)
        cells = (clock_time(seconds), percent(statistics.median(widths.values())), f"{ratio:.2f}", f"{ratio / longer:.2f}")
        rows.append((tool, *cells))
    report(
        f"{name}: {len(cases)} cases, {turns} processes of each by every tool",
        ("tool", "all", "half-width of the 95 % interval, median case", "dlbench / tool", "the same to equal width"),
        rows,
        "dlbench takes less time than every other tool to an interval of equal width",
        slowest < 1,
    )


if __name__ == "__main__":
    main()
