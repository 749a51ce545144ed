"""Results against results, or the rows of a file against each other: a verdict for every case, and whether any could have been bad."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from dlbench.analysis.calibration import Calibration, Drift
from dlbench.analysis.clocks import Clocks, clock_difference
from dlbench.analysis.findings import WORK, Entry, Unpaired, couple, entries
from dlbench.analysis.judge import (
    LEVEL,
    Change,
    MemoryChange,
    RankTest,
    Verdict,
    detectable,
    drifts_too_far,
    judge,
    memory_change,
    rank_tests,
    rounds_needed,
    together,
)
from dlbench.analysis.table import Results
from dlbench.core.model import Status
from dlbench.core.stats import holm, rounds_for_gate, smallest_p
from dlbench.core.summary import Row, ending
from dlbench.core.thresholds import Settings, Thresholds
from dlbench.core.units import byte_count, percent

ACROSS_RUNS = Thresholds(time=0.1)
WITHIN_A_RUN = Thresholds(time=0.03)
"""Rounds that were measured in turn share what the machine did meanwhile, so a smaller change can be told."""

# Times that were still moving, that the device cut itself, or that can't be true, show nothing about the program.
_BARRING = {"flag.not_steady": "unsteady", "flag.throttled": "throttled", "flag.implausible": "implausible"}


@dataclass(frozen=True, slots=True)
class CaseVerdict:
    """What became of one case, and why."""

    case: str
    verdict: Verdict
    note: str = ""
    regressed: tuple[str, ...] = ()
    """What got worse: ``time``, ``memory``."""
    base: Row | None = None
    new: Row | None = None
    changes: Mapping[str, Change] = field(default_factory=dict)
    """Of ``median`` and ``p10``; empty where the times could not be tested."""
    memory: MemoryChange | None = None
    detectable: float | None = None
    """Of an inconclusive case the smallest change that could have been called."""
    rounds_needed: int | None = None
    """Of an inconclusive case the rounds a side that would probably decide it."""
    thresholds: Thresholds | None = None
    """From where on a change of it matters; None where nothing was compared."""

    @property
    def statistic(self) -> str:
        """Whose change to show: the median's, unless the verdict stands on the p10's alone."""
        return next((name for name, each in self.changes.items() if each.verdict is self.verdict), "median")

    @property
    def shown(self) -> Change | None:
        """The change of that statistic, if the times could be tested."""
        return self.changes.get(self.statistic)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A verdict for every case of two sides, the worst first."""

    title: str
    cases: tuple[CaseVerdict, ...]
    powerless: str | None
    """Why no case could have been called slower, however slow; None where one could."""
    report_only: bool = False
    """Whether the sides are of different machines, so that slower says nothing about the program."""
    unpaired: tuple[Unpaired, ...] = ()
    """Rows of the same file that stand in no pair."""


def compare(
    base: Results,
    new: Results,
    thresholds: Thresholds = ACROSS_RUNS,
    across_machines: bool = False,
    free: Collection[str] = (),
    *,
    given: Settings = MappingProxyType({}),
    calibration: Calibration | None = None,
) -> Comparison:
    """Compare the cases of one file with those of another, each matched by its whole identity.

    ``thresholds`` hold where the suite that base was run with sets none, and ``given`` in place of either. ``across_machines``: the
    sides are known to be of different machines; the device's name and its threads may then differ. ``free``: columns of the identity
    that may differ because they are part of what is compared. ``calibration``: what occasions
    alone do on this machine, which every verdict then allows for.
    """
    bases, news = ({str(each.row["case.id"]): each for each in entries(side)} for side in (base, new))
    columns = [*WORK, "case.math", *(name for name in base.columns if name.startswith("param.") and name in new.columns)]
    if not across_machines:
        columns += ["case.device_name", "case.threads"]
    columns = [name for name in columns if name not in free]
    pairs: list[_Pair] = []
    settled: list[CaseVerdict] = []
    for case in dict.fromkeys([*bases, *news]):
        one, other = bases.get(case), news.get(case)
        if verdict := _settled(case, one, other, columns):
            settled.append(verdict)
        elif one and other:
            apart = None if across_machines else clock_difference(_clocks(base), _clocks(new), str(one.row["case.device"]))
            drifts = calibration.drifts(case) if calibration else {}
            pairs.append(_Pair(case, one, other, _thresholds(base, one, thresholds, given), apart, drifts))
    title = f"{', '.join(new.environments)} against {', '.join(base.environments)}"
    return _comparison(title, pairs, settled, across_machines)


