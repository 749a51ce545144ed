"""Verdicts of a comparison: of each case and of all of them together, and sentences on what it can't exclude."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, Self

from dlbench.analysis.compare.judge import LEVEL, RankTest, Tests, Verdict, by_side
from dlbench.analysis.compare.power import MOST_ROUNDS, least_rounds, more_rounds, rounds_to_exclude
from dlbench.analysis.compare.values import WORDS, ValueChange
from dlbench.analysis.presentation.wording import amount
from dlbench.analysis.ratios.matching import Unmatched
from dlbench.analysis.read.header import SpentBudget, option_for
from dlbench.analysis.read.usability import ClockDifference
from dlbench.core.rank_test import rounds_for_gate
from dlbench.core.rows.row import Row
from dlbench.core.stats import holm, known
from dlbench.core.thresholds import Thresholds
from dlbench.core.units import percent, relative_change


class CaseVerdict(NamedTuple):
    """Verdict of one case, and why."""

    case: str
    verdict: Verdict
    reasons: tuple[str, ...] = ()
    """Why, and what to do about it."""
    regressed: tuple[str, ...] = ()
    """Quantities that got worse: ``time``, ``memory``, ``value.p99_s``."""
    base: Row | None = None
    new: Row | None = None
    tests: Tests = MappingProxyType({})
    """Tests of its times, among those of all other cases."""
    values: tuple[ValueChange, ...] = ()
    """Changes of memory, energy and each value, as far as both sides report them."""
    thresholds: Thresholds | None = None
    """Its smallest relevant changes; None where nothing was compared."""
    detect: float | None = None
    """Slowdown that must be called or excluded, as a fraction; None where nothing was compared, or none has to be."""
    must_detect: bool = False
    """Whether the whole comparison is undecided if ``unseen``: somebody set ``detect``, or the times alone would say slower."""
    unseen: str | None = None
    """Why a slowdown of ``detect`` is neither called nor excluded; None where it is, or none has to be."""
    unseen_kind: str = "slowdown"
    """Name of the unseen change: ``worsening`` if memory or a value may have got worse as well."""
    remedy: str = ""
    """Remedy for what is unseen, other than more rounds; empty where more rounds are all there is to do."""
    rounds_to_see: int | None = None
    """Rounds a side in which ``detect`` would probably be called or excluded; None where it has as many, or no number is enough."""
    detectable: float | None = None
    """The smallest change that would be called in four of five comparisons; None where nothing was tested, or none would."""
    possible: float | None = None
    """The largest slowdown that is not excluded, as a fraction; None where nothing was tested, or nothing is excluded."""
    lost: bool = False
    """Whether damaged lines may have had rounds of it, or a budget left it out, so that whoever is strict takes it for undecided."""
    clocks: ClockDifference | None = None
    """How the clocks of its device differ between the sides, if they do."""

    @property
    def sides(self) -> tuple[Row, ...]:
        """Its rows, as far as the sides have it."""
        return tuple(known((self.base, self.new)))

    @property
    def threshold(self) -> float:
        """Smallest change of its time that matters, as a fraction."""
        return self.thresholds.time if self.thresholds else 0.0

    @property
    def note(self) -> str:
        """Its reasons as one text."""
        return "; ".join(self.reasons)

    @property
    def statistic(self) -> str:
        """Name of the test whose change is shown: the median, unless only another test calls slower or faster."""
        candidates = self.tests if self.verdict.is_change else {}
        return next((name for name, test in candidates.items() if test.verdict is self.verdict), "median")

    @property
    def shown(self) -> RankTest | None:
        """The test of that statistic, if the times could be tested."""
        return self.tests.get(self.statistic)

    def because(self, *reasons: str) -> Self:
        """Return it with further reasons; empty ones are left out."""
        return self._replace(reasons=(*self.reasons, *filter(None, reasons)))


@dataclass(frozen=True, slots=True)
class Undetectable:
    """Cases in which a slowdown that must be detected is neither called nor excluded."""

    cases: tuple[str, ...]
    sentence: str
    """How many they are, and what to do."""
    decisive: bool
    """Whether the comparison is undecidable because of them."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A verdict for every case of two sides, the worst first."""

    title: str
    cases: tuple[CaseVerdict, ...]
    powerless: str | None
    """Why no case could have been called slower, however slow; None where one could."""
    unseen: Undetectable | None = None
    """Where a slowdown that must be detected is neither called nor excluded."""
    report_only: bool = False
    """Whether the sides are of different machines, so that slower says nothing about the program."""
    unmatched: tuple[Unmatched, ...] = ()
    """Rows of the same file that stand in no pair."""
    other_occasion: str | None = None
    """Reason to doubt under --strict: the files are of two sessions, and no calibration says how these differ; else None."""

    @property
    def undecidable(self) -> str | None:
        """Why it decides nothing where no case is slower, missing or failed; None where it does."""
        if self.powerless and not self.report_only:
            return self.powerless
        return self.unseen.sentence if self.unseen and self.unseen.decisive else self.other_occasion

    @property
    def doubt(self) -> str | None:
        """Sentence on changes neither called nor excluded, if any, whether or not the exit code depends on them."""
        return self.powerless or (self.unseen.sentence if self.unseen else None)

    @property
    def nothing_in_common(self) -> bool:
        """Whether both sides have cases, and none is on both."""
        return {(case.base is None, case.new is None) for case in self.cases} == {(True, False), (False, True)}


