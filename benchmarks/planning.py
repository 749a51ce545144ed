"""How long ``dlbench list`` takes over very large suites, off a terminal, and how much memory."""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.alternate import python, report, watch
from dlbench.core.units import byte_count

MINUTES = 0.2
FAST, TARGET_S = 100_000, 5.0
STEP = 1000


def main(arguments: Sequence[str] | None = None) -> None:
    """List suites of so many cases and read every line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", type=int, nargs="*", default=[FAST, 1_000_000], help=f"multiples of {STEP}")
    options = parser.parse_args(arguments)
    rows, reached = [], True
    for cases in options.cases:
        listed, first_s, seconds, peak_bytes = _listed(cases)
        reached &= listed == cases and (cases > FAST or seconds <= TARGET_S)
        rows.append((f"{cases:,}", f"{listed:,}", f"{first_s:.2f} s", f"{seconds:.2f} s", byte_count(peak_bytes)))
    report(
        "dlbench list, into a pipe",
        ("cases", "lines", "first line", "all", "memory, all processes"),
        rows,
        f"every case listed; {FAST:,} within {TARGET_S:.0f} s",
        reached,
    )


def _listed(cases: int) -> tuple[int, float, float, int]:
    """Return the lines, the seconds to the first and to the end, and the peak memory."""
    suite = f'[[bench]]\nworkload = "matmul"\naxes.n = {list(range(1, STEP + 1))}\naxes.batch = {list(range(1, cases // STEP + 1))}\n'
    lines, first_s = 0, 0.0

    def note(seconds: float, line: str) -> None:
        nonlocal lines, first_s
        lines += 1
        first_s = first_s or seconds

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "big.toml"
        path.write_text(suite)
        watched = watch(python("-m", "dlbench", "list", str(path), "--device", "cpu"), "stdout", note, every_s=0.1)
    return lines, first_s, watched.seconds, watched.peak_bytes


if __name__ == "__main__":
    main()
