"""Comparison of two result files, or of the rows of one: a verdict for every case."""

import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from dlbench.analysis.compare.calibration import Calibration
from dlbench.analysis.compare.comparison import Matched, comparison
from dlbench.analysis.compare.judge import Verdict, by_side
from dlbench.analysis.compare.power import DETECT_BY_DEFAULT, MARGINS_TO_SEE
from dlbench.analysis.compare.values import compared_values
from dlbench.analysis.compare.verdict import CaseVerdict, Comparison
from dlbench.analysis.presentation.wording import few, plural
from dlbench.analysis.ratios.pairing import DEVICE_NAME, MATH, THREADS, match_rows
from dlbench.analysis.read.pyperf import SESSIONS_FOR_A_VERDICT, TOOL
from dlbench.analysis.read.readings import clock_difference
from dlbench.analysis.read.table import Results
from dlbench.core.declarations import SEARCH_RESOLUTION
from dlbench.core.errors import UsageError
from dlbench.core.measurement import BALANCED
from dlbench.core.model import Status, settings_text, value_text
from dlbench.core.rows.row import WORK, Row, Setting
from dlbench.core.thresholds import ACROSS_RUNS, DETECT, WITHIN_A_RUN, Thresholds, ThresholdSettings
from dlbench.core.units import byte_count, item_rate


def compare(
    base: Results,
    new: Results,
    thresholds: Thresholds = ACROSS_RUNS,
    across_machines: bool = False,
    free: Collection[Setting] = (),
    *,
    given: ThresholdSettings = MappingProxyType({}),
    calibration: Calibration | None = None,
    paired: bool = False,
    insist: bool = False,
) -> Comparison:
    """Compare the cases of one file with those of another, each matched by its whole identity.

    ``thresholds`` hold where the suite that base was run with sets none, and ``given`` in place of either. ``across_machines``: the
    sides are known to be of different machines; the device's name and its threads may then differ. ``free``: settings that may differ
    because they are part of what is compared. ``calibration``: this machine's variation from one occasion to another,
    which every verdict then allows for. ``paired``: both sides were measured in turn, round by round. ``insist``: every case has to be
    able to show the change that must be detected, whether anybody set one or not; so it has where ``run --gate`` measured a side.

    Raises UsageError where a change that must be detected is below the threshold of a case.
    """
    spent = bool(new.budgets) or all(row.is_unmeasured for row in new.rows)
    bases, news = ({row.case.id: row for row in side.rows} for side in (base, new))
    machine = [] if across_machines else [DEVICE_NAME, THREADS]
    known = [*WORK, MATH, *(Setting("param", name) for name in base.parameters if name in new.parameters), *machine]
    settings = [each for each in known if each not in free]
    readings, new_readings = (next(iter(side.readings.values()), {}) for side in (base, new))
    protocol, new_protocol = (next(iter(side.protocols.values()), {}) for side in (base, new))
    unlike = _differences(protocol, new_protocol)
    balanced = paired and protocol.get("order") == BALANCED
    for_a_gate = not across_machines and any("gate" in each for side in (base, new) for each in side.environments.values())
    pairs: list[Matched] = []
    settled: list[CaseVerdict] = []
    for case in dict.fromkeys([*bases, *news]):
        one, other = bases.get(case), news.get(case)
        limits = _thresholds(base, one, thresholds, given, across_machines) if one else thresholds
        detect, asked = (
            _to_detect(limits, None if across_machines else DETECT_BY_DEFAULT),
            insist or for_a_gate or limits.detect is not None,
        )
        if verdict := _settled(case, one, other, settings, unlike, spent):
            both_ok = one and other and one.is_ok and other.is_ok
            if detect and (verdict.lost or (verdict.verdict is Verdict.INCOMPARABLE and both_ok)):
                verdict = verdict._replace(unseen=verdict.note, detect=detect, asked=asked)
            settled.append(verdict)
        elif one and other:
            clocks = None if across_machines else clock_difference(readings, new_readings, one.case.device)
            pairs.append(_matched(one, other, limits, detect, asked)._replace(clocks=clocks, balanced=balanced))
    if sum(each.unseen is not None for each in settled) > len(pairs):  # what says nothing of most cases is no comparison
        settled = [each._replace(asked=True) for each in settled]
    title = f"{', '.join(new.environments)} against {', '.join(base.environments)}"
    found = comparison(title, (base, new), pairs, settled, calibration, paired, across_machines)
    return replace(found, powerless=_what_each_has(bases, news)) if found.nothing_in_common else found


