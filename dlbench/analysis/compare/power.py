"""Statistical power of a comparison: the smallest change that it could have called, and the sentences where that is too large."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dlbench.analysis.compare.calibration import Drift
from dlbench.analysis.compare.judge import EQUIVALENCE, LEVEL, MEAN, RankTest, fraction, statistic_of
from dlbench.analysis.ratios import Entry
from dlbench.analysis.read.header import SpentBudget
from dlbench.core.rank_test import rounds_for_gate
from dlbench.core.stats import holm
from dlbench.core.units import percent, relative_change

MUST_SEE_BY_DEFAULT = 0.25
"""A change that every case of a gate has to be able to show unless somebody says otherwise: a quarter more time."""
MOST_ROUNDS = 1000
"""As many as --rounds takes."""
_NAMED = 5
"""Cases that a sentence names; it counts the others."""
SIDES = ("the base", "the new file")


@dataclass(frozen=True, slots=True)
class Unseen:
    """Cases in which a change that must be seen could not have been called."""

    cases: tuple[str, ...]
    sentence: str
    """Which they are, what could have been called, why, and what to do."""
    decisive: bool
    """Whether the comparison is undecidable because of them."""


class Blind(NamedTuple):
    """One case in which a change that must be seen could not have been called."""

    case: str
    change: float
    """That must be seen."""
    why: str
    remedy: str = ""
    """Beside more rounds; empty where they are all there is to do."""
    rounds: int | None = None
    """A side, that would probably do; None where no more rounds would."""
    asked: bool = False
    """Whether somebody set it."""


def _seeing(tests: Mapping[str, RankTest]) -> dict[str, RankTest]:
    """Return the tests that have to see a change: all but the mean's, which one slow call may blind."""
    return {name: test for name, test in tests.items() if name != MEAN}


def least_rounds(tests: Mapping[str, RankTest], family: float) -> int:
    """Return the rounds a side below which none of a case's tests can fail at all, beside all others of that weight."""
    return min(rounds_for_gate(family / test.weight, LEVEL, least=1, paired=test.paired) for test in _seeing(tests).values())


def detectable(tests: Mapping[str, RankTest], family: float, threshold: float) -> float | None:
    """Return the smallest change that could have been called, as a fraction; None where no change could, however large.

    It is half the width of the interval at the level that the first step of Holm's correction leaves each test of a family with that
    weight in all, and never below the threshold.
    """
    reaches = [reach for test in _seeing(tests).values() if (reach := test.reach(1 - LEVEL * test.weight / family)) is not None]
    return max(threshold, fraction(min(reaches))) if reaches else None


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
            factor = _rounds_factor(test.equivalence.half_width, threshold, test.drift, test.equivalence.confidence)
            statistic = statistic_of(name, tests)
            factors[statistic] = min(factor, factors.get(statistic, math.inf))
    needed = max(enough, rounds * max(factors.values(), default=0.0))
    return math.ceil(needed) if rounds < needed < math.inf else None


def rounds_to_see(tests: Mapping[str, RankTest], enough: int, family: float, change: float) -> int | None:
    """Return the rounds a side in which a change of that size could probably be called; None where occasions alone differ by as much.

    As in `rounds_needed`, with the interval of `detectable`.
    """
    factors = []
    for test in _seeing(tests).values():
        confidence = 1 - LEVEL * test.weight / family
        if (reach := test.reach(confidence)) is not None:
            factors.append(_rounds_factor(reach, change, test.drift, confidence))
    needed = max(enough, _rounds(tests) * min(factors, default=0.0))
    return math.ceil(needed) if needed < math.inf else None


def _rounds(tests: Mapping[str, RankTest]) -> int:
    return min(min(len(test.base), len(test.new)) for test in tests.values())


def _rounds_factor(reach: float, change: float, drift: Drift | None, confidence: float) -> float:
    """Return how many times the rounds it takes until an interval reaches no further than the change; infinite where the drift does."""
    margin = math.log1p(change)
    of_drift = drift.half_width(confidence) if drift else 0.0
    return math.inf if of_drift >= margin else (reach**2 - of_drift**2) / (margin**2 - of_drift**2)


