"""Comparison of pairs of rows, which are tested together as one family, and reasons why a case is undecided."""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from dlbench.analysis.compare import power
from dlbench.analysis.compare.calibration import Calibration
from dlbench.analysis.compare.judge import LEVEL, Tests, Verdict, by_side, disagreement, judge_family, rank_tests, together
from dlbench.analysis.compare.values import judge_values
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
"""Verdicts that decide a case without times, the first before the others."""


class TestFamily(NamedTuple):
    """All that is compared together."""

    sides: tuple[Results, Results]
    calibration: Calibration | None = None
    paired: bool = False
    """Whether both sides were measured in turn, round by round."""
    balanced: bool = False
    """Whether that was in balanced order: what disturbs them then is the same lottery for both."""
    report_only: bool = False
    """Whether the sides are of different machines, so that slower says nothing about the program."""
    weight: float = 0.0
    """Weight of all tests of times together."""
    cases: int = 0
    """Number of cases that have any."""

    def tests(self, found: CaseVerdict, base: CaseRounds, new: CaseRounds) -> Tests:
        """Test times of a case, those of its rounds or of some of them."""
        return rank_tests(base, new, found.threshold, self.calibration.drifts(found.case) if self.calibration else {}, self.paired)

    def verdict(self, tests: Tests) -> Verdict:
        """Return the verdict of other tests of a case, corrected as the first step of Holm's correction does."""
        return together({name: test._replace(p_holm=test.p_among(self.weight / test.weight)) for name, test in tests.items()})


def compare_cases(
    title: str, cases: Sequence[CaseVerdict], settled: Sequence[CaseVerdict], family: TestFamily, unmatched: tuple[Unmatched, ...] = ()
) -> Comparison:
    """Test the cases together, as one family, and put all in order; ``settled`` are those that no test has to decide, or can."""
    times = judge_family([{} if _untimed(case) else family.tests(case, *[row.rounds for row in case.sides]) for case in cases])
    family = family._replace(weight=sum(test.weight for tests in times for test in tests.values()), cases=sum(map(bool, times)))
    judged = zip(cases, times, judge_values([case.values for case in cases]), strict=True)
    cases = [case._replace(tests=tests, values=values) for case, tests, values in judged]
    budgets = [budget for side in family.sides for budget in side.budgets.values()]
    no_power = powerless(cases, budgets)
    found = sorted((_with_loss(case, family.sides) for case in (*settled, *(_concluded(case, family) for case in cases))), key=attention)
    return Comparison(title, tuple(found), no_power, sum_up_unseen(found, budgets), family.report_only, unmatched)


def _untimed(found: CaseVerdict) -> str:
    """Say why the times of a case can't be tested, if so."""
    for side, row in by_side(*found.sides):
        if not row.rounds.median_s:
            return f"{side} has values, not times"
        if min(row.rounds.p10_s) <= 0:
            return f"its time reads as zero in {side}; give it more to do"
    return ""


def _with_loss(case: CaseVerdict, results: tuple[Results, Results]) -> CaseVerdict:
    """Note the sides whose damaged lines may have had rounds of a case, or all of them."""
    for (side, row), each in zip(by_side(case.base, case.new), results, strict=True):
        lost = next(iter(each.lost.values()), None)
        if lost is not None and (row.case.id in lost if row else case.verdict in (Verdict.MISSING, Verdict.NEW)):
            case = case.because(f"damaged lines of {side} may have had rounds of it")._replace(lost=True)
    return case


def _concluded(found: CaseVerdict, family: TestFamily) -> CaseVerdict:
    """Return the verdict of a case by its times, or why they say nothing, then by its memory and its values."""
    values, worse, untimed = found.values, list[tuple[str, int | None]](), _untimed(found)
    if found.detect:
        # Where seeds repeat, another round would be the same again: what a single one reports apart from them has not to be excluded.
        seeds = any(each.test and each.test.paired for each in values)
        worse = [worsening(each) for each in values if not seeds or (each.test and (each.test.paired or each.test.rounds > 1))]
    if found.tests:
        found = _by_time(found, family)
    elif found.detect and all(row.rounds.median_s for row in found.sides):
        found = found.because(untimed)._replace(unseen=untimed)
    elif judged := [each.verdict for each in values if each.verdict and not each.is_memory]:
        found = found._replace(verdict=min(judged, key=_BY_VALUES.index))
    else:
        found = found.because(untimed)
    if left := [why for why, _ in worse if why]:
        found = found._replace(unseen="; ".join(filter(None, (found.unseen, *left))), what="worsening")
    regressed = [each.column.name for each in values if each.verdict is Verdict.SLOWER]
    notes = [str(each) for each in values if each.matters or not (found.tests or each.is_memory)]
    if found.tests and regressed:
        notes.append(f"by time {found.verdict}")
    if found.tests and found.verdict is Verdict.SLOWER:
        regressed.insert(0, "time")
    return found.because(*notes)._replace(
        verdict=Verdict.SLOWER if regressed else found.verdict,
        regressed=tuple(regressed),
        rounds_to_see=max(known((found.rounds_to_see, *(rounds for _, rounds in worse))), default=None),
    )


