"""Statistical power of the tests of a case: changes that they detect or exclude, and the rounds that either takes.

The test of the mean, the only one that can't call faster, is left out: one slow call may blind it.
"""

import math
import statistics
from collections.abc import Iterator
from functools import cache

from dlbench.analysis.compare.calibration import normal_quantile
from dlbench.analysis.compare.judge import LEVEL, RankTest, Tests, fraction, statistic_of
from dlbench.analysis.ratios.matching import grouped
from dlbench.core.rank_test import rounds_for_gate
from dlbench.core.stats import known

DETECT_BY_DEFAULT = 0.25
"""A slowdown that every case of a gate has to exclude, unless it is called, if nobody says otherwise: a quarter more time."""
POWER = 0.8
"""Chance with which such a change has to be called."""
UNDECIDED = 0.05
"""Share of comparisons of identical code whose times may leave such a slowdown possible in some case; their values as many again."""
MARGINS_TO_SEE = 2
"""Times its own margin that must be detected of what names none: one margin is called in half the cases, however many rounds."""
MOST_ROUNDS = 1000
"""As many as --rounds takes."""


def least_rounds(tests: Tests, family: float) -> int:
    """Return the rounds a side below which no test of a case can be significant; ``family`` is the weight of all tests together."""
    return min(rounds_for_gate(family / test.weight, LEVEL, least=1, paired=test.paired) for test in tests.values())


def detectable(tests: Tests, family: float) -> float | None:
    """Return the smallest change that would be called in four of five comparisons, as a fraction; None if none would, however large.

    It exceeds the threshold, and half the width of the interval at the level of the first step of Holm's correction, by as much as the
    estimate varies by, see `_scatter`. ``family`` is the weight of all tests together.
    """
    changes = [max(reach, test.margin) + _scatter(confidence, POWER) * reach for test, confidence, reach in _reaches(tests, family)]
    return fraction(min(changes)) if changes else None


def _reaches(tests: Tests, family: float) -> Iterator[tuple[RankTest, float, float]]:
    """Yield each test whose rounds are enough for it, with the confidence of that first step and half the width of the interval there."""
    for test in tests.values():
        confidence = 1 - LEVEL * test.weight / family
        if not test.only_slower and (reach := test.reach(confidence)) is not None:
            yield test, confidence, reach


def possible(tests: Tests) -> float | None:
    """Return the largest slowdown that is not excluded, as a fraction; None if the rounds are too few to exclude any.

    It is the upper end of the 90 % interval of the median or of the p10, whichever is higher; of a statistic with two tests, the lower of
    their two ends counts. Below zero the case is surely faster.
    """
    ends = [known(test.worst for test in tests_of_statistic) for tests_of_statistic in _by_statistic(tests)]
    return fraction(max(map(min, ends))) if all(ends) else None


def _by_statistic(tests: Tests) -> list[list[RankTest]]:
    """Return the tests of each statistic."""
    names = [name for name, test in tests.items() if not test.only_slower]
    return [[tests[name] for name in alike] for alike in grouped(names, lambda name: statistic_of(name, tests)).values()]


@cache
def _scatter(confidence: float, chance: float) -> float:
    """Return how many half-widths of an interval its estimate exceeds the truth by at most, with that chance; from normal quantiles."""
    return statistics.NormalDist().inv_cdf(chance) / normal_quantile(confidence)


def more_rounds(tests: Tests, planned: float) -> int | None:
    """Return planned rounds as a whole number; None if the tests have as many already, or no number is enough."""
    return math.ceil(planned) if _rounds(tests) < planned < math.inf else None


def rounds_to_exclude(tests: Tests, limit: float, many: int) -> float:
    """Return the rounds a side in which ``many`` similar unchanged cases are all likely to exclude a shift of size ``limit``.

    It is infinite if no number of rounds would, and 0 if the tests have too few for an interval. An interval narrows with the square root
    of the rounds, so k rounds become k (w / v)². Here w is half the width of the 90 % interval of a statistic, by one of its tests, and v
    the half width that is needed: the limit less what estimates of unchanged cases reach, in all but a share `UNDECIDED` of comparisons.
    Only the widths of intervals count, never the size or sign of the change that was found, so rounds added for this favour no verdict.
    """
    most = 0.0
    for tests_of_statistic in _by_statistic(tests):
        factors = []
        for test in tests_of_statistic:
            ends = test.equivalence
            if ends and ends.half_width:
                margin = limit / (1 + _scatter(ends.confidence, 1 - UNDECIDED / many))
                factors.append(_rounds_factor(ends.half_width, margin, test, ends.confidence))
        most = max(most, min(factors, default=0.0))
    return _rounds(tests) * most


def rounds_to_call(tests: Tests, family: float, change: float) -> float:
    """Return the rounds a side in which a change is called with a chance of 80 %; infinite if occasions alone differ by as much.

    ``change`` is a fraction above the threshold. The calculation is that of `rounds_to_exclude` with the intervals of `detectable`. If the
    tests have too few rounds for an interval, the result is `least_rounds`.
    """
    shift = math.log1p(change)
    factors = []
    for test, confidence, reach in _reaches(tests, family):
        scatter = _scatter(confidence, POWER)
        margin = min(shift / (1 + scatter), (shift - test.margin) / scatter)
        factors.append(_rounds_factor(reach, margin, test, confidence))
    return max(least_rounds(tests, family), _rounds(tests) * min(factors, default=0.0))


def _rounds(tests: Tests) -> int:
    return min(test.rounds for test in tests.values())


def _rounds_factor(reach: float, margin: float, test: RankTest, confidence: float) -> float:
    """Return the factor of rounds by which half an interval's width shrinks to the margin; infinite if the drift alone is as wide.

    With a drift it is about so beyond 95 %, where its part for many tests does not add as squares do (`Drift.half_width`).
    """
    drift = test.drift.half_width(confidence) if test.drift else 0.0
    return math.inf if drift >= margin else (reach**2 - drift**2) / (margin**2 - drift**2)
