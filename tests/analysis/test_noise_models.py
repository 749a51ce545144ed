"""Error rates of the rule on made-up noise of known kinds; the seeds are fixed, so the counts are exact."""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

import made_up
import pytest

from dlbench.analysis.compare.judge import Verdict, rank_tests
from dlbench.analysis.doctor.selftest import verdicts
from dlbench.core.rows.columns import CaseRounds
from dlbench.core.rows.summary import per_round

ROUNDS, BLOCKS, CASES, SUITES = 10, 12, 6, 150
THRESHOLD = 0.03


@dataclass(frozen=True)
class Noise:
    """Deviations of the logarithm of a time; a process has one of its own, and its blocks vary around it."""

    process_sd: float = 0.02
    block_sd: float = 0.01
    drift: float = 0.0
    """Added from each process to the next."""
    correlation: float = 0.0
    """Of a process's deviation with that of the one before: AR(1)."""
    slow_mode: tuple[float, float] = (0.0, 0.0)
    """Share of processes, and by how much they are slower."""
    spikes: tuple[float, float] = (0.0, 0.0)
    """Share of blocks, and by how much they are slower."""


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
        yield [
            math.exp(level + chance.gauss(0, noise.block_sd) + noise.spikes[1] * (chance.random() < noise.spikes[0])) for _ in range(BLOCKS)
        ]
        number += 1


def sides(noise: Noise, chance: random.Random, factor: float, interleaved: bool) -> tuple[CaseRounds, CaseRounds]:
    """Ten rounds a side, the new one slower by a factor: in each two processes in a row one of each side, or one side after the other."""
    stream = processes(noise, chance)
    measured = [next(stream) for _ in range(2 * ROUNDS)]
    if not interleaved:
        base, new = measured[:ROUNDS], measured[ROUNDS:]
    else:
        pairs = [chance.sample(pair, 2) for pair in zip(measured[::2], measured[1::2], strict=True)]
        base, new = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return rounds(base), rounds([[factor * seconds for seconds in blocks] for blocks in new])


def rounds(blocks: list[list[float]]) -> CaseRounds:
    return per_round(made_up.rounds_of(made_up.case(), blocks))


def judged(noise: Noise, factor: float = 1.0, interleaved: bool = True) -> tuple[int, int, int, int]:
    """Cases called slower, and suites with such a case; intervals of the median and of the p10 that hold the true change."""
    chance = random.Random(7)
    slower = failed = median = p10 = 0
    for _ in range(SUITES):
        tests = [rank_tests(*sides(noise, chance, factor, interleaved), THRESHOLD) for _ in range(CASES)]
        called = verdicts(tests)
        slower += called.count(Verdict.SLOWER)
        failed += Verdict.SLOWER in called
        median += sum(holds(each["median"].interval, factor) for each in tests)
        p10 += sum(holds(each["p10"].interval, factor) for each in tests)
    return slower, failed, median, p10


def holds(interval, factor: float) -> bool:
    return interval.low <= math.log(factor) <= interval.high


@pytest.mark.parametrize(
    ("noise", "slower", "failed", "median", "p10"),
    [
        ("hierarchical", 1, 1, 873, 875),
        ("drift", 0, 0, 900, 900),
        ("two modes", 1, 1, 866, 869),
        ("autocorrelated", 0, 0, 898, 897),
        ("spikes", 3, 3, 869, 873),
        ("all of them", 0, 0, 879, 880),
    ],
)
def test_interleaved_identical_code_is_not_called_slower_and_intervals_cover(noise, slower, failed, median, p10):
    assert judged(NOISES[noise]) == (slower, failed, median, p10)
    assert slower <= 0.01 * SUITES * CASES
    assert failed <= 0.05 * SUITES
    # Neighbours that share their disturbance are dealt to both sides, so there the interval is wider than it need be, never too narrow.
    assert min(median, p10) >= 0.93 * SUITES * CASES
    assert NOISES[noise].drift or NOISES[noise].correlation or max(median, p10) <= 0.98 * SUITES * CASES


@pytest.mark.parametrize(("noise", "slower"), [("hierarchical", 900), ("spikes", 900), ("all of them", 682), ("two modes", 165)])
def test_ten_percent_is_seen_through_noise_but_not_through_modes_that_lie_further_apart(noise, slower):
    assert judged(NOISES[noise], factor=1.1)[0] == slower


@pytest.mark.parametrize(("noise", "slower", "median"), [("drift", 871, 10), ("autocorrelated", 37, 527), ("hierarchical", 0, 857)])
def test_one_side_after_the_other_a_drift_looks_like_a_change(noise, slower, median):
    # Why comparisons interleave: nothing but the order differs from the first test.
    assert judged(NOISES[noise], interleaved=False)[::2] == (slower, median)
