"""Comparison of pairs of rows, which are tested together as one family, and reasons why a case is undecided."""

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

from dlbench.analysis.compare import doubts, power
from dlbench.analysis.compare.calibration import Drift
from dlbench.analysis.compare.doubts import UndetectableCase, by_side
from dlbench.analysis.compare.judge import (
    LEVEL,
    Changes,
    Tests,
    Verdict,
    barred_by_mean,
    disagreement,
    judge_family,
    rank_tests,
    shifted,
    together,
)
from dlbench.analysis.compare.power import DetectionGoal, TestFamily
from dlbench.analysis.compare.values import (
    MemoryChange,
    ValueChange,
    judge_values,
    least_p_values,
    to_exclude,
    verdict_by_values,
)
from dlbench.analysis.compare.verdict import CaseVerdict, Comparison, attention
from dlbench.analysis.compare.worsening import worsening
from dlbench.analysis.ratios.pairing import Unpaired
from dlbench.analysis.read.readings import ClockDifference
from dlbench.analysis.read.table import Results
from dlbench.core.conditions import BUSY, OVERRUN
from dlbench.core.rank_test import rank_test
from dlbench.core.rows.rounds import CaseRounds
from dlbench.core.rows.row import Row
from dlbench.core.thresholds import Thresholds
from dlbench.core.units import percent

_FEW = 0.2
"""Share of rounds that may be unsteady or throttled if the others alone say the same."""


class Matched(NamedTuple):
    """Two rows to compare, and what is found of them."""

    case: str
    base: Row
    new: Row
    thresholds: Thresholds
    quantities: tuple[ValueChange, ...]
    """Of memory, where it can be compared, and of each value that both sides report."""
    clocks: ClockDifference | None = None
    """How the clocks of its device differ between the sides, if they do."""
    drifts: Mapping[str, Drift] = MappingProxyType({})
    balanced: bool = False
    """Whether both were measured in turn, in balanced order: what disturbs them then is the same lottery for both."""
    quiet: bool = False
    """Whether both were measured while others took hardly any CPU time."""
    tests: Tests = MappingProxyType({})
    """Of the times; empty where they can't be tested."""
    changes: Changes = MappingProxyType({})
    """What the tests say among those of all other cases."""
    clean: bool = False
    """Whether its few unsteady or throttled rounds change nothing: without them the verdict would be the same."""
    explained: bool = False
    """Whether its clocks may explain its change, so that nothing is called."""

    @property
    def sides(self) -> tuple[Row, Row]:
        """The base and the new one."""
        return self.base, self.new


def comparison(
    title: str,
    sides: tuple[Results, Results],
    pairs: Sequence[Matched],
    settled: Sequence[CaseVerdict],
    goal: DetectionGoal,
    paired: bool = False,
    report_only: bool = False,
    unpaired: tuple[Unpaired, ...] = (),
    unlike: Sequence[UndetectableCase] = (),
    elsewhere: Collection[str] = (),
) -> Comparison:
    """Test the pairs together, as one family, and put all cases in order.

    ``unlike`` were measured on both sides, in another way; ``elsewhere``: cases of which other rounds have to show what must be detected.
    """
    tests = [{} if _untimed(pair) else rank_tests(pair.base.rounds, pair.new.rounds, pair.drifts, paired) for pair in pairs]
    changes = judge_family(tests, [pair.thresholds.time for pair in pairs])
    quantities = judge_values([pair.quantities for pair in pairs])
    found, others = zip(pairs, tests, changes, quantities, strict=True), {**sides[0].others, **sides[1].others}
    pairs = [pair._replace(tests=test, changes=change, quantities=each, quiet=_quiet(pair, others)) for pair, test, change, each in found]
    sound = zip(pairs, _sound_without_spoiled(pairs, paired), _beyond_clocks(pairs), strict=True)
    pairs = [pair._replace(clean=clean, explained=bool(pair.clocks) and not called) for pair, clean, called in sound]
    spent = max([budget for side in sides for budget in side.budgets.values()], key=lambda each: each.seconds(each.enough), default=None)
    powerless = doubts.powerless(tests, least_p_values([*chain.from_iterable(quantities)]), spent)
    family = TestFamily(sum(test.weight for each in tests for test in each.values()), sum(map(bool, tests)), powerless is None)
    judged = [_case_verdict(pair, family, goal) for pair in pairs]
    able = [each for each in judged if each.changes or each.not_excluded or each.memory or any(value.verdict for value in each.values)]
    seen_to = [each.not_excluded for each in judged if each.not_excluded] if goal.insist or not report_only else []
    open_cases = [each for each in (*unlike, *seen_to) if each.case not in elsewhere]
    lost = [next(iter(side.lost.values()), None) for side in sides]
    cases = tuple(sorted([_with_loss(case, lost) for case in (*settled, *judged)], key=attention))
    return Comparison(title, cases, powerless, doubts.not_excluded(open_cases, len(unlike) + len(able), spent), report_only, unpaired)


