"""Sentences on what a comparison can't say: slowdowns that it does not exclude, tests without power, and what would help."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from dlbench.analysis.compare.judge import EQUIVALENCE, LEVEL, Tests
from dlbench.analysis.compare.power import MOST_ROUNDS
from dlbench.analysis.read.header import SpentBudget
from dlbench.core.rank_test import rounds_for_gate
from dlbench.core.rows.row import Row
from dlbench.core.stats import holm
from dlbench.core.units import percent, relative_change

_NAMED = 5
"""Cases that a sentence names; it counts the others."""
T = TypeVar("T")


def by_side(base: T, new: T) -> Iterator[tuple[str, T]]:
    """Yield what each side has, with what a sentence calls the side."""
    return zip(("the base", "the new file"), (base, new), strict=True)


@dataclass(frozen=True, slots=True)
class Undetectable:
    """Cases in which a slowdown that must be detected is neither called nor excluded."""

    cases: tuple[str, ...]
    sentence: str
    """Which they are, what is still possible, why, and what to do."""
    brief: str
    """How many they are, and what to do."""
    decisive: bool
    """Whether the comparison is undecidable because of them."""


class UndetectableCase(NamedTuple):
    """One case in which a slowdown that must be detected is neither called nor excluded."""

    case: str
    change: float
    """That must be detected."""
    why: str
    remedy: str = ""
    """Other than more rounds; empty where they are all there is to do."""
    rounds: int | None = None
    """A side, that would probably do; None where no more rounds would."""
    asked: bool = False
    """Whether it makes the comparison undecidable: somebody set it, or the times alone would say slower."""
    what: str = "slowdown"
    """That is neither called nor excluded; a worsening where it is one of memory or a value as well."""


def exclusion(left: float | None, detect: float | None) -> tuple[str, ...]:
    """Say which slowdowns are excluded; ``left`` is what `possible` gives."""
    if left is None:
        return ("too few rounds to exclude any slowdown",)
    if detect is not None and left < detect:
        return (f"a slowdown of {percent(detect)} or more is excluded",)
    if left <= 0:
        return ("any slowdown is excluded",)
    possible = f"up to {relative_change(left)} is possible"
    return (possible,) if detect is None else (f"a slowdown of {percent(detect)} or more is not excluded", possible)


def prospects(tests: Tests, rounds: int | None, threshold: float) -> str:
    """Say of an inconclusive case what would probably decide it; ``rounds`` are what `rounds_needed` gives."""
    if any(test.drift and not test.only_slower and test.drift.half_width(EQUIVALENCE) >= math.log1p(threshold) for test in tests.values()):
        return "sessions alone may differ by more than the threshold: measure both sides alternately, with dlbench ab"
    if rounds is None:
        return "its interval reaches beyond the threshold, and more rounds may not change that"
    if rounds > MOST_ROUNDS:
        return f"not even {MOST_ROUNDS:,} rounds a side would decide whether it is the same"
    return f"{rounds:,} rounds a side would probably decide whether it is the same"


def case_not_excluded(
    case: str, detect: float, left: float | None, planned: float, rounds: int | None, sides: Sequence[Row]
) -> UndetectableCase:
    """Say why a slowdown of ``detect`` is not excluded in a case that was tested, and what to do about it.

    ``left``, ``planned`` and ``rounds`` are what `power.possible`, `power.planned_rounds` and `power.more_rounds` give.
    """
    why = "too few rounds to exclude any" if left is None else f"up to {relative_change(left)} is possible"
    if planned == math.inf:
        why += "; sessions alone differ by as much"
        return UndetectableCase(case, detect, why, "measure both sides alternately, with dlbench ab")
    if disturbed := disturbances(sides):
        return UndetectableCase(case, detect, f"{why}; {disturbed}", "stop the other processes, as top shows them", rounds)
    if left is not None:
        why += f"; its rounds differ by {percent(max(each.time.sd_between or 0.0 for each in sides))}"
    return UndetectableCase(case, detect, why, "" if rounds else "measure again, in more rounds", rounds)


def disturbances(sides: Sequence[Row]) -> str:
    """Say which other processes disturbed each side; empty where none did."""
    base, new = ((each.flag.reason or "") if each.flag.disturbed else "" for each in sides)
    if base == new:
        return base
    return "; ".join(f"in {side} {reason}" for side, reason in by_side(base, new) if reason)


def not_excluded(cases: Sequence[UndetectableCase], tested: int, spent: SpentBudget | None) -> Undetectable | None:
    """Sum up the cases in which it is neither called nor excluded; None where there are none.

    ``tested``: the cases with anything that was judged. ``spent``: the budget that ended a side before its rounds, if one did.
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
        remedies.append(f"with --detect {100 * cases[0].change:.3g}% that would end with 4")
    what = " or ".join(dict.fromkeys(each.what for each in cases))
    extent = f"a {what} of {changes} or more is not excluded in {of}"
    sentence, brief = ("; ".join([first, *remedies]) for first in (f"{extent}: {', '.join(named)}", extent))
    return Undetectable(tuple(each.case for each in cases), sentence, brief, decisive)


def powerless(able: Sequence[Tests], of_values: Sequence[float], spent: SpentBudget | None) -> str | None:
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
