"""Ratios of two rows: how often their interval holds the truth where one side spreads more than the other."""

import math
import random
from collections.abc import Callable, Iterator

from benchmarks.simulated import Finding
from dlbench.analysis.ratios.ratio import speed_ratio
from dlbench.core.rank_test import rank_test

Noise = Callable[[random.Random], float]
SD = 0.01
"""Spread of the logarithms of the steadier side."""
SPREADS = (1, 3, 10, 30, 100)
LEAST = 0.94
_MORE = 100
"""Comparisons for each deal: a coverage is known to a fifth of a percent then."""


def normal(chance: random.Random) -> float:
    """Return noise of logarithms that is as likely to be above zero as below."""
    return chance.gauss(0, 1)


def heavy_tails(chance: random.Random) -> float:
    """Return Student's t with two degrees of freedom, whose variance is infinite: a normal value over the root of an exponential one."""
    return chance.gauss(0, 1) / math.sqrt(chance.expovariate(1))


def findings(deals: int, chance: random.Random) -> Iterator[Finding]:
    """Yield how often the interval of a ratio holds the truth, by the rounds of each side, their noise and how unlike they spread."""
    for rounds in (7, 14):
        for noise in (normal, heavy_tails):
            for spread in SPREADS:
                yield coverage(rounds, noise, spread, deals * _MORE, chance)


def coverage(rounds: int, noise: Noise, spread: int, deals: int, chance: random.Random) -> Finding:
    """Return how often the interval of one such ratio holds the truth, of so many comparisons."""
    covered, width, by_ranks = 0, 0.0, 0.0
    for _ in range(deals):
        steady, unsteady = ([sd * noise(chance) for _ in range(rounds)] for sd in (SD, SD * spread))
        ratio = speed_ratio([math.exp(each) for each in steady], [math.exp(each) for each in unsteady])
        low, high = ratio.low or math.nan, ratio.high or math.nan
        covered += low <= 1 <= high
        width += math.log(high / low)
        _, _, (plain,) = rank_test(steady, unsteady, (0.95,))
        by_ranks += 2 * plain.half_width if plain else math.nan
    name = noise.__name__.replace("_", " ")
    return Finding(
        f"{rounds} rounds a side, {name}, spreads 1 : {spread}; {width / by_ranks:.2f} times as wide as by ranks alone",
        covered,
        deals,
        at_least=LEAST,
    )
