"""A comparison as text for people: a line a case, and what it comes to in one sentence.

Lines are padded here and not by rich, which takes a millisecond a row: a comparison may have twenty thousand.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from dlbench.analysis.compare import CaseVerdict, Comparison
from dlbench.analysis.judge import Verdict
from dlbench.analysis.sentences import number
from dlbench.core import units
from dlbench.core.summary import Row

HEADINGS = ("case", "base", "new", "change", "95 % interval", "p after Holm", "verdict", "note")
_NUMBERS = ("base", "new", "change", "95 % interval", "p after Holm")
_SUMMARY = (
    Verdict.SLOWER, Verdict.FASTER, Verdict.SAME, Verdict.INCONCLUSIVE, Verdict.INCOMPARABLE, Verdict.MISSING, Verdict.FAILED, Verdict.NEW,
)  # fmt: skip


def table(comparison: Comparison) -> list[str]:
    """Return the lines of the table, the heading first: the worst cases stand on top, and nothing is folded or cut."""
    rows = [HEADINGS, *(cells(case) for case in comparison.cases)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = [">" if name in _NUMBERS else "<" for name in HEADINGS]
    layout = "  ".join(f"{{:{side}{width}}}" for side, width in zip(sides, widths, strict=True))
    return [layout.format(*row).rstrip() for row in rows]


def summary(comparisons: Iterable[Comparison]) -> str:
    """Return for example ``3 slower, 1 faster, 8 same, 2 inconclusive``."""
    return count(case for comparison in comparisons for case in comparison.cases)


def count(cases: Iterable[CaseVerdict]) -> str:
    """Return the same of some cases."""
    found = Counter(case.verdict for case in cases)
    return ", ".join(f"{found[verdict]:,} {verdict}" for verdict in _SUMMARY if found[verdict]) or "no cases"


def change_text(change: float) -> str:
    """Return a fraction as ``+12.3 %``, and from ten times on as ``12.3 ×``."""
    return f"{units.three_digits(1 + change)} ×" if change >= 9 else f"{change * 100:+.1f} %"


def cells(case: CaseVerdict) -> tuple[str, ...]:
    """Return a line of the table, a text for each of the headings."""
    change, interval, p = "", "", ""
    if shown := case.shown:
        change = change_text(shown.change)
        p = f"{shown.p_holm:.4f}" if shown.p_holm >= 1e-4 else "<0.0001"
        interval = "too few rounds"
        if shown.ci_low is not None and shown.ci_high is not None:
            interval = f"{change_text(shown.ci_low)} … {change_text(shown.ci_high)}"
    times = [_time(side, case.statistic) for side in (case.base, case.new)]
    return (units.one_line(case.case), *times, change, interval, p, case.verdict.value, units.one_line(case.note))


def _time(row: Row | None, statistic: str) -> str:
    if row is None:
        return ""
    if row["case.status"] != "ok":
        return str(row["case.status"])
    seconds = row[f"time.{statistic}_s"]
    return "" if seconds is None else units.seconds(number(seconds))


def occasions(time_threshold: float) -> str:
    """Return what has to be said wherever the sides were not measured in turn."""
    return (
        "how far this machine's times drift from one occasion to another is not known, so a change may be the occasion's "
        f"and not the program's; changes up to {units.percent(time_threshold)} pass for none"
    )


def different_software(base: str, new: str, differences: Sequence[str]) -> str:
    """Return the sentence for files of one machine and several stacks."""
    return units.one_line(f"the software differs, {base} against {new}: {'; '.join(differences)}")