def compare_by(results: Results, by: str, thresholds: Thresholds = WITHIN_A_RUN, *, given: Settings = MappingProxyType({})) -> Comparison:
    """Compare the rows of a file that differ in one column, as `findings.pair` pairs them; thresholds are as in `compare`.

    Raises UsageError for an unknown column.
    """
    found = couple(results, by)
    pairs = [_Pair(str(new.row["case.id"]), base, new, _thresholds(results, base, thresholds, given)) for base, new in found.couples]
    failed = {str(each.row["case.id"]): each for each in entries(results) if _status(each).is_failure}
    settled = [CaseVerdict(case, Verdict.FAILED, _ending(each), new=each.row) for case, each in failed.items()]
    unpaired = tuple(each for each in found.unpaired if each.case not in failed)
    title = f"{', '.join(results.environments)}: each {found.column} against {found.base_value}"
    return _comparison(title, pairs, settled, unpaired=unpaired)


class _Pair(NamedTuple):
    case: str
    base: Entry
    new: Entry
    thresholds: Thresholds
    clocks: str | None = None
    """How the clocks of its device differ between the sides, if they do."""
    drifts: Mapping[str, Drift] = MappingProxyType({})


def _clocks(side: Results) -> Clocks:
    return next(iter(side.clocks.values()), {})


def _thresholds(base: Results, entry: Entry, thresholds: Thresholds, given: Settings) -> Thresholds:
    """Return what holds for a case, of base's suite: a new file must not loosen the gate that it has to pass."""
    suites = base.thresholds.get(str(entry.row["case.run"]), {})
    said = suites.get(str(entry.row["case.suite"]), {})
    return thresholds.of_workload(str(entry.row["case.workload"]), said).with_metrics(given)


def _settled(case: str, base: Entry | None, new: Entry | None, columns: Iterable[str]) -> CaseVerdict | None:
    """Return the verdict of a case that no test has to decide, or cannot."""
    if new is None:
        if base is None or _status(base) is Status.OK:
            return CaseVerdict(case, Verdict.MISSING, "not in the new file", base=base.row if base else None)
        # What was not measured in the base can't be lost: a suite without it, or a machine that the suite no longer names.
        return CaseVerdict(case, Verdict.SAME, f"not in the new file; in the base {_ending(base)}", base=base.row)
    status = _status(new)
    if base is None:
        verdict, note = (Verdict.FAILED, _ending(new)) if status.is_failure else (Verdict.NEW, "not in the base")
        return CaseVerdict(case, verdict, note, new=new.row)
    was = _status(base)
    if status.is_failure or (was is Status.OK and status is not Status.OK):
        verdict, note = Verdict.FAILED, f"{_ending(new)}{'' if was is Status.OK else f'; in the base it was {was}'}"
    elif different := _differences(base.row, new.row, columns):
        verdict, note = Verdict.INCOMPARABLE, "; ".join(different)
    elif was is status is not Status.OK:
        verdict, note = Verdict.SAME, f"on both sides {_ending(new)}"
    elif was is not Status.OK:
        verdict, note = Verdict.INCOMPARABLE, f"case.status: {was} against {status}; in the base {_ending(base)}"
    else:
        return None
    return CaseVerdict(case, verdict, note, base=base.row, new=new.row)


def _status(entry: Entry) -> Status:
    return Status(str(entry.row["case.status"]))


def _ending(entry: Entry) -> str:
    return ": ".join(ending(entry.row))


def _differences(base: Row, new: Row, columns: Iterable[str]) -> list[str]:
    """Name what differs of a case's identity; what one side does not tell is no difference.

    So a parameter that a workload gained later leaves comparisons with old files as they are.
    """
    found = []
    for name in columns:
        one, other = base[name], new[name]
        if one != other and one is not None and other is not None:
            if name != "case.math":
                found.append(f"{name}: {one} against {other}")
                continue
            before, after = (dict(flag.partition("=")[::2] for flag in str(flags).split(", ")) for flags in (one, other))
            found += [f"{flag}: {before[flag]} against {after[flag]}" for flag in before if before[flag] != after.get(flag, before[flag])]
    return found


def _comparison(
    title: str,
    pairs: Sequence[_Pair],
    settled: Iterable[CaseVerdict],
    report_only: bool = False,
    unpaired: tuple[Unpaired, ...] = (),
) -> Comparison:
    """Test the pairs together, as one family, and put all cases in order."""
    tests = [{} if _untimed(pair) else rank_tests(pair.base.rounds, pair.new.rounds, pair.drifts) for pair in pairs]
    every = [test for each in tests for test in each.values()]
    corrected = iter(holm([test.p for test in every]))
    tested = len(every) // 2
    enough = rounds_for_gate(tested, LEVEL, least=1)
    cases = [*settled]
    for pair, each in zip(pairs, tests, strict=True):
        changes = {name: judge(test, next(corrected), pair.thresholds.time) for name, test in each.items()}
        cases.append(_case_verdict(pair, each, changes, len(every), enough))
    cases.sort(key=attention)
    return Comparison(title, tuple(cases), _powerless(pairs, tests, tested), report_only, unpaired)


