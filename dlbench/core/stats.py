"""Statistics of a few numbers, in plain Python, as the measuring process has no more, and verdicts on open loops."""

import itertools
import math
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from functools import cache
from statistics import fmean, variance
from typing import NamedTuple, TypeVar

T = TypeVar("T")
_CONFIDENCE = 0.95
_EARNED = 0.99
"""Confidence at which a percentile is earned, as LoadGen has it."""
MAD_TO_SD = 1 / statistics.NormalDist().inv_cdf(0.75)
"""Factor from the median absolute deviation of normal values to their standard deviation."""


class Interval(NamedTuple):
    """An interval and the confidence that it really has, which small samples do not let one choose."""

    low: float
    high: float
    confidence: float

    @property
    def half_width(self) -> float:
        """Half the distance between its ends."""
        return (self.high - self.low) / 2


def known(values: Iterable[T | None]) -> list[T]:
    """Return the values that are not None."""
    return [value for value in values if value is not None]


def all_known(values: Sequence[T | None]) -> tuple[T, ...]:
    """Return the values if each is known; empty if any is None."""
    return () if None in values else tuple(values)  # type: ignore[arg-type]  # none is None


def known_median(values: Iterable[float | None]) -> float | None:
    """Return the median of the values that are not None; None if all are."""
    found = known(values)
    return statistics.median(found) if found else None


def quantile(ordered: Sequence[float], q: float) -> float:
    """Return a quantile of sorted values, interpolated linearly (Hyndman and Fan's type 7, the default of NumPy and R)."""
    last = len(ordered) - 1
    position = q * last
    index = int(position)
    low = ordered[index]
    high = ordered[index + 1] if index < last else low
    between = low + (position - index) * (high - low)
    return between if between < high else high  # rounding must not carry it past its neighbours


def fences(ordered: Sequence[float]) -> tuple[float, float]:
    """Return the outer fences: three interquartile ranges outside the quartiles (Tukey, Exploratory Data Analysis, section 2D)."""
    low, high = quantile(ordered, 0.25), quantile(ordered, 0.75)
    reach = 3 * (high - low)
    return low - reach, high + reach


def outliers(ordered: Sequence[float]) -> int:
    """Count the values beyond the outer fences."""
    low, high = fences(ordered)
    return bisect_left(ordered, low) + len(ordered) - bisect_right(ordered, high)


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


def median_interval(values: Sequence[float]) -> Interval | None:
    """Return the order-statistic interval of the median with 95 % confidence at least; None if there are too few values."""
    ranks = median_ranks(len(values), _CONFIDENCE)
    if ranks is None:
        return None
    ordered = sorted(values)
    k, coverage = ranks
    return Interval(ordered[k - 1], ordered[-k], coverage)


