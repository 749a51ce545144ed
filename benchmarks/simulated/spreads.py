"""Suites of identical programs, one side of which spreads more than the other: how often the gate calls a case."""

import math
import random
from collections.abc import Iterator

from benchmarks.simulated import Finding
from dlbench.analysis.compare.judge import Verdict
from dlbench.analysis.compare.pairs import compare
from dlbench.analysis.read import table
from dlbench.analysis.read.table import Results
from dlbench.core.measurement import Measurement, Samples
from dlbench.core.model import Case, Status
from dlbench.core.rows.summary import summarise
from dlbench.core.thresholds import ACROSS_RUNS, WITHIN_A_RUN

SD = 0.01
"""Of the rounds of the steadier side, and of the blocks within a round."""
_CALLED = (Verdict.SLOWER, Verdict.FASTER)


def findings(deals: int, chance: random.Random) -> Iterator[Finding]:
    """Yield how often a suite of ten cases has one that is called, by threshold, rounds a side and how unlike the sides spread."""
    for name, thresholds in (("3 %, as ab", WITHIN_A_RUN), ("10 %, as two files", ACROSS_RUNS)):
        for rounds in (7, 14):
            for spread in (1, 3, 10):
                called = sum(
                    any(
                        each.verdict in _CALLED
                        for each in compare(_side(rounds, 1, chance), _side(rounds, spread, chance), thresholds=thresholds).cases
                    )
                    for _ in range(deals)
                )
                # Only sides that spread alike are what the test supposes; the others are a limit, which docs/compare.md states.
                yield Finding(f"{name}, {rounds} rounds, spreads 1 : {spread}", called, deals, at_most=0.05 if spread == 1 else None)


def _side(rounds: int, spread: float, chance: random.Random) -> Results:
    rows = [summarise(_case(number, rounds, spread, chance)) for number in range(10)]
    return table.of_rows(rows, "simulated", {}, {})


def _case(number: int, rounds: int, spread: float, chance: random.Random) -> list[Measurement]:
    case = Case(f"step[n={number}]@cpu", "simulated", "step", {"n": number}, "cpu")
    return [Measurement(case, at, Status.OK, samples=_samples(spread, chance)) for at in range(rounds)]


def _samples(spread: float, chance: random.Random) -> Samples:
    level = math.exp(SD * spread * chance.gauss(0, 1))
    blocks = tuple(level * math.exp(SD * chance.gauss(0, 1)) for _ in range(10))
    return Samples(1, blocks, first_call_s=None, warmup_s=None, steady=True)