def attention(case: CaseVerdict) -> tuple[int, float]:
    """Return what sorts cases: the worst verdict first, and of one verdict that says there is a change the largest."""
    changed = case.shown if case.verdict in (Verdict.SLOWER, Verdict.FASTER) else None
    return list(Verdict).index(case.verdict), -abs(changed.change) if changed else 0.0


def _case_verdict(pair: _Pair, tests: Mapping[str, RankTest], changes: Mapping[str, Change], family: int, enough: int) -> CaseVerdict:
    threshold = pair.thresholds.time
    memory = memory_change(pair.base, pair.new, pair.thresholds.memory)
    verdict, notes = Verdict.INCONCLUSIVE, [_untimed(pair) or ""]
    least = rounds = None
    if changes:
        verdict, notes = together(changes.values()), [_opposite(changes)]
        if verdict is not changes["median"].verdict and verdict in (Verdict.SLOWER, Verdict.FASTER):
            notes = [f"by its p10; by its median {changes['median'].verdict}"]
        if barred := _barred(pair):
            notes = [f"{barred}; the times alone would say {verdict}: {_remedy(pair)}"]
            verdict = Verdict.INCONCLUSIVE
        elif verdict is Verdict.INCONCLUSIVE:
            least, rounds = detectable(tests, family, threshold), rounds_needed(tests, enough, threshold)
            notes.append(_would_do(least, rounds, drifts_too_far(tests, threshold)))
    regressed = ["time"] if verdict is Verdict.SLOWER else []
    if memory and memory.grew:
        notes.append(f"memory grew from {byte_count(memory.base_bytes)} to {byte_count(memory.new_bytes)}; by time {verdict}")
        regressed.append("memory")
        verdict = Verdict.SLOWER
    note = "; ".join(filter(None, notes))
    return CaseVerdict(
        pair.case, verdict, note, tuple(regressed), pair.base.row, pair.new.row, changes, memory, least, rounds, pair.thresholds
    )


def _untimed(pair: _Pair) -> str | None:
    """Say why the times of a pair can't be tested, if so."""
    for side, entry in (("the base", pair.base), ("the new file", pair.new)):
        if not entry.rounds.median_s:
            return f"{side} has values, not times, and values are not judged"
        if min(entry.rounds.p10_s) <= 0:
            return f"its time reads as zero in {side}; give it more to do"
    return None


def _barred(pair: _Pair) -> str | None:
    """Name what forbids a verdict, if anything does: ``unsteady in the new file``."""
    return ", ".join(filter(None, (*_marks(pair), pair.clocks))) or None


def _marks(pair: _Pair) -> list[str]:
    sides = (("the base", pair.base), ("the new file", pair.new))
    return [f"{mark} in {side}" for flag, mark in _BARRING.items() for side, entry in sides if entry.row[flag]]


def _remedy(pair: _Pair) -> str:
    if any(entry.row["flag.implausible"] for entry in (pair.base, pair.new)):
        return "dlbench show says why"
    return "measure again on a quieter machine" if _marks(pair) else "measure both in turn, with dlbench ab"


def _opposite(changes: Mapping[str, Change]) -> str:
    verdicts = {name: each.verdict for name, each in changes.items()}
    if set(verdicts.values()) != {Verdict.SLOWER, Verdict.FASTER}:
        return ""
    return ", ".join(f"{verdict} by its {name}" for name, verdict in verdicts.items())


def _would_do(least: float | None, rounds: int | None, too_far: bool) -> str:
    seen = "no change could have been called" if least is None else f"a change of {percent(least)} could have been called"
    if too_far:
        return f"{seen}; occasions alone may differ by more than the threshold: measure both sides in turn, with dlbench ab"
    return f"{seen}; {'it lies at the threshold' if rounds is None else f'{rounds:,} rounds a side would probably decide it'}"


def _powerless(pairs: Sequence[_Pair], tests: Sequence[Mapping[str, RankTest]], tested: int) -> str | None:
    """Say why no case could have been called slower, if so: with the least p that their rounds allow, Holm's correction spares none."""
    if not tested:
        return "no case has times on both sides, so nothing could have been called slower"
    floors = iter(holm([smallest_p(len(test.base), len(test.new)) for each in tests for test in each.values()]))
    able = [pair for pair, each in zip(pairs, tests, strict=True) if min((next(floors) for _ in each), default=1.0) < LEVEL]
    if not able:
        rounds = rounds_for_gate(tested)
        return (
            f"too few rounds: in {2 * tested} tests, two a case, none could have been called slower; "
            f"{rounds} rounds a side would do: --rounds {rounds}"
        )
    if all(_marks(pair) for pair in able):
        return "every case is unsteady, throttled or implausible, so none could have been called slower; measure again on a quieter machine"
    if all(_barred(pair) for pair in able):
        return "clocks differ in every case, so none could have been called slower; measure both in turn, with dlbench ab"
    return None