def _with_loss(case: CaseVerdict, lost_of_sides: Sequence[Collection[str] | None]) -> CaseVerdict:
    """Note of which sides damaged lines may have had rounds of a case, or all of them."""
    sides = []
    for (side, row), lost in zip(by_side(case.base, case.new), lost_of_sides, strict=True):
        if row is None and lost is not None and case.verdict in (Verdict.MISSING, Verdict.NEW):
            sides.append(f"its lines may be among the damaged ones of {side}")
        elif row is not None and lost and row.case.id in lost:
            sides.append(f"it may have lost a round with a damaged line of {side}")
    return case.because(*sides)._replace(lost=True) if sides else case


def _with_same_verdict(pairs: Sequence[Matched], others: Sequence[Tests]) -> list[bool]:
    """Return whether the verdict of each case is the same by its other tests, those of all other cases staying; False without any."""
    if not any(others):
        return [False] * len(others)
    tests = [other or pair.tests for pair, other in zip(pairs, others, strict=True)]
    judged = zip(pairs, others, judge_family(tests, [pair.thresholds.time for pair in pairs]), strict=True)
    return [bool(other) and together(pair.changes) is together(changes) for pair, other, changes in judged]


def _beyond_clocks(pairs: Sequence[Matched]) -> list[bool]:
    """Return of each case whether it would be slower, or faster, however much of its change its clocks explain.

    The times of new are taken once as if the clocks had made them longer by all they can, and once shorter; whatever the true effect, it
    lies between, so a verdict that is the same both times stands.
    """
    called = [bool(pair.clocks and pair.changes) and together(pair.changes).is_change for pair in pairs]
    for longest in (True, False):
        left = [_without_clocks(pair, longest) if each else {} for pair, each in zip(pairs, called, strict=True)]
        called = _with_same_verdict(pairs, left)
    return called


def _without_clocks(pair: Matched, longest: bool) -> Tests:
    """Return the tests of the times that new would have had, had its clocks made them as much longer, or shorter, as they can."""
    factor = 1.0 if pair.clocks is None else pair.clocks.slower if longest else pair.clocks.faster
    if factor == 1:  # as they are: the mean of an early calibration calls nothing, which a new test would not know
        return pair.tests
    return {name: shifted(test, -math.log(factor)) for name, test in pair.tests.items()}


def _sound_without_spoiled(pairs: Sequence[Matched], paired: bool) -> list[bool]:
    """Return of each case whether its few unsteady or throttled rounds change nothing."""
    left = [
        rank_tests(_unspoiled(pair.base), _unspoiled(pair.new), pair.drifts, paired)
        if pair.tests and 0 < max(statistics.fmean(each.rounds.spoiled) for each in pair.sides) <= _FEW
        else {}
        for pair in pairs
    ]
    return _with_same_verdict(pairs, left)


def _unspoiled(row: Row) -> CaseRounds:
    return row.rounds.times_at([at for at, spoiled in enumerate(row.rounds.spoiled) if not spoiled])


