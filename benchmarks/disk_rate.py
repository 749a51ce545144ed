"""Whether storage is read as fast by dlbench as by fio, from the same file in the same pattern: warm, and past the page cache."""

import argparse
import json
import shutil
import statistics
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.alternate import alternate, report
from dlbench import testing
from dlbench.core.model import Work
from dlbench.core.units import byte_rate
from dlbench.harness.process.scratch import ScratchFolders
from dlbench.harness.worker.scratch import give_scratch
from dlbench.workloads.storage import IN_ORDER, SAMPLE_BYTES

MINUTES = 1.5
PATTERNS = {
    "warm, in order": ({"order": "sequential", "cache": "warm"}, ("--rw=read", f"--bs={IN_ORDER}", "--direct=0")),
    "warm, at random": ({"order": "random", "cache": "warm"}, ("--rw=randread", f"--bs={SAMPLE_BYTES}", "--direct=0")),
    "direct, in order": (
        {"order": "sequential", "cache": "cold", "access": "direct"},
        ("--rw=read", f"--bs={IN_ORDER}", "--direct=1"),
    ),
    "direct, at random": (
        {"order": "random", "cache": "cold", "access": "direct"},
        ("--rw=randread", f"--bs={SAMPLE_BYTES}", "--direct=1"),
    ),
}
"""Of each the parameters of dlbench's workload, and what fio calls the same."""
WITHIN = 0.15


def main(arguments: Sequence[str] | None = None) -> None:
    """Read one file with both in turns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=1.0, help="of reading, for each of the two")
    parser.add_argument("--path", type=Path, default=Path.cwd(), help="folder on the disk to read from")
    options = parser.parse_args(arguments)
    if not (fio := shutil.which("fio")):
        raise SystemExit("there is no fio here to read with; on Debian: apt-get install fio")
    rows, worst = [], 0.0
    with ScratchFolders() as folders:
        folder = folders.of("disk_rate", options.path)
        for name, (params, how) in PATTERNS.items():
            give_scratch(str(folder))
            work = testing.set_up("storage", files="one", **params)
            (file,) = (path for path in folder.rglob("*") if path.is_file())
            command = [fio, *_COMMON, *how, f"--filename={file}", f"--runtime={options.seconds}"]
            pairs = alternate(lambda work=work: _ours(work, options.seconds), lambda command=command: _fio(command), options.pairs)
            ratios = [ours / theirs for ours, theirs in pairs]
            worst = max(worst, abs(statistics.median(ratios) - 1))
            rates = (byte_rate(statistics.median(each)) for each in zip(*pairs, strict=True))
            rows.append((name, *rates, f"{statistics.median(ratios):.3f}", f"{min(ratios):.3f} to {max(ratios):.3f}"))
    columns = ("one file", "dlbench", "fio", "dlbench / fio, median", "pairs")
    verdict = f"medians of {options.pairs} pairs are at most {worst:.1%} off, at most {WITHIN:.0%}"
    report("dlbench against fio, one file alternately", columns, rows, verdict, worst <= WITHIN)


_COMMON = (
    "--name=disk_rate",
    "--ioengine=psync",
    "--readonly",
    "--invalidate=0",  # it would drop the file from the page cache
    "--thread",
    "--time_based",
    "--output-format=json",
)


def _ours(work: Work, seconds: float) -> float:
    """Return the bytes a second of dlbench's calls, in as many as take about so many seconds."""
    call, size = work.call, work.bytes
    if call is None or size is None:
        raise SystemExit("the workload has no call that reads so many bytes")
    calls, spent_s = 0, 0.0
    while spent_s < seconds:
        begun_s = time.perf_counter()
        call()
        spent_s += time.perf_counter() - begun_s
        calls += 1
    return calls * size / spent_s


def _fio(command: Sequence[str]) -> float:
    """Return the bytes a second that fio reports. Raises SystemExit with what it said where it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"fio ended with {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")
    return float(json.loads(done.stdout)["jobs"][0]["read"]["bw_bytes"])


if __name__ == "__main__":
    main()
