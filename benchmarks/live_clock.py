"""CPU time that the clock of the live screen takes, which moves each second of a long case."""

import argparse
import fcntl
import os
import pty
import signal
import struct
import subprocess
import tempfile
import termios
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.alternate import environment, python, report
from dlbench.core.units import percent

MINUTES = 2.5
TARGET = 0.002
"""CPUs. A wake-up that draws must stay far below the 5 % of lost time from which on a case is disturbed."""
SUITE = """
[policy]
rounds = 1
timeout_s = 3600

[[bench]]
workload = "noop"

[[bench]]
workload = "spin"
axes.seconds = {seconds}
"""
_COMMAND = "from dlbench.cli import live, main\nlive._LONG_S = {after}\nmain.main()"
LINES, COLUMNS = 40, 120


def main(arguments: Sequence[str] | None = None) -> None:
    """Watch a run with the clock, and one without."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="for how long each run is watched within its long case")
    options = parser.parse_args(arguments)
    taken = {name: _cpus(after, options.seconds) for name, after in (("standing", "float('inf')"), ("moving", "0.0"))}
    more = taken["moving"] - taken["standing"]
    report(
        f"CPU time of the parent in {options.seconds:g} s of one case",
        ("clock", "CPU time"),
        [(name, f"{cpus * options.seconds * 1e3:.1f} ms") for name, cpus in taken.items()],
        f"{more * 60 * 1e3:.0f} ms a minute more, {percent(more)} of a CPU, at most {percent(TARGET)}",
        more <= TARGET,
    )


def _cpus(after: str, seconds: float) -> float:
    """Return the CPUs that a run's own process takes, on average, within a case of that length."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "long.toml").write_text(SUITE.format(seconds=seconds))
        command = python("-c", _COMMAND.format(after=after), "run", "long.toml", "--device", "cpu", "--seed", "1", "-o", "long.jsonl")
        variables = {key: value for key, value in environment().items() if key not in ("CI", "COLUMNS", "LINES")}
        with subprocess.Popen(command, cwd=name, env={**variables, "TERM": "xterm"}, stdin=theirs, stdout=theirs, stderr=theirs) as process:
            os.close(theirs)
            seen = b""
            while b"now spin" not in seen:
                seen += os.read(ours, 1 << 16)  # OSError where it ended before
            began_s, before_s = time.monotonic(), _cpu_s(process.pid)
            os.set_blocking(ours, False)
            while (passed_s := time.monotonic() - began_s) < seconds:
                time.sleep(min(0.5, seconds - passed_s))
                _read_all(ours)
            taken_s = _cpu_s(process.pid) - before_s
            for _ in range(2):  # the second ends it at once
                process.send_signal(signal.SIGINT)
                time.sleep(0.1)
    os.close(ours)
    return taken_s / passed_s


def _cpu_s(pid: int) -> float:
    """Return the CPU time of a process and all its threads so far, without its children."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def _read_all(terminal: int) -> None:
    try:
        while os.read(terminal, 1 << 16):
            pass
    except BlockingIOError:
        pass  # that was all


if __name__ == "__main__":
    main()
