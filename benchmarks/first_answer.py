"""Time from a clone to the first answer on the screen: checkout, virtual environment, installation, and a run on a terminal."""

import argparse
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.alternate import ROOT, report
from dlbench.analysis.answers import topics

MINUTES = 2
TARGET_S = 120.0
ANSWER = re.compile(f"(?:{'|'.join(topics())}) {{2,}}(?!–)\\S".encode())
"""The line of a question that has an answer, below the live table."""
LINES, COLUMNS = 40, 120


def main(arguments: Sequence[str] | None = None) -> None:
    """Do what a newcomer does, one step after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", default="quick", help="what is run, by name or as an absolute path")
    parser.add_argument("--repository", default=str(ROOT), help="what is cloned: an address or a folder")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        clone, wheels = folder / "dlbench", str(folder / "wheels")
        pinned = ("--constraint", str(clone / "constraints.txt"))
        download = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *pinned, "--dest", wheels)
        uncached = {"PIP_FIND_LINKS": wheels, "PIP_NO_CACHE_DIR": "1"}
        steps: Mapping[str, Callable[[], float]] = {
            "clone": lambda: _seconds("git", "clone", "--quiet", "--no-hardlinks", options.repository, str(clone)),
            "torch's download (apart)": lambda: _seconds(*download, "torch"),
            "environment and installation": lambda: _seconds("make", "-C", str(clone), ".venv/.installed", **uncached),
            "dlbench run, to the first answer": lambda: _to_the_first_answer(clone / ".venv" / "bin" / "python", options.suite, folder),
        }
        took_s = {step: do() for step, do in steps.items()}
    whole_s = sum(seconds for step, seconds in took_s.items() if "apart" not in step)
    report(
        f"From a clone to the first answer of dlbench run {Path(options.suite).stem}",
        ("step", "measured"),
        [(step, f"{seconds:.1f} s") for step, seconds in took_s.items()],
        f"{whole_s:.1f} s without torch's download, at most {TARGET_S:.0f} s",
        whole_s <= TARGET_S,
    )


def _seconds(*command: str, **variables: str) -> float:
    """Run a command and return how long it took. Raises SystemExit with what it said where it fails."""
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **variables})
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-2000:]}")
    return time.perf_counter() - started


def _to_the_first_answer(python: Path, suite: str, folder: Path) -> float:
    """Run a suite on a terminal and return the seconds until an answer stands there; then interrupt it."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    # What would change how the screen looks, or which code is imported, is not the newcomer's.
    variables = {name: value for name, value in os.environ.items() if name not in ("CI", "PYTHONPATH", "FORCE_COLOR", "TTY_COMPATIBLE")}
    started = time.perf_counter()
    command = (str(python), "-m", "dlbench", "run", suite)
    with subprocess.Popen(command, cwd=folder, env={**variables, "TERM": "xterm"}, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        seen, answered_s = b"", None
        while data := _read(ours):
            seen += data
            if answered_s is None and ANSWER.search(seen):
                answered_s = time.perf_counter() - started
                process.send_signal(signal.SIGINT)
    os.close(ours)
    if answered_s is None:
        raise SystemExit(
            f"{' '.join(command)} ended with {process.returncode} and without an answer: {seen[-2000:].decode(errors='replace')}"
        )
    return answered_s


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # so a terminal tells that nobody has it open any more
        return b""


if __name__ == "__main__":
    main()
