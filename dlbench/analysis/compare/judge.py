"""Judgement of one case on two sides: slower, faster, the same, or inconclusive.

Of times one value a round for three statistics of its blocks: an exact rank test on their logarithms, a correction for being many, and
a threshold below which a change does not matter. Memory, energy and declared values have the same test in their own unit.
docs/compare.md gives the reasons.
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
"""Of a value that is the same number in all rounds of both sides, in however few rounds."""
_ROUNDING = 1 + 1e-9
"""By which floats may miss a margin: 0.62 - 0.61 is more than 0.01."""
PAIRED = "paired"
"""The name of the test by pairs of rounds, among those of the statistics ``median``, ``p10`` and `MEAN`."""
MEAN = "mean"
"""The name of the test of all calls, slow ones included. It can call slower, and need not see what must be detected."""
_P10_BLOCKS = 10
"""Fewest blocks that have a 10th percentile; of fewer it is little else than the fastest."""
_P10_ROUNDS = 0.8
"""Fewest rounds that have to have so many blocks, as a share of a side's."""
T = TypeVar("T")


def by_side(base: T, new: T) -> Iterator[tuple[str, T]]:
    """Yield what each side has, with what a sentence calls the side."""
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
    """Test of one quantity, a value a round on two sides, and what it comes to."""

    base: tuple[float, ...]
    """Times as natural logarithms: a shift of 0.0953 is 10 % more time."""
    new: tuple[float, ...]
    linear: bool = False
    """Whether these are in the unit of a value, which may be zero or negative, and not logarithms."""
    higher: bool = False
    """Whether more is better, so that a shift below zero is a change for the worse."""
    equivalent: float = EQUIVALENCE
    """Confidence of `equivalence`: 95 % where pairs are tested, too."""
    drift: Drift | None = None
    """Variation of identical code between occasions; `p` and both intervals allow for it. None where the sides were measured in turn, or
    it is unknown."""
    paired: bool = False
    """Whether the n-th values of both sides belong together, and are compared with each other."""
    weight: float = 1.0
    """Its shares of the level, as the other tests have theirs."""
    only_slower: bool = False
    """Whether it can't call faster."""
    shift: float = 0.0
    """Hodges-Lehmann estimate, new over base."""
    rank_p: float = 1.0
    """Exact and two-sided, of the rounds of this test alone, whatever occasions do: Mann-Whitney's, or of pairs Wilcoxon's."""
    round_intervals: tuple[Interval | None, Interval | None] = (None, None)
    """`interval` and `equivalence`, whatever occasions do."""
    margin: float = 0.0
    """Shift from which on a change matters."""
    p_holm: float = 1.0
    """`p`, once a family is judged corrected for all of its tests."""

    def ranked(self) -> Self:
        """Return it with what its values come to."""
        p, shift, (interval, equivalence) = _ranked(self.base, self.new, (0.95, self.equivalent), self.paired)
        if self.linear and (self.base == self.new if self.paired else len({*self.base, *self.new}) == 1):
            interval = equivalence = CONSTANT
        return self._replace(shift=shift, rank_p=p, round_intervals=(interval, equivalence), p_holm=p)

    @property
    def interval(self) -> Interval | None:
        """Of 95 %, of the shift; None where the rounds are too few for it."""
        return self._widened(self.round_intervals[0])

    @property
    def equivalence(self) -> Interval | None:
        """The change is immaterial where this lies inside the margin."""
        return self._widened(self.round_intervals[1])

    def _widened(self, interval: Interval | None) -> Interval | None:
        """Return the interval of the shift to which a drift of unknown size was added, at the same confidence: see `Drift.half_width`."""
        if interval is None or self.drift is None:
            return interval
        ends = self.shift - interval.low, interval.high - self.shift
        low, high = (self.drift.half_width(interval.confidence, end) for end in ends)
        return Interval(self.shift - low, self.shift + high, interval.confidence)

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
        """`p_among` one: of this test alone, with a drift at least that of `Drift.p`."""
        return self.p_among(1.0)

    def p_among(self, many: float) -> float:
        """Return p, corrected for so many tests of this weight: what occasions do to all cases alike counts once, all else for each."""
        rank_p, interval = self.rank_p * many, self.round_intervals[0]
        if self.drift is None or rank_p >= 1:
            return rank_p
        rounds_sd = interval.half_width / normal_quantile(interval.confidence) if interval else 0.0
        return max(rank_p, self.drift.p(self.shift, rounds_sd, len(self.base) + len(self.new) - 2, many))

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
        return (self.shift > 0) is not self.higher

    @property
    def beyond(self) -> bool:
        """Whether the change, significant or not, is beyond the margin."""
        return abs(self.shift) > self.margin * _ROUNDING

    @property
    def verdict(self) -> Verdict:
        """Slower (of a value worse) or faster if the change is significant and beyond the margin, the same if surely within."""
        if self.p_holm < LEVEL and self.beyond and (self.is_worse or not self.only_slower):
            return Verdict.SLOWER if self.is_worse else Verdict.FASTER
        ends = self.equivalence
        return Verdict.SAME if ends and max(-ends.low, ends.high) <= self.margin * _ROUNDING else Verdict.INCONCLUSIVE

    @property
    def worst(self) -> float | None:
        """The largest shift for the worse that is not excluded; None where the rounds are too few to exclude any."""
        ends = self.equivalence
        return ends and (-ends.low if self.higher else ends.high)

    @property
    def change(self) -> float:
        """The estimate for a time as a fraction of base: 0.1 is 10 % more."""
        return fraction(self.shift)

    @property
    def change_interval(self) -> Interval | None:
        """The interval of that."""
        found = self.interval
        return found and Interval(fraction(found.low), fraction(found.high), found.confidence)

    @property
    def medians_s(self) -> tuple[float, float]:
        """What was compared, seconds a call: the medians over the rounds of base and new."""
        return math.exp(statistics.median(self.base)), math.exp(statistics.median(self.new))


