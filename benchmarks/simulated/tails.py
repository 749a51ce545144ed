"""Calls that are slow now and then: are they seen in an A/B of 14 rounds, and identical code left alone?"""

import random
from collections.abc import Callable, Iterator

from benchmarks.deciders import as_rounds
from benchmarks.recordings import Side, process
from benchmarks.simulated import Finding
from dlbench.analysis.compare.judge import Verdict, rank_tests
from dlbench.analysis.doctor.selftest import verdicts
from dlbench.core.thresholds import WITHIN_A_RUN

ROUNDS, CASES = 14, 6
BLOCKS = (3, 14, 40)
PROCESS_SD, CALL_SD = 0.05, 0.03
Calls = Callable[[int, random.Random], float]
"""Times as long as usual that a call of that number takes."""


def usual(number: int, chance: random.Random) -> float:
    """No call is slow."""
    return 1.0


def every_third(number: int, chance: random.Random) -> float:
    """Every third call takes three times as long: 1.67 times the time in all."""
    return 3.0 if number % 3 == 2 else 1.0


def a_third_of_all(number: int, chance: random.Random) -> float:
    """Of all calls 35 % take five times as long: 2.4 times the time in all."""
    return 5.0 if chance.random() < 0.35 else 1.0


def findings(deals: int, chance: random.Random) -> Iterator[Finding]:
    """Yield how often a case with slow calls is called slower, in a suite of others, and a suite without a change changed."""
    for blocks in BLOCKS:
        for calls, name in ((every_third, "every third call x 3"), (a_third_of_all, "35 % of calls x 5")):
            called = [_suite(blocks, usual, calls, chance)[0] is Verdict.SLOWER for _ in range(deals)]
            # Of three calls none is slow in every fourth round, so no test of fourteen rounds tells.
            aim = None if calls is a_third_of_all and blocks == 3 else 0.95
            yield Finding(f"{name}, {blocks} calls a round: called slower", sum(called), deals, at_least=aim)
    for calls, name in ((usual, "no slow calls"), (a_third_of_all, "35 % of calls x 5 on both sides")):
        suites = [_suite(blocks, calls, calls, chance, CASES) for blocks in BLOCKS for _ in range(deals)]
        changed = [bool({Verdict.SLOWER, Verdict.FASTER} & {*found}) for found in suites]
        yield Finding(f"{name}: identical suites called changed", sum(changed), len(changed), at_most=0.05)


def _suite(blocks: int, base: Calls, new: Calls, chance: random.Random, slow: int = 1) -> list[Verdict]:
    """Judge a suite of which so many cases, the first ones, have these calls and the others usual ones."""
    tests = []
    for case in range(CASES):
        sides = [as_rounds(_side(blocks, calls if case < slow else usual, chance)) for calls in (base, new)]
        tests.append(rank_tests(*sides, paired=True))
    return verdicts(tests, WITHIN_A_RUN.time)


def _side(blocks: int, calls: Calls, chance: random.Random) -> Side:
    """Return rounds of one call a block."""
    levels = [chance.lognormvariate(0, PROCESS_SD) for _ in range(ROUNDS)]
    return [process([level * chance.lognormvariate(0, CALL_SD) * calls(number, chance) for number in range(blocks)]) for level in levels]
