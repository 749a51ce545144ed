"""Comparison of two result files, of the rows of one, or of the two sides of an A/B: a verdict for every case."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from dlbench.analysis.compare.calibration import Calibration
from dlbench.analysis.compare.comparison import TestFamily, comparison
from dlbench.analysis.compare.judge import Verdict, by_side
from dlbench.analysis.compare.power import DETECT_BY_DEFAULT, MARGINS_TO_SEE
from dlbench.analysis.compare.values import compared_values
from dlbench.analysis.compare.verdict import CaseVerdict, Comparison, attention, summed_up
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
    """Compare the cases of one file with those of another, each matched by its whole identity.

    ``thresholds`` hold where the suite that base was run with sets none, and ``given`` in place of either. ``across_machines``: the
    sides are known to be of different machines; the device's name and threads may then differ. ``calibration``: this machine's variation
    from one occasion to another, which every verdict then allows for. ``paired``: both sides were measured in turn, round by round, and
    what an interpreter or an environment may set, such as threads, is part of what is compared. ``insist``: every case has to be
    able to show the change that must be detected, whether anybody set one or not; so it has where ``run --gate`` measured a side.

    Raises UsageError where a change that must be detected is below the threshold of a case.
    """
    spent = bool(new.budgets) or all(row.is_unmeasured for row in new.rows)
    bases, news = ({row.case.id: row for row in side.rows} for side in (base, new))
    params = [Setting("param", name) for name in base.parameters if name in new.parameters]
    settings = [*WORK, *params, *([] if across_machines or paired else [DEVICE_NAME, THREADS]), *([] if paired else [MATH])]
    readings, new_readings = (next(iter(side.readings.values()), {}) for side in (base, new))
    protocol, new_protocol = (next(iter(side.protocols.values()), {}) for side in (base, new))
    unlike = _differences(protocol, new_protocol)
    for_a_gate = not across_machines and any("gate" in each for side in (base, new) for each in side.environments.values())
    pairs, settled = list[CaseVerdict](), list[CaseVerdict]()
    for case in dict.fromkeys([*bases, *news]):
        one, other = bases.get(case), news.get(case)
        limits, detect = _limits(base, one, thresholds, given, not across_machines) if one else (thresholds, DETECT_BY_DEFAULT)
        asked = insist or for_a_gate or limits.detect is not None
        if found := _settled(one, other, settings, unlike, spent):
            verdict, note = found
            left_out = bool(one and other and verdict is Verdict.NOT_MEASURED and other.case.status is Status.SKIPPED and other.has_device)
            both_ok = one and other and one.is_ok and other.is_ok
            unseen = note if detect and (left_out or (verdict is Verdict.INCOMPARABLE and both_ok)) else None
            wanted = detect if unseen else None
            settled.append(
                CaseVerdict(case, verdict, (note,), base=one, new=other, lost=left_out, unseen=unseen, detect=wanted, asked=asked)
            )
        elif one and other:
            clocks = None if across_machines else clock_difference(readings, new_readings, one.case.device)
            pairs.append(_to_test(one, other, limits, detect, asked)._replace(clocks=clocks))
    if sum(each.unseen is not None for each in settled) > len(pairs):  # what says nothing of most cases is no comparison
        settled = [each._replace(asked=True) for each in settled]
    title = f"{', '.join(new.environments)} against {', '.join(base.environments)}"
    family = TestFamily((base, new), calibration, paired, paired and protocol.get("order") == BALANCED, across_machines)
    compared = comparison(title, pairs, settled, family)
    return replace(compared, powerless=_NOTHING_IN_COMMON) if compared.nothing_in_common else compared


def _to_test(base: Row, new: Row, limits: Thresholds, detect: float | None, asked: bool) -> CaseVerdict:
    values = tuple(compared_values(base, new, limits, detect or DETECT_BY_DEFAULT))
    return CaseVerdict(new.case.id, Verdict.INCONCLUSIVE, (), (), base, new, {}, values, limits, detect, asked)


def compare_by(results: Results, by: str, given: ThresholdSettings) -> Comparison:
    """Compare the rows of a file that differ in one setting, as `match_rows` pairs them; thresholds are as in `compare`.

    A change has to be detected where ``given`` says so, and not for a suite's sake. Raises UsageError for an unknown setting, and as
    `compare`.
    """
    found = match_rows(results, by)
    rows = (each.sides for each in found.rows)
    pairs = [_to_test(base, new, *_limits(results, base, WITHIN_A_RUN, given), asked=True) for base, new in rows]
    failed = {row.case.id: row for row in results.rows if row.is_failure}
    settled = [CaseVerdict(case, Verdict.FAILED, (row.ending,), new=row) for case, row in failed.items()]
    unmatched = tuple(each for each in found.unmatched if each.case not in failed)
    title = f"{', '.join(results.environments)}: each {found.by.name if found.by else by} against {found.base_value}"
    return comparison(title, pairs, settled, TestFamily((results, results)), unmatched)


def are_sides(results: Results) -> bool:
    """Whether these are the rows of one A/B."""
    return len(_first(results)) == 2 and any_sides(results)


def any_sides(results: Results) -> bool:
    """Whether an A/B is among the files."""
    return any("side" in environment for environment in results.environments.values())


def compare_sides(results: Results, given: ThresholdSettings = MappingProxyType({})) -> Comparison:
    """Compare side b of an A/B with side a, case by case, as two files are compared; ``given`` are thresholds as there.

    Rounds are also compared pair by pair, as both sides of a case were measured next to each other, and every case has to be able to
    show the change that must be detected. A case that was measured again is decided by those rounds alone, corrected for no more cases than
    were measured again; only where they could not have decided anything the first verdict stands. `are_sides` must hold.
    """
    sides = _first(results)
    first, again = _compared(results, sides, given), [side + CONFIRMING for side in sides]
    if not results.environments.keys() >= {*again}:
        return first
    fresh = _compared(results, again, given)
    anew = {case.case: case for case in fresh.cases}
    decided = [_decided(case, anew[case.case], fresh.powerless) if case.case in anew else case for case in first.cases]
    cases = tuple(sorted(decided, key=attention))
    return replace(first, cases=cases, unseen=summed_up(cases, results.budgets.values()))


def _compared(results: Results, sides: Sequence[str], given: ThresholdSettings) -> Comparison:
    base, new = map(results.of_run, sides)
    return compare(base, new, WITHIN_A_RUN, given=given, paired=True, insist=True)


def _first(results: Results) -> list[str]:
    return [name for name in results.environments if not name.endswith(CONFIRMING)]


def _decided(was: CaseVerdict, now: CaseVerdict, powerless: str | None) -> CaseVerdict:
    if powerless and now.verdict is not Verdict.FAILED:
        return was.because(f"not confirmed: {powerless}")
    change = f" by {was.shown.change * 100:+.1f} %" if was.shown else ""
    return now.because("measured again", f"the first rounds said {was.verdict}{change}")


def _limits(
    base: Results, row: Row, thresholds: Thresholds, given: ThresholdSettings, has_gate: bool = False
) -> tuple[Thresholds, float | None]:
    """Return the thresholds of a case, of base's suite, so that a new file can't loosen its own gate; and what must be detected, if any.

    Where no suite ``has_gate``, that is what is ``given`` alone; else what the suite asks for, or the usual. A change at the threshold is
    called in one of two comparisons, however many rounds: so it is twice the threshold where either is no larger than that.
    """
    found = thresholds.for_workload(row.case.workload, base.thresholds.get(row.case.run, {}).get(row.case.suite, {}))
    found = (found if has_gate else replace(found, detect=None)).with_metrics(given)
    if DETECT in given:
        try:
            found.require_sight()
        except ValueError as error:
            raise UsageError(f"--detect {given[DETECT]}: of {row.case.id} {error}") from error
    change = found.detect or (DETECT_BY_DEFAULT if has_gate else None)
    return found, MARGINS_TO_SEE * found.time if change and change <= found.time else change


def _settled(
    base: Row | None, new: Row | None, settings: Sequence[Setting], unlike: Sequence[str], spent: bool
) -> tuple[Verdict, str] | None:
    """Return the verdict of a case that no test has to decide, or can; ``unlike``: how the sides differ, ``spent``: new's budget was."""
    if new is None:
        if base is None or base.is_ok:
            return Verdict.MISSING, "not in the new file"
        # What was not measured in the base can't be lost: a suite without it, or a machine that the suite no longer names.
        return Verdict.NOT_MEASURED if base.is_unmeasured else Verdict.SAME, f"not in the new file; in the base {base.ending}"
    if base is None:
        verdict = Verdict.FAILED if new.is_failure else Verdict.NOT_MEASURED if new.is_unmeasured else Verdict.NEW
        return verdict, "not in the base" if verdict is Verdict.NEW else new.ending
    was, status = base.case.status, new.case.status
    if base.is_unmeasured and new.is_unmeasured:
        return Verdict.NOT_MEASURED, f"measured on neither side; {new.ending}"
    if status is Status.SKIPPED and new.has_device and spent:
        return Verdict.NOT_MEASURED, f"{new.ending}; in the base it was {was}"
    if status in (Status.OK, Status.OOM) and (apart := _limits_apart(base, new)):
        return Verdict.INCOMPARABLE, apart
    if new.is_failure or (base.is_ok and not new.is_ok):
        return Verdict.FAILED, f"{new.ending}{'' if base.is_ok else f'; in the base it was {was}'}"
    if different := _unlike(base, new, settings):
        return Verdict.INCOMPARABLE, "; ".join(different)
    if was is status is not Status.OK:
        return Verdict.SAME, f"on both sides {new.ending}"
    if not base.is_ok:
        return Verdict.INCOMPARABLE, f"case.status: {was} against {status}; in the base {base.ending}"
    if unlike:
        return Verdict.INCOMPARABLE, "; ".join([*unlike, "measure both alike"])
    few = [f"{rounds} in {side}" for side, each in by_side(base, new) if (rounds := len(each.rounds.median_s)) < SESSIONS_FOR_A_VERDICT]
    if few and TOOL in (base.case.suite, new.case.suite):
        return Verdict.INCOMPARABLE, f"too few rounds of {TOOL}, {' and '.join(few)}: a verdict takes {SESSIONS_FOR_A_VERDICT} a side"
    return None


