"""Exact rank tests and the intervals that invert them: Mann-Whitney for two samples, Wilcoxon's signed ranks for pairs."""

import math
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from decimal import Decimal
from functools import cache
from itertools import accumulate, count

from dlbench.core.stats import Interval

MOST_COUNTED = 100**3
"""Limit of the exact rank test, 100 rounds a side: the work grows with the product of both sizes and the smaller one."""


def _rank_sum_counts(m: int, n: int) -> list[int]:
    """Return the number of orderings of m + n distinct values for each Mann-Whitney U = 0 … m n / 2; the upper half mirrors it.

    They are the coefficients of the Gaussian binomial, the product of (1 - q^(n + i)) / (1 - q^i) over i = 1 … m
    (Mann and Whitney 1947; Andrews, The Theory of Partitions, section 3.2).
    """
    size = m * n // 2 + 1
    counts = [1] + [0] * (size - 1)
    for i in range(1, m + 1):
        for u in range(size - 1, n + i - 1, -1):
            counts[u] -= counts[u - n - i]
        for u in range(i, size):
            counts[u] += counts[u - i]
    return counts


@cache
def smallest_p(m: int, n: int) -> float:
    """Return the least p that `rank_test` can give for m and n values, 2 / C(m + n, m): all of one sample lie below all of the other."""
    return min(1.0, 2 / math.comb(m + n, m))


@cache
def _two_sided_p(m: int, n: int) -> tuple[float, ...]:
    """Return the two-sided p of each U = 0 … m n / 2, twice the lower tail.

    Exact up to `MOST_COUNTED`. Beyond, the normal distribution of the same mean and variance, with continuity correction (Mann and
    Whitney 1947); ties need no correction, as `rank_test` breaks them.
    """
    if m * n * min(m, n) <= MOST_COUNTED:
        total = math.comb(m + n, m)
        return tuple(min(1.0, 2 * tail / total) for tail in accumulate(_rank_sum_counts(min(m, n), max(m, n))))
    return _normal_p(m * n / 2, m * n * (m + n + 1) / 12, smallest_p(m, n))


def _normal_p(mean: float, variance: float, least: float) -> tuple[float, ...]:
    """Return the two-sided p of each statistic 0 … mean by the normal distribution with continuity correction, at least ``least``.

    Its tails are heavier than those of rank tests, so p is too large if anything.
    """
    sd = math.sqrt(variance)
    # erfc and not the distribution function of `statistics`, which has no digits left where p is small.
    normal = (math.erfc((mean - each - 0.5) / sd / math.sqrt(2)) for each in range(int(mean) + 1))
    return tuple(max(least, min(1.0, p)) for p in normal)


@cache
def _left_over(confidence: float) -> float:
    """Return the level of the test that an interval of that confidence inverts.

    As a decimal, because 1 - 0.9 in floats is less than 0.1: like each p, this is the float nearest to the exact fraction.
    """
    return float(1 - Decimal(str(confidence)))


def _inverted(p_values: Sequence[float], shifts: Sequence[float], confidences: Iterable[float]) -> list[Interval | None]:
    """Return for each confidence the interval from the k-th smallest to the k-th largest shift, with its exact coverage.

    ``p_values`` are those of the statistics 0, 1, …; the shifts are in order. None where even the extremes cover less.
    """
    ranks = [bisect_right(p_values, _left_over(confidence), hi=len(p_values) - 1) for confidence in confidences]
    return [Interval(shifts[k - 1], shifts[-k], 1 - p_values[k - 1]) if k else None for k in ranks]


ALIKE, AT_ANY_SPREADS = 0.95, 0.94
"""Coverage of `shift_interval`, in the least: of sides that spread alike, and of sides where one spreads any number of times as much."""


def shift_interval(base: Sequence[float], other: Sequence[float], among: int = 1) -> tuple[float, Interval | None]:
    """Return the Hodges-Lehmann estimate of ``other - base`` and its 95 % interval, with the least coverage for any spreads as confidence.

    If both sides have the same spread it inverts the exact Mann-Whitney test (Hollander, Wolfe and Chicken, Nonparametric Statistical
    Methods, section 4.3). It is widened to cover 94 % if they don't, see `_least_coverage`; with fewer than six values on a side it ends
    at the extremes, which may cover less. If ``other`` is the best ``among`` so many, it is widened so that the intervals of all of them
    together cover with 95 % (Bonferroni): that one of equal candidates was chosen does not make it look better more often than that.

    The interval is None if the samples are too small, see `rounds_for_interval`. Raises StatisticsError where a sample is empty.
    """
    differences = sorted([b - a for a in base for b in other])
    centre, k = _middle(differences), _interval_rank(len(base), len(other), among)
    return centre, Interval(differences[k - 1], differences[-k], _least_coverage(len(base), len(other), k)) if k else None


