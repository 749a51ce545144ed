"""A comparison as text for people: a line a case, and what it comes to in one sentence."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from dlbench.analysis.compare.calibration import Calibration, CaseNoise
from dlbench.analysis.compare.judge import Verdict
from dlbench.analysis.compare.verdict import CaseVerdict, Comparison
from dlbench.analysis.presentation.names import status
from dlbench.analysis.report.text_table import padded
from dlbench.core import units
from dlbench.core.rows.row import Row
from dlbench.core.stats import Interval

HEADINGS = ("case", "base", "new", "change", "95 % interval", "p after Holm", "verdict", "note")
NUMBERS = range(1, 6)
"""Their places in which there are numbers."""
_NOISE_HEADINGS = ("case", "occasions", "median", "sd of median", "sd of p10")
_SUMMARY = (
    Verdict.SLOWER, Verdict.FASTER, Verdict.SAME, Verdict.INCONCLUSIVE, Verdict.INCOMPARABLE, Verdict.MISSING, Verdict.FAILED, Verdict.NEW,
)  # fmt: skip


def table(comparison: Comparison) -> list[str]:
    """Return the lines of the table, the heading first: the worst cases stand on top, and nothing is folded or cut."""
    return padded([HEADINGS, *map(cells, comparison.cases)], NUMBERS)


def summary(comparisons: Iterable[Comparison]) -> str:
    """Return for example ``3 slower, 1 faster, 8 same, 2 inconclusive``."""
    return count(case for comparison in comparisons for case in comparison.cases)


def count(cases: Iterable[CaseVerdict]) -> str:
    """Return the same of some cases."""
    found = Counter(case.verdict for case in cases)
    return ", ".join(f"{found[verdict]:,} {verdict}" for verdict in _SUMMARY if found[verdict]) or "no cases"


def cells(case: CaseVerdict) -> tuple[str, ...]:
    """Return a line of the table, a text for each of the headings."""
    change, interval, p = "", "", ""
    if shown := case.shown:
        change = units.relative_change(shown.change)
        p = f"{shown.p_holm:.4f}" if shown.p_holm >= 1e-4 else "<0.0001"
        interval = span(shown.interval) if shown.interval else "too few rounds"
    tested = (None, None) if shown is None or case.statistic == "median" else shown.medians_s
    times = [_time(side, seconds) for side, seconds in zip((case.base, case.new), tested, strict=True)]
    return (units.one_line(case.case), *times, change, interval, p, case.verdict.value, units.one_line(case.note))


def span(interval: Interval) -> str:
    """Return an interval of changes: ``+18.2 % … +21.8 %``."""
    return f"{units.relative_change(interval.low)} … {units.relative_change(interval.high)}"


def _time(row: Row | None, tested_s: float | None) -> str:
    """Return what was tested, seconds a call, or without that the median."""
    if row is None:
        return ""
    if not row.is_ok:
        return status(row)
    seconds = row.time.median_s if tested_s is None else tested_s
    return "" if seconds is None else units.seconds(seconds)


def occasions(calibration: Calibration, path: Path | None) -> str:
    """Say which calibration verdicts allow for, and what it knows."""
    pooled, common = calibration.pooled, calibration.common
    when = f" from {calibration.first[:10]} to {calibration.last[:10]}" if calibration.first else ""
    of_all = f"all together by {units.percent(common.median)} and {units.percent(common.p10)}, each by itself by " if common else "by "
    return units.one_line(
        f"verdicts allow for the noise between occasions in {path}: {pooled.occasions} occasions{when}, from one to another median and p10 "
        f"of the cases differ {of_all}{units.percent(pooled.median)} and {units.percent(pooled.p10)} (standard deviations)"
    )


def noise(cases: Iterable[CaseNoise]) -> list[str]:
    """Return the lines of a table of the cases of a calibration."""
    rows = [
        (
            units.one_line(each.case),
            str(each.occasions),
            units.seconds(each.median_s),
            *([units.percent(sd) for sd in (each.noise.median, each.noise.p10)] if each.noise else ("", "")),
        )
        for each in cases
    ]
    return padded([_NOISE_HEADINGS, *rows], range(1, len(_NOISE_HEADINGS)))
