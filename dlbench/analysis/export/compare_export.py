"""Comparisons as data: a frame for csv, json and Markdown, and one JSON document for programs."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from dlbench import __version__
from dlbench.analysis.compare.judge import MEAN, PAIRED, Change, Verdict
from dlbench.analysis.compare.values import WORDS, ValueChange
from dlbench.analysis.compare.verdict import CaseVerdict, Comparison
from dlbench.analysis.read.table import as_frame, records
from dlbench.core.errors import ExitCode
from dlbench.core.rows.row import Cells, Row, cell
from dlbench.core.schema import Column, Unit
from dlbench.core.units import one_line

if TYPE_CHECKING:
    import pandas as pd

_CHANGE = (
    ("verdict", Unit.TEXT, "what this test alone says"),
    ("change", Unit.FRACTION, "of base: 0.1 is 10 % more time; Hodges-Lehmann estimate over the rounds"),
    ("ci_low", Unit.FRACTION, "lower end of its 95 % interval; null with too few rounds"),
    ("ci_high", Unit.FRACTION, "upper end of it"),
    ("confidence", Unit.FRACTION, "the interval's coverage: exact for rounds fixed beforehand, without a budget"),
)
COLUMNS = (
    Column("compare.case", Unit.TEXT, "the case; with --by, that of the new side"),
    Column("compare.verdict", Unit.TEXT, "slower, failed, missing, inconclusive, incomparable, faster, same, new or not measured"),
    Column("compare.regressed", Unit.TEXT, "what got worse: time, memory, energy and values by their columns"),
    Column("compare.note", Unit.TEXT, "why, and what to do about it"),
    Column("compare.statistic", Unit.TEXT, "what the verdict stands on: median, or another of the statistics below alone"),
    Column("compare.threshold", Unit.FRACTION, "from where on a change of its time matters; null where nothing was compared"),
    Column("compare.detect", Unit.FRACTION, "slowdown, or worsening, that has to be called or excluded; null where none has to"),
    Column(
        "compare.possible",
        Unit.FRACTION,
        "largest slowdown that is not excluded; null where none is excluded or tested, below 0 if surely faster",
    ),
    Column("compare.detectable", Unit.FRACTION, "smallest change that four of five comparisons would call; null where none would"),
    Column("compare.rounds_needed", Unit.COUNT, "rounds a side that would probably decide whether it is the same; only where inconclusive"),
    Column("compare.unseen", Unit.TEXT, "why compare.detect is neither called nor excluded; null where it is"),
    *(
        Column(f"{side}.{name}", unit, f"{side}: {meaning}")
        for side in ("base", "new")
        for name, unit, meaning in (
            ("run", Unit.TEXT, "the result file"),
            ("id", Unit.TEXT, "the case's id there"),
            ("status", Unit.TEXT, "how it ended"),
            ("rounds", Unit.COUNT, "rounds that went well"),
            ("median_s", Unit.SECONDS, "one call: median over rounds of the round's median block"),
            ("p10_s", Unit.SECONDS, "one call: median over rounds of the p10 of a round's blocks, as it was tested"),
            ("memory_bytes", Unit.BYTES, "peak: the accelerator's, else median over rounds of what the process grew"),
        )
    ),
    *(
        Column(f"{test}.{name}", unit, f"{compared}: {meaning}")
        for test, compared, p in (
            ("median", "median", "Mann-Whitney"),
            ("p10", "p10", "Mann-Whitney"),
            (MEAN, "mean of all calls", "Mann-Whitney"),
            (PAIRED, "pair by pair of the rounds of an A/B, their p10, or without one their median", "Wilcoxon signed rank"),
        )
        for name, unit, meaning in (
            *_CHANGE,
            ("p", Unit.FRACTION, f"exact two-sided {p}, ties broken towards no difference"),
            ("p_holm", Unit.FRACTION, "that after Holm's correction for all tests of the comparison"),
        )
    ),
    Column("memory.change", Unit.FRACTION, "of base's peak memory: 0.1 is 10 % more"),
    Column("memory.possible", Unit.FRACTION, "largest growth on the host that is not excluded, of base's; null where none is tested"),
)


def as_table(comparisons: Sequence[Comparison]) -> "pd.DataFrame":
    """Return a row a case and comparison, columns as in `COLUMNS`; then ``value.NAME.base`` and the others of `_value`."""
    return as_frame([_row(case) for comparison in comparisons for case in comparison.cases], COLUMNS)


def _row(case: CaseVerdict) -> Cells:
    memory = case.memory
    base_p10_s, new_p10_s = case.changes["p10"].medians_s if "p10" in case.changes else (None, None)
    groups: dict[str, Cells] = {
        "compare": {
            "case": case.case,
            "verdict": case.verdict.value,
            "regressed": ", ".join(case.regressed) or None,
            "note": case.note or None,
            "statistic": case.statistic if case.changes else None,
            "threshold": case.thresholds and case.thresholds.time,
            "detect": case.detect,
            "possible": case.possible,
            "detectable": case.detectable,
            "rounds_needed": case.rounds_needed,
            "unseen": case.unseen,
        },
        "base": _side(case.base, base_p10_s, memory.base if memory else None),
        "new": _side(case.new, new_p10_s, memory.new if memory else None),
        **{statistic: _change(change) for statistic, change in case.changes.items()},
        "memory": {"change": memory and memory.change, "possible": memory and memory.possible},
        **{each.column.name: _value(each) for each in case.values},
    }
    return {f"{group}.{name}": value for group, cells in groups.items() for name, value in cells.items()}


def _value(change: ValueChange) -> Cells:
    verdict = change.verdict and WORDS.get(change.verdict, change.verdict.value)
    sides = {"base": cell(change.base), "new": cell(change.new)}
    return {**sides, "change": change.change, "verdict": verdict, "possible": change.possible}


def _side(row: Row | None, p10_s: float | None, memory_bytes: float | None) -> Cells:
    if row is None:
        return {}
    return {
        "run": row.case.run,
        "id": row.case.id,
        "status": cell(row.case.status),
        "rounds": row.time.rounds,
        "median_s": row.time.median_s,
        "p10_s": p10_s,
        "memory_bytes": None if memory_bytes is None else round(memory_bytes),
    }


def _change(change: Change) -> Cells:
    interval = change.interval
    return {
        "verdict": change.verdict.value,
        "change": change.change,
        "ci_low": interval and interval.low,
        "ci_high": interval and interval.high,
        "confidence": interval and interval.confidence,
        "p": change.test.p,
        "p_holm": change.p_holm,
    }


VERDICT_VERSION = 1
"""Of the document below. Keys may be added under it; one that changes its meaning or goes away makes a new version."""


def verdict(comparisons: Sequence[Comparison], code: ExitCode, notes: Sequence[str]) -> dict[str, Any]:
    """Return all that comparisons come to as one object for JSON: the exit code and its name, counts, and every case as in `COLUMNS`."""
    return {
        "version": VERDICT_VERSION,
        "dlbench": __version__,
        "verdict": code.name.lower(),
        "exit_code": code.value,
        "counts": _counts(case for comparison in comparisons for case in comparison.cases),
        "notes": list(notes),
        "comparisons": [
            {
                "title": one_line(comparison.title),
                "report_only": comparison.report_only,
                "powerless": comparison.powerless,
                "unseen": comparison.unseen and {name: value for name, value in asdict(comparison.unseen).items() if name != "brief"},
                "other_occasion": comparison.other_occasion,
                "counts": _counts(comparison.cases),
                "cases": records(as_table([comparison])),
            }
            for comparison in comparisons
        ],
    }


def _counts(cases: Iterable[CaseVerdict]) -> dict[str, int]:
    found = Counter(case.verdict for case in cases)
    return {each.value: found[each] for each in Verdict}