def prospects(tests: Mapping[str, RankTest], least: float | None, rounds: int | None, threshold: float) -> str:
    """Say of an inconclusive case how small a change could have been called, and what would probably decide it.

    ``least`` and ``rounds`` are what `detectable` and `rounds_needed` give.
    """
    seen = "no change could have been called" if least is None else f"a change of {relative_change(least, sign='-')} could have been called"
    if any(test.drift and test.drift.half_width(EQUIVALENCE) >= math.log1p(threshold) for test in tests.values()):
        return f"{seen}; occasions alone may differ by more than the threshold: measure both sides in turn, with dlbench ab"
    if rounds is None:
        return f"{seen}; it lies at the threshold"
    if rounds > MOST_ROUNDS:
        return f"{seen}; not even {MOST_ROUNDS:,} rounds a side would decide it"
    return f"{seen}; {rounds:,} rounds a side would probably decide it"


def blindness(case: str, least: float | None, rounds: int | None, must_see: float, sides: Sequence[Entry]) -> Blind:
    """Say why a change of ``must_see`` could not have been called in a case that was tested, and what to do about it.

    ``least`` is what could have been; ``rounds`` a side would do, and None where occasions alone differ by as much.
    """
    why = "too few rounds for any" if least is None else f"a change of {relative_change(least, sign='-')} could"
    if rounds is None:
        return Blind(case, must_see, f"{why}; occasions alone differ by as much", "measure both sides in turn, with dlbench ab")
    if disturbed := disturbances(sides):
        return Blind(case, must_see, f"{why}; {disturbed}", "stop the other processes, as top shows them", rounds)
    if least is not None:
        why += f"; its rounds differ by {percent(max(float(each.row['time.sd_between'] or 0) for each in sides))}"
    return Blind(case, must_see, why, rounds=rounds)


def disturbances(sides: Sequence[Entry]) -> str:
    """Say which other processes disturbed each side; empty where none did."""
    base, new = (str(each.row["flag.reason"]) if each.row["flag.disturbed"] else "" for each in sides)
    if base == new:
        return base
    return "; ".join(f"in {side} {reason}" for side, reason in zip(SIDES, (base, new), strict=True) if reason)


def unseen(blind: Sequence[Blind], tested: int, spent: SpentBudget | None = None) -> Unseen | None:
    """Sum up the cases in which it could not be seen; None where there are none.

    ``tested``: the cases that have times on both sides. ``spent``: the budget that ended a side before its rounds, if one did.
    """
    if not blind:
        return None
    changes = " or ".join(dict.fromkeys(percent(each.change) for each in blind))
    named = [f"{each.case} ({each.why})" for each in blind[:_NAMED]]
    if len(blind) > _NAMED:
        named.append(f"and {len(blind) - _NAMED:,} more")
    of = f"{len(blind):,} of {tested:,} case{'' if tested == 1 else 's'}"
    remedies = [*dict.fromkeys(each.remedy for each in blind if each.remedy)]
    rounds = max((each.rounds for each in blind if each.rounds), default=0)
    if rounds > MOST_ROUNDS:
        remedies.append(f"not even {MOST_ROUNDS:,} rounds a side would do: measure on a quieter machine")
    elif rounds:
        remedies.append(f"{rounds:,} rounds a side would probably do: {_option(rounds, spent)}")
    sentence = f"a change of {changes} could not have been called in {of}: {', '.join(named)}; {'; '.join(remedies)}"
    decisive = any(each.asked for each in blind) or len(blind) >= tested
    if not decisive:
        sentence += f"; with --must-see {100 * blind[0].change:.3g}% that would end with 4"
    return Unseen(tuple(each.case for each in blind), sentence, decisive)


def powerless(able: Sequence[Mapping[str, RankTest]], of_values: Sequence[float] = (), spent: SpentBudget | None = None) -> str | None:
    """Say why no case could have been called slower, if so: with the least p that their rounds allow, Holm's correction spares none.

    Of each case its tests; none of a case without times on both sides. ``of_values``: the least p of each value that is judged, which
    counts where no case has times. ``spent`` as in `unseen`.
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
        none = f"of {len(of_values)} values none could have been called worse"
    return f"too few rounds: {none}; {rounds} rounds a side would do: {_option(rounds, spent)}"


def _option(rounds: int, spent: SpentBudget | None) -> str:
    """Return what of the command line gives so many rounds: a larger budget where one was the limit."""
    return spent.option(rounds) if spent else f"--rounds {rounds}"
