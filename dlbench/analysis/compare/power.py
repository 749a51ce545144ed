"""Statistical power of the tests of a case: changes that they detect or exclude, and the rounds that either takes.

The test of the mean, the only one that can't call faster, is left out: one slow call may blind it.
"""

import math
import statistics
from collections.abc import Iterator
from functools import cache

from dlbench.analysis.compare.calibration import normal_quantile
from dlbench.analysis.compare.judge import LEVEL, MEAN, RankTest, Tests, fraction, statistic_of
from dlbench.analysis.ratios.matching import grouped
from dlbench.core.rank_test import rounds_for_gate
from dlbench.core.stats import known

DETECT_BY_DEFAULT = 0.25
"""A slowdown that every case of a gate has to exclude, unless it is called, if nobody says otherwise: a quarter more time."""
POWER = 0.8
"""Chance with which a change that must be detected has to be called."""
UNDECIDED = 0.05
"""Share of comparisons of identical code whose times may leave such a slowdown possible in some case, and the same share for values."""
MARGINS_TO_SEE = 2
"""Change that must be detected in margins, where none is set: a change of one margin is called in half the cases, however many rounds."""
MOST_ROUNDS = 1000
"""Largest number that --rounds takes."""


def least_rounds(tests: Tests, family: float) -> int:
    """Return the rounds a side below which no test of a case can be significant; ``family`` is the weight of all tests together."""
    return min(rounds_for_gate(family / test.weight, LEVEL, least=1, paired=test.paired) for test in tests.values())


def detectable(tests: Tests, family: float) -> float | None:
    """Return the smallest change that would be called in four of five comparisons, as a fraction; None if none would, however large.

    A change is called if its estimate exceeds both the threshold and half the width of the interval at the level of the first step of
    Holm's correction. The estimate may fall short of the change by `_scatter`, so the change has to be larger by as much. ``family`` is the
    weight of all tests together.
    """
    changes = [max(reach, test.margin) + _scatter(confidence, POWER) * reach for test, confidence, reach in _reaches(tests, family)]
    return fraction(min(changes)) if changes else None


def _reaches(tests: Tests, family: float) -> Iterator[tuple[RankTest, float, float]]:
    """Yield each test whose rounds are enough for it, with the confidence of Holm's first step and half the width of its interval."""
    for test in tests.values():
        confidence = 1 - LEVEL * test.weight / family  # that of the first, strictest step
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
    """Return the tests of each statistic but the mean, a list for each."""
    names = [name for name in tests if name != MEAN]
    return [[tests[name] for name in alike] for alike in grouped(names, lambda name: statistic_of(name, tests)).values()]


@cache
def _scatter(confidence: float, chance: float) -> float:
    """Return the most by which an estimate exceeds the truth with that chance, in half-widths of its interval; it is taken as normal."""
    return statistics.NormalDist().inv_cdf(chance) / normal_quantile(confidence)


def more_rounds(tests: Tests, planned: float) -> int | None:
    """Return ``planned`` rounds as a whole number; None if the tests have as many already, or no number is enough."""
    return math.ceil(planned) if _rounds(tests) < planned < math.inf else None


def rounds_to_exclude(tests: Tests, limit: float, cases: int) -> float:
    """Return the rounds a side that probably let each case exclude a shift of ``limit``, if ``cases`` like this one are all unchanged.

    It is infinite if no number of rounds would, and 0 if the tests have too few for an interval, or their intervals have no width.

    A shift is excluded if it exceeds the estimate plus the half-width of its interval. The estimate of an unchanged case is not quite zero.
    In all but a share `UNDECIDED` of comparisons it is at most `_scatter` half-widths in every case. Only widths count, never the size or
    sign of the change that was found, so rounds added for this favour no verdict.
    """
    largest_factor = 0.0  # every statistic has to exclude the shift
    for tests_of_statistic in _by_statistic(tests):
        factors = []
        for test in tests_of_statistic:
            ends = test.equivalence
            if ends and ends.half_width:
                # The limit has to be one half-width, plus the estimate, which is ``scatter`` half-widths at most.
                scatter = _scatter(ends.confidence, 1 - UNDECIDED / cases)
                needed_half_width = limit / (1 + scatter)
                factors.append(_rounds_factor(ends.half_width, needed_half_width, test, ends.confidence))
        largest_factor = max(largest_factor, min(factors, default=0.0))  # one test of a statistic is enough
    return _rounds(tests) * largest_factor


def rounds_to_call(tests: Tests, family: float, change: float) -> float:
    """Return the rounds a side in which a change is called with a chance of `POWER`; infinite if occasions alone differ by as much.

    ``change`` is a fraction above the threshold. The calculation is that of `rounds_to_exclude` with the intervals of `detectable`: the
    estimate has to lie beyond the interval's half-width, and beyond the margin. If the tests have too few rounds for an interval, the
    result is `least_rounds`.
    """
    shift = math.log1p(change)
    factors = []
    for test, confidence, reach in _reaches(tests, family):
        scatter = _scatter(confidence, POWER)
        needed = min(shift / (1 + scatter), (shift - test.margin) / scatter)
        factors.append(_rounds_factor(reach, needed, test, confidence))
    return max(least_rounds(tests, family), _rounds(tests) * min(factors, default=0.0))


def _rounds(tests: Tests) -> int:
    """Return the rounds of the test that has the fewest."""
    return min(test.rounds for test in tests.values())


def _rounds_factor(half_width: float, needed: float, test: RankTest, confidence: float) -> float:
    """Return the factor of rounds by which the half-width of an interval shrinks to ``needed``; infinite if the drift alone is as wide.

    The part of the rounds shrinks with the square root of their number, and adds as squares to the drift, which stays. Above 95 % that is
    an approximation, see `Drift.half_width`.
    """
    drift = test.drift.half_width(confidence) if test.drift else 0.0
    return math.inf if drift >= needed else (half_width**2 - drift**2) / (needed**2 - drift**2)
