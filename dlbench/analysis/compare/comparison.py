"""Comparison of pairs of rows, which are tested together as one family, and reasons why a case is undecided."""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from dlbench.analysis.compare import power
from dlbench.analysis.compare.calibration import Calibration
from dlbench.analysis.compare.judge import LEVEL, Tests, Verdict, by_side, disagreement, judge_family, rank_tests, together
from dlbench.analysis.compare.values import ValueChange, judge_values
from dlbench.analysis.compare.verdict import (
    IN_TURN,
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

    def tests(self, found: CaseVerdict, base: CaseRounds, new: CaseRounds) -> Tests:
        """Return the tests of a case's times, in all of its rounds or in some of them."""
        return rank_tests(base, new, found.threshold, self.calibration.drifts(found.case) if self.calibration else {}, self.paired)

    def verdict(self, tests: Tests) -> Verdict:
        """Return the verdict of other tests of a case than the family's, corrected as in the first step of Holm's correction."""
        return together({name: test._replace(p_holm=test.p_among(self.weight / test.weight)) for name, test in tests.items()})


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
    found = sorted((_with_loss(case, family.sides) for case in concluded), key=attention)
    return Comparison(title, tuple(found), no_power, sum_up_unseen(found, budgets), family.report_only, unmatched)


def _why_untimed(found: CaseVerdict) -> str:
    """Say why the times of a case can't be tested; an empty text if they can."""
    for side, row in by_side(*found.sides):
        if not row.rounds.median_s:
            return f"{side} has values, not times"
        if min(row.rounds.p10_s) <= 0:
            return f"its time reads as zero in {side}; give it more to do"
    return ""


def _with_loss(case: CaseVerdict, results: tuple[Results, Results]) -> CaseVerdict:
    """Return a case with a note for each side whose damaged lines may have held rounds of it, or all of them."""
    for (side, row), each in zip(by_side(case.base, case.new), results, strict=True):
        lost = next(iter(each.lost.values()), None)
        if lost is not None and (row.case.id in lost if row else case.verdict in (Verdict.MISSING, Verdict.NEW)):
            case = case.because(f"damaged lines of {side} may have had rounds of it")._replace(lost=True)
    return case


def _conclude(found: CaseVerdict, family: TestFamily) -> CaseVerdict:
    """Return a case with its verdict and reasons: by its times, or why these say nothing, then by its memory and its values."""
    concluded = _judge_times(found, family) if found.tests else _judge_untimed(found)
    not_excluded: list[str] = []
    rounds_to_see = [concluded.rounds_to_see]
    for change in _changes_to_exclude(found):
        why, rounds = worsening(change)
        rounds_to_see.append(rounds)
        if why:
            not_excluded.append(why)
    if not_excluded:
        concluded = concluded._replace(unseen="; ".join(filter(None, (concluded.unseen, *not_excluded))), what="worsening")
    regressed = [each.column.name for each in found.values if each.verdict is Verdict.SLOWER]
    notes = [str(each) for each in found.values if each.matters or not (found.tests or each.is_memory)]
    if found.tests and regressed:
        notes.append(f"by time {concluded.verdict}")
    if found.tests and concluded.verdict is Verdict.SLOWER:
        regressed.insert(0, "time")
    return concluded.because(*notes)._replace(
        verdict=Verdict.SLOWER if regressed else concluded.verdict,
        regressed=tuple(regressed),
        rounds_to_see=max(known(rounds_to_see), default=None),
    )


def _changes_to_exclude(found: CaseVerdict) -> list[ValueChange]:
    """Return the changes of memory and values that have to be called or excluded if they are for the worse."""
    if not found.detect:
        return []
    if not any(each.test and each.test.paired for each in found.values):
        return list(found.values)
    # Seeds repeat exactly, so another round would be the same: what a single round reports besides them need not be excluded.
    return [each for each in found.values if each.test and (each.test.paired or each.test.rounds > 1)]


def _judge_untimed(found: CaseVerdict) -> CaseVerdict:
    """Return a case whose times can't be tested: with the worst verdict of its values, or the reason why there is none."""
    untimed = _why_untimed(found)
    if found.detect and all(row.rounds.median_s for row in found.sides):
        return found.because(untimed)._replace(unseen=untimed)
    verdicts = [each.verdict for each in found.values if each.verdict and not each.is_memory]
    return found._replace(verdict=min(verdicts, key=_BY_VALUES.index)) if verdicts else found.because(untimed)


def _judge_times(found: CaseVerdict, family: TestFamily) -> CaseVerdict:
    """Return a case with the verdict of its times, the reasons for it, and what hides a change that must be detected.

    The verdict is that of the tests, unless something such as unsteady rounds rules it out. A change that must be detected is hidden if
    the case is not called slower and the change is not excluded either.
    """
    tests, detect, clocks = found.tests, found.detect, found.clocks
    verdict = together(tests)
    possible = power.possible(tests)
    rounds_planned = 0.0
    if detect:
        to_call = power.rounds_to_call(tests, family.weight, detect)
        rounds_planned = max(to_call, power.rounds_to_exclude(tests, math.log1p(detect), family.cases))
    rounds_to_see = power.more_rounds(tests, rounds_planned)
    disturbed = disturbances(found.sides)
    found = found._replace(verdict=verdict, detectable=power.detectable(tests, family.weight), rounds_to_see=rounds_to_see)
    clean = _is_clean(found, family)
    clocks_explain = clocks is not None and not (verdict.is_change and _holds_for_clocks(tests, clocks, family))
    if barred := _why_barred(found, clean, clocks_explain, family):
        return _barred(found, barred, disturbed, clocks_explain, family.report_only)
    found = found._replace(possible=possible).because(
        disagreement(tests) if verdict is not Verdict.SAME else "",
        "the same without its rounds that were unsteady, throttled or short of CPU time" if clean else "",
        f"{clocks.sentence}, which explains {percent(clocks.share)} at most" if clocks else "",
        exclusion(possible, detect) if verdict is Verdict.INCONCLUSIVE else "",
        disturbed if verdict is not Verdict.SAME else "",
    )
    if verdict is Verdict.SLOWER or detect is None or (possible is not None and possible < detect):
        return found
    why, remedy = why_unseen(possible, rounds_planned, bool(rounds_to_see), found.sides)
    return found._replace(unseen=why, remedy=remedy)


def _barred(found: CaseVerdict, why: str, disturbed: str, clocks_explain: bool, report_only: bool) -> CaseVerdict:
    """Return a case as inconclusive, with the remedy for what rules out the verdict of its times."""
    if any(row.flag.implausible for row in found.sides):
        remedy = "dlbench show says why"
    else:
        remedy = IN_TURN if clocks_explain else "measure again on a quieter machine"
    is_slower = found.verdict is Verdict.SLOWER
    alone = "" if found.verdict is Verdict.INCONCLUSIVE else f"its times alone would say {found.verdict}"
    barred = found.because(why, alone, remedy, disturbed)._replace(verdict=Verdict.INCONCLUSIVE)
    if not (found.detect or (is_slower and not report_only)):
        return barred
    unseen = "; ".join(filter(None, (why, alone if is_slower else "", disturbed)))
    return barred._replace(unseen=unseen, remedy=remedy, asked=found.asked or is_slower, detect=found.detect or found.threshold)


def _is_clean(found: CaseVerdict, family: TestFamily) -> bool:
    """Whether few rounds were unsteady or throttled, and the verdict is the same without them."""
    rounds = [row.rounds for row in found.sides]
    if not 0 < max(statistics.fmean(each.spoiled) for each in rounds) <= _FEW:
        return False
    sound = [each.times_at([at for at, spoiled in enumerate(each.spoiled) if not spoiled]) for each in rounds]
    return family.verdict(family.tests(found, *sound)) is found.verdict


def _holds_for_clocks(tests: Tests, clocks: ClockDifference, family: TestFamily) -> bool:
    """Whether the verdict would be the same however much of the change the clocks explain.

    The times of new are tested once as if the clocks had made them longer by all they can, and once shorter; the true effect lies between.
    """

    def verdict_without(shift: float) -> Verdict:
        shifted = {name: test._replace(new=tuple(each - shift for each in test.new)).ranked() for name, test in tests.items()}
        return family.verdict(shifted)

    return {verdict_without(math.log(clocks.slower)), verdict_without(math.log(clocks.faster))} == {together(tests)}


def _why_barred(found: CaseVerdict, clean: bool, clocks_explain: bool, family: TestFamily) -> str:
    """Return what rules out a verdict: ``unsteady in the new file``; an empty text if nothing does.

    ``clean``: the verdict is the same without its few spoiled rounds. ``clocks_explain``: different clocks may be why the times differ.
    """
    sides_of: dict[str, list[str]] = {}
    for side, row in by_side(*found.sides):
        for mark in row.marks:
            if clean and any(row.rounds.spoiled) and mark != "implausible":
                continue
            # In balanced order others take CPUs from both sides alike, so that may hide a change and not make one.
            if mark == "CPUs taken" and family.balanced and found.verdict.is_change:
                continue
            sides_of.setdefault(mark, []).append(side)
    places = {mark: "on both sides" if len(sides) > 1 else f"in {sides[0]}" for mark, sides in sides_of.items()}
    reasons = [f"{mark} {places[mark]}" for mark in MARKS if mark in places]
    if found.clocks and clocks_explain:
        reasons.append(found.clocks.sentence)
    if found.verdict is Verdict.SAME:
        reasons.append(_difference_in_left_out_blocks(found, family))
    return ", ".join(filter(None, reasons))


def _difference_in_left_out_blocks(found: CaseVerdict, family: TestFamily) -> str:
    """Say which share of its blocks each side left out, if these differ and other processes can't be why; else an empty text.

    A block is left out if threads waited for a CPU in it. If it was not for other processes, threads of the program wait for each other,
    and what that costs is in no block that counts. Other processes disturb both sides alike in balanced order; else they can't be why if
    they took hardly any CPU time.
    """
    rounds = [row.rounds for row in found.sides]
    others = {**family.sides[0].others, **family.sides[1].others}
    quiet = all(others.get(row.case.run, math.inf) <= BUSY * (row.case.threads or 1) for row in found.sides)
    if not (any(each.left_out for each in rounds) and (family.balanced or quiet)):
        return ""
    base_shares, new_shares = map(_shares_left_out, rounds)
    base, new = statistics.fmean(base_shares), statistics.fmean(new_shares)
    p = rank_test(base_shares, new_shares, ())[0]
    if p >= LEVEL or (not family.balanced and abs(new - base) <= BUSY):
        return ""
    text = f"threads waited for a CPU in {percent(new)} of its blocks and in {percent(base)} of those of the base, which are left out"
    return text if family.balanced else f"{text}, though others took hardly any CPU time"


def _shares_left_out(rounds: CaseRounds) -> list[float]:
    """Return the share of blocks that each round left out."""
    left_out = rounds.left_out or [0] * len(rounds.blocks)
    return [out / (out + len(blocks)) for out, blocks in zip(left_out, rounds.blocks, strict=True)]
