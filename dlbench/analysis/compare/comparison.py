"""Comparison of pairs of rows, which are tested together as one family, and reasons why a case is undecided.

A change is called if the verdict is slower or faster, and excluded if it lies beyond the interval. A change that must be detected is unseen
if it is neither. A round is spoiled if it was unsteady, throttled or short of CPU time: then its time may say little about the program.
"""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from dlbench.analysis.compare import power
from dlbench.analysis.compare.calibration import Calibration
from dlbench.analysis.compare.judge import LEVEL, Tests, Verdict, by_side, combined_verdict, disagreement, judge_family, rank_tests
from dlbench.analysis.compare.values import ValueChange, judge_values
from dlbench.analysis.compare.verdict import (
    MEASURE_ALTERNATELY,
    CaseVerdict,
    Comparison,
    attention,
    disturbances,
    exclusion,
    powerless,
    sum_up_unseen,
    why_unseen,
    worsening,
)
from dlbench.analysis.ratios.matching import Unmatched
from dlbench.analysis.read.table import Results
from dlbench.analysis.read.usability import ClockDifference
from dlbench.core.conditions import BUSY
from dlbench.core.rank_test import rank_test
from dlbench.core.rows.columns import CaseRounds
from dlbench.core.rows.row import MARKS
from dlbench.core.stats import known
from dlbench.core.units import percent

_FEW = 0.2
"""Share of rounds that may be unsteady or throttled if the others alone say the same."""
_BY_VALUES = Verdict.SLOWER, Verdict.FASTER, Verdict.INCONCLUSIVE, Verdict.SAME
"""Verdicts of values that decide a case without times, in order of precedence."""


class TestFamily(NamedTuple):
    """Cases that are tested together, and how their sides were measured."""

    sides: tuple[Results, Results]
    calibration: Calibration | None = None
    paired: bool = False
    """Whether both sides were measured alternately, round by round."""
    balanced: bool = False
    """Whether that was in balanced order, so that disturbances are as likely on either side."""
    report_only: bool = False
    """Whether the sides are of different machines, so that slower says nothing about the program."""
    weight: float = 0.0
    """Weight of all tests of times together."""
    cases: int = 0
    """Number of cases that have any."""

    def tests(self, case: CaseVerdict, base: CaseRounds, new: CaseRounds) -> Tests:
        """Return the tests of a case's times, in all of its rounds or in some of them."""
        return rank_tests(base, new, case.threshold, self.calibration.drifts(case.case) if self.calibration else {}, self.paired)

    def verdict(self, tests: Tests) -> Verdict:
        """Return the verdict of a case by other tests than those of the family, corrected as in the first step of Holm's correction."""
        return combined_verdict({name: test._replace(p_holm=test.p_among(self.weight / test.weight)) for name, test in tests.items()})


def compare_cases(
    title: str, cases: Sequence[CaseVerdict], settled: Sequence[CaseVerdict], family: TestFamily, unmatched: tuple[Unmatched, ...] = ()
) -> Comparison:
    """Test ``cases`` together, as one family, and return all in order, the worst first; ``settled`` are those that need no test."""
    times = judge_family([{} if _why_untimed(case) else family.tests(case, *[row.rounds for row in case.sides]) for case in cases])
    values = judge_values([case.values for case in cases])
    weight = sum(test.weight for tests in times for test in tests.values())
    family = family._replace(weight=weight, cases=sum(map(bool, times)))
    cases = [case._replace(tests=tests, values=changes) for case, tests, changes in zip(cases, times, values, strict=True)]
    budgets = [budget for side in family.sides for budget in side.budgets.values()]
    no_power = powerless(cases, budgets)
    concluded = [*settled, *(_conclude(case, family) for case in cases)]
    worst_first = sorted((_with_loss(case, family.sides) for case in concluded), key=attention)
    return Comparison(title, tuple(worst_first), no_power, sum_up_unseen(worst_first, budgets), family.report_only, unmatched)


