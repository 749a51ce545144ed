"""Statistical power of a comparison: changes that it finds and slowdowns that it excludes, the rounds for both, and their sentences."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from dlbench.analysis.compare.calibration import Drift
from dlbench.analysis.compare.judge import EQUIVALENCE, LEVEL, MEAN, RankTest, fraction, statistic_of
from dlbench.analysis.ratios import Entry
from dlbench.analysis.read.header import SpentBudget
from dlbench.core import thresholds
from dlbench.core.rank_test import rounds_for_gate
from dlbench.core.stats import Interval, holm
from dlbench.core.thresholds import MUST_SEE, Thresholds, ThresholdSettings
from dlbench.core.units import percent, relative_change

MUST_SEE_BY_DEFAULT = 0.25
"""A slowdown that every case of a gate has to exclude, unless it is called, if nobody says otherwise: a quarter more time."""
POWER = 0.8
"""Chance with which such a change has to be called."""
UNDECIDED = 0.05
"""Share of comparisons of identical code whose times may leave such a slowdown possible in some case; their values as many again."""
MARGINS_TO_SEE = 2
"""Times its own margin that must be seen of what names none: one margin is called in half the cases, however many rounds."""
MOST_ROUNDS = 1000
"""As many as --rounds takes."""
MOST_FURTHER = 60
"""Rounds a side, up to which a gate goes on where nobody limits it: as many as rounds need that differ by 30 %, in ten cases."""
LEAST_STEP = 2
"""Rounds added at a time: the need is an estimate, and reading the file costs little beside a round."""
HOPELESS = 4
"""Times the rounds that can be added; a case that needs more would hardly get there."""
_NAMED = 5
"""Cases that a sentence names; it counts the others."""
SIDES = ("the base", "the new file")
_NORMAL = statistics.NormalDist()


class TestFamily(NamedTuple):
    """All that is tested in a comparison."""

    weight: float
    """Of all tests together."""
    cases: int
    """That have times on both sides."""
    able: bool = True
    """Whether the rounds are enough for any of them to call something."""


class SlowdownGoal(NamedTuple):
    """The change that must be seen in cases for which no suite sets one."""

    change: float | None
    """None: nothing."""
    insist: bool
    """Whether the comparison decides nothing where it was not."""

    @classmethod
    def of(cls, given: ThresholdSettings, usual: float | None, insist: bool = False) -> Self:
        """Return what the user gave, which then has to be, or the usual."""
        if MUST_SEE in given:
            return cls(thresholds.fraction(MUST_SEE, given[MUST_SEE]), True)
        return cls(usual, insist)

    def of_case(self, limits: Thresholds) -> tuple[float | None, bool]:
        """Return what must be seen in a case, if anything, and whether somebody asks for it.

        A change at the threshold is called in one of two comparisons, however many rounds: so it is twice the threshold where a suite, or
        the usual, is no larger than that.
        """
        asked = self.insist or limits.must_see is not None
        change = limits.must_see or self.change
        return (MARGINS_TO_SEE * limits.time if change and change <= limits.time else change), asked


@dataclass(frozen=True, slots=True)
class NotExcluded:
    """Cases in which a slowdown that must be seen is neither called nor excluded."""

    cases: tuple[str, ...]
    sentence: str
    """Which they are, what is still possible, why, and what to do."""
    decisive: bool
    """Whether the comparison is undecidable because of them."""


class CaseNotExcluded(NamedTuple):
    """One case in which a slowdown that must be seen is neither called nor excluded."""

    case: str
    change: float
    """That must be seen."""
    why: str
    remedy: str = ""
    """Beside more rounds; empty where they are all there is to do."""
    rounds: int | None = None
    """A side, that would probably do; None where no more rounds would."""
    asked: bool = False
    """Whether it makes the comparison undecidable: somebody set it, or the times alone would say slower."""
    what: str = "slowdown"
    """That is neither called nor excluded; a worsening where it is one of memory or a value as well."""


def _seeing(tests: Mapping[str, RankTest]) -> dict[str, RankTest]:
    """Return the tests that have to see a change: all but the mean's, which one slow call may blind."""
    return {name: test for name, test in tests.items() if name != MEAN}


def least_rounds(tests: Mapping[str, RankTest], family: float) -> int:
    """Return the rounds a side below which none of a case's tests can fail at all, beside all others of that weight."""
    return min(rounds_for_gate(family / test.weight, LEVEL, least=1, paired=test.paired) for test in _seeing(tests).values())