def _spoiled_rounds(sides: Sequence[Row]) -> str:
    """Say how many rounds were unsteady, throttled or lost much time, where that changes nothing."""
    counts = [
        f"{sum(spoiled)} of {len(spoiled)} rounds in {side} "
        f"{'was' if sum(spoiled) == 1 else 'were'} unsteady, throttled or short of CPU time"
        for side, each in by_side(*sides)
        if any(spoiled := each.rounds.spoiled)
    ]
    return f"{' and '.join(counts)}, and without the verdict is the same"


def _case_verdict(pair: Matched, family: TestFamily, goal: DetectionGoal) -> CaseVerdict:
    """Return the verdict of a pair by its times, or why they say nothing, then by its memory and its values."""
    detect, asked = goal.of_case(pair.thresholds)
    worse = [worsening(each, detect) for each in to_exclude(pair.quantities)] if detect else []
    memory = next((each for each in pair.quantities if isinstance(each, MemoryChange)), None)
    values = tuple([each for each in pair.quantities if each is not memory])
    found = CaseVerdict(
        pair.case,
        Verdict.INCONCLUSIVE,
        base=pair.base,
        new=pair.new,
        changes=pair.changes,
        memory=memory,
        values=values,
        thresholds=pair.thresholds,
        detect=detect,
    )
    untimed = _untimed(pair)
    if untimed is None:
        found = _by_time(found, pair, family, insist=goal.insist or not all(each.excluded for each in worse))
    elif detect and all(each.rounds.median_s for each in pair.sides):
        found = found.because(untimed)._replace(not_excluded=UndetectableCase(pair.case, detect, untimed))
    elif of_values := verdict_by_values(values):
        found = found._replace(verdict=of_values)
    else:
        found = found.because(untimed)
    not_excluded, rounds = found.not_excluded, found.rounds_to_see
    if detect:
        rounds = max((each for each in (rounds, *(quantity.rounds for quantity in worse)) if each), default=None)
        if left := [each.worst for each in worse if not each.excluded]:
            not_excluded = not_excluded or UndetectableCase(pair.case, detect, "")
            why = "; ".join(filter(None, (not_excluded.why, *left)))
            not_excluded = not_excluded._replace(what="worsening", why=why, rounds=rounds)
    regressed = [each.column.name for each in pair.quantities if each.verdict is Verdict.SLOWER]
    notes = [str(memory), f"by time {found.verdict}" if "memory" in regressed else "", memory.remark] if memory else []
    notes += [str(each) for each in values if each.matters or not pair.changes]
    if found.verdict is Verdict.SLOWER and pair.changes:
        regressed.insert(0, "time")
    return found.because(*notes)._replace(
        verdict=Verdict.SLOWER if regressed else found.verdict,
        regressed=tuple(regressed),
        not_excluded=not_excluded and not_excluded._replace(asked=asked or not_excluded.asked),
        rounds_to_see=rounds,
    )


def _by_time(found: CaseVerdict, pair: Matched, family: TestFamily, insist: bool) -> CaseVerdict:
    """Judge a pair by its times, and say why a change that must be detected could not have been called, if so.

    ``insist``: the rounds in which it could are wanted, even where it is excluded.
    """
    threshold, sides, changes, detect, tests = pair.thresholds.time, pair.sides, pair.changes, found.detect, pair.tests
    least, left = power.detectable(tests, family.weight, threshold), power.possible(tests)
    excluded = detect is None or (left is not None and left < detect)
    planned = power.planned_rounds(tests, family, detect, threshold) if detect and (insist or not excluded) else 0.0
    to_see = power.more_rounds(tests, planned)
    verdict = together(changes)
    notes = ["" if verdict is Verdict.SAME else disagreement(changes), _spoiled_rounds(sides) if pair.clean else ""]
    rounds = not_excluded = None
    barred = _barred(pair, verdict)
    disturbed = doubts.disturbances(sides) if barred or verdict is not Verdict.SAME else ""
    if barred:
        alone = "" if verdict is Verdict.INCONCLUSIVE else f"its times alone would say {verdict}"
        notes = [barred, alone, _remedy(pair)]
        slower = verdict is Verdict.SLOWER
        if detect or slower:
            why = "; ".join(filter(None, (barred, alone if slower else "", disturbed)))
            not_excluded = UndetectableCase(pair.case, detect or threshold, why, _remedy(pair), asked=slower)
        verdict, left = Verdict.INCONCLUSIVE, None
    else:
        if pair.clocks:
            notes.append(f"{pair.clocks.sentence}, which explains {percent(pair.clocks.share)} at most")
        if detect and verdict is not Verdict.SLOWER and not excluded:
            not_excluded = doubts.case_not_excluded(pair.case, detect, left, planned, to_see, sides)
        if verdict is Verdict.INCONCLUSIVE:
            rounds = power.rounds_needed(tests, family.weight, threshold)
            if not barred_by_mean(changes):
                notes += [*doubts.exclusion(left, detect), doubts.prospects(tests, rounds, threshold) if family.able else ""]
    return found.because(*notes, disturbed)._replace(
        verdict=verdict, not_excluded=not_excluded, detectable=least, rounds_needed=rounds, rounds_to_see=to_see, possible=left
    )


