"""Judgement of one case on two sides: slower, faster, the same, or inconclusive.

One value a round, for three statistics of its blocks: an exact rank test on their logarithms, a correction for being many, and
a threshold below which a change does not matter. docs/compare.md gives the reasons.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

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
from dlbench.core.rows.rounds import CaseRounds
from dlbench.core.stats import Interval, holm, quantile
from dlbench.core.units import relative_change

LEVEL = 0.05
"""Chance that a comparison of equal programs calls any case slower or faster, whatever their number."""
_INTERVAL = 0.95
EQUIVALENCE = 1 - 2 * LEVEL
"""Two one-sided tests at that level are an interval of this confidence (Schuirmann 1987)."""
_EITHER_EQUIVALENCE = 1 - LEVEL
"""The same where either of two intervals may show it, at half the level each."""
PAIRED = "paired"
"""The name of the test by pairs of rounds, among those of the statistics ``median``, ``p10`` and `MEAN`."""
MEAN = "mean"
"""The name of the test of all calls, slow ones included. It can call slower, and need not see what must be detected."""
_P10_BLOCKS = 10
"""Fewest blocks that have a 10th percentile; of fewer it is little else than the fastest."""
_P10_ROUNDS = 0.8
"""Fewest rounds that have to have so many blocks, as a share of a side's."""


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
    """One statistic of the rounds on two sides, on natural logarithms: a shift of 0.0953 is 10 % more time."""

    base: tuple[float, ...]
    """A value a round."""
    new: tuple[float, ...]
    shift: float
    """Hodges-Lehmann estimate, new over base."""
    interval: Interval | None
    """Of 95 %; None where the rounds are too few for it."""
    equivalence: Interval | None
    """Of 90 %, or 95 % where pairs are tested, too: the change is immaterial where this lies inside the threshold."""
    rank_p: float
    """Exact and two-sided, of the rounds of this test alone, whatever occasions do: Mann-Whitney's, or of pairs Wilcoxon's."""
    drift: Drift | None = None
    """Variation of identical code between occasions; `p` and both intervals allow for it. None where the sides were measured in turn, or
    it is unknown."""
    paired: bool = False
    """Whether the n-th values of both sides were measured next to each other, and are compared with each other."""
    weight: float = 1.0
    """Its shares of the level, as the other tests have theirs."""
    only_slower: bool = False
    """Whether it can't call faster."""
    rounds_sd: float = 0.0
    """Standard error that the rounds leave to the shift, on natural logarithms; zero where they are too few for an interval, and where
    there is no drift that it would be added to."""
    p: float = 1.0
    """`p_among` one, which takes an integral: of this test alone, with a drift at least that of `Drift.p`."""

    @property
    def rounds(self) -> int:
        """Rounds of the side that has fewer."""
        return min(len(self.base), len(self.new))

    @property
    def least_p(self) -> float:
        """The smallest p that so many rounds can give."""
        return smallest_signed_p(len(self.base)) if self.paired else smallest_p(len(self.base), len(self.new))

    def p_among(self, many: float) -> float:
        """Return p, corrected for so many tests of this weight: what occasions do to all cases alike counts once, all else for each."""
        rank_p = self.rank_p * many
        if self.drift is None or rank_p >= 1:
            return rank_p
        return max(rank_p, self.drift.p(self.shift, self.rounds_sd, len(self.base) + len(self.new) - 2, many))

    def reach(self, confidence: float) -> float | None:
        """Return half the width of the interval of that confidence, drift included; None where the rounds are too few for it."""
        if self.least_p > (1 - confidence) * (1 + 1e-9):  # but for rounding; of twenty thousand cases all end here
            return None
        _, shift, (interval,) = _tested(self.base, self.new, (confidence,), self.paired)
        widened = _widened(interval, shift, self.drift)
        return widened.half_width if widened else None


Tests = Mapping[str, RankTest]
"""Those of a case: of ``median`` and `MEAN`, and where there are rounds for them of ``p10`` and `PAIRED`."""


@lru_cache(16)  # the change that can be seen and the rounds that see it ask the same of the tests of a case
def _tested(
    base: tuple[float, ...], new: tuple[float, ...], confidences: tuple[float, ...], paired: bool
) -> tuple[float, float, list[Interval | None]]:
    """Return p, the shift and an interval of it for each confidence."""
    if not paired:
        return rank_test(base, new, confidences)
    differences = [other - one for one, other in zip(base, new, strict=True)]
    return signed_rank_p(differences), *signed_shift_intervals(differences, confidences)