def detectable(tests: Mapping[str, RankTest], family: float, threshold: float) -> float | None:
    """Return the smallest change that would be called in four of five comparisons, as a fraction; None where none would, however large.

    It lies beyond the interval at the level that the first step of Holm's correction leaves each test of a family with that weight in
    all, and beyond the threshold; beyond either by as much as the estimate varies by, see `_scatter`.
    """
    margin, changes = math.log1p(threshold), []
    for test in _seeing(tests).values():
        confidence = 1 - LEVEL * test.weight / family
        if (reach := test.reach(confidence)) is not None:
            changes.append(max(reach, margin) + _scatter(confidence, POWER) * reach)
    return fraction(min(changes)) if changes else None


def possible(tests: Mapping[str, RankTest]) -> float | None:
    """Return the largest slowdown that a case may have all the same, as a fraction; None where the rounds are too few to exclude any.

    It is the upper end of the 90 % interval of the median or of the p10, whichever lies higher; where a statistic has two tests, either
    may show it. Below zero the case is surely faster.
    """
    intervals = _equivalences(tests)
    ends = [min(each.high for each, _ in of_one) for of_one in intervals.values() if of_one]
    return fraction(max(ends)) if ends and len(ends) == len(intervals) else None


def _equivalences(tests: Mapping[str, RankTest]) -> dict[str, list[tuple[Interval, Drift | None]]]:
    """Return the 90 % intervals of each statistic, one a test, with the drift that is in them; of tests with too few rounds none."""
    found: dict[str, list[tuple[Interval, Drift | None]]] = {}
    for name, test in _seeing(tests).items():
        of_one = found.setdefault(statistic_of(name, tests), [])
        if test.equivalence:
            of_one.append((test.equivalence, test.drift))
    return found


def _scatter(confidence: float, chance: float) -> float:
    """Return how many half-widths of an interval its estimate lies beyond the truth at most, with that chance; in normal quantiles."""
    return _NORMAL.inv_cdf(chance) / _NORMAL.inv_cdf((1 + confidence) / 2)


def reach_to_exclude(confidence: float, many: int) -> float:
    """Return how many half-widths of its interval a worsening lies from nothing, so that all of so many alike are likely to exclude it.

    One for the interval, and for its estimate as much as all of them stay within but for a share of `UNDECIDED`.
    """
    return 1 + _scatter(confidence, 1 - UNDECIDED / many)


def rounds_needed(tests: Mapping[str, RankTest], enough: int, threshold: float) -> int | None:
    """Return the rounds a side that would probably decide it; None where more rounds would not.

    An interval narrows with the square root of the rounds: k' = k (w / v)², w being half the width of the 90 % interval that the rounds
    give and v what it has to be: log(1 + threshold), less the drift between occasions, as squares. ``enough`` are the rounds that let so
    many tests fail at all. More rounds would not where there are as many already, as the change lies at the threshold then, and where the
    drift alone is beyond the threshold.
    """
    rounds = _rounds(tests)
    factors: dict[str, float] = {}
    for name, test in _seeing(tests).items():
        if test.equivalence:
            factor = _rounds_factor(test.equivalence.half_width, math.log1p(threshold), test.drift, test.equivalence.confidence)
            statistic = statistic_of(name, tests)
            factors[statistic] = min(factor, factors.get(statistic, math.inf))
    needed = max(enough, rounds * max(factors.values(), default=0.0))
    return math.ceil(needed) if rounds < needed < math.inf else None


def rounds_to_see(tests: Mapping[str, RankTest], family: TestFamily, change: float, threshold: float) -> int | None:
    """Return the rounds a side that would probably call a slowdown of that size, and exclude it where there is none.

    None where the rounds at hand do, or none would. Only the widths of intervals count, never the size or sign of the change that was
    found, so that rounds which are added for this favour no verdict.
    """
    needed = _planned_rounds(tests, family, change, threshold)
    return math.ceil(needed) if _rounds(tests) < needed < math.inf else None


def _planned_rounds(tests: Mapping[str, RankTest], family: TestFamily, change: float, threshold: float) -> float:
    enough = least_rounds(tests, family.weight)
    return max(rounds_to_call(tests, enough, family.weight, change, threshold), _rounds_to_exclude(tests, family.cases, change))


