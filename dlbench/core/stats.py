"""Statistics of a few numbers, in plain Python: the measuring process has torch and the standard library only."""

import math
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from itertools import accumulate


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


def outliers(ordered: Sequence[float]) -> int:
    """Count the values beyond the outer fences: more than three interquartile ranges outside the quartiles.

    Tukey, Exploratory Data Analysis, section 2D.
    """
    low, high = quantile(ordered, 0.25), quantile(ordered, 0.75)
    reach = 3 * (high - low)
    return bisect_left(ordered, low - reach) + len(ordered) - bisect_right(ordered, high + reach)


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


TESTS_A_CASE = 2
"""Of two files, or of rows of one: the median and the p10 of the rounds, each with the same share of the level."""
PAIRS_WEIGHT, P10_WEIGHT = 1, 3
"""Of two sides that were measured in turn: a case's median and its pairs of rounds have one share of the level each, its p10 has three."""
PAIRED_SHARES = 5
"""Shares in all; the pairs need as many rounds as if there were so many tests a case."""


def rounds_for_gate(tests: float, level: float = 0.01, least: int = 10, paired: bool = False) -> int:
    """Return the rounds a side that let a gate of so many tests fail.

    The smallest p of an exact test, `smallest_p` or where sides are ``paired`` `smallest_signed_p`, is multiplied by the tests in Holm's
    correction; the result is the least k, ten or more, that brings this below ``level``.
    """
    k = least
    while tests * (smallest_signed_p(k) if paired else smallest_p(k, k)) >= level:
        k += 1
    return k


def variation(values: Sequence[float]) -> float | None:
    """Standard deviation over mean; None for fewer than two values or a mean of zero."""
    if len(values) < 2 or not (mean := math.fsum(values) / len(values)):
        return None
    # Not statistics.stdev: its exact fractions take fifty times as long, and a table has a hundred thousand rounds.
    return math.dist(values, [mean] * len(values)) / math.sqrt(len(values) - 1) / mean


MOST_COUNTED = 100**3
"""The rank test counts all orderings up to 100 rounds a side, or fewer against more: the work grows with the product of both sides and,
once more, of the smaller."""