def interval_ends(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the lower and the upper end of `median_interval`; None for both if there are too few values."""
    interval = median_interval(values)
    return (interval.low, interval.high) if interval else (None, None)


def relative_half_width(values: Sequence[float]) -> float:
    """Return half the width of the median's 95 % interval over the median; infinity if there are too few values."""
    interval = median_interval(values)
    centre = statistics.median(values) if interval else 0.0
    return interval.half_width / centre if interval and centre > 0 else math.inf


def variation(values: Sequence[float]) -> float | None:
    """Return standard deviation over mean; None for fewer than two values or a mean of zero."""
    if len(values) < 2:
        return None
    mean = math.fsum(values) / len(values)
    if not mean:
        return None
    # Not statistics.stdev: its exact fractions take fifty times as long, and a table has a hundred thousand rounds.
    return math.dist(values, [mean] * len(values)) / math.sqrt(len(values) - 1) / mean


def dependent_variance(values: Sequence[float]) -> float:
    """Return the variance of the median of values in which each may resemble the one before; zero for a single value.

    It is estimated from the medians of about four successive windows: a disturbance shorter than a window makes them differ by chance
    (Conway, Some Tactical Problems in Digital Simulation, Management Science 10, 1963).
    """
    size = max(1, len(values) // 4)
    medians = [statistics.median(values[at : at + size]) for at in range(0, len(values) - size + 1, size)]
    return statistics.variance(medians) / len(medians) if len(medians) > 1 else 0.0


def holm(
    p_values: Sequence[float], weights: Sequence[float] | None = None, correct: Callable[[int, float], float] | None = None
) -> list[float]:
    """Return p-values corrected for multiple tests (Holm): the chance of any false rejection at a level is no more than that level.

    The smallest of n is multiplied by n, the next one by n - 1, and so on, and none becomes smaller than the one before it (Holm, A Simple
    Sequentially Rejective Multiple Test Procedure, Scandinavian Journal of Statistics 6, 1979). ``weights``, fixed beforehand and above
    zero, give each test its share of the level. The tests are then in the order of p / weight. The factor of each is the sum of the weights
    of itself and of all tests behind it, divided by its own weight; for equal weights that is their number. ``correct`` replaces the
    product p * factor for tests that share some of their noise: it gets the index of a test and its factor, and returns the corrected p.
    """
    weight_of = [1.0] * len(p_values) if weights is None else weights
    corrected = [0.0] * len(p_values)
    highest = 0.0
    weight_left = sum(weight_of)
    order = sorted(range(len(p_values)), key=lambda index: p_values[index] / weight_of[index])
    for index in order:
        factor = weight_left / weight_of[index]
        p = correct(index, factor) if correct else p_values[index] * factor
        highest = max(highest, min(1.0, p))
        corrected[index] = highest
        weight_left -= weight_of[index]
    return corrected


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


def proportion_interval(count: int, of: int) -> Interval:
    """Return the exact 95 % interval of a probability: something happened ``count`` times in ``of`` independent trials, one or more.

    Its ends are the probabilities at which as many or more, and as few or fewer, have a chance of 2.5 % (Clopper and Pearson, The Use of
    Confidence or Fiducial Limits, Biometrika 26, 1934). It covers with that confidence at least.
    """
    tail = (1 - _CONFIDENCE) / 2
    low = crossing(lambda p: 1 - binomial_tail(count - 1, of, p) < tail) if count else 0.0
    high = crossing(lambda p: binomial_tail(count, of, p) > tail) if count < of else 1.0
    return Interval(low, high, _CONFIDENCE)


def share_interval(share: float, of: float) -> Interval:
    """Return the 95 % interval of a probability from the share of many independent trials, for which an exact one takes too long.

    Its ends are the probabilities from which the share lies 1.96 of their own standard deviations away
    (Wilson, Probable Inference, the Law of Succession, and Statistical Inference, Journal of the American Statistical Association 22,
    1927).
    """
    reach = statistics.NormalDist().inv_cdf((1 + _CONFIDENCE) / 2) ** 2 / of
    half = math.sqrt(max(0.0, reach * (share * (1 - share) + reach / 4)))
    return Interval((share + reach / 2 - half) / (1 + reach), (share + reach / 2 + half) / (1 + reach), _CONFIDENCE)


@cache
def times_for(percent: int) -> int:
    """Return how many independent times earn a percentile: so many that two or more lie above it with 99 % confidence.

    LoadGen stops no earlier (MLPerf Inference rules, appendix on the early stopping criterion): 11 for p50, 64 for p90, 662 for p99.
    """
    return next(n for n in itertools.count(2) if binomial_tail(1, n, 1 - percent / 100) <= 1 - _EARNED)


def percentile(ordered: Sequence[float], percent: int) -> float | None:
    """Return the smallest of sorted times that so many percent of them do not exceed; None of fewer than `times_for`.

    It is a time that was measured, by nearest rank (Hyndman and Fan's type 1), and lies within a bound exactly where that share of them
    does.
    """
    return None if len(ordered) < times_for(percent) else ordered[-(-percent * len(ordered) // 100) - 1]


def binomial_tail(count: int, of: int, p: float) -> float:
    """Return the chance of at most ``count`` in ``of`` trials that each happen with ``p``, between 0 and 1 exclusive."""
    log_p, log_q, whole = math.log(p), math.log1p(-p), math.lgamma(of + 1)
    return math.fsum(
        math.exp(whole - math.lgamma(k + 1) - math.lgamma(of - k + 1) + k * log_p + (of - k) * log_q) for k in range(count + 1)
    )


def crossing(holds: Callable[[float], bool], high: float = 1.0) -> float:
    """Return the number from 0 to ``high`` up to which a condition holds, by halving."""
    low = 0.0
    for _ in range(60):  # as many as a float has bits
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return high


def student_p(t: float, freedom: int) -> float:
    """Return the two-sided p of Student's t with ``freedom`` degrees of freedom (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
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
    high = 1.0
    while student_p(high, freedom) > 1 - confidence:
        high *= 2
    return crossing(lambda t: student_p(t, freedom) > 1 - confidence, high)


CLIENT_BOUND = 0.05
"""Share of the bound that 99 % of the requests may be late by where a run tells of the server and not of its client."""
RUNS = 3
"""Runs that a verdict rests on at most."""
_DECIDED = {1: 5.5, 2: 5.5, 3: 3.0}
"""Standard deviations from the target that decide after so many runs: one alone only where all is clear. Misses come in busy periods, and
runs that happen to have few of them show little of their variance, too: of M/D/1 that just keeps its bound, 1.6 of three runs would call
15 to 30 % a success, and these do 5 % at most."""
_GROWN = {1: 5.02, 2: 7.38, 3: 9.35}
"""97.5 % quantile of the chi-squared distribution by degrees of freedom, as both a first run and all three are looked at."""


class RateVerdict(StrEnum):
    """Verdict on runs at one rate."""

    HOLDS = "holds"
    FAILS = "fails"
    OVERLOAD = "overload"
    UNDECIDED = "undecided"
    CLIENT_BOUND = "client bound"

    @property
    def is_failure(self) -> bool:
        """Whether the rate is too high."""
        return self in (RateVerdict.FAILS, RateVerdict.OVERLOAD)


class OpenRun(NamedTuple):
    """Figures of one run that a verdict needs."""

    missed: Sequence[float]
    """Share of the requests over the bound, in parts of equal length."""
    requests: float
    late: float
    """How late 99 % of them were sent at most, as a share of the bound."""
    backlog: float
    """Requests that waited, beyond a batch, at its end."""


def verdict(runs: Sequence[OpenRun], allowed: float) -> RateVerdict:
    """Return the verdict on `RUNS` or fewer runs at one rate, of whose requests a share of ``allowed`` may miss the bound.

    A run whose client was late does not count.
    """
    counted = [each for each in runs if each.late <= CLIENT_BOUND]
    if not counted:
        return RateVerdict.CLIENT_BOUND
    if overloaded(counted):
        return RateVerdict.OVERLOAD
    score, decisive = _score(counted, allowed), _DECIDED[len(counted)]
    if score < -decisive:
        return RateVerdict.HOLDS
    return RateVerdict.FAILS if score > decisive else RateVerdict.UNDECIDED


def overloaded(runs: Sequence[OpenRun]) -> bool:
    """Whether backlogs have grown beyond what a queue at capacity has.

    A queue at capacity is a random walk of Poisson arrivals, reflected at zero: after n of them its backlog is the size of a standard
    normal number times the root of n (Kingman's heavy traffic), so the squares of several runs add up to a chi-squared number.
    """
    return sum(each.backlog**2 / each.requests for each in runs) > _GROWN[len(runs)]


def _score(runs: Sequence[OpenRun], allowed: float) -> float:
    """Return how many standard deviations more than ``allowed`` missed the bound.

    Requests next to each other miss it together: the variance of the parts over that of independent requests says to how few
    independent ones they come (batch means; Conway, Some Tactical Problems in Digital Simulation, Management Science 10, 1963).
    """
    parts, requests = [share for each in runs for share in each.missed], sum(each.requests for each in runs)
    missed = fmean(parts)
    alone = missed * (1 - missed)
    inflation = max(1.0, variance(parts) * requests / len(parts) / alone) if alone else 1.0
    return (missed - allowed) / math.sqrt(allowed * (1 - allowed) * inflation / requests)
