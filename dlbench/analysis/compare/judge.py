"""Judgement of one case on two sides: slower, faster, the same, or inconclusive.

Times are tested by three statistics of the blocks of each round. Each statistic has an exact rank test on logarithms, a correction for
the number of tests, and a threshold below which a change does not matter. Memory, energy and declared values have the same test in their
own unit. docs/compare.md gives the reasons.
"""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple, Self, TypeVar

from dlbench.analysis.compare.calibration import Drift, normal_quantile
from dlbench.core.rank_test import (
    MEAN_WEIGHT,
    MEDIAN_WEIGHT,
    P10_WEIGHT,
    PAIRS_WEIGHT,
    rank_test,
    signed_rank_p,
    signed_shift_intervals,
    smallest_p,
    smallest_signed_p,
)
from dlbench.core.rows.columns import CaseRounds
from dlbench.core.stats import Interval, holm, quantile
from dlbench.core.units import relative_change

LEVEL = 0.05
"""Chance that a comparison of equal programs calls any case slower or faster, whatever their number."""
EQUIVALENCE = 1 - 2 * LEVEL
"""Two one-sided tests at that level are an interval of this confidence (Schuirmann 1987)."""
_EITHER_EQUIVALENCE = 1 - LEVEL
"""The same where either of two intervals may show it, at half the level each."""
CONSTANT = Interval(0.0, 0.0, 1.0)
"""Interval of the shift of a value that is the same number in all rounds of both sides, in however few rounds."""
_ROUNDING = 1 + 1e-9
"""Factor by which floats may miss a margin: 0.62 - 0.61 is more than 0.01."""
PAIRED = "paired"
"""Name of the test by pairs of rounds; the other tests have the names of their statistics, ``median``, ``p10`` and `MEAN`."""
MEAN = "mean"
"""Name of the test of all calls, slow ones included. It can call slower but not faster, and no change has to be detected by it."""
_P10_BLOCKS = 10
"""Fewest blocks that have a 10th percentile; of fewer it is little else than the fastest."""
_P10_ROUNDS = 0.8
"""Least share of a side's rounds that have to have so many blocks."""
T = TypeVar("T")


def by_side(base: T, new: T) -> Iterator[tuple[str, T]]:
    """Yield both values, each after the words that sentences use for its side."""
    return zip(("the base", "the new file"), (base, new), strict=True)


class Verdict(StrEnum):
    """Verdicts on a case, in order of attention."""

    SLOWER = "slower"
    FAILED = "failed"
    MISSING = "missing"
    INCONCLUSIVE = "inconclusive"
    INCOMPARABLE = "incomparable"
    FASTER = "faster"
    SAME = "same"
    NEW = "new"
    NOT_MEASURED = "not measured"

    @property
    def is_change(self) -> bool:
        """Whether it says that something changed, in either direction."""
        return self in (Verdict.SLOWER, Verdict.FASTER)