def rounds_to_call(tests: Mapping[str, RankTest], enough: int, family: float, change: float, threshold: float) -> float:
    """Return the rounds a side in which a change of that size is called with a chance of 80 %; infinite where occasions differ by as much.

    As in `rounds_needed`, with the intervals that `detectable` takes. The change must be above the threshold.
    """
    factors = []
    for test in _seeing(tests).values():
        confidence = 1 - LEVEL * test.weight / family
        if (reach := test.reach(confidence)) is not None:
            scatter = _scatter(confidence, POWER)
            margin = min(math.log1p(change) / (1 + scatter), (math.log1p(change) - math.log1p(threshold)) / scatter)
            factors.append(_rounds_factor(reach, margin, test.drift, confidence))
    return max(enough, _rounds(tests) * min(factors, default=0.0))


def _rounds_to_exclude(tests: Mapping[str, RankTest], cases: int, change: float) -> float:
    """Return the rounds a side in which 95 % of comparisons of so many identical cases exclude that slowdown in each of them."""
    factors = []
    for intervals in _equivalences(tests).values():
        of_tests = []
        for interval, drift in intervals:
            margin = math.log1p(change) / reach_to_exclude(interval.confidence, cases)
            of_tests.append(_rounds_factor(interval.half_width, margin, drift, interval.confidence))
        factors.append(min(of_tests, default=0.0))
    return _rounds(tests) * max(factors, default=0.0)


class Further(NamedTuple):
    """More rounds of some cases."""

    rounds: int
    cases: tuple[str, ...]


def further(needed: Mapping[str, int], rounds: int, fitting: int = MOST_FURTHER) -> Further | None:
    """Return in how many rounds to go on now, and with which cases; None where nothing is gained by it.

    ``needed``: the rounds a side of each case that can't show yet what it must, by `rounds_to_see`; ``rounds``: those that were measured;
    ``fitting``: how many more the time left has room for, with all of these cases.
    """
    most = min(fitting, MOST_FURTHER - rounds)
    cases = {case: need - rounds for case, need in needed.items() if need - rounds <= HOPELESS * most}
    if most < 1 or not cases:
        return None
    # Up to where the first of them is expected to have enough, and drops out.
    return Further(min(max(min(cases.values()), LEAST_STEP), most), tuple(cases))


def _rounds(tests: Mapping[str, RankTest]) -> int:
    return min(min(len(test.base), len(test.new)) for test in tests.values())


def _rounds_factor(reach: float, margin: float, drift: Drift | None, confidence: float) -> float:
    """Return how many times the rounds it takes until an interval reaches no further than the margin; infinite where the drift does.

    With a drift it is about so beyond 95 %, where its part for many tests does not add as squares do (`Drift.half_width`).
    """
    of_drift = drift.half_width(confidence) if drift else 0.0
    return math.inf if of_drift >= margin else (reach**2 - of_drift**2) / (margin**2 - of_drift**2)


def exclusion_sentence(left: float | None, must_see: float | None) -> str:
    """Say which slowdowns are excluded; ``left`` is what `possible` gives."""
    if left is None:
        return "no slowdown is excluded, as the rounds are too few"
    if must_see is None:
        return f"up to {relative_change(left)} is possible"
    if left < must_see:
        return f"a slowdown of {percent(must_see)} or more is excluded"
    return f"a slowdown of {percent(must_see)} or more is not excluded: up to {relative_change(left)} is possible"


def prospects(tests: Mapping[str, RankTest], rounds: int | None, threshold: float) -> str:
    """Say of an inconclusive case what would probably decide it; ``rounds`` are what `rounds_needed` gives."""
    if any(test.drift and test.drift.half_width(EQUIVALENCE) >= math.log1p(threshold) for test in _seeing(tests).values()):
        return "occasions alone may differ by more than the threshold: measure both sides in turn, with dlbench ab"
    if rounds is None:
        return "it lies at the threshold"
    if rounds > MOST_ROUNDS:
        return f"not even {MOST_ROUNDS:,} rounds a side would decide whether it is the same"
    return f"{rounds:,} rounds a side would probably decide whether it is the same"


