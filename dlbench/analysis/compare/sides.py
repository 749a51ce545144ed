"""Comparison of two result files, of the rows of one, or of the two sides of an A/B: a verdict for every case.

A gate is a comparison whose exit code decides whether CI passes. A change that a gate must detect is unseen in a case if it is neither
called (slower) nor excluded by the interval of the case.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from dlbench.analysis.compare.calibration import Calibration
from dlbench.analysis.compare.comparison import TestFamily, compare_cases
from dlbench.analysis.compare.judge import Verdict, by_side
from dlbench.analysis.compare.power import DETECT_BY_DEFAULT, MARGINS_TO_SEE
from dlbench.analysis.compare.values import compare_values
from dlbench.analysis.compare.verdict import CaseVerdict, Comparison, attention, sum_up_unseen
from dlbench.analysis.ratios.matching import DEVICE_NAME, MATH, THREADS, match_rows
from dlbench.analysis.read.pyperf import SESSIONS_FOR_A_VERDICT, TOOL
from dlbench.analysis.read.table import Results
from dlbench.analysis.read.usability import clock_difference
from dlbench.core.declarations import SEARCH_RESOLUTION
from dlbench.core.errors import UsageError
from dlbench.core.measurement import BALANCED, CONFIRMING
from dlbench.core.model import Status, value_text
from dlbench.core.rows.row import WORK, Row, Setting
from dlbench.core.thresholds import ACROSS_RUNS, DETECT, WITHIN_A_RUN, Thresholds, ThresholdSettings
from dlbench.core.units import byte_count

_NOTHING_IN_COMMON = "no case is in both files; compare two runs of the same suite, devices and options"


def compare(
    base: Results,
    new: Results,
    thresholds: Thresholds = ACROSS_RUNS,
    across_machines: bool = False,
    *,
    given: ThresholdSettings = MappingProxyType({}),
    calibration: Calibration | None = None,
    paired: bool = False,
    insist: bool = False,
) -> Comparison:
    """Compare the cases of one run with those of another; each side is one run, and cases are matched by their whole identity.

    - ``thresholds`` apply if the suite that base was run with sets none; ``given`` ones take precedence over either.
    - ``across_machines``: the sides are known to be of different machines; the device's name and threads may then differ.
    - ``calibration``: this machine's variation from one occasion to another, which every verdict then allows for.
    - ``paired``: both sides were measured alternately, round by round. What an interpreter or an environment may set, such as threads, is
      then part of what is compared.
    - ``insist``: the comparison is undecided if any case hides the change that must be detected, even if nobody set one. The same holds
      if ``run --gate`` measured a side.

    Raises UsageError if a change that must be detected is below the threshold of a case.
    """
    # A run that spent its budget before the first measurement is not among ``budgets``.
    budget_spent = bool(new.budgets) or all(row.is_unmeasured for row in new.rows)
    base_rows = {row.case.id: row for row in base.rows}
    new_rows = {row.case.id: row for row in new.rows}
    # Besides its id these settings identify a case, so they have to be equal.
    settings = [*WORK, *(Setting("param", name) for name in base.parameters if name in new.parameters)]
    if not paired:
        settings += [MATH] if across_machines else [DEVICE_NAME, THREADS, MATH]
    # `readings` and `protocols` have an entry for each run, and each side is one run.
    base_readings, new_readings = (next(iter(side.readings.values()), {}) for side in (base, new))
    base_protocol, new_protocol = (next(iter(side.protocols.values()), {}) for side in (base, new))
    protocol_differences = _differences(base_protocol, new_protocol)
    # `run --gate` leaves a mark in the header. Between different machines there is only a report, and no gate.
    measured_for_gate = not across_machines and any("gate" in header for side in (base, new) for header in side.environments.values())
    to_test = list[CaseVerdict]()
    settled = list[CaseVerdict]()
    for case_id in {**base_rows, **new_rows}:
        base_row, new_row = base_rows.get(case_id), new_rows.get(case_id)
        if base_row:  # between different machines only a ``given`` slowdown has to be detected
            case_thresholds, detect = _case_thresholds(base, base_row, thresholds, given, not across_machines)
        else:  # nothing is tested without a row in base, so any thresholds do
            case_thresholds, detect = thresholds, DETECT_BY_DEFAULT
        must_detect = insist or measured_for_gate or case_thresholds.detect is not None
        if verdict_and_reason := _verdict_without_test(base_row, new_row, settings, protocol_differences, budget_spent):
            settled.append(_settled_case(case_id, base_row, new_row, *verdict_and_reason, detect, must_detect))
        elif base_row and new_row:  # always so here: a case that one side lacks needs no test
            clocks = None if across_machines else clock_difference(base_readings, new_readings, base_row.case.device)
            to_test.append(_case_to_test(base_row, new_row, case_thresholds, detect, must_detect)._replace(clocks=clocks))
    if len([case for case in settled if case.unseen]) > len(to_test):
        # A comparison that says nothing of most of its cases must not pass, even if nobody set a change to detect.
        settled = [case._replace(must_detect=True) for case in settled]
    title = f"{', '.join(new.environments)} against {', '.join(base.environments)}"
    balanced = paired and base_protocol.get("order") == BALANCED
    compared = compare_cases(title, to_test, settled, TestFamily((base, new), calibration, paired, balanced, across_machines))
    return replace(compared, powerless=_NOTHING_IN_COMMON) if compared.nothing_in_common else compared


def _settled_case(
    case_id: str, base: Row | None, new: Row | None, verdict: Verdict, note: str, detect: float | None, must_detect: bool
) -> CaseVerdict:
    """Return a case that needs no test.

    A change that must be detected is unseen in it if a budget left the case out, or if it went well on both sides and is incomparable.
    """
    left_out = incomparable = False
    if base and new:
        left_out = verdict is Verdict.NOT_MEASURED and new.case.status is Status.SKIPPED and new.has_device
        incomparable = verdict is Verdict.INCOMPARABLE and base.is_ok and new.is_ok
    unseen = note if detect and (left_out or incomparable) else None
    detect = detect if unseen else None
    return CaseVerdict(case_id, verdict, (note,), base=base, new=new, lost=left_out, unseen=unseen, detect=detect, must_detect=must_detect)


def _case_to_test(base: Row, new: Row, thresholds: Thresholds, detect: float | None, must_detect: bool) -> CaseVerdict:
    """Return a case with the changes of its values, still without a verdict."""
    values = tuple(compare_values(base, new, thresholds, detect or DETECT_BY_DEFAULT))
    return CaseVerdict(
        new.case.id, Verdict.INCONCLUSIVE, base=base, new=new, values=values, thresholds=thresholds, detect=detect, must_detect=must_detect
    )


def compare_by(results: Results, by: str, given: ThresholdSettings) -> Comparison:
    """Compare the rows of a file that differ in the setting ``by``, as `match_rows` matches them; thresholds are as in `compare`.

    A change has to be detected only if ``given`` says so, whatever the suite asks for. Raises UsageError for an unknown setting, and for a
    change that must be detected and is below the threshold of a case.
    """
    matches = match_rows(results, by)
    to_test = []
    for pair in matches.rows:
        case_thresholds, detect = _case_thresholds(results, pair.base, WITHIN_A_RUN, given)
        # ``detect`` is None unless it was given, and then it must be detected. Without it ``must_detect`` changes nothing.
        to_test.append(_case_to_test(pair.base, pair.other, case_thresholds, detect, must_detect=True))
    # A failed row stands in no pair, and is a case of its own.
    failed = {row.case.id: row for row in results.rows if row.is_failure}
    settled = [CaseVerdict(case, Verdict.FAILED, (row.ending,), new=row) for case, row in failed.items()]
    unmatched = tuple(row for row in matches.unmatched if row.case not in failed)
    title = f"{', '.join(results.environments)}: each {matches.by.name if matches.by else by} against {matches.base_value}"
    return compare_cases(title, to_test, settled, TestFamily((results, results)), unmatched)


def are_sides(results: Results) -> bool:
    """Whether these are the rows of one A/B."""
    return len(_first_sides(results)) == 2 and any_sides(results)


def any_sides(results: Results) -> bool:
    """Whether an A/B is among the files."""
    return any("side" in environment for environment in results.environments.values())


def compare_sides(results: Results, given: ThresholdSettings = MappingProxyType({})) -> Comparison:
    """Compare side b of an A/B with side a, case by case, as two files are compared; ``given`` are thresholds as in `compare`.

    Rounds are also compared pair by pair, as both sides of a case were measured next to each other. The comparison is undecided if the
    change that must be detected is unseen in any case. If ``--confirm`` measured a case again, those rounds alone decide it: the first
    verdict remains only if they could not have called anything. `are_sides` must hold.
    """
    sides = _first_sides(results)
    confirming_sides = [side + CONFIRMING for side in sides]
    first = _compare_runs(results, sides, given)
    if not results.environments.keys() >= {*confirming_sides}:  # nothing was measured again
        return first
    second = _compare_runs(results, confirming_sides, given)
    measured_again = {case.case: case for case in second.cases}
    cases = [_confirmed(case, measured_again[case.case], second.powerless) if case.case in measured_again else case for case in first.cases]
    cases.sort(key=attention)
    return replace(first, cases=tuple(cases), unseen=sum_up_unseen(cases, results.budgets.values()))


def _compare_runs(results: Results, sides: Sequence[str], given: ThresholdSettings) -> Comparison:
    """Compare the second of these sides with the first, as an A/B."""
    base, new = map(results.of_run, sides)
    return compare(base, new, WITHIN_A_RUN, given=given, paired=True, insist=True)


def _first_sides(results: Results) -> list[str]:
    """Return the names of the sides, without those of their second measurement."""
    return [name for name in results.environments if not name.endswith(CONFIRMING)]


def _confirmed(first: CaseVerdict, second: CaseVerdict, powerless: str | None) -> CaseVerdict:
    """Return the verdict of the second measurement of a case, or the first one if the second was ``powerless``."""
    if powerless and second.verdict is not Verdict.FAILED:
        return first.because(f"not confirmed: {powerless}")
    change = f" by {first.shown.change * 100:+.1f} %" if first.shown else ""
    return second.because("measured again", f"the first rounds said {first.verdict}{change}")


def _case_thresholds(
    base: Results, row: Row, thresholds: Thresholds, given: ThresholdSettings, always_detect: bool = False
) -> tuple[Thresholds, float | None]:
    """Return the thresholds of a case, and the slowdown that must be detected in it, as a fraction; None if none has to be.

    ``row`` is a row of ``base``. Thresholds are those of its suite, so that a new file can't loosen its own gate; ``given`` ones replace
    these. With ``always_detect`` the slowdown is the one that ``given`` or the suite sets, or else `DETECT_BY_DEFAULT`; without, only a
    ``given`` one counts. Raises UsageError if a ``given`` slowdown is not above the threshold of time.
    """
    suite_thresholds = base.thresholds.get(row.case.run, {}).get(row.case.suite, {})
    case_thresholds = thresholds.for_workload(row.case.workload, suite_thresholds)
    if not always_detect:
        case_thresholds = replace(case_thresholds, detect=None)
    case_thresholds = case_thresholds.with_metrics(given)
    if DETECT in given:
        try:
            case_thresholds.require_sight()  # the change has to be above the threshold
        except ValueError as error:
            raise UsageError(f"--detect {given[DETECT]}: of {row.case.id} {error}") from error
    detect = case_thresholds.detect or (DETECT_BY_DEFAULT if always_detect else None)
    if detect and detect <= case_thresholds.time:
        # A change of the size of the threshold is called in one of two comparisons, however many rounds there are.
        detect = MARGINS_TO_SEE * case_thresholds.time
    return case_thresholds, detect


def _verdict_without_test(
    base: Row | None, new: Row | None, settings: Sequence[Setting], protocol_differences: Sequence[str], budget_spent: bool
) -> tuple[Verdict, str] | None:
    """Return the verdict of a case that needs no test or can have none, and its reason; None if tests decide it.

    ``settings`` identify a case, and ``protocol_differences`` say how differently the sides were measured: any difference makes it
    incomparable. ``budget_spent``: whether a budget ended the new run, or nothing was measured in it.
    """
    # One side lacks the case, never both: in the next branch ``base is None`` is for the type checker alone.
    if new is None:
        if base is None or base.is_ok:
            return Verdict.MISSING, "not in the new file"
        # A case that did not go well in the base is not missed: perhaps the suite has dropped it, or no longer names the machine.
        verdict = Verdict.NOT_MEASURED if base.is_unmeasured else Verdict.SAME
        return verdict, f"not in the new file; in the base {base.ending}"
    if base is None:
        if new.is_failure:
            return Verdict.FAILED, new.ending
        return (Verdict.NOT_MEASURED, new.ending) if new.is_unmeasured else (Verdict.NEW, "not in the base")
    # The new run did not measure it, and that is no failure.
    base_status, new_status = base.case.status, new.case.status
    if base.is_unmeasured and new.is_unmeasured:
        return Verdict.NOT_MEASURED, f"measured on neither side; {new.ending}"
    if new_status is Status.SKIPPED and new.has_device and budget_spent:
        return Verdict.NOT_MEASURED, f"{new.ending}; in the base it was {base_status}"
    # Before failures: a search that could take less memory may end in oom for that reason alone.
    if new_status in (Status.OK, Status.OOM) and (memory_limits := _memory_limits_difference(base, new)):
        return Verdict.INCOMPARABLE, memory_limits
    if new.is_failure or (base.is_ok and not new.is_ok):
        return Verdict.FAILED, f"{new.ending}{'' if base.is_ok else f'; in the base it was {base_status}'}"
    # It did not fail, but differs in something else than the code.
    if identity_differences := _identity_differences(base, new, settings):
        return Verdict.INCOMPARABLE, "; ".join(identity_differences)
    if base_status is new_status and not new.is_ok:
        return Verdict.SAME, f"on both sides {new.ending}"
    if not base.is_ok:
        return Verdict.INCOMPARABLE, f"case.status: {base_status} against {new_status}; in the base {base.ending}"
    # It is ok on both sides from here on.
    if protocol_differences:
        return Verdict.INCOMPARABLE, "; ".join([*protocol_differences, "measure both alike"])
    # Of pyperf alone: dlbench plans the rounds of its own files, and its tests say if these are too few.
    few = [f"{count} in {side}" for side, row in by_side(base, new) if (count := len(row.rounds.median_s)) < SESSIONS_FOR_A_VERDICT]
    if few and TOOL in (base.case.suite, new.case.suite):
        return Verdict.INCOMPARABLE, f"too few rounds of {TOOL}, {' and '.join(few)}: a verdict takes {SESSIONS_FOR_A_VERDICT} a side"
    return None


def _memory_limits_difference(base: Row, new: Row) -> str:
    """Say how much memory two searches could use if that differs by more than their resolution; else, or if unknown, an empty text."""
    limits = [row.memory.limit_bytes or 0 for row in (base, new)]
    is_search = base.case.found or new.case.found  # either is enough, as a search in which nothing fits finds nothing
    if not is_search or not all(limits) or max(limits) <= min(limits) * (1 + SEARCH_RESOLUTION):
        return ""
    sizes = " against ".join(map(byte_count, limits))
    return f"the searches could take other memory, {sizes}; give both the same limit"


def _identity_differences(base: Row, new: Row, settings: Sequence[Setting]) -> list[str]:
    """Return how the identities of two rows differ: in settings, torch's flags, and the settings that a search for the fastest found."""

    def identity(row: Row) -> dict[str, object]:
        flags = row.case.math if MATH in settings else {}
        found = {f"found.{name}": value for name, value in row.case.found.items()} if row.rounds.median_s else {}
        texts = {name: value_text(value) for name, value in {**flags, **found}.items()}
        return {str(each): each.value_in(row) for each in settings if each != MATH} | texts

    return _differences(identity(base), identity(new))


def _differences(base: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    """Return the differences of what must be alike, as sentences.

    What one side does not record is no difference, so old files stay comparable if a workload gains a parameter.
    """
    return [f"{name}: {old} against {new[name]}" for name, old in base.items() if old is not None and new.get(name) not in (None, old)]