@dataclass(frozen=True, slots=True)
class Change:
    """Result of the test of one statistic; fractions of base: 0.1 is 10 % more time."""

    verdict: Verdict
    test: RankTest
    p_holm: float
    """Corrected for all tests of the comparison."""
    beyond: bool = False
    """Whether the change, significant or not, is beyond the threshold."""

    @property
    def change(self) -> float:
        """The estimate."""
        return fraction(self.test.shift)

    @property
    def interval(self) -> Interval | None:
        """Of 95 %; None where the rounds are too few for it."""
        found = self.test.interval
        return found and Interval(fraction(found.low), fraction(found.high), found.confidence)

    @property
    def medians_s(self) -> tuple[float, float]:
        """What was compared, seconds a call: the medians over the rounds of base and new."""
        return math.exp(statistics.median(self.test.base)), math.exp(statistics.median(self.test.new))


Changes = Mapping[str, Change]
"""What each of the tests of a case comes to; empty where the times could not be tested."""


def rank_tests(
    base: CaseRounds, new: CaseRounds, drifts: Mapping[str, Drift] = MappingProxyType({}), paired: bool = False
) -> dict[str, RankTest]:
    """Test the median, the p10 and the mean of the rounds; all times must be above zero. ``drifts`` widen the intervals of each.

    The p10 is that of as many blocks on either side, as that of more blocks lies lower (docs/compare.md has figures), in the rounds that
    have ten; where more than a fifth of a side's rounds have fewer, there is none. ``paired``: the sides were measured in turn, so the
    p10, or without it the median, is tested once more by the pairs of each round. docs/validation.md has the reason for the weights.
    """
    tested = {"median": (base, new, base.median_s, new.median_s)}
    weights = {"median": MEDIAN_WEIGHT + P10_WEIGHT}
    if (one := _with_p10(base)) and (other := _with_p10(new)):
        blocks = min(map(len, (*one.blocks, *other.blocks)))
        tested["p10"] = (one, other, _p10s(one, blocks), _p10s(other, blocks))
        weights = {"median": MEDIAN_WEIGHT, "p10": P10_WEIGHT}
    steadiest = "p10" if "p10" in tested else "median"
    one, other, one_s, other_s = tested[steadiest]
    places = {number: at for at, number in enumerate(one.numbers)} if paired else {}
    pairs = [(places[number], at) for at, number in enumerate(other.numbers) if number in places]
    if pairs:
        weights["median"] -= PAIRS_WEIGHT
    tests = {}
    for name, (_, _, base_s, new_s) in tested.items():
        equivalent = _EITHER_EQUIVALENCE if pairs and name == steadiest else EQUIVALENCE
        tests[name] = _rank_test(base_s, new_s, equivalent, drifts.get(name), weight=weights[name])
    if pairs:
        in_pairs = [one_s[at] for at, _ in pairs], [other_s[at] for _, at in pairs]
        tests[PAIRED] = _rank_test(*in_pairs, _EITHER_EQUIVALENCE, paired=True, weight=PAIRS_WEIGHT)
    return tests | {MEAN: _test_of_means(base, new, drifts)}


def _with_p10(rounds: CaseRounds) -> CaseRounds | None:
    """Return the rounds that have blocks enough for a p10, if most do.

    Slow rounds have fewer blocks. Of identical code both sides lose as many, and as slow ones; what is slower loses more, so of many the
    p10 would say too little.
    """
    having = [at for at, blocks in enumerate(rounds.blocks) if len(blocks) >= _P10_BLOCKS]
    if len(having) == len(rounds.blocks):
        return rounds
    return rounds.times_at(having) if len(having) >= _P10_ROUNDS * len(rounds.blocks) else None


def _p10s(rounds: CaseRounds, blocks: int) -> Sequence[float]:
    """Return the p10 of the first so many blocks of each round."""
    if max(map(len, rounds.blocks)) == blocks:  # the fewest of all
        return rounds.p10_s
    return [quantile(sorted(each[:blocks]), 0.1) for each in rounds.blocks]


def _test_of_means(base: CaseRounds, new: CaseRounds, drifts: Mapping[str, Drift]) -> RankTest:
    """Test the mean of each round, of as many blocks on either side as the one with fewer usually has.

    A slow call in ten is hardly ever among three blocks, and nearly always among forty: identical code would have other means.
    """
    usual = [statistics.median(map(len, each.blocks)) for each in (base, new)]
    blocks = math.ceil(min(usual))
    base_s, new_s = (
        each.mean_s if of_side <= blocks else [statistics.fmean(taken[:blocks]) for taken in each.blocks]
        for each, of_side in zip((base, new), usual, strict=True)
    )
    return _rank_test(base_s, new_s, EQUIVALENCE, drifts.get(MEAN), weight=MEAN_WEIGHT, only_slower=True)


def _rank_test(
    base_s: Sequence[float],
    new_s: Sequence[float],
    equivalent: float,
    drift: Drift | None = None,
    paired: bool = False,
    weight: float = 1.0,
    only_slower: bool = False,
) -> RankTest:
    base, new = tuple(map(math.log, base_s)), tuple(map(math.log, new_s))
    p, shift, (interval, equivalence) = _tested(base, new, (_INTERVAL, equivalent), paired)
    rounds_sd = interval.half_width / normal_quantile(interval.confidence) if drift and interval else 0.0
    widened = _widened(interval, shift, drift), _widened(equivalence, shift, drift)
    found = RankTest(base, new, shift, *widened, p, drift, paired, weight, only_slower, rounds_sd)
    return found._replace(p=found.p_among(1.0))


