"""Runs the benchmarks of docs/benchmarks.md one after the other, and writes there what they found."""

import argparse
import math
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from benchmarks.alternate import ROOT, environment, python
from dlbench.core.units import clock_time

PAGE = ROOT / "docs" / "benchmarks.md"
MINUTES: Mapping[str, float] = {
    "help_time": 0.1,
    "planning": 0.2,
    "copy_rate": 0.5,
    "overhead": 1,
    "isolation_cost": 1.5,
    "disk_rate": 1.5,
    "first_answer": 2,
    "memory_limit": 3,
    "quick_time": 3.5,
    "compare_scale": 4,
    "agreement": 4,
    "ceilings": 5,
    "ranks": 25,
    "precision_time": 45,
}
"""What each takes on two idle cores, about, the shortest first."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all, unless some are named, each in a process of its own; 1 where one did not end well."""
    listed = ", ".join(f"{name} ({minutes:g} min)" for name, minutes in MINUTES.items())
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", nargs="*", choices=[[], *MINUTES], metavar="NAME", help=listed)
    parser.add_argument("--within", type=float, default=math.inf, metavar="MINUTES", help="leave out those that take longer")
    parser.add_argument("--write", action="store_true", help="put what each prints into docs/benchmarks.md")
    options = parser.parse_args(arguments)
    failed = 0
    for name in options.name or MINUTES:
        if MINUTES[name] > options.within:
            continue
        began = time.monotonic()
        done = subprocess.run(python("-m", f"benchmarks.{name}"), env=environment(), stdout=subprocess.PIPE, text=True, check=False)
        print(f"## {name}, in {clock_time(time.monotonic() - began)}\n\n{done.stdout}", flush=True)
        if done.returncode:
            failed += 1
        elif options.write:
            PAGE.write_text(with_figures(PAGE.read_text(), name, done.stdout))
    return 1 if failed else 0


def with_figures(page: str, name: str, printed: str) -> str:
    """Return the page with what a benchmark printed, between the comment that names it and the next end. Raises ValueError without them."""
    begin, end = f"<!-- python -m benchmarks.{name} -->\n", "<!-- end -->"
    changed, count = re.subn(f"({re.escape(begin)}).*?({end})", lambda part: f"{part[1]}\n{printed}\n{part[2]}", page, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"docs/benchmarks.md has no single place {begin.strip()} … {end}")
    return changed


if __name__ == "__main__":
    sys.exit(main())
