"""Runs the benchmarks of this folder one after the other, and writes what they found into the pages that show it."""

import argparse
import math
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path

from benchmarks.alternate import ROOT, environment, python
from dlbench.core.units import clock_time

PAGES = ROOT / "docs"
_MINUTES = re.compile(r"^MINUTES = (\S+)$", re.MULTILINE)


def _minutes() -> dict[str, float]:
    """Return the minutes of each script that states any, the shortest first; none is imported, as each needs other packages."""
    stated = {path.stem: _MINUTES.search(path.read_text()) for path in sorted(Path(__file__).parent.glob("*.py"))}
    return dict(sorted(((name, float(found[1])) for name, found in stated.items() if found), key=itemgetter(1)))


MINUTES: Mapping[str, float] = _minutes()
"""What each takes on two idle cores, about."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all, unless some are named, each in a process of its own; 1 where one did not end well."""
    listed = ", ".join(f"{name} ({minutes:g} min)" for name, minutes in MINUTES.items())
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", nargs="*", choices=[[], *MINUTES], metavar="NAME", help=listed)
    parser.add_argument("--within", type=float, default=math.inf, metavar="MINUTES", help="leave out those that take longer")
    parser.add_argument("--write", action="store_true", help="put what each prints into its page below docs/")
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
            write_figures(name, done.stdout)
    return 1 if failed else 0


def write_figures(name: str, printed: str) -> None:
    """Put what a benchmark printed between the comment that names it and the next end. ValueError unless one page has that place."""
    begin, end = f"<!-- python -m benchmarks.{name} -->\n", "<!-- end -->"
    place = re.compile(f"({re.escape(begin)}).*?({end})", re.DOTALL)
    places = [path for path in PAGES.rglob("*.md") for _ in place.finditer(path.read_text())]
    if len(places) != 1:
        raise ValueError(f"docs has no single place {begin.strip()} … {end}")
    places[0].write_text(place.sub(lambda part: f"{part[1]}\n{printed}\n{part[2]}", places[0].read_text()))


if __name__ == "__main__":
    sys.exit(main())
