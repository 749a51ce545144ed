"""Statistics of a few numbers, in plain Python: the measuring process has torch and the standard library only."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval and the confidence that it really has, which small samples do not let one choose."""

    low: float
    high: float
    confidence: float


def quantile(ordered: Sequence[float], q: float) -> float:
    """Linear interpolation between order statistics (Hyndman and Fan's type 7, the default of NumPy and R)."""
    position = q * (len(ordered) - 1)
    index = int(position)
    low, high = ordered[index], ordered[min(index + 1, len(ordered) - 1)]
    # Rounding must not carry the result past its neighbours.
    return min(low + (position - index) * (high - low), high)


@cache
def median_ranks(n: int, confidence: float) -> tuple[int, float] | None:
    """Return (k, coverage): the k-th smallest and k-th largest of n values enclose the median with at least that confidence.

    The coverage is exact for any continuous distribution: 1 - 2 P(B < k), B binomial(n, 1/2)
    (Conover, Practical Nonparametric Statistics, section 3.2). None where not even the extremes reach it: below six values for 95 %.
    """
    tail, best = 0.0, None
    for k in range(1, n // 2 + 1):
        tail += math.comb(n, k - 1) / 2**n
        if 1 - 2 * tail < confidence:
            break
        best = (k, 1 - 2 * tail)
    return best


def median_interval(values: Sequence[float], confidence: float = 0.95) -> Interval | None:
    """Order-statistic interval of the median; None where there are too few values for that confidence."""
    ranks = median_ranks(len(values), confidence)
    if ranks is None:
        return None
    ordered = sorted(values)
    k, coverage = ranks
    return Interval(ordered[k - 1], ordered[-k], coverage)


def relative_half_width(values: Sequence[float]) -> float:
    """Half the width of the median's 95 % interval over the median; infinite where there are too few values."""
    interval = median_interval(values)
    centre = statistics.median(values) if values else 0.0
    if interval is None or centre <= 0:
        return math.inf
    return (interval.high - interval.low) / 2 / centre


def rounds_for_gate(cases: int, level: float = 0.01, least: int = 10) -> int:
    """Return the rounds a side that let a gate over so many cases fail.

    The smallest p of an exact two-sided rank test with k rounds a side is 2 / C(2k, k), and Holm's correction multiplies it by
    the tests, two a case (p10 and median); the result is the least k, ten or more, that brings this below ``level``.
    """
    k = least
    while 2 * cases * 2 / math.comb(2 * k, k) >= level:
        k += 1
    return k


def variation(values: Sequence[float]) -> float | None:
    """Standard deviation over mean; None for fewer than two values or a mean of zero."""
    if len(values) < 2 or not (mean := statistics.fmean(values)):
        return None
    # Not statistics.stdev: its exact fractions take fifteen times as long, and a table has a hundred thousand rounds.
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)) / mean


@cache
def _rank_sum_counts(m: int, n: int) -> tuple[int, ...]:
    """How many of the orderings of m + n distinct values give each Mann-Whitney U = 0 … m n.

    They are the coefficients of the Gaussian binomial, the product of (1 - q^(n + i)) / (1 - q^i) over i = 1 … m
    (Mann and Whitney 1947; Andrews, The Theory of Partitions, section 3.2).
    """
    counts = [1] + [0] * (m * n)
    for i in range(1, m + 1):
        for u in range(m * n, n + i - 1, -1):
            counts[u] -= counts[u - n - i]
        for u in range(i, m * n + 1):
            counts[u] += counts[u - i]
    return tuple(counts)


def shift_interval(base: Sequence[float], other: Sequence[float], confidence: float = 0.95) -> tuple[float, Interval | None]:
    """Hodges-Lehmann estimate of ``other - base`` and its exact interval, from inverting the Mann-Whitney test.

    Source: Hollander, Wolfe and Chicken, Nonparametric Statistical Methods, section 4.3. The interval is None where
    the samples are too small for that confidence: for 95 % four and four are enough, three and four are not.
    Raises StatisticsError where a sample is empty.
    """
    differences = sorted(b - a for a in base for b in other)
    estimate = statistics.median(differences)
    counts = _rank_sum_counts(len(base), len(other))
    total, tail, k = sum(counts), 0, 0
    while k < len(differences) // 2 and 2 * (tail + counts[k]) / total <= 1 - confidence:
        tail += counts[k]
        k += 1
    if k == 0:
        return estimate, None
    return estimate, Interval(differences[k - 1], differences[-k], 1 - 2 * tail / total)