Tests = Mapping[str, RankTest]
"""Those of a case: of ``median`` and `MEAN`, and where there are rounds for them of ``p10`` and `PAIRED`; empty without times."""


@lru_cache(16)  # the change that can be seen and the rounds that see it ask the same of the tests of a case
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

    The p10 is computed from as many blocks on both sides, as it is lower with more blocks (docs/compare.md has figures). It has no test
    if more than a fifth of a side's rounds have fewer than ten blocks. docs/validation.md explains the weights.
    """
    times: dict[str, Sequence[Sequence[float]]] = {"median": (base.median_s, new.median_s)}
    weights = {"median": MEDIAN_WEIGHT + P10_WEIGHT, MEAN: MEAN_WEIGHT}
    steadiest, sides = "median", (base, new)
    base_with_p10, new_with_p10 = map(_with_p10, sides)
    if base_with_p10 and new_with_p10:
        steadiest, sides = "p10", (base_with_p10, new_with_p10)
        times["p10"] = _p10s(*sides)
        weights |= {"median": MEDIAN_WEIGHT, "p10": P10_WEIGHT}
    if paired:
        pairs = _by_pairs(sides, times[steadiest])
        if pairs[0]:
            times[PAIRED] = pairs
            weights |= {"median": weights["median"] - PAIRS_WEIGHT, PAIRED: PAIRS_WEIGHT}
    tested_twice = (steadiest, PAIRED) if PAIRED in times else ()
    times[MEAN] = _means(base, new)
    tests = {}
    for name, sides_s in times.items():
        base_logs, new_logs = (tuple(map(math.log, side_s)) for side_s in sides_s)
        test = RankTest(
            base_logs,
            new_logs,
            equivalent=_EITHER_EQUIVALENCE if name in tested_twice else EQUIVALENCE,
            drift=drifts.get(name),
            paired=name == PAIRED,
            weight=weights[name],
            only_slower=name == MEAN,
            margin=math.log1p(threshold),
        )
        tests[name] = test.ranked()
    return tests


def _with_p10(rounds: CaseRounds) -> CaseRounds | None:
    """Return the rounds that have enough blocks for a p10; None if too few do.

    Slow rounds have fewer blocks. With identical code both sides lose as many rounds, and equally slow ones. Slower code loses more, so if
    many were left out, the p10 would understate the change.
    """
    having = [at for at, blocks in enumerate(rounds.blocks) if len(blocks) >= _P10_BLOCKS]
    if len(having) == len(rounds.blocks):
        return rounds
    return rounds.times_at(having) if len(having) >= _P10_ROUNDS * len(rounds.blocks) else None


def _p10s(base: CaseRounds, new: CaseRounds) -> list[Sequence[float]]:
    """Return the p10 of each round of both sides, from as many blocks as the round with fewest has."""
    fewest = min(map(len, (*base.blocks, *new.blocks)))
    return [
        side.p10_s if max(map(len, side.blocks)) == fewest else [quantile(sorted(blocks[:fewest]), 0.1) for blocks in side.blocks]
        for side in (base, new)
    ]


def _by_pairs(sides: Sequence[CaseRounds], times: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return the times of both sides in the rounds that both have."""
    base, new = (dict(zip(rounds.numbers, each, strict=True)) for rounds, each in zip(sides, times, strict=True))
    shared = [number for number in base if number in new]
    return [[side[number] for number in shared] for side in (base, new)]


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
    p_values = iter(holm([test.p for test in tests], [test.weight for test in tests], lambda at, many: tests[at].p_among(many)))
    return [{name: test._replace(p_holm=next(p_values)) for name, test in case.items()} for case in cases]


def together(tests: Tests) -> Verdict:
    """Return the verdict of several tests: one is enough for slower or faster, and opposite ones are inconclusive.

    For "the same" both the median and the p10 have to be the same by one of their tests, and the mean must not be beyond the threshold:
    the mean varies too much for its own interval to lie within it.
    """
    if called := {each.verdict for each in tests.values() if each.verdict.is_change}:
        return called.pop() if len(called) == 1 else Verdict.INCONCLUSIVE
    return Verdict.SAME if _same_but_for_mean(tests) and not tests[MEAN].beyond else Verdict.INCONCLUSIVE


def _same_but_for_mean(tests: Tests) -> bool:
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
