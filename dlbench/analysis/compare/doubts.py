"""What a comparison can't say: changes that it does not exclude, tests without power, and what would help."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dlbench.analysis.compare.judge import LEVEL, Verdict, by_side
from dlbench.analysis.compare.power import MOST_ROUNDS, least_rounds, more_rounds, rounds_to_exclude
from dlbench.analysis.compare.values import WORDS, ValueChange
from dlbench.analysis.compare.verdict import CaseVerdict, Undetectable
from dlbench.analysis.presentation.wording import amount, few, plural
from dlbench.analysis.read.header import SpentBudget
from dlbench.core.rank_test import rounds_for_gate
from dlbench.core.rows.row import Row
from dlbench.core.stats import holm
from dlbench.core.units import percent, relative_change

_NAMED = 5
"""Cases that a sentence names; it counts the others."""
IN_TURN = "measure both sides alternately, with dlbench ab"
"""What helps where sessions differ."""


class Worsening(NamedTuple):
    """How much worse memory or a value may be, held against what must be detected."""

    excluded: bool
    """True as well where it was called, or where nothing of it is judged."""
    worst: str
    """How much worse is still possible: ``p99 may be up to 31.0 % worse``."""
    rounds: int | None = None
    """A side, that would probably exclude it; None where there are as many already."""


def worsening(change: ValueChange) -> Worsening:
    """Say whether a worsening of what must be detected is excluded: the upper end of the interval lies below it.

    More rounds would be the same seeds again.
    """
    if (test := change.test) is None:
        return Worsening(change.verdict is not Verdict.INCONCLUSIVE, f"{change.name} is {change.remark}")
    called, worst, rounds, tests = change.verdict in WORDS, test.worst, None, {"": test}
    if not test.paired and not (test.equivalence and not test.equivalence.half_width):
        rounds = more_rounds(tests, max(least_rounds(tests, change.family), rounds_to_exclude(tests, change.limit, change.family)))
    if worst is None:
        return Worsening(called, f"{change.name} has too few {'seeds' if test.paired else 'rounds'}", rounds)
    excluded = called or worst <= 0 or (worst < change.limit and not math.isclose(worst, change.limit))
    return Worsening(excluded, f"{change.name} may be up to {amount(worst, change.column.unit)} worse", rounds)


def exclusion(left: float | None, detect: float | None = None) -> str:
    """Say which slowdowns are excluded; ``left`` is what `power.possible` gives."""
    if left is None:
        return "too few rounds to exclude any slowdown"
    if detect is not None and left < detect:
        return f"a slowdown of {percent(detect)} or more is excluded"
    return "any slowdown is excluded" if left <= 0 else f"up to {relative_change(left)} is possible"


def why_unseen(left: float | None, planned: float, more: bool, sides: Sequence[Row]) -> tuple[str, str]:
    """Return why a slowdown is neither called nor excluded in a case that was tested, and what helps other than more rounds.

    ``left`` is as in `exclusion`; ``planned``: the rounds that it takes, and whether these are ``more`` than there are.
    """
    why = exclusion(left)
    if planned == math.inf:
        return f"{why}; sessions alone differ by as much", IN_TURN
    if disturbed := disturbances(sides):
        return f"{why}; {disturbed}", "stop the other processes, as top shows them"
    if left is not None:
        why += f"; its rounds differ by {percent(max(each.time.sd_between or 0.0 for each in sides))}"
    return why, "" if more else "measure again, in more rounds"


def disturbances(sides: Sequence[Row]) -> str:
    """Say which other processes disturbed each side; empty where none did."""
    base, new = ((each.flag.reason or "") if each.flag.disturbed else "" for each in sides)
    if base == new:
        return base
    return "; ".join(f"in {side} {reason}" for side, reason in by_side(base, new) if reason)


def summed_up(cases: Iterable[CaseVerdict], budgets: Iterable[SpentBudget]) -> Undetectable | None:
    """Sum up the cases in which it is neither called nor excluded; None where there are none.

    ``budgets``: those that ended a run before its rounds.
    """
    tested = [case for case in cases if case.tests or case.unseen or any(value.verdict for value in case.values)]
    unseen = [case for case in tested if case.unseen]
    if not unseen:
        return None
    remedies = [*dict.fromkeys(case.remedy for case in unseen if case.remedy)]
    if rounds := max(case.rounds_to_see or 0 for case in unseen):
        would = f"{rounds:,} rounds a side would probably call or exclude it: {_option(rounds, budgets)}"
        never = f"not even {MOST_ROUNDS:,} rounds a side would call or exclude it: measure on a quieter machine"
        remedies.append(would if rounds <= MOST_ROUNDS else never)
    decisive = any(case.asked for case in unseen) or len(unseen) == len(tested)
    if not decisive:
        remedies.append(f"with --detect {100 * (unseen[0].detect or 0):.3g}% that would end with 4")
    what = " or ".join(dict.fromkeys(case.what for case in unseen))
    changes = " or ".join(dict.fromkeys(percent(case.detect or 0) for case in unseen))
    named = few((case.case for case in unseen), _NAMED)
    extent = f"a {what} of {changes} or more is not excluded in {len(unseen):,} of {plural(len(tested), 'case')}, {named}"
    return Undetectable(tuple(case.case for case in unseen), "; ".join([extent, *remedies]), decisive)


def powerless(cases: Sequence[CaseVerdict], budgets: Iterable[SpentBudget]) -> str | None:
    """Say why no case could have been called slower, if so: with the least p that their rounds allow, Holm's correction spares none.

    The tests of times decide, and where there are none those of values, with memory next to them: memory alone is no comparison, and
    where seeds or the resolution of a search decide, chance has no part.
    """
    tests, what = [test for case in cases for test in case.tests.values()], "slower"
    if not tests:
        values = [value for case in cases for value in case.values if value.is_judged]
        if all(value.is_memory for value in values):
            return "no case has times that can be compared, so nothing could have been called slower"
        tests, what = [value.test for value in values if value.test and not value.is_of_seeds], "worse"
        if len(tests) < len(values):
            return None
    if min(holm([test.least_p for test in tests], [test.weight for test in tests])) < LEVEL:
        return None
    last = max(tests, key=lambda test: (test.paired, test.weight))
    rounds = rounds_for_gate(sum(test.weight for test in tests) / last.weight, paired=last.paired)
    none = f"too few rounds: in {len(tests)} tests none could have been called {what}"
    return f"{none}; {rounds} rounds a side would do: {_option(rounds, budgets)}"


def _option(rounds: int, budgets: Iterable[SpentBudget]) -> str:
    """Return what of the command line gives so many rounds: a larger budget where one was the limit."""
    spent = max(budgets, key=lambda each: each.seconds(each.enough), default=None)
    return spent.option(rounds) if spent else f"--rounds {rounds}"
