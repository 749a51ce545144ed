"""Comparison of pairs of rows, which are tested together as one family, and reasons why a case is undecided."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from dlbench.analysis.compare import doubts, power
from dlbench.analysis.compare.calibration import Drift
from dlbench.analysis.compare.clocks import beyond_clocks
from dlbench.analysis.compare.doubts import SIDES, CaseNotExcluded
from dlbench.analysis.compare.judge import Change, RankTest, Verdict, barred_by_mean, disagreement, judge_family, rank_tests, together
from dlbench.analysis.compare.power import SlowdownGoal, TestFamily
from dlbench.analysis.compare.values import (
    MemoryChange,
    ValueChange,
    judge_values,
    least_p_values,
    memory_change,
    verdict_by_values,
)
from dlbench.analysis.compare.verdict import CaseVerdict, Comparison, attention
from dlbench.analysis.compare.worsening import Worsening, worsening
from dlbench.analysis.ratios.pairing import Unpaired
from dlbench.analysis.read.header import SpentBudget
from dlbench.analysis.read.readings import ClockDifference
from dlbench.core.conditions import OVERRUN
from dlbench.core.rows.rounds import Rounds
from dlbench.core.rows.row import Row
from dlbench.core.thresholds import Thresholds
from dlbench.core.units import percent

_FEW = 0.2
"""Share of rounds that may be unsteady or throttled if the others alone say the same."""


class Matched(NamedTuple):
    """Two rows to compare."""

    case: str
    base: Row
    new: Row
    thresholds: Thresholds
    clocks: ClockDifference | None = None
    """How the clocks of its device differ between the sides, if they do."""
    drifts: Mapping[str, Drift] = MappingProxyType({})
    values: tuple[ValueChange, ...] = ()
    """Of each value that both sides report."""
    balanced: bool = False
    """Whether both were measured in turn, in balanced order: what disturbs them then is the same lottery for both."""

    @property
    def sides(self) -> tuple[Row, Row]:
        """The base and the new one."""
        return self.base, self.new


def comparison(
    title: str,
    pairs: Sequence[Matched],
    settled: Sequence[CaseVerdict],
    goal: SlowdownGoal,
    paired: bool = False,
    report_only: bool = False,
    unpaired: tuple[Unpaired, ...] = (),
    unlike: Sequence[CaseNotExcluded] = (),
    budgets: Iterable[SpentBudget] = (),
    elsewhere: Collection[str] = (),
) -> Comparison:
    """Test the pairs together, as one family, and put all cases in order.

    ``unlike`` were measured on both sides, in another way; ``budgets`` ended a side before its rounds; ``elsewhere``: cases of which other
    rounds have to show what must be seen.
    """
    untimed, thresholds = [_untimed(pair) for pair in pairs], [pair.thresholds.time for pair in pairs]
    tests = [
        {} if why else rank_tests(pair.base.rounds, pair.new.rounds, pair.drifts, paired) for pair, why in zip(pairs, untimed, strict=True)
    ]
    changes = judge_family(tests, thresholds)
    clean = _without_spoiled(pairs, tests, changes, paired)
    beyond = beyond_clocks([pair.clocks for pair in pairs], tests, changes, thresholds)
    pairs = [
        pair._replace(clocks=pair.clocks._replace(bars=not called)) if pair.clocks else pair
        for pair, called in zip(pairs, beyond, strict=True)
    ]
    memories, values = judge_values(
        [memory_change(pair.base, pair.new, pair.thresholds.memory) for pair in pairs], [pair.values for pair in pairs]
    )
    spent = max(budgets, key=lambda each: each.enough_s, default=None)
    powerless = doubts.powerless(tests, least_p_values(memories, values), spent)
    family = TestFamily(sum(test.weight for each in tests for test in each.values()), sum(map(bool, tests)), powerless is None)
    timed = zip(pairs, untimed, tests, changes, clean, strict=True)
    judged = [
        _case_verdict(*each, memory, of_values, family, goal) for each, memory, of_values in zip(timed, memories, values, strict=True)
    ]
    able = len(unlike) + sum(
        bool(each.changes or each.not_excluded or each.memory or any(value.verdict for value in each.values)) for each in judged
    )
    seen_to = [each.not_excluded for each in judged if each.not_excluded] if goal.insist or not report_only else []
    open_cases = [each for each in (*unlike, *seen_to) if each.case not in elsewhere]
    cases = tuple(sorted([*settled, *judged], key=attention))
    return Comparison(title, cases, powerless, doubts.not_excluded(open_cases, able, spent), report_only, unpaired)


def _without_spoiled(
    pairs: Sequence[Matched], tests: Sequence[Mapping[str, RankTest]], changes: Sequence[Mapping[str, Change]], paired: bool
) -> list[bool]:
    """Return of each case whether its few unsteady or throttled rounds change nothing: without them the verdict would be the same."""
    few = [bool(each) and 0 < max(map(_spoiled_share, pair.sides)) <= _FEW for pair, each in zip(pairs, tests, strict=True)]
    if not any(few):
        return few
    left = [
        rank_tests(_unspoiled(pair.base), _unspoiled(pair.new), pair.drifts, paired) if spoiled else each
        for pair, each, spoiled in zip(pairs, tests, few, strict=True)
    ]
    judged = zip(few, changes, judge_family(left, [pair.thresholds.time for pair in pairs]), strict=True)
    return [spoiled and together(before) is together(after) for spoiled, before, after in judged]


def _spoiled_share(row: Row) -> float:
    spoiled = row.rounds.spoiled
    return sum(spoiled) / len(spoiled) if True in spoiled else 0.0


def _unspoiled(row: Row) -> Rounds:
    return row.rounds.times_at([at for at, spoiled in enumerate(row.rounds.spoiled) if not spoiled])


def _spoiled_rounds(sides: Sequence[Row]) -> str:
    """Say how many rounds were unsteady, throttled or lost much time, where that changes nothing."""
    counts = [
        f"{sum(spoiled)} of {len(spoiled)} rounds in {side} "
        f"{'was' if sum(spoiled) == 1 else 'were'} unsteady, throttled or short of CPU time"
        for side, each in zip(SIDES, sides, strict=True)
        if any(spoiled := each.rounds.spoiled)
    ]
    return f"{' and '.join(counts)}, and without the verdict is the same"


def _case_verdict(
    pair: Matched,
    untimed: str | None,
    tests: Mapping[str, RankTest],
    changes: Mapping[str, Change],
    clean: bool,
    memory: MemoryChange | None,
    values: Sequence[ValueChange],
    family: TestFamily,
    goal: SlowdownGoal,
) -> CaseVerdict:
    """Return the verdict of a pair by its times, or why they say nothing, then by its memory and its values."""
    must_see, asked = goal.of_case(pair.thresholds)
    worse = [worsening(each, must_see) for each in (memory, *values) if each] if must_see else []
    found = CaseVerdict(
        pair.case,
        Verdict.INCONCLUSIVE,
        base=pair.base,
        new=pair.new,
        changes=changes,
        memory=memory,
        values=tuple(values),
        thresholds=pair.thresholds,
        must_see=must_see,
    )
    if untimed is None:
        insist = goal.insist or not all(each.excluded for each in worse)
        found = _by_time(found, pair, tests, clean, family, insist)
    elif must_see and all(each.rounds.median_s for each in pair.sides):
        found = found._replace(note=untimed, not_excluded=CaseNotExcluded(pair.case, must_see, untimed))
    elif of_values := verdict_by_values(values):
        found = found._replace(verdict=of_values)
    else:
        found = found._replace(note=untimed)
    if must_see:
        found = _with_values(found, must_see, worse)
    notes = [str(memory), f"by time {found.verdict}" if memory.called else "", memory.odd] if memory else []
    notes += [str(each) for each in values if each.matters or not changes]
    regressed = ["time"] if found.verdict is Verdict.SLOWER and changes else []
    regressed += ["memory"] if memory and memory.called else []
    regressed += [each.column.name for each in values if each.verdict is Verdict.SLOWER]
    return found.noting(*notes)._replace(
        verdict=Verdict.SLOWER if regressed else found.verdict,
        regressed=tuple(regressed),
        not_excluded=found.not_excluded and found.not_excluded._replace(asked=asked or found.not_excluded.asked),
    )


def _by_time(
    found: CaseVerdict, pair: Matched, tests: Mapping[str, RankTest], clean: bool, family: TestFamily, insist: bool
) -> CaseVerdict:
    """Judge a pair by its times, and say why a change that must be seen could not have been called, if so.

    ``insist``: the rounds in which it could are wanted, even where it is excluded.
    """
    threshold, sides, changes, must_see, tests = pair.thresholds.time, pair.sides, found.changes, found.must_see, power.seeing(tests)
    least, left = power.detectable(tests, family.weight, threshold), power.possible(tests)
    excluded = must_see is None or (left is not None and left < must_see)
    planned = power.planned_rounds(tests, family, must_see, threshold) if must_see and (insist or not excluded) else 0.0
    to_see = power.rounds_to_see(tests, planned) if planned else None
    verdict = together(changes)
    notes = ["" if verdict is Verdict.SAME else disagreement(changes), _spoiled_rounds(sides) if clean else ""]
    rounds = not_excluded = None
    disturbed = "" if verdict is Verdict.SAME else doubts.disturbances(sides)
    if barred := _barred(pair, clean, verdict):
        notes = [f"{barred}; the times alone would say {verdict}: {_remedy(pair)}"]
        disturbed = doubts.disturbances(sides)
        slower = verdict is Verdict.SLOWER
        if must_see or slower:
            why = "; ".join(filter(None, (barred, "its times alone would say slower" if slower else "", disturbed)))
            not_excluded = CaseNotExcluded(pair.case, must_see or threshold, why, _remedy(pair), asked=slower)
        verdict, left = Verdict.INCONCLUSIVE, None
    else:
        if pair.clocks:
            notes.append(f"{pair.clocks.sentence}, which explains {percent(pair.clocks.share)} at most")
        if must_see and verdict is not Verdict.SLOWER and not excluded:
            not_excluded = doubts.case_not_excluded(pair.case, must_see, left, planned, to_see, sides)
        if verdict is Verdict.INCONCLUSIVE:
            rounds = power.rounds_needed(tests, power.least_rounds(tests, family.weight), threshold)
            if not barred_by_mean(changes):
                notes += [doubts.exclusion_sentence(left, must_see), doubts.prospects(tests, rounds, threshold) if family.able else ""]
    return found.noting(*notes, disturbed)._replace(
        verdict=verdict, not_excluded=not_excluded, detectable=least, rounds_needed=rounds, rounds_to_see=to_see, possible=left
    )


def _with_values(found: CaseVerdict, must_see: float, worsenings: Sequence[Worsening]) -> CaseVerdict:
    """Add to why the times could not show what must be seen, and to the rounds in which they could, memory and values."""
    rounds = max((each for each in (found.rounds_to_see, *(of_one.rounds for of_one in worsenings)) if each), default=None)
    not_excluded = found.not_excluded
    if doubts := [each.worst for each in worsenings if not each.excluded]:
        not_excluded = (not_excluded or CaseNotExcluded(found.case, must_see, ""))._replace(what="worsening")
        not_excluded = not_excluded._replace(why="; ".join(filter(None, (not_excluded.why, *doubts))), rounds=rounds)
    return found._replace(not_excluded=not_excluded, rounds_to_see=rounds)


def _untimed(pair: Matched) -> str | None:
    """Say why the times of a pair can't be tested, if so."""
    for side, row in zip(SIDES, pair.sides, strict=True):
        if not row.rounds.median_s:
            return f"{side} has values, not times"
        if min(row.rounds.p10_s) <= 0:
            return f"its time reads as zero in {side}; give it more to do"
    return None