class RankTest(NamedTuple):
    """Rank test of one quantity that has a value for each round of two sides; `ranked` computes its results."""

    base: tuple[float, ...]
    """A value a round. Times are natural logarithms: a shift of 0.0953 is 10 % more time."""
    new: tuple[float, ...]
    linear: bool = False
    """Whether these are in the unit of a value, which may be zero or negative, and not logarithms."""
    higher_is_better: bool = False
    """Whether a shift below zero is a change for the worse."""
    equivalence_confidence: float = EQUIVALENCE
    """Confidence of `equivalence`: 95 % where pairs are tested, too."""
    drift: Drift | None = None
    """Variation of identical code between occasions; `p` and both intervals allow for it. None where it is unknown, or the sides were
    measured alternately."""
    paired: bool = False
    """Whether the n-th values of both sides belong together, and are compared with each other."""
    weight: float = 1.0
    """Share of the level that this test has, relative to the weights of the other tests."""
    only_slower: bool = False
    """Whether it can't call faster."""
    shift: float = 0.0
    """Hodges-Lehmann estimate of new minus base."""
    rank_p: float = 1.0
    """Exact two-sided p of this test alone, by Mann-Whitney, or Wilcoxon for pairs; it allows for no drift."""
    round_intervals: tuple[Interval | None, Interval | None] = (None, None)
    """`interval` and `equivalence`, without an allowance for drift."""
    margin: float = 0.0
    """Shift from which on a change matters."""
    p_holm: float = 1.0
    """`p`, corrected for all tests of the family once that is judged."""

    def ranked(self) -> Self:
        """Return it with its results: shift, p and both intervals."""
        p, shift, (interval, equivalence) = _ranked(self.base, self.new, (0.95, self.equivalence_confidence), self.paired)
        # A value that never varies needs no rounds to be known; a time that does so was only read too coarsely.
        if self.linear and (self.base == self.new if self.paired else len({*self.base, *self.new}) == 1):
            interval = equivalence = CONSTANT
        return self._replace(shift=shift, rank_p=p, round_intervals=(interval, equivalence), p_holm=p)

    @property
    def interval(self) -> Interval | None:
        """The 95 % interval of the shift; None where the rounds are too few for it."""
        return self._widened(self.round_intervals[0])

    @property
    def equivalence(self) -> Interval | None:
        """The interval of the shift that shows the sides to be the same if it lies inside the margin; None as for `interval`."""
        return self._widened(self.round_intervals[1])

    def _widened(self, interval: Interval | None) -> Interval | None:
        """Return an interval of the rounds, widened by what the drift may have added to the shift, at the same confidence."""
        if interval is None or self.drift is None:
            return interval
        widths = self.shift - interval.low, interval.high - self.shift  # the estimate need not lie in the middle
        below, above = (self.drift.half_width(interval.confidence, width) for width in widths)
        return Interval(self.shift - below, self.shift + above, interval.confidence)

    @property
    def rounds(self) -> int:
        """Rounds of the side that has fewer."""
        return min(len(self.base), len(self.new))

    @property
    def least_p(self) -> float:
        """The smallest p that so many rounds can give."""
        return smallest_signed_p(len(self.base)) if self.paired else smallest_p(len(self.base), len(self.new))

    @property
    def p(self) -> float:
        """The p of this test alone, drift included, before any correction."""
        return self.p_among(1.0)

    def p_among(self, tests: float) -> float:
        """Return p, corrected for so many tests of this weight; with a drift it is the larger of the p of the rounds and of `Drift.p`."""
        rank_p, interval = self.rank_p * tests, self.round_intervals[0]
        if self.drift is None or rank_p >= 1:
            return rank_p
        rounds_sd = interval.half_width / normal_quantile(interval.confidence) if interval else 0.0
        return max(rank_p, self.drift.p(self.shift, rounds_sd, len(self.base) + len(self.new) - 2, tests))

    def reach(self, confidence: float) -> float | None:
        """Return half the width of the interval of that confidence, drift included; None where the rounds are too few for it."""
        if self.least_p > (1 - confidence) * _ROUNDING:  # of twenty thousand cases all end here
            return None
        _, _, (interval,) = _ranked(self.base, self.new, (confidence,), self.paired)
        widened = self._widened(interval)
        return widened.half_width if widened else None

    @property
    def is_worse(self) -> bool:
        """Whether the shift is one for the worse."""
        return (self.shift > 0) is not self.higher_is_better

    @property
    def exceeds_margin(self) -> bool:
        """Whether the change is large enough to matter, be it significant or not."""
        return abs(self.shift) > self.margin * _ROUNDING

    @property
    def verdict(self) -> Verdict:
        """Slower (of a value worse) or faster if the change is significant and beyond the margin; the same if it is surely within."""
        if self.p_holm < LEVEL and self.exceeds_margin and (self.is_worse or not self.only_slower):
            return Verdict.SLOWER if self.is_worse else Verdict.FASTER
        ends = self.equivalence
        return Verdict.SAME if ends and max(-ends.low, ends.high) <= self.margin * _ROUNDING else Verdict.INCONCLUSIVE

    @property
    def worst(self) -> float | None:
        """The largest worsening that is not excluded, below zero if it is surely better; None if the rounds are too few to exclude any."""
        ends = self.equivalence
        return ends and (-ends.low if self.higher_is_better else ends.high)

    @property
    def change(self) -> float:
        """The shift of a time as a fraction of base: 0.1 is 10 % more."""
        return fraction(self.shift)

    @property
    def change_interval(self) -> Interval | None:
        """The 95 % interval of `change`."""
        ends = self.interval
        return ends and Interval(fraction(ends.low), fraction(ends.high), ends.confidence)

    @property
    def medians_s(self) -> tuple[float, float]:
        """Seconds a call of base and new: the median over the rounds of the statistic that was tested."""
        return math.exp(statistics.median(self.base)), math.exp(statistics.median(self.new))