def attention(case: CaseVerdict) -> tuple[int, float]:
    """Return a sort key of cases: the worst verdict first, and among changes the largest first."""
    test = case.shown if case.verdict.is_change else None
    return [*Verdict].index(case.verdict), -abs(test.change) if test else 0.0


MEASURE_ALTERNATELY = "measure both sides alternately, with dlbench ab"
"""Remedy where sessions differ."""


def worsening(change: ValueChange) -> tuple[str, int | None]:
    """Return why a worsening that must be detected is not excluded, and the rounds a side that would probably exclude it.

    The reason is like ``p99 may be up to 0.4 s worse``; it is empty if the worsening is excluded or the change is called. The rounds are
    None if the sides have as many already, if no number is enough, and where rounds decide nothing.
    """
    test = change.test
    if test is None:  # it has a verdict without a test, or is only shown
        why = f"{change.name} is {change.remark}" if change.verdict is Verdict.INCONCLUSIVE else ""
        return why, None
    worst, limit = test.worst, change.limit
    rounds = None
    if not test.paired:  # pairs are of seeds, which would give the same again in further rounds
        tests = {"": test}  # as the tests of a case, under any name
        rounds = more_rounds(tests, max(least_rounds(tests, change.family), rounds_to_exclude(tests, limit, change.family)))
    if change.verdict in WORDS:  # it is called
        return "", rounds
    if worst is None:
        return f"{change.name} has too few {'seeds' if test.paired else 'rounds'}", rounds
    # The limit itself has to be excluded, also where rounding has put ``worst`` a little below it.
    excluded = worst <= 0 or (worst < limit and not math.isclose(worst, limit))
    return "" if excluded else f"{change.name} may be up to {amount(worst, change.column.unit)} worse", rounds


def exclusion(possible: float | None, detect: float | None) -> str:
    """Say which slowdowns are excluded; ``possible`` is the largest one that is not, from `power.possible`."""
    if possible is None:
        return "too few rounds to exclude any slowdown"
    if detect is not None and possible < detect:
        return f"a slowdown of {percent(detect)} or more is excluded"
    return "any slowdown is excluded" if possible <= 0 else f"up to {relative_change(possible)} is possible"


def why_unseen(possible: float | None, planned: float, more_help: bool, sides: Sequence[Row]) -> tuple[str, str]:
    """Return why a slowdown is neither called nor excluded in a case that was tested, and a remedy other than more rounds.

    ``possible`` is as in `exclusion`. ``planned`` is the number of rounds that would exclude it; ``more_help``: the case has fewer, and
    `sum_up_unseen` asks for them.
    """
    why = exclusion(possible, None)
    if planned == math.inf:
        return f"{why}; sessions alone differ by as much", MEASURE_ALTERNATELY
    if disturbed := disturbances(sides):
        return f"{why}; {disturbed}", "stop the other processes, as top shows them"
    if possible is not None:
        why += f"; its rounds differ by {percent(max(row.time.sd_between or 0.0 for row in sides))}"
    return why, "" if more_help else "measure again, in more rounds"