def _matched(base: Row, new: Row, limits: Thresholds, detect: float | None, asked: bool) -> Matched:
    values = tuple(compared_values(base, new, limits))
    found = CaseVerdict(new.case.id, Verdict.INCONCLUSIVE, base=base, new=new, values=values, thresholds=limits, detect=detect, asked=asked)
    return Matched(found, base, new, limits)


def _to_detect(limits: Thresholds, usual: float | None = None) -> float | None:
    """Return the slowdown that must be detected in a case, if any: what somebody set, else the usual.

    A change at the threshold is called in one of two comparisons, however many rounds: so it is twice the threshold where a suite, or
    the usual, is no larger than that.
    """
    change = limits.detect or usual
    return MARGINS_TO_SEE * limits.time if change and change <= limits.time else change


def _what_each_has(bases: Mapping[str, Row], news: Mapping[str, Row]) -> str:
    """Say what each side has, where no case is on both."""
    have = (
        f"{side} has {plural(len(rows), 'case')} of {few(dict.fromkeys(row.case.suite for row in rows.values()))}"
        for side, rows in by_side(bases, news)
    )
    return f"no case is in both files: {', '.join(have)}; compare two runs of the same suite, devices and options"


def compare_by(results: Results, by: str, given: ThresholdSettings) -> Comparison:
    """Compare the rows of a file that differ in one setting, as `pairing.match_rows` pairs them; thresholds are as in `compare`.

    A change has to be detected where ``given`` says so, and not for a suite's sake. Raises UsageError for an unknown setting, and as
    `compare`.
    """
    found = match_rows(results, by)
    pairs = []
    for base, new in (each.sides for each in found.rows):
        limits = _thresholds(results, base, WITHIN_A_RUN, given, True)
        pairs.append(_matched(base, new, limits, _to_detect(limits), asked=True))
    failed = {row.case.id: row for row in results.rows if row.is_failure}
    settled = [CaseVerdict(case, Verdict.FAILED, (row.ending,), new=row) for case, row in failed.items()]
    unpaired = tuple(each for each in found.unpaired if each.case not in failed)
    title = f"{', '.join(results.environments)}: each {found.by.name if found.by else by} against {found.base_value}"
    return comparison(title, (results, results), pairs, settled, unpaired=unpaired)


def _thresholds(base: Results, row: Row, thresholds: Thresholds, given: ThresholdSettings, sight_given: bool = False) -> Thresholds:
    """Return the thresholds of a case, of base's suite, so that a new file can't loosen its own gate.

    ``sight_given``: the change that must be detected is that of ``given`` alone, not of the suite.
    """
    of_suite = thresholds.of_workload(row.case.workload, base.thresholds.get(row.case.run, {}).get(row.case.suite, {}))
    found = (replace(of_suite, detect=None) if sight_given else of_suite).with_metrics(given)
    if DETECT in given:
        try:
            found.require_sight()
        except ValueError as error:
            raise UsageError(f"--detect {given[DETECT]}: of {row.case.id} {error}") from error
    return found


