"""Time of ``dlbench --help``, in turns with a program of nothing but click and rich."""

import argparse
import statistics
import subprocess
import time
from collections.abc import Sequence

from benchmarks.alternate import alternate, environment, python, report

MINUTES = 0.1
HEAVY = ("torch", "numpy", "pandas")
TARGET = 1.5


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare fresh processes in turns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=30)
    options = parser.parse_args(arguments)
    _help_seconds("dlbench")  # compiles and caches what is imported
    _help_seconds("benchmarks.bare")
    pairs = alternate(lambda: _help_seconds("dlbench"), lambda: _help_seconds("benchmarks.bare"), options.pairs)
    ratios = sorted(ours / bare for ours, bare in pairs)
    ratio = statistics.median(ratios)
    imported = [name for name in HEAVY if name in _imported_by_help()]
    report(
        f"--help, {options.pairs} pairs of fresh processes in turns",
        ("program", "median", "fastest"),
        [
            (name, f"{statistics.median(times) * 1e3:.1f} ms", f"{min(times) * 1e3:.1f} ms")
            for name, times in zip(("dlbench", "bare click + rich"), zip(*pairs, strict=True), strict=True)
        ],
        f"median ratio {ratio:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}), at most {TARGET}; "
        f"imported of {', '.join(HEAVY)}: {', '.join(imported) or 'none'}",
        ratio <= TARGET and not imported,
    )


def _help_seconds(module: str) -> float:
    started = time.perf_counter()
    subprocess.run(python("-m", module, "--help"), env=environment(), check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def _imported_by_help() -> set[str]:
    """Return the modules that Python lists as imported: the last column of -X importtime."""
    command = python("-X", "importtime", "-m", "dlbench", "--help")
    listed = subprocess.run(command, env=environment(), check=True, capture_output=True, text=True).stderr
    return {line.rpartition("|")[2].strip() for line in listed.splitlines() if line.startswith("import time:")}


if __name__ == "__main__":
    main()
