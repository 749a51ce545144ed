"""Statistical power of the tests of a case: changes that they find and those that they exclude, and the rounds that either takes.

The test of the mean, the one that can only call slower, has no part in them: one slow call may blind it.
"""

import math
import statistics
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import NamedTuple

from dlbench.analysis.compare.calibration import normal_quantile
from dlbench.analysis.compare.judge import LEVEL, RankTest, Tests, fraction, statistic_of
from dlbench.analysis.ratios.pairing import grouped
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
MOST_FURTHER = 60
"""Rounds a side, up to which a gate goes on where nobody limits it: as many as rounds need that differ by 30 %, in ten cases."""
LEAST_STEP = 2
"""Rounds added at a time: the need is an estimate, and reading the file costs little against a round."""
HOPELESS = 4
"""Times the rounds that can be added; a case that needs more would hardly get there."""


class TestFamily(NamedTuple):
    """All that is tested in a comparison."""

    weight: float
    """Of all tests together."""
    cases: int
    """That have times on both sides."""
    able: bool = True
    """Whether the rounds are enough for any of them to call something."""


def least_rounds(tests: Tests, family: float) -> int:
    """Return the rounds a side below which none of a case's tests can fail at all, among all others of that weight."""
    return min(rounds_for_gate(family / test.weight, LEVEL, least=1, paired=test.paired) for test in tests.values())


def detectable(tests: Tests, family: float, threshold: float) -> float | None:
    """Return the smallest change that would be called in four of five comparisons, as a fraction; None where none would, however large.

    It lies beyond the interval at the level that the first step of Holm's correction leaves each test of a family with that weight in
    all, and beyond the threshold; beyond either by as much as the estimate varies by, see `_scatter`.
    """
    margin = math.log1p(threshold)
    changes = [max(reach, margin) + _scatter(confidence, POWER) * reach for _, confidence, reach in _reaches(tests, family)]
    return fraction(min(changes)) if changes else None


def _reaches(tests: Tests, family: float) -> Iterator[tuple[RankTest, float, float]]:
    """Yield each test whose rounds are enough for it, with the confidence of that first step and half the width of the interval there."""
    for test in tests.values():
        confidence = 1 - LEVEL * test.weight / family
        if not test.only_slower and (reach := test.reach(confidence)) is not None:
            yield test, confidence, reach


def possible(tests: Tests) -> float | None:
    """Return the largest slowdown that a case may have all the same, as a fraction; None where the rounds are too few to exclude any.

    It is the upper end of the 90 % interval of the median or of the p10, whichever lies higher; where a statistic has two tests, either
    may show it. Below zero the case is surely faster.
    """
    ends = [known(each.worst for each in of_one) for of_one in _by_statistic(tests)]
    return fraction(max(map(min, ends))) if all(ends) else None


def _by_statistic(tests: Tests) -> list[list[RankTest]]:
    """Return the tests of each statistic."""
    names = [name for name, test in tests.items() if not test.only_slower]
    return [[tests[name] for name in of_one] for of_one in grouped(names, lambda name: statistic_of(name, tests)).values()]


@cache
def _scatter(confidence: float, chance: float) -> float:
    """Return how many half-widths of an interval its estimate lies beyond the truth at most, with that chance; in normal quantiles."""
    return statistics.NormalDist().inv_cdf(chance) / normal_quantile(confidence)


def more_rounds(tests: Tests, planned: float) -> int | None:
    """Return planned rounds as a whole number; None where the rounds at hand are enough, or none are."""
    return math.ceil(planned) if _rounds(tests) < planned < math.inf else None


def rounds_needed(tests: Tests, family: float, threshold: float) -> int | None:
    """Return the rounds a side that would probably decide whether it is the same; None where more rounds would not.

    ``family`` is the weight of all tests, which have to be able to fail. More rounds would not where there are as many already, as the
    change lies at the threshold then, and where the drift alone is beyond the threshold.
    """
    return more_rounds(tests, max(least_rounds(tests, family), rounds_to_narrow(tests, lambda _: math.log1p(threshold))))


def rounds_to_exclude(tests: Tests, limit: float, many: int) -> float:
    """Return the rounds a side in which all of so many cases alike are likely to exclude a shift of that size where there is none.

    Infinite where no rounds would. Only the widths of intervals count, never the size or sign of the change that was found, so that rounds
    which are added for this favour no verdict. The limit lies from nothing by half the width of an interval, and by as much as all
    estimates stay within but for a share of `UNDECIDED`.
    """
    return rounds_to_narrow(tests, lambda confidence: limit / (1 + _scatter(confidence, 1 - UNDECIDED / many)))


def rounds_to_call(tests: Tests, family: float, change: float, threshold: float) -> float:
    """Return the rounds a side in which a change of that size is called with a chance of 80 %; infinite where occasions differ by as much.

    As in `rounds_to_narrow`, with the intervals that `detectable` takes. The change must be above the threshold. Where the rounds are too
    few for an interval, it is the fewest that can fail at all.
    """
    factors = []
    for test, confidence, reach in _reaches(tests, family):
        scatter = _scatter(confidence, POWER)
        margin = min(math.log1p(change) / (1 + scatter), (math.log1p(change) - math.log1p(threshold)) / scatter)
        factors.append(_rounds_factor(reach, margin, test, confidence))
    return max(least_rounds(tests, family), _rounds(tests) * min(factors, default=0.0))


def rounds_to_narrow(tests: Tests, margin: Callable[[float], float]) -> float:
    """Return the rounds a side until the 90 % interval of each statistic, by one of its tests, lies within a margin; 0 without intervals.

    An interval narrows with the square root of the rounds: k' = k (w / v)², w being half the width of the interval that the rounds give
    and v what it has to be: the margin, less the drift between occasions, as squares. ``margin`` gives it for the interval's confidence.
    """
    factors = [
        min(
            (
                _rounds_factor(ends.half_width, margin(ends.confidence), each, ends.confidence)
                for each in of_one
                if (ends := each.equivalence)
            ),
            default=0.0,
        )
        for of_one in _by_statistic(tests)
    ]
    return _rounds(tests) * max(factors)


def further(needed: Mapping[str, int], rounds: int, fitting: int) -> tuple[int, list[str]]:
    """Return in how many rounds to go on now, and with which cases; no rounds where nothing is gained by it.

    ``needed``: the rounds a side of each case that can't show yet what it must; ``rounds``: those that were measured; ``fitting``: how
    many more the time left has room for, with all of these cases.
    """
    most = min(fitting, MOST_FURTHER - rounds)
    cases = {case: need - rounds for case, need in needed.items() if need - rounds <= HOPELESS * most}
    if most < 1 or not cases:
        return 0, []
    # Up to where the first of them is expected to have enough, and drops out.
    return min(max(min(cases.values()), LEAST_STEP), most), [*cases]


def _rounds(tests: Tests) -> int:
    return min([test.rounds for test in tests.values()])


def _rounds_factor(reach: float, margin: float, test: RankTest, confidence: float) -> float:
    """Return how many times the rounds it takes until an interval reaches no further than the margin; infinite where the drift does.

    With a drift it is about so beyond 95 %, where its part for many tests does not add as squares do (`Drift.half_width`).
    """
    of_drift = test.drift.half_width(confidence) if test.drift else 0.0
    return math.inf if of_drift >= margin else (reach**2 - of_drift**2) / (margin**2 - of_drift**2)