def _limits_apart(base: Row, new: Row) -> str:
    """Say how much memory two searches could take, where that differs by more than their resolution; what a file does not say is none."""
    limits = [each.memory.limit_bytes or 0 for each in (base, new)]
    searched = base.case.found or new.case.found  # one in which nothing fits finds nothing
    if not searched or not all(limits) or max(limits) <= min(limits) * (1 + SEARCH_RESOLUTION):
        return ""
    sizes = " against ".join(map(byte_count, limits))
    return f"the searches could take other memory, {sizes}; give both the same limit"


def _unlike(base: Row, new: Row, settings: Sequence[Setting]) -> list[str]:
    """Return the differences of a case's identity: of torch each flag alone, and of a search for the fastest each setting that it found."""

    def known(row: Row) -> dict[str, object]:
        flags = row.case.math if MATH in settings else {}
        found = {f"found.{name}": value for name, value in row.case.found.items()} if row.rounds.median_s else {}
        texts = {name: value_text(value) for name, value in {**flags, **found}.items()}
        return {str(each): each.value_in(row) for each in settings if each != MATH} | texts

    return _differences(known(base), known(new))


def _differences(base: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    """Return the differences of what must be alike; what one side does not record is none.

    So a parameter that a workload gained later leaves comparisons with old files as they are.
    """
    both = [(name, value, new[name]) for name, value in base.items() if name in new]
    return [f"{name}: {one} against {other}" for name, one, other in both if one != other and one is not None and other is not None]
