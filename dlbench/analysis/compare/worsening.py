"""Worsenings of memory and of declared values that a comparison excludes, and the rounds that it takes."""

import math
from typing import NamedTuple

from dlbench.analysis.compare.judge import Verdict
from dlbench.analysis.compare.power import MARGINS_TO_SEE, reach_to_exclude
from dlbench.analysis.compare.values import ShiftTest, ValueChange, share_to_see
from dlbench.analysis.presentation.wording import amount
from dlbench.core.units import relative_change


class Worsening(NamedTuple):
    """How much worse memory or a value may be, held against what must be detected."""

    excluded: bool
    """True as well where it was called, or where nothing of it is judged."""
    worst: str = ""
    """How much worse is still possible: ``p99 may be up to 31.0 % worse``."""
    rounds: int | None = None
    """A side, that would probably exclude it; None where there are as many already."""


def worsening(change: ValueChange, detect: float) -> Worsening:
    """Say whether a worsening of what must be detected is excluded: the upper end of the 90 % interval lies below it.

    It is the share ``detect`` of base, or of what is better higher a fall by as many times; on the host 64 MiB at least; and twice the
    margin of a value that declares one. The rounds depend on the width of the interval alone, never on the shift.
    """
    if change.seeds:
        return _of_seeds(change)
    test = change.test
    if test is None:
        return Worsening(change.verdict is not Verdict.INCONCLUSIVE, f"{change.name} is {change.remark}")
    limit = max(test.to_see, test.usual * share_to_see(detect, test.higher))
    rounds = _rounds_to_exclude(test, limit)
    if (worst := test.possible) is None:
        return Worsening(change.called, f"{change.name} has too few rounds", rounds)
    by = relative_change(worst / test.usual, sign="-") if test.usual else amount(worst, change.column.unit)
    return Worsening(change.called or worst <= 0 or worst < limit, f"{change.name} may be up to {by} worse", rounds)


def _of_seeds(change: ValueChange) -> Worsening:
    """Say so of a value of seeds: by its 95 % interval, which decides the verdict, too; more rounds would be the same seeds again."""
    worst, limit = change.possible, MARGINS_TO_SEE * (change.column.margin or 0.0)
    if worst is None:
        return Worsening(False, f"{change.name} has too few seeds")
    excluded = worst < limit and not math.isclose(worst, limit)
    said = f"{change.name} may be up to {amount(worst, change.column.unit)} worse"
    return Worsening(change.called or worst <= 0 or excluded, said)


def _rounds_to_exclude(test: ShiftTest, limit: float) -> int | None:
    """Return the rounds a side that would probably do; None where there are as many already.

    An interval narrows with the square root of the rounds; `reach_to_exclude` says how far from nothing the limit has to lie.
    """
    if test.interval is None:
        return test.enough
    if not test.interval.half_width:
        return None
    reach = test.interval.half_width * reach_to_exclude(test.interval.confidence, test.family)
    needed = max(test.enough, test.rounds * (reach / limit) ** 2)
    return math.ceil(needed) if needed > test.rounds else None