def case_not_excluded(
    case: str, tests: Mapping[str, RankTest], family: TestFamily, must_see: float, threshold: float, sides: Sequence[Entry]
) -> CaseNotExcluded:
    """Say why a slowdown of ``must_see`` is not excluded in a case that was tested, and what to do about it."""
    left, rounds = possible(tests), rounds_to_see(tests, family, must_see, threshold)
    why = "too few rounds to exclude any" if left is None else f"up to {relative_change(left)} is possible"
    if _planned_rounds(tests, family, must_see, threshold) == math.inf:
        return CaseNotExcluded(case, must_see, f"{why}; occasions alone differ by as much", "measure both sides in turn, with dlbench ab")
    if disturbed := disturbances(sides):
        return CaseNotExcluded(case, must_see, f"{why}; {disturbed}", "stop the other processes, as top shows them", rounds)
    if left is not None:
        why += f"; its rounds differ by {percent(max(float(each.row['time.sd_between'] or 0) for each in sides))}"
    return CaseNotExcluded(case, must_see, why, "" if rounds else "measure again, in more rounds", rounds)


def disturbances(sides: Sequence[Entry]) -> str:
    """Say which other processes disturbed each side; empty where none did."""
    base, new = (str(each.row["flag.reason"]) if each.row["flag.disturbed"] else "" for each in sides)
    if base == new:
        return base
    return "; ".join(f"in {side} {reason}" for side, reason in zip(SIDES, (base, new), strict=True) if reason)


def not_excluded(cases: Sequence[CaseNotExcluded], tested: int, spent: SpentBudget | None = None) -> NotExcluded | None:
    """Sum up the cases in which it is neither called nor excluded; None where there are none.

    ``tested``: the cases of which anything was judged. ``spent``: the budget that ended a side before its rounds, if one did.
    """
    if not cases:
        return None
    changes = " or ".join(dict.fromkeys(percent(each.change) for each in cases))
    named = [f"{each.case} ({each.why})" for each in cases[:_NAMED]]
    if len(cases) > _NAMED:
        named.append(f"and {len(cases) - _NAMED:,} more")
    of = f"{len(cases):,} of {tested:,} case{'' if tested == 1 else 's'}"
    remedies = [*dict.fromkeys(each.remedy for each in cases if each.remedy)]
    rounds = max((each.rounds for each in cases if each.rounds), default=0)
    if rounds > MOST_ROUNDS:
        remedies.append(f"not even {MOST_ROUNDS:,} rounds a side would call or exclude it: measure on a quieter machine")
    elif rounds:
        remedies.append(f"{rounds:,} rounds a side would probably call or exclude it: {_option(rounds, spent)}")
    decisive = any(each.asked for each in cases) or len(cases) >= tested
    if not decisive:
        remedies.append(f"with --must-see {100 * cases[0].change:.3g}% that would end with 4")
    what = " or ".join(dict.fromkeys(each.what for each in cases))
    sentence = "; ".join([f"a {what} of {changes} or more is not excluded in {of}: {', '.join(named)}", *remedies])
    return NotExcluded(tuple(each.case for each in cases), sentence, decisive)


def powerless(able: Sequence[Mapping[str, RankTest]], of_values: Sequence[float] = (), spent: SpentBudget | None = None) -> str | None:
    """Say why no case could have been called slower, if so: with the least p that their rounds allow, Holm's correction spares none.

    Of each case its tests; none of a case without times on both sides. ``of_values``: the least p of each value that is judged, and
    of memory, which count where no case has times. ``spent`` as in `not_excluded`.
    """
    every = [test for tests in able for test in tests.values()]
    if not every and not of_values:
        return "no case has times that can be compared, so nothing could have been called slower"
    if min(holm([test.least_p for test in every], [test.weight for test in every]) if every else holm(of_values)) < LEVEL:
        return None
    if every:
        last = max(every, key=lambda test: (test.paired, test.weight))
        rounds = rounds_for_gate(sum(test.weight for test in every) / last.weight, paired=last.paired)
        none = f"in {len(every)} tests none could have been called slower"
    else:
        rounds = rounds_for_gate(len(of_values), LEVEL, least=1)
        none = f"in {len(of_values)} tests of values and memory none could have been called worse"
    return f"too few rounds: {none}; {rounds} rounds a side would do: {_option(rounds, spent)}"


def _option(rounds: int, spent: SpentBudget | None) -> str:
    """Return what of the command line gives so many rounds: a larger budget where one was the limit."""
    return spent.option(rounds) if spent else f"--rounds {rounds}"