Tests = Mapping[str, RankTest]
"""Tests of a case by name: ``median`` and `MEAN`, and where the rounds allow it ``p10`` and `PAIRED`; empty without times."""


@lru_cache(16)  # `power` computes several figures of the same tests of a case
def _ranked(
    base: tuple[float, ...], new: tuple[float, ...], confidences: tuple[float, ...], paired: bool
) -> tuple[float, float, list[Interval | None]]:
    """Return p, the shift and an interval of it for each confidence."""
    if not paired:
        return rank_test(base, new, confidences)
    differences = [other - one for one, other in zip(base, new, strict=True)]
    return signed_rank_p(differences), *signed_shift_intervals(differences, confidences)


def rank_tests(
    base: CaseRounds, new: CaseRounds, threshold: float, drifts: Mapping[str, Drift] = MappingProxyType({}), paired: bool = False
) -> dict[str, RankTest]:
    """Return tests of the median, the p10 and the mean of the rounds, by name; all times must be above zero.

    ``threshold`` is the smallest change that matters, a fraction. ``drifts`` widen the intervals of each statistic. ``paired``: the sides
    were measured alternately, so the p10, or without it the median, is tested once more by pairs of rounds.

    The p10 has no test if more than a fifth of a side's rounds have fewer than ten blocks. docs/validation.md explains the weights.
    """
    times_s: dict[str, Sequence[Sequence[float]]] = {"median": (base.median_s, new.median_s)}
    # The weights of a case always have the same sum: without a test of the p10 the median has its weight, too.
    weights = {"median": MEDIAN_WEIGHT + P10_WEIGHT, MEAN: MEAN_WEIGHT}
    # Pairs are made of the statistic that varies least: the p10, or the median if there is none.
    paired_statistic, paired_sides = "median", (base, new)
    base_with_p10, new_with_p10 = map(_with_p10, paired_sides)
    if base_with_p10 and new_with_p10:
        paired_statistic, paired_sides = "p10", (base_with_p10, new_with_p10)
        times_s["p10"] = _p10s(*paired_sides)
        weights |= {"median": MEDIAN_WEIGHT, "p10": P10_WEIGHT}
    if paired:
        pairs = _by_pairs(paired_sides, times_s[paired_statistic])
        if pairs[0]:  # the sides have rounds in common
            times_s[PAIRED] = pairs
            # The weight of the pairs is taken from the median, so that the sum stays the same.
            weights["median"] -= PAIRS_WEIGHT
            weights[PAIRED] = PAIRS_WEIGHT
    # With pairs their statistic has two tests. Either of them may show it to be the same, so each has half the level for that.
    tests_of_one_statistic = (paired_statistic, PAIRED) if PAIRED in times_s else ()
    times_s[MEAN] = _means(base, new)
    tests = {}
    for name, (base_s, new_s) in times_s.items():
        tests[name] = RankTest(
            tuple(map(math.log, base_s)),
            tuple(map(math.log, new_s)),
            equivalence_confidence=_EITHER_EQUIVALENCE if name in tests_of_one_statistic else EQUIVALENCE,
            drift=drifts.get(name),
            paired=name == PAIRED,
            weight=weights[name],
            only_slower=name == MEAN,
            margin=math.log1p(threshold),
        ).ranked()
    return tests


def _with_p10(rounds: CaseRounds) -> CaseRounds | None:
    """Return the rounds that have enough blocks for a p10; None if too few do.

    Slow rounds have fewer blocks. With identical code both sides lose as many rounds, and equally slow ones. Slower code loses more, so if
    many were left out, the p10 would understate the change.
    """
    with_enough = [index for index, blocks in enumerate(rounds.blocks) if len(blocks) >= _P10_BLOCKS]
    if len(with_enough) == len(rounds.blocks):
        return rounds
    return rounds.times_at(with_enough) if len(with_enough) >= _P10_ROUNDS * len(rounds.blocks) else None