def _settled(
    case: str, base: Row | None, new: Row | None, settings: Sequence[Setting], unlike: Sequence[str], spent: bool
) -> CaseVerdict | None:
    """Return the verdict of a case that no test has to decide, or can; ``unlike``: how the sides differ, ``spent``: new's budget was."""
    if new is None:
        if base is None or base.is_ok:
            return CaseVerdict(case, Verdict.MISSING, ("not in the new file",), base=base)
        # What was not measured in the base can't be lost: a suite without it, or a machine that the suite no longer names.
        verdict = Verdict.NOT_MEASURED if base.is_unmeasured else Verdict.SAME
        return CaseVerdict(case, verdict, ("not in the new file", f"in the base {base.ending}"), base=base)
    if base is None:
        verdict = Verdict.FAILED if new.is_failure else Verdict.NOT_MEASURED if new.is_unmeasured else Verdict.NEW
        return CaseVerdict(case, verdict, ("not in the base" if verdict is Verdict.NEW else new.ending,), new=new)
    was, status = base.case.status, new.case.status
    neither, left_out = base.is_unmeasured and new.is_unmeasured, status is Status.SKIPPED and new.has_device
    if neither or (left_out and spent):
        note = f"measured on neither side; {new.ending}" if neither else f"{new.ending}; in the base it was {was}"
        return CaseVerdict(case, Verdict.NOT_MEASURED, (note,), base=base, new=new, lost=left_out)
    if status in (Status.OK, Status.OOM) and (apart := _limits_apart(base, new)):
        verdict, note = Verdict.INCOMPARABLE, apart
    elif new.is_failure or (base.is_ok and not new.is_ok):
        verdict, note = Verdict.FAILED, f"{new.ending}{'' if base.is_ok else f'; in the base it was {was}'}"
    elif apart := _found_apart(base, new):
        verdict, note = Verdict.INCOMPARABLE, apart
    elif different := _unlike(base, new, settings):
        verdict, note = Verdict.INCOMPARABLE, "; ".join(different)
    elif was is status is not Status.OK:
        verdict, note = Verdict.SAME, f"on both sides {new.ending}"
    elif not base.is_ok:
        verdict, note = Verdict.INCOMPARABLE, f"case.status: {was} against {status}; in the base {base.ending}"
    elif unlike:
        verdict, note = Verdict.INCOMPARABLE, "; ".join([*unlike, "measure both alike"])
    elif few := _few_sessions(base, new):
        verdict, note = Verdict.INCOMPARABLE, few
    else:
        return None
    return CaseVerdict(case, verdict, (note,), base=base, new=new)


def _few_sessions(base: Row, new: Row) -> str:
    """Say of a case that another tool measured how few its rounds are, where they are too few for a verdict."""
    few = [
        f"{len(each.rounds.median_s)} of {TOOL} in {side}"
        for side, each in by_side(base, new)
        if each.case.suite == TOOL and len(each.rounds.median_s) < SESSIONS_FOR_A_VERDICT
    ]
    return f"too few rounds, {' and '.join(few)}: a verdict takes {SESSIONS_FOR_A_VERDICT} a side" if few else ""


def _found_apart(base: Row, new: Row) -> str:
    """Say what two searches for the fastest found, where that is not the same: their times are of other work then."""
    if not (base.rounds.median_s and new.rounds.median_s) or base.case.found == new.case.found:
        return ""
    sides = [
        f"{settings_text(each.case.found) or None}: {item_rate(statistics.median(each.rounds.items_per_s or (0.0,)))}"
        for each in (base, new)
    ]
    return f"the searches found other settings, {' against '.join(sides)}"


def _limits_apart(base: Row, new: Row) -> str:
    """Say how much memory two searches could take, where that differs by more than their resolution; what a file does not say is none."""
    limits = [each.memory.limit_bytes or 0 for each in (base, new)]
    searched = base.case.found or new.case.found  # one in which nothing fits finds nothing
    if not searched or not all(limits) or max(limits) <= min(limits) * (1 + SEARCH_RESOLUTION):
        return ""
    sizes = " against ".join(map(byte_count, limits))
    return f"the searches could take other memory, {sizes}; give both the same limit"


def _unlike(base: Row, new: Row, settings: Sequence[Setting]) -> list[str]:
    """Return the differences of a case's identity; of the flags of torch each flag alone."""
    found = []
    for each in settings:
        if each.of_row(base) != each.of_row(new):
            sides = [_flags(row) if each == MATH else {str(each): each.of_row(row)} for row in (base, new)]
            found += _differences(*sides)
    return found


def _flags(row: Row) -> dict[str, str]:
    return {name: value_text(value) for name, value in row.case.math.items()}


def _differences(base: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    """Return the differences of what must be alike; what one side does not record is none.

    So a parameter that a workload gained later leaves comparisons with old files as they are.
    """
    both = [(name, value, new[name]) for name, value in base.items() if name in new]
    return [f"{name}: {one} against {other}" for name, one, other in both if one != other and one is not None and other is not None]