@cache
def _interval_rank(m: int, n: int, among: int) -> int:
    """Return the k of the interval from the k-th smallest to the k-th largest of m n differences; 0 where even the extremes cover less."""
    alike = bisect_right(_two_sided_p(m, n), _left_over(ALIKE) / among)
    # Coverage falls as k grows, so this is the number of k that cover enough.
    at_any = bisect_left(range(1, alike + 1), True, key=lambda k: _least_coverage(m, n, k) < AT_ANY_SPREADS)
    return min(alike, max(1, at_any))


def _least_coverage(m: int, n: int, k: int) -> float:
    """Return the least probability, for any spreads, that the k-th smallest and k-th largest of m n differences enclose the true one.

    It is the least of three. Where the sides spread alike, the exact one of Mann and Whitney. Where the spread of one is nothing to the
    other's, the differences fall into groups, one for each value of the wide side, and it is the exact one of the sign test.
    Between these the count of pairs has a variance of m n max(m, n) / 4 at most (Birnbaum and Klose, Bounds for the Variance of the
    Mann-Whitney Statistic, Annals of Mathematical Statistics 28, 1957), taken as normal with continuity correction; so did Potthoff (Use
    of the Wilcoxon Statistic for a Generalized Behrens-Fisher Problem, the same 34, 1963).
    """
    signs = (1 - 2 * sum(math.comb(wide, i) for i in range(-(-k // narrow))) / (1 << wide) for wide, narrow in ((m, n), (n, m)))
    between = math.erf((m * n / 2 - k + 0.5) / math.sqrt(m * n * max(m, n) / 2))
    return min(1 - _two_sided_p(m, n)[k - 1], between, *signs)


@cache
def rounds_for_interval(among: int = 1) -> int:
    """Return the fewest rounds on each side with which `shift_interval` has an interval: four, five of one chosen among two to six, …"""
    return next(n for n in count(1) if _interval_rank(n, n, among))


FEWEST_ROUNDS = rounds_for_interval()
"""On each side, for an interval of two rows where neither was chosen."""


def rank_test(base: Sequence[float], other: Sequence[float], confidences: Iterable[float]) -> tuple[float, float, list[Interval | None]]:
    """Return the two-sided p of the Mann-Whitney test, the estimate of `shift_interval` and an interval for each confidence.

    The p is the probability that samples of one distribution lie at least so far apart. With ties between the samples it is the largest p
    of all orders they may have, so it is never too small, and equal samples have p = 1. It is exact up to `MOST_COUNTED`, a close
    approximation beyond (Mann and Whitney 1947). Raises StatisticsError if a sample is empty.
    """
    differences = sorted([b - a for a in base for b in other])
    centre, p_values, pairs = _middle(differences), _two_sided_p(len(base), len(other)), len(differences)
    # Depending on how ties are broken, U is at most the number of pairs not above zero, and m n - U that of pairs not below it. The
    # U nearest to the middle is the least extreme.
    p = p_values[min(bisect_right(differences, 0.0), pairs - bisect_left(differences, 0.0), pairs // 2)]
    return p, centre, _inverted(p_values, differences, confidences)


def _middle(ordered: Sequence[float]) -> float:
    """Return the median of differences that are in order, which `statistics.median` would sort again. Raises StatisticsError for none."""
    if not ordered:
        raise statistics.StatisticsError("a rank test needs values on both sides")
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


_MOST_PAIRS_COUNTED = 100
"""Limit of the exact signed-rank test."""


@cache
def _p_of_rank_sums(k: int) -> tuple[float, ...]:
    """Return the two-sided p of each possible sum of the positive ranks of k pairs, from 0 to its mean k (k + 1) / 4.

    It is twice the chance of that sum or a lower one if each rank has a random sign. The number of ways to choose the signs for a sum is a
    coefficient of the product of (1 + q^i) over i = 1 … k (Wilcoxon, Individual Comparisons by Ranking Methods, Biometrics Bulletin 1,
    1945). For more than `_MOST_PAIRS_COUNTED` pairs it is an approximation by the normal distribution.
    """
    if k > _MOST_PAIRS_COUNTED:
        return _normal_p(mean=k * (k + 1) / 4, variance=k * (k + 1) * (2 * k + 1) / 24, least=smallest_signed_p(k))
    mean = k * (k + 1) // 4
    ways = [1] + [0] * mean  # to reach each sum with the ranks so far; no rank at all makes the sum 0
    for rank in range(1, k + 1):
        for total in range(mean, rank - 1, -1):  # downwards, so that no sum has a rank twice
            ways[total] += ways[total - rank]
    return tuple(min(1.0, 2 * tail / 2**k) for tail in accumulate(ways))


@cache
def smallest_signed_p(k: int) -> float:
    """Return the least p that `signed_rank_p` can give for k pairs, 2 / 2^k: all differences have one sign."""
    return min(1.0, 2.0 ** (1 - k))


def signed_rank_p(differences: Sequence[float]) -> float:
    """Return the two-sided p of Wilcoxon's signed-rank test on paired differences.

    It is the chance that differences with random signs have a sum of positive ranks at least so far from its mean. Zeros may count as
    either sign, and ties are ranked in any order: the result is the largest p of these choices, so it is never too small. It is exact up to
    100 pairs, and a close approximation beyond (Wilcoxon 1945). Raises StatisticsError if there are no differences.
    """
    if not differences:
        raise statistics.StatisticsError("a signed-rank test needs a difference")
    sizes = sorted(map(abs, differences))
    lowest_sum = highest_sum = 0  # of the ranks of positive differences, over all choices
    for size in dict.fromkeys(sizes):  # ties are of one size, and share the ranks from the first to the last
        first_rank = bisect_left(sizes, size) + 1
        last_rank = bisect_right(sizes, size)
        fewest_positive = most_positive = sum(each == size for each in differences)  # the positive differences of this size
        if size == 0:
            fewest_positive, most_positive = 0, last_rank  # none or all of the zeros, which have the first ranks
        # The positive ones of a tie have its lowest ranks in one order, and its highest ranks in another.
        lowest_sum += sum(range(first_rank, first_rank + fewest_positive))
        highest_sum += sum(range(last_rank - most_positive + 1, last_rank + 1))
    # Every sum between these two is possible, and the one nearest to the mean has the largest p. If both lie below the mean, that is the
    # highest sum. If both lie above it, that is the lowest sum. If the mean lies between them, it is the mean.
    sum_of_all = len(sizes) * (len(sizes) + 1) // 2
    # The table ends at the mean, which is half of `sum_of_all`. A sum above it has the same p as its mirror image below it.
    mirrored_lowest = sum_of_all - lowest_sum
    # In each of the three cases the right sum is the least of these.
    return _p_of_rank_sums(len(sizes))[min(highest_sum, mirrored_lowest, sum_of_all // 2)]


def signed_shift_intervals(differences: Sequence[float], confidences: Iterable[float]) -> tuple[float, list[Interval | None]]:
    """Return the median of the Walsh averages of paired differences (Hodges-Lehmann), and an interval for each confidence.

    The intervals invert the signed-rank test (Hollander, Wolfe and Chicken, Nonparametric Statistical Methods, section 3.3). An interval is
    None if there are too few pairs: for 95 % six are enough. Raises StatisticsError for no differences.
    """
    averages = sorted((one + other) / 2 for at, one in enumerate(differences) for other in differences[at:])
    return _middle(averages), _inverted(_p_of_rank_sums(len(differences)), averages, confidences)


MEDIAN_WEIGHT, P10_WEIGHT, MEAN_WEIGHT, PAIRS_WEIGHT = 2, 3, 1, 1
"""Shares of the level that the tests of a case have; the pairs of interleaved rounds take theirs from the median's."""
PAIRED_SHARES = MEDIAN_WEIGHT + P10_WEIGHT + MEAN_WEIGHT
"""Sum of these; the pairs need as many rounds as with so many tests a case."""
TESTS_A_CASE = PAIRED_SHARES / P10_WEIGHT
"""Tests a case in a comparison of two files, or of rows of one: with so many that share the level equally, as many rounds are needed."""


@cache
def rounds_for_gate(tests: float, level: float = 0.01, least: int = 10, paired: bool = False) -> int:
    """Return the fewest rounds a side, ``least`` or more, with which a gate of so many tests can fail.

    That is where the smallest p of an exact test (`smallest_signed_p` for ``paired`` sides), times the tests by Holm, is below ``level``.
    """
    k = least
    while tests * (smallest_signed_p(k) if paired else smallest_p(k, k)) >= level:
        k += 1
    return k