def _why_untimed(case: CaseVerdict) -> str:
    """Say why the times of a case can't be tested; an empty text if they can."""
    for side, row in by_side(*case.sides):
        if not row.rounds.median_s:
            return f"{side} has values, not times"
        if min(row.rounds.p10_s) <= 0:
            return f"its time reads as zero in {side}; give it more to do"
    return ""


def _with_loss(case: CaseVerdict, results: tuple[Results, Results]) -> CaseVerdict:
    """Return a case with a note for each side whose damaged lines may have held rounds of it, or all of them."""
    for (side, row), side_results in zip(by_side(case.base, case.new), results, strict=True):
        lost = next(iter(side_results.lost.values()), None)  # of the one run of the side
        if lost is not None and (row.case.id in lost if row else case.verdict in (Verdict.MISSING, Verdict.NEW)):
            case = case.because(f"damaged lines of {side} may have had rounds of it")._replace(lost=True)
    return case


def _conclude(case: CaseVerdict, family: TestFamily) -> CaseVerdict:
    """Return a case with its verdict and reasons: first by its times, or why these can't be tested, then by its memory and its values."""
    concluded = _judge_times(case, family) if case.tests else _judge_untimed(case)
    reasons_unseen = list[str]()
    rounds_to_see = [concluded.rounds_to_see]
    for change in _changes_to_exclude(case):
        why_not_excluded, rounds = worsening(change)
        rounds_to_see.append(rounds)
        if why_not_excluded:
            reasons_unseen.append(why_not_excluded)
    if reasons_unseen:
        concluded = concluded._replace(unseen="; ".join(filter(None, (concluded.unseen, *reasons_unseen))), unseen_kind="worsening")
    regressed = [change.column.name for change in case.values if change.verdict is Verdict.SLOWER]
    # A case without times shows each of its values, even if it did not change. A case with times shows only the values that matter.
    # Memory is shown only if it matters, with times or without.
    notes = [str(change) for change in case.values if change.matters or (not case.tests and not change.is_memory)]
    if case.tests:
        if regressed:  # the verdict is then that of a value or of memory, so the one of the times is named
            notes.append(f"by time {concluded.verdict}")
        if concluded.verdict is Verdict.SLOWER:
            regressed.insert(0, "time")
    return concluded.because(*notes)._replace(
        verdict=Verdict.SLOWER if regressed else concluded.verdict,
        regressed=tuple(regressed),
        rounds_to_see=max(known(rounds_to_see), default=None),
    )


def _changes_to_exclude(case: CaseVerdict) -> list[ValueChange]:
    """Return the changes of memory and values that have to be called or excluded if they are for the worse."""
    if not case.detect:
        return []
    if not any(change.test and change.test.paired for change in case.values):
        return list(case.values)
    # Seeds repeat exactly, so another round would be the same: what a single round reports besides them need not be excluded.
    return [change for change in case.values if change.test and (change.test.paired or change.test.rounds > 1)]


def _judge_untimed(case: CaseVerdict) -> CaseVerdict:
    """Return a case whose times can't be tested: with the worst verdict of its values, or the reason why there is none."""
    untimed = _why_untimed(case)
    if case.detect and all(row.rounds.median_s for row in case.sides):  # it has times, and a slowdown in them can't be seen
        return case.because(untimed)._replace(unseen=untimed)
    verdicts = [change.verdict for change in case.values if change.verdict and not change.is_memory]
    return case._replace(verdict=min(verdicts, key=_BY_VALUES.index)) if verdicts else case.because(untimed)