def shifted(test: RankTest, by: float) -> RankTest:
    """Return the test of the same rounds with those of new so much longer, on natural logarithms."""
    new_s = tuple(math.exp(each + by) for each in test.new)
    return _rank_test(tuple(map(math.exp, test.base)), new_s, EQUIVALENCE, test.drift, test.paired, test.weight, test.only_slower)


def _widened(interval: Interval | None, shift: float, drift: Drift | None) -> Interval | None:
    """Return the interval of a shift to which a drift of unknown size was added, at the same confidence: see `Drift.half_width`."""
    if interval is None or drift is None:
        return interval
    low, high = (drift.half_width(interval.confidence, of_rounds) for of_rounds in (shift - interval.low, interval.high - shift))
    return Interval(shift - low, shift + high, interval.confidence)


def judge(test: RankTest, p_holm: float, threshold: float) -> Change:
    """Judge one statistic: slower or faster if the change is significant and beyond the threshold, the same if surely within."""
    margin = math.log1p(threshold)
    beyond = abs(test.shift) > margin
    if p_holm < LEVEL and beyond and (test.shift > 0 or not test.only_slower):
        verdict = Verdict.SLOWER if test.shift > 0 else Verdict.FASTER
    elif test.equivalence and -margin < test.equivalence.low and test.equivalence.high < margin:
        verdict = Verdict.SAME
    else:
        verdict = Verdict.INCONCLUSIVE
    return Change(verdict, test, p_holm, beyond)


def judge_family(cases: Sequence[Tests], thresholds: Iterable[float]) -> list[Changes]:
    """Judge all tests of a comparison, with Holm's correction for their number; ``thresholds`` has one for each case."""
    tests = [test for case in cases for test in case.values()]
    p_values = iter(holm([test.p for test in tests], [test.weight for test in tests], lambda at, many: tests[at].p_among(many)))
    return [
        {name: judge(test, next(p_values), threshold) for name, test in case.items()}
        for case, threshold in zip(cases, thresholds, strict=True)
    ]


def together(changes: Changes) -> Verdict:
    """Return the verdict of several tests: one is enough for slower or faster, and opposite ones decide nothing.

    The same takes the median and the p10, each by either of its tests, and a mean that is not beyond the threshold: it varies too much
    for its own interval to lie within.
    """
    if called := {each.verdict for each in changes.values() if each.verdict.is_change}:
        return called.pop() if len(called) == 1 else Verdict.INCONCLUSIVE
    return Verdict.SAME if _same_but_for_mean(changes) and not changes[MEAN].beyond else Verdict.INCONCLUSIVE


def _same_but_for_mean(changes: Changes) -> bool:
    same = {statistic_of(name, changes) for name, each in changes.items() if each.verdict is Verdict.SAME}
    return same >= {statistic_of(name, changes) for name in changes if name != MEAN}


def barred_by_mean(changes: Changes) -> bool:
    """Whether only its mean keeps a case from being the same: it may have changed by more than the threshold, as slow calls do."""
    return _same_but_for_mean(changes) and changes[MEAN].beyond and changes[MEAN].verdict is Verdict.INCONCLUSIVE


def disagreement(changes: Changes) -> str:
    """Say which tests call a case slower or faster, where others do not; or of one that is the same but for its mean that it is so."""
    if barred_by_mean(changes):
        change = changes[MEAN].change
        so_far = "; more rounds would tell whether it is slower" if change > 0 else ""
        return f"the same but for the mean of all its calls, {relative_change(change)}{so_far}"
    called = {name: each.verdict for name, each in changes.items() if each.verdict.is_change}
    if len(set(called.values())) > 1:
        return ", ".join(f"{verdict} by its {statistic_name(name)}" for name, verdict in called.items())
    if not called or "median" in called:
        return ""
    return f"by its {statistic_name(next(iter(called)))}; by its median {changes['median'].verdict}"


def statistic_name(name: str) -> str:
    """Return the name of a test for people: ``median``, ``pairs of rounds``."""
    return "pairs of rounds" if name == PAIRED else name


def statistic_of(name: str, tests: Mapping[str, object]) -> str:
    """Return the statistic of a test: the pairs are those of the p10, where there is one, else of the median."""
    return name if name != PAIRED else "p10" if "p10" in tests else "median"


def fraction(shift: float) -> float:
    """Return a shift of logarithms as a fraction: 0.1 of 0.0953."""
    # Beyond 700 a float overflows; times so far apart stand in no file that was measured.
    return math.expm1(min(shift, 700.0))