def _rank_sum_counts(m: int, n: int) -> list[int]:
    """How many of the orderings of m + n distinct values give each Mann-Whitney U = 0 … m n / 2; the upper half mirrors it.

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


def smallest_p(m: int, n: int) -> float:
    """Return the least p that `rank_test_p` can give for m and n values, 2 / C(m + n, m): all of one sample lie below all of the other."""
    return min(1.0, 2 / math.comb(m + n, m))


@cache
def _two_sided_p(m: int, n: int) -> tuple[float, ...]:
    """The two-sided p of each U = 0 … m n / 2, twice the lower tail.

    Exact up to `MOST_COUNTED`. Beyond, the normal distribution of the same mean and variance, with continuity correction (Mann and
    Whitney 1947); ties need no correction, as `rank_test_p` breaks them. Its tails are heavier, so p is too large if anything.
    """
    if m * n * min(m, n) <= MOST_COUNTED:
        total = math.comb(m + n, m)
        return tuple(min(1.0, 2 * tail / total) for tail in accumulate(_rank_sum_counts(min(m, n), max(m, n))))
    middle, sd, least = m * n / 2, math.sqrt(m * n * (m + n + 1) / 12), smallest_p(m, n)
    # erfc and not the distribution function of `statistics`, which has no digits left where p is small.
    normal = (math.erfc((middle - u - 0.5) / sd / math.sqrt(2)) for u in range(m * n // 2 + 1))
    return tuple(max(least, min(1.0, p)) for p in normal)


def rank_test_p(base: Sequence[float], other: Sequence[float]) -> float:
    """Two-sided p of the Mann-Whitney test: how often samples of one distribution would lie at least so far apart.

    Ties between the samples are broken towards no difference: the result is the largest p of all ways to break them, so it is
    never too small, and equal samples have p = 1. Without such ties it is the p of all ways to deal the ranks (Mann and Whitney 1947),
    exact up to `MOST_COUNTED` and closely from there on.
    Raises StatisticsError where a sample is empty.
    """
    if not base or not other:
        raise statistics.StatisticsError("a rank test needs values on both sides")
    ordered, pairs = sorted(base), len(base) * len(other)
    below = sum(bisect_left(ordered, value) for value in other)
    above = pairs - sum(bisect_right(ordered, value) for value in other)
    # U and m n - U of the ways to break ties run from these counts up; the way nearest to the middle is the least extreme.
    return _two_sided_p(len(base), len(other))[min(pairs - below, pairs - above, pairs // 2)]


@cache
def _signed_rank_p(k: int) -> tuple[float, ...]:
    """The two-sided p of each sum of positive ranks 0 … k (k + 1) / 4, twice the lower tail: of k pairs, each sign as likely as the other.

    The ways to reach a sum are the coefficients of the product of (1 + q^i) over i = 1 … k (Wilcoxon, Individual Comparisons by Ranking
    Methods, Biometrics Bulletin 1, 1945). Exact up to 100 pairs; beyond, the normal distribution with continuity correction.
    """
    half = k * (k + 1) // 4
    if k <= 100:
        counts = [1] + [0] * half
        for i in range(1, k + 1):
            for total in range(half, i - 1, -1):
                counts[total] += counts[total - i]
        return tuple(min(1.0, tail / 2 ** (k - 1)) for tail in accumulate(counts))
    middle, sd = k * (k + 1) / 4, math.sqrt(k * (k + 1) * (2 * k + 1) / 24)
    normal = (math.erfc((middle - total - 0.5) / sd / math.sqrt(2)) for total in range(half + 1))
    return tuple(max(smallest_signed_p(k), min(1.0, p)) for p in normal)


def smallest_signed_p(k: int) -> float:
    """Return the least p that `signed_rank_p` can give for k pairs, 2 / 2^k: all differences have one sign."""
    return min(1.0, 2.0 ** (1 - k))


def signed_rank_p(differences: Sequence[float]) -> float:
    """Two-sided p of the signed-rank test: how often differences that are as likely to be negative would lie at least so far to one side.

    Zeros, and equal sizes of opposite sign, are ranked towards no difference: the result is the largest p of all ways to rank them.
    Exact up to 100 pairs and closely from there on (Wilcoxon 1945). Raises StatisticsError for no differences.
    """
    if not differences:
        raise statistics.StatisticsError("a signed-rank test needs a difference")
    sizes = sorted(map(abs, differences))
    lowest = highest = 0
    for size in dict.fromkeys(sizes):
        first, last = bisect_left(sizes, size), bisect_right(sizes, size)
        positive = sum(each == size for each in differences) if size else 0
        # Ranks first + 1 … last are theirs: the positive ones have the lowest of them, or the highest.
        lowest += positive * first + positive * (positive + 1) // 2
        count = positive if size else last  # zeros may have either sign
        highest += count * last - count * (count - 1) // 2
    # Every sum from the lowest to the highest is one of the ways; the nearest to the middle is the least extreme.
    whole = len(sizes) * (len(sizes) + 1) // 2
    return _signed_rank_p(len(sizes))[min(highest, whole - lowest, whole // 2)]


def _left_over(confidence: float) -> float:
    """Return the level of a test whose inversion has that confidence: an interval leaves out the shifts that the test rejects.

    As a decimal, because 1 - 0.9 in floats is less than 0.1: then this is, as each p is, the float nearest to the exact fraction, and
    equal fractions are equal.
    """
    return float(1 - Decimal(str(confidence)))


@cache
def _walsh_rank(k: int, confidence: float) -> tuple[int, float] | None:
    """Return (r, coverage): the r-th smallest and r-th largest Walsh average of k differences enclose the shift with that confidence."""
    p_values = _signed_rank_p(k)
    rank = min(bisect_right(p_values, _left_over(confidence)), len(p_values) - 1)
    return (rank, 1 - p_values[rank - 1]) if rank else None


def signed_shift_intervals(differences: Sequence[float], confidences: Iterable[float]) -> tuple[float, list[Interval | None]]:
    """Hodges-Lehmann estimate of the centre of paired differences, the median of their Walsh averages, and an interval for each confidence.

    The intervals invert the signed-rank test (Hollander, Wolfe and Chicken, Nonparametric Statistical Methods, section 3.3); None where the
    pairs are too few: for 95 % six are enough. Raises StatisticsError for no differences.
    """
    averages = sorted((one + other) / 2 for at, one in enumerate(differences) for other in differences[at:])
    ranks = [_walsh_rank(len(differences), confidence) for confidence in confidences]
    intervals = [Interval(averages[rank[0] - 1], averages[-rank[0]], rank[1]) if rank else None for rank in ranks]
    return statistics.median(averages), intervals


MAD_TO_SD = 1 / statistics.NormalDist().inv_cdf(0.75)
"""What makes the median absolute deviation of normal values their standard deviation."""


def variance_between(groups: Sequence[Sequence[float]]) -> float:
    """Return the variance of groups beyond what the spread within them explains; negative where that explains more. Two groups at least.

    It is the variance of the groups' medians, less the mean of the variance that each median has of itself: the moment estimator of a
    random effect (Cochran, The Combination of Estimates from Different Experiments, Biometrics 10, 1954), on medians, as a few wild
    values must not hide how groups differ. The variance of a median of n normal values is pi / 2 times that of their mean, s^2 / n, and
    s is estimated by the median absolute deviation (Rousseeuw and Croux, Journal of the American Statistical Association 88, 1993).
    """
    medians = [statistics.median(group) for group in groups]
    within = [
        math.pi / 2 / len(group) * (MAD_TO_SD * statistics.median(abs(value - middle) for value in group)) ** 2
        for group, middle in zip(groups, medians, strict=True)
    ]
    return statistics.variance(medians) - statistics.fmean(within)


def student_p(t: float, freedom: int) -> float:
    """Two-sided p of Student's t with so many degrees of freedom: the finite sums of Abramowitz and Stegun, 26.7.3 and 26.7.4."""
    angle = math.atan(abs(t) / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term, total = (cosine if odd else 1.0), 0.0
    for power in range(odd + 2, freedom + 1, 2):
        total += term
        term *= cosine * cosine * (power - 1) / power
    inside = 2 / math.pi * (angle + sine * total) if odd else sine * total
    return max(0.0, 1 - inside)


@cache
def student_quantile(confidence: float, freedom: int) -> float:
    """Return the t that encloses zero with that confidence: `student_p` of it is 1 - confidence."""
    low, high = 0.0, 1.0
    while high < 2**60 and student_p(high, freedom) > 1 - confidence:
        high *= 2
    for _ in range(60):  # as many as a float has bits
        middle = (low + high) / 2
        low, high = (middle, high) if student_p(middle, freedom) > 1 - confidence else (low, middle)
    return high


def holm(p_values: Sequence[float], weights: Sequence[float] | None = None) -> list[float]:
    """Return p-values corrected for being many: reject those below a level, and the chance of any false rejection is at most that level.

    Step-down: the i-th smallest of n is multiplied by n - i + 1, and none is smaller than the one before it (Holm, A Simple
    Sequentially Rejective Multiple Test Procedure, Scandinavian Journal of Statistics 6, 1979). With ``weights``, fixed beforehand and
    above zero, a test has that share of the level: p over its weight decides the order, and is multiplied by the weights that are left.
    """
    weight = [1.0] * len(p_values) if weights is None else weights
    order = sorted(range(len(p_values)), key=lambda index: p_values[index] / weight[index])
    corrected, highest, left = [0.0] * len(p_values), 0.0, sum(weight)
    for index in order:
        highest = max(highest, min(1.0, p_values[index] * left / weight[index]))
        corrected[index] = highest
        left -= weight[index]
    return corrected


@cache
def _shift_rank(m: int, n: int, confidence: float) -> tuple[int, float] | None:
    """Return (k, coverage): the k-th smallest and k-th largest of the m n differences enclose the shift with at least that confidence."""
    p_values = _two_sided_p(m, n)
    k = min(bisect_right(p_values, _left_over(confidence)), m * n // 2)
    return (k, 1 - p_values[k - 1]) if k else None


def shift_interval(base: Sequence[float], other: Sequence[float], confidence: float = 0.95) -> tuple[float, Interval | None]:
    """Hodges-Lehmann estimate of ``other - base`` and its exact interval, from inverting the Mann-Whitney test.

    Source: Hollander, Wolfe and Chicken, Nonparametric Statistical Methods, section 4.3. The interval is None where
    the samples are too small for that confidence: for 95 % four and four are enough, three and four are not.
    Raises StatisticsError where a sample is empty.
    """
    estimate, intervals = shift_intervals(base, other, (confidence,))
    return estimate, intervals[0]


def shift_intervals(base: Sequence[float], other: Sequence[float], confidences: Iterable[float]) -> tuple[float, list[Interval | None]]:
    """Return the estimate of `shift_interval` and an interval for each confidence."""
    differences = sorted([b - a for a in base for b in other])
    ranks = [_shift_rank(len(base), len(other), confidence) for confidence in confidences]
    intervals = [Interval(differences[rank[0] - 1], differences[-rank[0]], rank[1]) if rank else None for rank in ranks]
    return statistics.median(differences), intervals


def theil_sen(x: Sequence[float], y: Sequence[float]) -> tuple[float, float] | None:
    """Return (intercept, slope) of a line through points, which up to 29 % of wild ones can't carry away; None for fewer than two x.

    The slope is the median of those of all pairs of points, the intercept the median of what it leaves of each
    (Sen, Estimates of the Regression Coefficient Based on Kendall's Tau, Journal of the American Statistical Association 63, 1968).
    """
    points = sorted(zip(x, y, strict=True))
    slopes = [(y2 - y1) / (x2 - x1) for i, (x1, y1) in enumerate(points) for x2, y2 in points[i + 1 :] if x2 != x1]
    if not slopes:
        return None
    slope = statistics.median(slopes)
    return statistics.median(b - slope * a for a, b in points), slope


def proportion_interval(count: int, of: int, confidence: float = 0.95) -> Interval:
    """Exact interval of a probability, from how often something happened in so many independent trials, one or more.

    Its ends are the probabilities at which as many or more, and as few or fewer, would have half of what the confidence leaves
    (Clopper and Pearson, The Use of Confidence or Fiducial Limits, Biometrika 26, 1934). It covers with that confidence at least.
    """
    tail = (1 - confidence) / 2
    low = _crossing(lambda p: 1 - _binomial_tail(count - 1, of, p) < tail) if count else 0.0
    high = _crossing(lambda p: _binomial_tail(count, of, p) > tail) if count < of else 1.0
    return Interval(low, high, confidence)


def _binomial_tail(count: int, of: int, p: float) -> float:
    """Return the chance of at most ``count`` in ``of`` trials that each happen with ``p``, between 0 and 1 exclusive."""
    log_p, log_q, whole = math.log(p), math.log1p(-p), math.lgamma(of + 1)
    return math.fsum(
        math.exp(whole - math.lgamma(k + 1) - math.lgamma(of - k + 1) + k * log_p + (of - k) * log_q) for k in range(count + 1)
    )


def _crossing(holds: Callable[[float], bool]) -> float:
    """Return the probability up to which a condition holds, by halving."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