def _by_time(found: CaseVerdict, family: TestFamily) -> CaseVerdict:
    """Judge a case by its times, and say why a change that must be detected could not have been called, if so."""
    tests, detect, clocks = found.tests, found.detect, found.clocks
    left, verdict, planned = power.possible(tests), together(tests), 0.0
    if detect:
        called = power.rounds_to_call(tests, family.weight, detect)
        planned = max(called, power.rounds_to_exclude(tests, math.log1p(detect), family.cases))
    rounds_to_see, disturbed = power.more_rounds(tests, planned), disturbances(found.sides)
    found = found._replace(verdict=verdict, detectable=power.detectable(tests, family.weight), rounds_to_see=rounds_to_see)
    clean = _is_clean(found, family)
    explained = clocks is not None and not (verdict.is_change and _stands(tests, clocks, family))
    if barred := _barred(found, clean, explained, family):
        implausible = any(row.flag.implausible for row in found.sides)
        remedy = "dlbench show says why" if implausible else IN_TURN if explained else "measure again on a quieter machine"
        alone, slower = "" if verdict is Verdict.INCONCLUSIVE else f"its times alone would say {verdict}", verdict is Verdict.SLOWER
        found = found.because(barred, alone, remedy, disturbed)._replace(verdict=Verdict.INCONCLUSIVE)
        if not (detect or (slower and not family.report_only)):
            return found
        why = "; ".join(filter(None, (barred, alone if slower else "", disturbed)))
        return found._replace(unseen=why, remedy=remedy, asked=found.asked or slower, detect=detect or found.threshold)
    if verdict is not Verdict.SAME:
        found = found.because(disagreement(tests))
    found = found._replace(possible=left).because(
        "the same without its rounds that were unsteady, throttled or short of CPU time" if clean else "",
        f"{clocks.sentence}, which explains {percent(clocks.share)} at most" if clocks else "",
        exclusion(left, detect) if verdict is Verdict.INCONCLUSIVE else "",
        "" if verdict is Verdict.SAME else disturbed,
    )
    if verdict is Verdict.SLOWER or detect is None or (left is not None and left < detect):
        return found
    why, remedy = why_unseen(left, planned, bool(rounds_to_see), found.sides)
    return found._replace(unseen=why, remedy=remedy)


def _is_clean(found: CaseVerdict, family: TestFamily) -> bool:
    """Whether few rounds were unsteady or throttled, and the verdict is the same without them."""
    rounds = [row.rounds for row in found.sides]
    if not 0 < max(statistics.fmean(each.spoiled) for each in rounds) <= _FEW:
        return False
    sound = [each.times_at([at for at, spoiled in enumerate(each.spoiled) if not spoiled]) for each in rounds]
    return family.verdict(family.tests(found, *sound)) is found.verdict


def _stands(tests: Tests, clocks: ClockDifference, family: TestFamily) -> bool:
    """Whether the verdict would be the same however much of the change the clocks explain.

    The times of new are taken once as if the clocks had made them longer by all they can, and once shorter; whatever the true effect, it
    lies between.
    """

    def shifted(by: float) -> Verdict:
        return family.verdict({name: test._replace(new=tuple([each - by for each in test.new])).ranked() for name, test in tests.items()})

    return {shifted(math.log(clocks.slower)), shifted(math.log(clocks.faster))} == {together(tests)}


def _barred(found: CaseVerdict, clean: bool, explained: bool, family: TestFamily) -> str:
    """Return what rules out a verdict, if anything: ``unsteady in the new file``.

    ``clean``: without its few spoiled rounds the verdict would be the same. ``explained``: its clocks may be why. CPUs that were taken
    rule out no change of sides in balanced order: chance alone would have struck both alike, but may hide a change.
    """
    sides = dict[str, list[str]]()
    for side, row in by_side(*found.sides):
        for mark in row.marks:
            spared = clean and any(row.rounds.spoiled) and mark != "implausible"
            if not (spared or (mark == "CPUs taken" and family.balanced and found.verdict.is_change)):
                sides.setdefault(mark, []).append(side)
    marks = [f"{mark} {'on both sides' if len(sides[mark]) > 1 else f'in {sides[mark][0]}'}" for mark in MARKS if mark in sides]
    clock = found.clocks.sentence if found.clocks and explained else ""
    return ", ".join(filter(None, (*marks, clock, _left_out_apart(found, family) if found.verdict is Verdict.SAME else "")))


def _left_out_apart(found: CaseVerdict, family: TestFamily) -> str:
    """Say which share of its blocks each side left out, where others can't be why these differ.

    Then threads of the program itself wait for each other, and what that costs is in no block that counts. Others disturb sides in balanced
    order alike; on machines where they took hardly any CPU time they explain a small difference alone.
    """
    rounds, others = [row.rounds for row in found.sides], {**family.sides[0].others, **family.sides[1].others}
    quiet = all(others.get(row.case.run, math.inf) <= BUSY * (row.case.threads or 1) for row in found.sides)
    if not (any(each.left_out for each in rounds) and (family.balanced or quiet)):
        return ""
    shares = [
        [out / (out + len(blocks)) for out, blocks in zip(each.left_out or [0] * len(each.numbers), each.blocks, strict=True)]
        for each in rounds
    ]
    base, new = map(statistics.fmean, shares)
    if rank_test(shares[0], shares[1], ())[0] >= LEVEL or (not family.balanced and abs(new - base) <= BUSY):
        return ""
    text = f"threads waited for a CPU in {percent(new)} of its blocks and in {percent(base)} of those of the base, which are left out"
    return text if family.balanced else f"{text}, though others took hardly any CPU time"