def _judge_times(case: CaseVerdict, family: TestFamily) -> CaseVerdict:
    """Return a case with the verdict of its times, the reasons for it, and why a change that must be detected is unseen, if it is.

    The verdict is that of the tests, unless something such as unsteady rounds rules it out. The change is unseen if the case is not called
    slower and the change is not excluded either.
    """
    tests, detect, clocks = case.tests, case.detect, case.clocks
    verdict = combined_verdict(tests)
    possible_slowdown = power.possible(tests)
    rounds_needed = 0.0
    if detect:
        # Enough to call the change if it is there, and to exclude it if it is not.
        to_call = power.rounds_to_call(tests, family.weight, detect)
        rounds_needed = max(to_call, power.rounds_to_exclude(tests, math.log1p(detect), family.cases))
    rounds_to_see = power.more_rounds(tests, rounds_needed)
    disturbance = disturbances(case.sides)
    case = case._replace(verdict=verdict, detectable=power.detectable(tests, family.weight), rounds_to_see=rounds_to_see)
    same_without_spoiled = _same_without_spoiled(case, family)
    # Different clocks may explain the verdict, unless it is a change that holds however much of it the clocks account for.
    clocks_explain = clocks is not None and not (verdict.is_change and _holds_for_clocks(tests, clocks, family))
    if why := _why_ruled_out(case, same_without_spoiled, clocks_explain, family):
        return _as_inconclusive(case, why, disturbance, clocks_explain, family.report_only)
    case = case._replace(possible=possible_slowdown).because(
        disagreement(tests) if verdict is not Verdict.SAME else "",
        "the same without its rounds that were unsteady, throttled or short of CPU time" if same_without_spoiled else "",
        f"{clocks.sentence}, which explains {percent(clocks.share)} at most" if clocks else "",
        exclusion(possible_slowdown, detect) if verdict is Verdict.INCONCLUSIVE else "",
        disturbance if verdict is not Verdict.SAME else "",
    )
    if verdict is Verdict.SLOWER or detect is None or (possible_slowdown is not None and possible_slowdown < detect):
        return case  # the change is called, need not be detected, or is excluded
    why, remedy = why_unseen(possible_slowdown, rounds_needed, bool(rounds_to_see), case.sides)
    return case._replace(unseen=why, remedy=remedy)


def _as_inconclusive(case: CaseVerdict, why: str, disturbance: str, clocks_explain: bool, report_only: bool) -> CaseVerdict:
    """Return a case as inconclusive, with a remedy; ``why`` says what rules out the verdict of its times.

    The remedy depends on whether a side is implausible, or different clocks may be why the times differ (``clocks_explain``).

    A case that its times alone would call slower must not pass. Its change is then unseen, even if no change had to be detected. Between
    different machines (``report_only``) slower is no failure, so it may pass.
    """
    if any(row.flag.implausible for row in case.sides):
        remedy = "dlbench show says why"
    else:
        remedy = MEASURE_ALTERNATELY if clocks_explain else "measure again on a quieter machine"
    is_slower = case.verdict is Verdict.SLOWER
    by_times_alone = "" if case.verdict is Verdict.INCONCLUSIVE else f"its times alone would say {case.verdict}"
    inconclusive = case.because(why, by_times_alone, remedy, disturbance)._replace(verdict=Verdict.INCONCLUSIVE)
    if not (case.detect or (is_slower and not report_only)):
        return inconclusive
    unseen = "; ".join(filter(None, (why, by_times_alone if is_slower else "", disturbance)))
    # If no change had to be detected, the unseen one is the smallest that matters.
    return inconclusive._replace(
        unseen=unseen, remedy=remedy, must_detect=case.must_detect or is_slower, detect=case.detect or case.threshold
    )


def _same_without_spoiled(case: CaseVerdict, family: TestFamily) -> bool:
    """Whether few rounds were unsteady or throttled, at least one of them, and the verdict is the same without them."""
    rounds = [row.rounds for row in case.sides]
    # The mean of these flags is the share of rounds that are spoiled.
    if not 0 < max(statistics.fmean(side.spoiled) for side in rounds) <= _FEW:
        return False
    sound = [side.times_at([index for index, spoiled in enumerate(side.spoiled) if not spoiled]) for side in rounds]
    return family.verdict(family.tests(case, *sound)) is case.verdict


