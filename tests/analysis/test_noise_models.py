"""Error rates of the rule on made-up noise of known kinds; the seeds are fixed, so the counts are exact."""

import math
import random
from collections.abc import Iterator
from typing import NamedTuple

import made_up
import pytest

from dlbench.analysis.compare.judge import Verdict, rank_tests
from dlbench.analysis.doctor.selftest import verdicts
from dlbench.core.rows.columns import CaseRounds
from dlbench.core.rows.summary import per_round

ROUNDS, BLOCKS, CASES, SUITES, THRESHOLD = 10, 12, 6, 60, 0.03


class Noise(NamedTuple):
    """Deviations of the logarithm of a time; a process has one of its own, and its blocks vary around it."""

    process_sd: float = 0.02
    block_sd: float = 0.01
    drift: float = 0.0  # added from each process to the next
    correlation: float = 0.0  # of a process's deviation with that of the one before: AR(1)
    slow_mode: tuple[float, float] = (0.0, 0.0)  # share of processes, and by how much they are slower
    spikes: tuple[float, float] = (0.0, 0.0)  # share of blocks, and by how much they are slower


NOISES = {
    "hierarchical": Noise(),
    "drift": Noise(drift=0.005),
    "two modes": Noise(process_sd=0.005, slow_mode=(0.4, 0.15)),
    "autocorrelated": Noise(correlation=0.8),
    "spikes": Noise(spikes=(0.15, 0.5)),
    "all of them": Noise(drift=0.002, correlation=0.5, slow_mode=(0.3, 0.1), spikes=(0.1, 0.5)),
}


def processes(noise: Noise, chance: random.Random) -> Iterator[list[float]]:
    """Seconds of the blocks of one process after the other."""
    deviation, number = 0.0, 0
    fresh = noise.process_sd * math.sqrt(1 - noise.correlation**2)
    while True:
        deviation = noise.correlation * deviation + chance.gauss(0, fresh)
        level = deviation + noise.drift * number + noise.slow_mode[1] * (chance.random() < noise.slow_mode[0])
        share, more = noise.spikes
        yield [math.exp(level + chance.gauss(0, noise.block_sd) + more * (chance.random() < share)) for _ in range(BLOCKS)]
        number += 1


def sides(noise: Noise, chance: random.Random, factor: float, interleaved: bool) -> tuple[CaseRounds, CaseRounds]:
    """Ten rounds a side, the new one slower by a factor: in each two processes in a row one of each side, or one side after the other."""
    stream = processes(noise, chance)
    measured = [next(stream) for _ in range(2 * ROUNDS)]
    base, new = measured[:ROUNDS], measured[ROUNDS:]
    if interleaved:
        pairs = [chance.sample(pair, 2) for pair in zip(measured[::2], measured[1::2], strict=True)]
        base, new = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    slower = [[factor * seconds for seconds in blocks] for blocks in new]
    return per_round(made_up.rounds_of(made_up.case(), base)), per_round(made_up.rounds_of(made_up.case(), slower))


def judged(noise: Noise, factor: float, interleaved: bool) -> tuple[int, int, int, int]:
    """Cases called slower, and suites with such a case; intervals of the median and of the p10 that hold the true change."""
    chance, truth = random.Random(7), math.log(factor)
    slower = failed = median = p10 = 0
    for _ in range(SUITES):
        tests = [rank_tests(*sides(noise, chance, factor, interleaved), THRESHOLD) for _ in range(CASES)]
        called = verdicts(tests)
        slower += called.count(Verdict.SLOWER)
        failed += Verdict.SLOWER in called
        median += sum(each["median"].interval.low <= truth <= each["median"].interval.high for each in tests)
        p10 += sum(each["p10"].interval.low <= truth <= each["p10"].interval.high for each in tests)
    return slower, failed, median, p10


@pytest.mark.parametrize(
    ("noise", "factor", "interleaved", "expected"),
    [
        # Identical code, interleaved: at most 1 % of the cases and 5 % of the suites are called slower, and intervals cover 93 % or more.
        ("hierarchical", 1.0, True, (1, 1, 346, 348)),
        ("two modes", 1.0, True, (1, 1, 343, 346)),
        ("spikes", 1.0, True, (2, 2, 347, 348)),
        # Neighbours that share their disturbance are dealt to both sides, so the interval is wider than it need be, never too narrow.
        ("drift", 1.0, True, (0, 0, 360, 360)),
        ("autocorrelated", 1.0, True, (0, 0, 360, 360)),
        ("all of them", 1.0, True, (0, 0, 350, 348)),
        # Ten percent is seen through noise, but not through modes that lie further apart.
        ("hierarchical", 1.1, True, (360, 60, 346, 348)),
        ("spikes", 1.1, True, (360, 60, 347, 348)),
        ("all of them", 1.1, True, (270, 60, 350, 348)),
        ("two modes", 1.1, True, (68, 47, 343, 346)),
        # One side after the other a drift looks like a change, which is why comparisons interleave.
        ("drift", 1.0, False, (348, 60, 5, 4)),
        ("autocorrelated", 1.0, False, (13, 12, 202, 205)),
        ("hierarchical", 1.0, False, (0, 0, 340, 342)),
    ],
)
def test_what_is_called_slower_and_how_many_intervals_cover(noise, factor, interleaved, expected):
    assert judged(NOISES[noise], factor, interleaved) == expected
