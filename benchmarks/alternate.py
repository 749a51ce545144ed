"""Helpers of the benchmarks: taking turns, watching a process from outside, the real run loop, and one plain table."""

import os
import platform
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, TypeVar

import psutil

import dlbench
from dlbench.analysis.export.tabular import markdown_table
from dlbench.core.decoding import convert
from dlbench.core.errors import ExitCode
from dlbench.core.measurement import Measurement, Series
from dlbench.core.model import Case, Policy, Signature
from dlbench.core.writer import ResultWriter
from dlbench.harness.probe.devices import describe_cpu
from dlbench.harness.probe.sampler import Monitor
from dlbench.harness.process.launch import Interpreter, Interruption
from dlbench.harness.process.worker_process import WorkerProcess, handshake
from dlbench.harness.runner import Runner
from dlbench.harness.schedule import Observer, RunSettings, Side, Task

ROOT = Path(__file__).parent.parent
WIDTH = 120
"""Columns of a line of prose in the documentation."""
Result = TypeVar("Result")


def usable_threads() -> int:
    """Return how many threads dlbench computes with on this machine."""
    return describe_cpu().usable_threads()


def alternate(first: Callable[[], Result], second: Callable[[], Result], pairs: int) -> list[tuple[Result, Result]]:
    """Call both in turns and return the pairs of results; which of them begins changes from pair to pair."""
    results = []
    for number in range(pairs):
        if number % 2:
            later, sooner = second(), first()
            results.append((sooner, later))
        else:
            results.append((first(), second()))
    return results


def python(*arguments: str) -> list[str]:
    """Return the command of a fresh interpreter."""
    return [sys.executable, *arguments]


def environment() -> dict[str, str]:
    """Return this process's environment with the checkout to import from first, whatever the current folder."""
    others = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *([others] if others else [])])}


@dataclass(frozen=True)
class Watched:
    """A command that has ended: its seconds, and the most memory that it and its descendants had at once."""

    seconds: float
    peak_bytes: int


def watch(
    command: Sequence[str], stream: Literal["stdout", "stderr"], on_line: Callable[[float, str], None], every_s: float = 0.5
) -> Watched:
    """Run a command, hand on each line of one of its streams with the seconds since its start, and sample its memory.

    Raises SystemExit with the end of its stderr if it fails.
    """
    with tempfile.TemporaryFile("w+") as other:
        started = time.perf_counter()
        out, err = (subprocess.PIPE if stream == name else other for name in ("stdout", "stderr"))
        with subprocess.Popen(command, env=environment(), stdin=subprocess.DEVNULL, stdout=out, stderr=err, text=True) as process:
            memory = _MemoryWatch(process.pid, every_s)
            line = ""
            for line in process.stdout or process.stderr or ():
                on_line(time.perf_counter() - started, line.rstrip("\n"))
            process.wait()
            seconds = time.perf_counter() - started
            peak_bytes = memory.stop()
        if process.returncode:
            other.seek(0)
            last = other.read()[-2000:] if stream == "stdout" else line
            raise SystemExit(f"{' '.join(command)} ended with {process.returncode}: {last}")
    return Watched(seconds, peak_bytes)


class _MemoryWatch(threading.Thread):
    """Adds up the memory of a process and its descendants at intervals; a page that they share counts once where the system says which."""

    def __init__(self, pid: int, every_s: float) -> None:
        super().__init__(daemon=True)
        self._process = psutil.Process(pid)
        self._every_s = every_s
        self._ended = threading.Event()
        self._peak_bytes = 0
        self.start()

    def run(self) -> None:
        while True:
            with suppress(psutil.Error):  # it has just ended
                family = [self._process, *self._process.children(recursive=True)]
                self._peak_bytes = max(self._peak_bytes, sum(map(_memory_of, family)))
            if self._ended.wait(self._every_s):
                return

    def stop(self) -> int:
        self._ended.set()
        self.join()
        return self._peak_bytes


def _memory_of(process: psutil.Process) -> int:
    with suppress(psutil.Error):  # a case that has ended meanwhile needs nothing
        full = process.memory_full_info()
        return int(getattr(full, "pss", full.rss))
    return 0


def run_cases(
    cases: Sequence[tuple[str, Mapping[str, Any]]], policy: Policy, plugins: Sequence[str] = ()
) -> list[tuple[Measurement, float]]:
    """Measure workloads with these parameters on the CPU, as ``dlbench run`` does, and return each result with what it took in all.

    That is the seconds from choosing the case until its line is on the disk. Raises SystemExit where a case does not end well,
    or it is interrupted.
    """
    threads = usable_threads()
    settings, side = RunSettings(policy, seed=0, isolation="fork", threads=threads), Side({"cpu": "CPU"}, tuple(plugins))
    timed = _Timed()
    with (
        tempfile.TemporaryDirectory() as folder,
        Interruption() as interruption,
        WorkerProcess("fork", threads, 0, interruption, Interpreter()) as worker,
    ):
        signatures = {each["name"]: convert(Signature, each) for each in handshake(worker, plugins, (), threads)["signatures"]}
        planned = [Task(Case.of("benchmarks", signatures[name], params, "cpu"), side) for name, params in cases]
        writer = ResultWriter.create(Path(folder) / "run.jsonl", {})
        watch = Monitor([describe_cpu()], threads)
        Runner(planned, settings, interruption, writer.append, timed, watch, first_workers={None: worker}).run()
        writer.close()
        if interruption.requested:
            print("interrupted", file=sys.stderr)
            raise SystemExit(ExitCode.INTERRUPTED)
    for measurement, _ in timed.results:
        if measurement.samples is None:
            raise SystemExit(f"{measurement.case.id}: {measurement.status}: {measurement.reason}")
    return timed.results


class _Timed(Observer):
    """Notes what each case took from its start to its end."""

    def __init__(self) -> None:
        self.results: list[tuple[Measurement, float]] = []
        self._started = 0.0

    def round_started(self, number: int, pending: Sequence[Series]) -> None:
        """Nothing to note."""

    def case_started(self, series: Series, number: int) -> None:
        self._started = time.perf_counter()

    def case_ended(self, measurement: Measurement) -> None:
        self.results.append((measurement, time.perf_counter() - self._started))


def report(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], verdict: str, reached: bool) -> None:
    """Print a title, the table, whether the target was reached, and the versions: in Markdown, for docs/reference/benchmarks.md."""
    print(f"{title}:\n")
    lines = [tuple(columns), *map(tuple, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    aligned = [(first.ljust(widths[0]), *map(str.rjust, rest, widths[1:])) for first, *rest in lines]
    print("".join(markdown_table(aligned[0], aligned[1:])))
    print(textwrap.fill(f"{'reached' if reached else 'MISSED'}: {verdict}.", WIDTH, break_on_hyphens=False))
    print(textwrap.fill(f"({_measured_with()})", WIDTH, break_on_hyphens=False))


def _measured_with() -> str:
    """Name release, software, machine and day."""
    software = f"dlbench {dlbench.__version__}, Python {platform.python_version()}, torch {version('torch')}"
    return f"{software}, {describe_cpu().name}, {usable_threads()} threads, {date.today()}"