def _p10s(base: CaseRounds, new: CaseRounds) -> list[Sequence[float]]:
    """Return the p10 of each round of both sides, from as many blocks as the round with fewest has.

    With more blocks the p10 of identical code is lower; docs/compare.md has figures.
    """
    fewest = min(map(len, (*base.blocks, *new.blocks)))
    return [
        side.p10_s if max(map(len, side.blocks)) == fewest else [quantile(sorted(blocks[:fewest]), 0.1) for blocks in side.blocks]
        for side in (base, new)
    ]


def _by_pairs(sides: Sequence[CaseRounds], times: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return the times of both sides in the rounds that both have; ``times`` has one for each round of each side."""
    base, new = (dict(zip(rounds.numbers, side_times, strict=True)) for rounds, side_times in zip(sides, times, strict=True))
    shared = [number for number in base if number in new]
    return [[time_of[number] for number in shared] for time_of in (base, new)]


def _means(base: CaseRounds, new: CaseRounds) -> list[Sequence[float]]:
    """Return the mean of each round of both sides, from as many blocks as the side with fewer usually has.

    One slow call in ten is rarely among three blocks, and nearly always among forty: with unequal blocks identical code would have
    different means.
    """
    usual = [statistics.median(map(len, side.blocks)) for side in (base, new)]
    fewer = math.ceil(min(usual))
    return [
        side.mean_s if count <= fewer else [statistics.fmean(blocks[:fewer]) for blocks in side.blocks]
        for side, count in zip((base, new), usual, strict=True)
    ]


def judge_family(cases: Sequence[Tests]) -> list[Tests]:
    """Judge all tests of a family, with Holm's correction for their number."""
    tests = [test for case in cases for test in case.values()]
    p_values = iter(holm([test.p for test in tests], [test.weight for test in tests], lambda index, count: tests[index].p_among(count)))
    return [{name: test._replace(p_holm=next(p_values)) for name, test in case.items()} for case in cases]


def combined_verdict(tests: Tests) -> Verdict:
    """Return the verdict of several tests of a case: one is enough for slower or faster, and opposite ones are inconclusive.

    For "the same" both the median and the p10 have to be the same by one of their tests, and the mean must not be beyond the threshold:
    the mean varies too much for its own interval to lie within it.
    """
    if changes := {each.verdict for each in tests.values() if each.verdict.is_change}:
        return changes.pop() if len(changes) == 1 else Verdict.INCONCLUSIVE
    return Verdict.SAME if _same_but_for_mean(tests) and not tests[MEAN].exceeds_margin else Verdict.INCONCLUSIVE


def _same_but_for_mean(tests: Tests) -> bool:
    """Whether each statistic but the mean is the same by one of its tests."""
    same = {statistic_of(name, tests) for name, each in tests.items() if each.verdict is Verdict.SAME}
    return {statistic_of(name, tests) for name in tests} - {MEAN} <= same


def disagreement(tests: Tests) -> str:
    """Say how the tests of a case disagree with its median, or that it is the same but for its mean; else an empty text.

    The mean may have changed by more than the threshold because of slow calls.
    """
    called = {name: each.verdict for name, each in tests.items() if name == "median" or each.verdict.is_change}
    if len(called) > 1:
        reasons = [f"{each} by its {statistic_name(name)}" for name, each in called.items()]
        return ", ".join(reasons) if len({*called.values()}) > 1 else ""
    same = not called["median"].is_change and _same_but_for_mean(tests)
    return f"the same but for the mean of all its calls, {relative_change(tests[MEAN].change)}" if same else ""


def statistic_name(name: str) -> str:
    """Return the name of a test for people: ``median``, ``pairs of rounds``."""
    return "pairs of rounds" if name == PAIRED else name


def statistic_of(name: str, tests: Tests) -> str:
    """Return the statistic of a test: the pairs are those of the p10, where there is one, else of the median."""
    return name if name != PAIRED else "p10" if "p10" in tests else "median"


def fraction(shift: float) -> float:
    """Return a shift of logarithms as a fraction: 0.1 of 0.0953."""
    # Beyond 700 a float overflows; times so far apart stand in no file that was measured.
    return math.expm1(min(shift, 700.0))