def disturbances(sides: Sequence[Row]) -> str:
    """Say which other processes disturbed each side; an empty text if none did."""
    base, new = (each.flag.reason if each.flag.disturbed else None for each in sides)
    if base == new:
        return base or ""
    return "; ".join(f"in {side} {reason}" for side, reason in by_side(base, new) if reason)


def sum_up_unseen(cases: Iterable[CaseVerdict], budgets: Iterable[SpentBudget]) -> Undetectable | None:
    """Sum up the cases in which a change that must be detected is neither called nor excluded; None if there are none.

    They make the comparison undecidable if one of them must detect the change, or if all compared cases are unseen. ``budgets`` are those
    that ended a run before its planned rounds.
    """
    # A case was compared if its times were tested, a change is unseen in it, or a value of it has a verdict.
    compared = [case for case in cases if case.tests or case.unseen or any(value.verdict for value in case.values)]
    unseen = [case for case in compared if case.unseen]
    if not unseen:
        return None
    decisive = any(case.must_detect for case in unseen) or unseen == compared
    remedies = [*dict.fromkeys(case.remedy for case in unseen if case.remedy)]
    if rounds := max(case.rounds_to_see or 0 for case in unseen):
        remedies.append(_more_rounds(rounds, budgets))
    if not decisive:  # 4 is the exit code of an undecided comparison
        remedies.append(f"with --detect {100 * (unseen[0].detect or 0):.3g}% that would end with 4")
    kinds = " or ".join(dict.fromkeys(case.unseen_kind for case in unseen))
    sizes = " or ".join(dict.fromkeys(percent(case.detect or 0) for case in unseen))
    share = f"{len(unseen):,} of {len(compared):,} case{'' if len(compared) == 1 else 's'}"
    extent = f"a {kinds} of {sizes} or more is not excluded in {share}"
    return Undetectable(tuple(case.case for case in unseen), "; ".join([extent, *remedies]), decisive)


def _more_rounds(rounds: int, budgets: Iterable[SpentBudget]) -> str:
    """Say what so many rounds a side would do for the unseen cases, and how to get them."""
    if rounds > MOST_ROUNDS:
        return f"not even {MOST_ROUNDS:,} rounds a side would call or exclude it: measure on a quieter machine"
    return f"{rounds:,} rounds a side would probably call or exclude it: {option_for(rounds, budgets)}"


def powerless(cases: Sequence[CaseVerdict], budgets: Iterable[SpentBudget]) -> str | None:
    """Say why no case could have been called slower, however slow; None if one could.

    A test has too few rounds if it is not significant after Holm's correction even at the smallest p that its rounds can give. The tests
    of times count; only if no case has times, those of values and memory do. Memory alone is no comparison.
    """
    times = [test for case in cases for test in case.tests.values()]
    values = [value for case in cases for value in case.values if value.is_judged]
    if not times and all(value.is_memory for value in values):
        return "no case has times that can be compared, so nothing could have been called slower"
    tests = times or [value.test for value in values if value.test and not value.test.paired]
    if not times and len(tests) < len(values):  # seeds or a search decide the values that are not in ``tests``
        return None
    smallest_possible_p = min(holm([test.least_p for test in tests], [test.weight for test in tests]))
    if smallest_possible_p < LEVEL:
        return None
    # Rounds are planned for the pairs, which need the most. Without pairs the test of most weight is the first that can be significant.
    test_to_plan = max(tests, key=lambda test: (test.paired, test.weight))
    rounds = rounds_for_gate(sum(test.weight for test in tests) / test_to_plan.weight, paired=test_to_plan.paired)
    none = f"too few rounds: in {len(tests)} tests none could have been called {'slower' if times else 'worse'}"
    return f"{none}; {rounds} rounds a side would do: {option_for(rounds, budgets)}"
