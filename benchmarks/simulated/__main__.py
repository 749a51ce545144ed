"""Asks questions of verdicts on made-up noise: ``python -m benchmarks.simulated [QUESTION…] [--deals N]``."""

import argparse
import pkgutil
import random
import sys
from collections.abc import Sequence
from importlib import import_module

import benchmarks.simulated as simulated
from benchmarks.alternate import report
from benchmarks.simulated import Finding
from dlbench.core.stats import proportion_interval
from dlbench.core.units import percent

DEALS = 200
SEED = 20261123
QUESTIONS = tuple(each.name for each in pkgutil.iter_modules(simulated.__path__) if not each.name.startswith("_"))
"""Each is a module with ``findings(deals, chance)``, which yields a `Finding` of so many simulated comparisons at least."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask the questions, all unless some are named, and print what was found; 1 where an aim is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulated", description=__doc__.partition(":")[0])
    parser.add_argument("question", nargs="*", choices=[[], *QUESTIONS], help=", ".join(QUESTIONS))
    parser.add_argument("--deals", type=int, default=DEALS, help=f"comparisons to simulate for each line (default: {DEALS})")
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args(arguments)
    missed = 0
    for question in options.question or QUESTIONS:
        module = import_module(f"benchmarks.simulated.{question}")
        found: list[Finding] = list(module.findings(options.deals, random.Random(options.seed)))
        missed += sum(not each.reached for each in found)
        columns = ("what", "share", "95 % interval", "aim")
        reached = all(each.reached for each in found)
        report(module.__doc__.partition("\n")[0].rstrip(".?"), columns, map(_line, found), "every share within its aim", reached)
    return 1 if missed else 0


def _line(found: Finding) -> tuple[str, str, str, str]:
    interval = proportion_interval(found.count, found.of)
    return (
        found.what,
        f"{percent(found.share)} of {found.of:,}",
        f"{percent(interval.low)} to {percent(interval.high)}",
        found.aim + ("" if found.reached else ": MISSED"),
    )


if __name__ == "__main__":
    sys.exit(main())