def _holds_for_clocks(tests: Tests, clocks: ClockDifference, family: TestFamily) -> bool:
    """Whether the verdict would be the same however much of the change the clocks explain.

    The times of new are tested once as if the clocks had made them longer by all they can, and once shorter; the true effect lies between.
    """

    def verdict_without(shift: float) -> Verdict:
        shifted = {name: test._replace(new=tuple(time - shift for time in test.new)).ranked() for name, test in tests.items()}
        return family.verdict(shifted)

    return {verdict_without(math.log(clocks.slower)), verdict_without(math.log(clocks.faster))} == {combined_verdict(tests)}


def _why_ruled_out(case: CaseVerdict, same_without_spoiled: bool, clocks_explain: bool, family: TestFamily) -> str:
    """Return what rules out the verdict of a case's times: ``unsteady in the new file``; an empty text if nothing does.

    ``same_without_spoiled``: the verdict is the same without its few spoiled rounds. ``clocks_explain``: different clocks may be why the
    times differ.
    """
    sides_with_mark: dict[str, list[str]] = {}
    for side, row in by_side(*case.sides):
        for mark in row.marks:
            # Spoiled rounds are why the row has its marks, and the verdict is the same without them. They are not why a row is implausible.
            if same_without_spoiled and any(row.rounds.spoiled) and mark != "implausible":
                continue
            # In balanced order other processes take CPUs from both sides alike, which may hide a change but can't make one.
            if mark == "CPUs taken" and family.balanced and case.verdict.is_change:
                continue
            sides_with_mark.setdefault(mark, []).append(side)
    places = {mark: "on both sides" if len(sides) > 1 else f"in {sides[0]}" for mark, sides in sides_with_mark.items()}
    reasons = [f"{mark} {places[mark]}" for mark in MARKS if mark in places]  # in the order of `MARKS`
    if case.clocks and clocks_explain:
        reasons.append(case.clocks.sentence)
    if case.verdict is Verdict.SAME:  # only this verdict can hide what waiting costs in blocks that do not count
        reasons.append(_difference_in_left_out_blocks(case, family))
    return ", ".join(filter(None, reasons))


def _difference_in_left_out_blocks(case: CaseVerdict, family: TestFamily) -> str:
    """Say which share of its blocks each side left out, if the shares differ because of the program; else an empty text.

    A block is left out if threads waited for a CPU in it. Either other processes had the CPU, or threads of the program wait for each
    other. What the program's own waiting costs is then in no block that counts. Other processes can't be why the shares differ if they took
    hardly any CPU time, nor in balanced order, in which they disturb both sides alike.
    """
    rounds = [row.rounds for row in case.sides]
    # CPUs that other processes kept busy, by run. They took hardly any CPU time if that is at most the share `BUSY` of the case's threads.
    # A run that does not record it counts as a busy one.
    other_cpus = {**family.sides[0].others, **family.sides[1].others}
    others_idle = all(other_cpus.get(row.case.run, math.inf) <= BUSY * (row.case.threads or 1) for row in case.sides)
    if not (any(side.left_out for side in rounds) and (family.balanced or others_idle)):
        return ""
    base_shares, new_shares = map(_shares_left_out, rounds)
    base, new = statistics.fmean(base_shares), statistics.fmean(new_shares)
    p, _, _ = rank_test(base_shares, new_shares, ())
    # Without balance a difference up to `BUSY` may still come from the little CPU time that the others took.
    if p >= LEVEL or (not family.balanced and abs(new - base) <= BUSY):
        return ""
    text = f"threads waited for a CPU in {percent(new)} of its blocks and in {percent(base)} of those of the base, which are left out"
    return text if family.balanced else f"{text}, though others took hardly any CPU time"


def _shares_left_out(rounds: CaseRounds) -> list[float]:
    """Return the share of blocks that each round left out."""
    counts = rounds.left_out or [0] * len(rounds.blocks)
    return [count / (count + len(blocks)) for count, blocks in zip(counts, rounds.blocks, strict=True)]
