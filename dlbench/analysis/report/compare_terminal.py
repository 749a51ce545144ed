"""A comparison as text for people: a line for each case, its reasons, and the number of cases by verdict."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path

from dlbench.analysis.answers.engine.question import detail, table
from dlbench.analysis.compare.calibration import Calibration, Noise
from dlbench.analysis.compare.values import WORDS, ValueChange
from dlbench.analysis.compare.verdict import CaseVerdict, Comparison
from dlbench.analysis.presentation import wording
from dlbench.analysis.presentation.names import status
from dlbench.analysis.ratios.matching import grouped
from dlbench.analysis.report.screen import ScreenColumn, ScreenTable, columns_of
from dlbench.core import units
from dlbench.core.rows.row import Row
from dlbench.core.stats import Interval

_PRIORITIES = {"case": 0, "base": 3, "new": 3, "change": 1, wording.INTERVAL: 2, "p after Holm": 4, "verdict": 0}
"""By heading of the columns of a comparison."""
HEADINGS = (*_PRIORITIES,)
_ROUNDED = math.log(1.01)
"""How far two times of three digits may lie from the ratio of those that they round, on natural logarithms."""
_LEAST_P = 0.0001
"""Least p that is shown as a number: four digits behind the point."""
_NAMED = 2
"""Cases that a reason names; it counts more of them."""
_BEYOND = "by how much its median differs from one session to another, beyond what all cases have in common: standard deviation"
NOISE_COLUMNS = (
    detail("calibrate.case", "text", "case", "the case", itemgetter(0)),
    detail("calibrate.occasions", "count", "sessions", "sessions in which it was measured", lambda each: each[1].occasions),
    detail("calibrate.median_sd", "fraction", "sd of median", _BEYOND, lambda each: each[1].median),
    detail("calibrate.p10_sd", "fraction", "sd of p10", "the same of its p10", lambda each: each[1].p10),
    detail("calibrate.mean_sd", "fraction", "", "the same of its mean", lambda each: each[1].mean),
)
"""Columns of a case and its noise."""
_SUMMARY = ("slower", "worse", "faster", "better", "same", "inconclusive", "incomparable", "missing", "failed", "new", "not measured")


def columns(comparison: Comparison) -> list[ScreenColumn]:
    """Return the columns of the verdicts of a comparison."""
    names = _names(comparison)
    texts = zip(*((names[case.case], *verdict_texts(case)[1:]) for case in comparison.cases), strict=True)
    found = zip(_PRIORITIES.items(), texts, strict=False)
    return [ScreenColumn(heading, column, heading not in ("case", "verdict"), priority) for (heading, priority), column in found]


def title(comparison: Comparison) -> str:
    """Return the title of a comparison, with the device if all cases have the same: ``after against before, on cpu``."""
    devices = _devices(comparison)
    return f"{comparison.title}, on {devices.pop()}" if len(devices) == 1 else comparison.title


def _devices(comparison: Comparison) -> set[str]:
    return {device for _, at, device in (case.case.rpartition("@") for case in comparison.cases) if at}


def _names(comparison: Comparison) -> dict[str, str]:
    """Return a short name for each case, with its device if there are several: ``train resnet18 b8``; longer names if two are the same."""
    cases = [case.case for case in comparison.cases]
    several_devices = len(_devices(comparison)) > 1
    brief = {case: wording.brief(case, device=several_devices) for case in cases}
    return brief if len({*brief.values()}) == len(brief) else {case: wording.short(case) for case in cases}


def reasons(comparison: Comparison) -> list[str]:
    """Return the reasons for the verdicts, in lines that begin with their cases: ``5 cases: 14…20 rounds a side would probably decide …``.

    Reasons of tested cases that differ in numbers alone become one. All reasons of the same cases share a line. A change is unseen if it is
    neither called nor excluded. One sentence sums up all unseen changes, and a reason that it contains is left out.
    """
    names = _names(comparison)
    sum_of_unseen = comparison.unseen.sentence if comparison.unseen else ""
    cases_and_reasons = [(case, reason) for case in comparison.cases for reason in _reasons(case) if reason not in sum_of_unseen]
    reasons_by_cases: dict[tuple[str, ...], list[str]] = {}
    for alike in grouped(cases_and_reasons, _key_of_reason).values():
        case_names = tuple(names[case.case] for case, _ in alike)
        merged = wording.merged(reason for _, reason in alike)
        reasons_by_cases.setdefault(case_names, []).append(merged)
    all_cases = len(comparison.cases)
    return [units.one_line(f"{_whom(case_names, all_cases)}: {'; '.join(texts)}") for case_names, texts in reasons_by_cases.items()]


def _key_of_reason(reasoned: tuple[CaseVerdict, str]) -> str:
    """Return a key that is equal for reasons that become one: the text without its numbers; of a case without tests the text itself."""
    case, reason = reasoned
    return wording.numberless(reason) if case.tests else reason  # the words of a fault stay


def _whom(case_names: Sequence[str], of: int) -> str:
    """Name a few cases, and count more of them; ``of`` is the number of all cases."""
    if len(case_names) <= _NAMED:
        return ", ".join(case_names)
    return f"{'all ' if len(case_names) == of else ''}{len(case_names):,} cases"


def _reasons(case: CaseVerdict) -> list[str]:
    """Return the reasons for the verdict, then further ones why a slowdown may not be seen."""
    why_unseen = (case.unseen or "").split("; ")
    return [*case.reasons, *(each for each in why_unseen if each not in case.note)]


def count(cases: Iterable[CaseVerdict]) -> str:
    """Return for example ``3 slower, 1 faster, 8 same, 2 inconclusive``."""
    found = Counter(map(word, cases))
    return ", ".join(f"{found[word]:,} {word}" for word in _SUMMARY if found[word]) or "no cases"


def verdict_texts(case: CaseVerdict) -> tuple[str, ...]:
    """Return a row of the table, a text for each of `HEADINGS`.

    The change is the shift that was tested. It may differ from the ratio of the two times. The time of the new side is then left out, so
    that the row does not contradict itself. A case without times shows the value that decides it.
    """
    if value := _deciding_value(case):
        return (case.case, *_value_texts(value), "", word(case))  # p is empty: its column is about times
    base_s, new_s = times_s(case)
    change, interval, p = "", "", ""
    if shown := case.shown:  # the test that the row shows; None if the times could not be tested
        change = units.relative_change(shown.change)
        interval = span(shown.change_interval) if shown.change_interval else "too few"  # rounds for an interval
        p = f"{shown.p_holm:.4f}" if shown.p_holm >= _LEAST_P else f"<{_LEAST_P}"
    return (case.case, _time(case.base, base_s), _time(case.new, new_s), change, interval, p, word(case))


def word(case: CaseVerdict) -> str:
    """Return the verdict for people: a value is not slower or faster, but worse or better."""
    return WORDS.get(case.verdict, case.verdict.value) if _deciding_value(case) else case.verdict.value


def _deciding_value(case: CaseVerdict) -> ValueChange | None:
    """Return the value that decides a case without times; None of any other."""
    return next((each for each in case.values if each.verdict is case.verdict and not (case.tests or each.is_memory)), None)


def times_s(case: CaseVerdict) -> tuple[float | None, float | None]:
    """Return seconds a call on both sides by the statistic shown; of new None where they differ by another share than the tested shift."""
    base_s, new_s = (None if each is None else each.time.median_s for each in (case.base, case.new))
    if not (shown := case.shown):
        return base_s, new_s
    if case.statistic != "median":
        base_s, new_s = shown.medians_s
    fits = base_s and new_s and abs(math.log(new_s / base_s) - shown.shift) <= _ROUNDED
    return base_s, new_s if fits else None


def _value_texts(found: ValueChange) -> tuple[str, str, str, str]:
    """Return a value on both sides, its change, and, where seeds were compared one by one, the 95 % interval of the change."""
    sides = wording.cell(found.base, found.column), wording.cell(found.new, found.column)
    if found.test and found.test.paired:
        unit, interval = found.column.unit, found.test.interval
        change = wording.difference(found.test.shift, None, unit)
        return *sides, change, wording.span(interval.low, interval.high, partial(wording.amount, unit=unit)) if interval else "too few"
    return *sides, "" if found.change is None else units.relative_change(found.change), ""


def span(interval: Interval) -> str:
    """Return an interval of changes: ``+18.2…+21.8 %``."""
    return wording.span(interval.low, interval.high, units.relative_change)


def _time(row: Row | None, seconds: float | None) -> str:
    """Return the time of a side, or how it ended."""
    if row is None:
        return ""
    if not row.is_ok:
        return status(row)
    return "" if seconds is None else units.seconds(seconds)


def calibration_note(calibration: Calibration, path: Path | None) -> str:
    """Return the note on the calibration that verdicts allow for."""
    when = f" from {calibration.first[:10]} to {calibration.last[:10]}" if calibration.first else ""
    return units.one_line(f"verdicts allow for the noise between sessions in {path}: {calibration.pooled.occasions} sessions{when}")


def noise(cases: Sequence[tuple[str, Noise]]) -> ScreenTable:
    """Return the table of the cases of a calibration."""
    return ScreenTable(columns_of(table("", NOISE_COLUMNS[:-1], cases)))