def _barred(pair: Matched, clean: bool, verdict: Verdict) -> str | None:
    """Return what rules out a verdict, if anything: ``unsteady in the new file``. ``clean``: its few spoiled rounds change nothing.

    CPUs that were taken rule out no change of sides in balanced order: chance alone would have struck both alike, but may hide a change.
    """
    # Times that were still moving, that the device cut itself, or that can't be true, show nothing about the program.
    left = [(side, row) for side, row in zip(SIDES, pair.sides, strict=True) if not (clean and any(row.rounds.spoiled))]
    marks = [f"unsteady in {side}" for side, row in left if row.flag.not_steady]
    marks += [f"throttled in {side}" for side, row in left if row.flag.throttled]
    marks += [f"implausible in {side}" for side, row in zip(SIDES, pair.sides, strict=True) if row.flag.implausible]
    if not (pair.balanced and verdict.is_change):
        marks += [f"CPUs taken in {side}" for side, row in left if (row.time.lost_share or 0.0) > OVERRUN]
    marks += [pair.clocks.sentence] if pair.clocks and pair.clocks.bars else []
    return ", ".join(marks) or None


def _remedy(pair: Matched) -> str:
    if any(row.flag.implausible for row in pair.sides):
        return "dlbench show says why"
    if pair.clocks and pair.clocks.bars:
        return "measure both in turn, with dlbench ab"
    return "measure again on a quieter machine"