def _left_out_apart(pair: Matched) -> str:
    """Say which share of its blocks each side left out, where others can't be why these differ.

    Then threads of the program itself wait for each other, and what that costs is in no block that counts. Others disturb sides in balanced
    order alike; on machines where they took hardly any CPU time they explain a small difference alone.
    """
    rounds = [row.rounds for row in pair.sides]
    if not ((pair.balanced or pair.quiet) and any(each.left_out for each in rounds)):
        return ""
    shares = [
        [out / (out + len(blocks)) for out, blocks in zip(each.left_out or [0] * len(each.numbers), each.blocks, strict=True)]
        for each in rounds
    ]
    p, _, _ = rank_test(shares[0], shares[1], ())
    base, new = map(statistics.fmean, shares)
    if p >= LEVEL or (not pair.balanced and abs(new - base) <= BUSY):
        return ""
    text = f"threads waited for a CPU in {percent(new)} of its blocks and in {percent(base)} of those of the base, which are left out"
    return text if pair.balanced else f"{text}, though others took hardly any CPU time"


def _quiet(pair: Matched, others: Mapping[str, float]) -> bool:
    """Whether both were measured while others, of which this is the CPUs that they took by run, took hardly any."""
    return all(others.get(row.case.run, math.inf) <= BUSY * (row.case.threads or 1) for row in pair.sides)


def _untimed(pair: Matched) -> str | None:
    """Say why the times of a pair can't be tested, if so."""
    for side, row in by_side(*pair.sides):
        if not row.rounds.median_s:
            return f"{side} has values, not times"
        if min(row.rounds.p10_s) <= 0:
            return f"its time reads as zero in {side}; give it more to do"
    return None


def _barred(pair: Matched, verdict: Verdict) -> str | None:
    """Return what rules out a verdict, if anything: ``unsteady in the new file``.

    CPUs that were taken rule out no change of sides in balanced order: chance alone would have struck both alike, but may hide a change.
    """
    # Times that were still moving, that the device cut itself, or that can't be true, show nothing about the program.
    left = [(side, row) for side, row in by_side(*pair.sides) if not (pair.clean and any(row.rounds.spoiled))]
    found = {
        "unsteady": [side for side, row in left if row.flag.not_steady],
        "throttled": [side for side, row in left if row.flag.throttled],
        "implausible": [side for side, row in by_side(*pair.sides) if row.flag.implausible],
    }
    if not (pair.balanced and verdict.is_change):
        found["CPUs taken"] = [side for side, row in left if (row.time.lost_share or 0.0) > OVERRUN]
    marks = [f"{mark} {'on both sides' if len(sides) > 1 else f'in {sides[0]}'}" for mark, sides in found.items() if sides]
    marks += [pair.clocks.sentence] if pair.clocks and pair.explained else []
    marks += [apart] if verdict is Verdict.SAME and (apart := _left_out_apart(pair)) else []
    return ", ".join(marks) or None


def _remedy(pair: Matched) -> str:
    if any(row.flag.implausible for row in pair.sides):
        return "dlbench show says why"
    if pair.explained:
        return "measure both in turn, with dlbench ab"
    return "measure again on a quieter machine"
