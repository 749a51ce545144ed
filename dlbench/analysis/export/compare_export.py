"""Comparisons as data: a frame for csv, json and Markdown, and one JSON document for programs."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from dlbench.analysis.compare.judge import MEAN, PAIRED, Verdict
from dlbench.analysis.compare.values import WORDS, ValueChange
from dlbench.analysis.compare.verdict import CaseVerdict, Comparison
from dlbench.analysis.presentation.columns import at, cells
from dlbench.analysis.read.table import as_frame, records
from dlbench.core.errors import ExitCode
from dlbench.core.files import __version__
from dlbench.core.model import ParamValue
from dlbench.core.rows.row import cell
from dlbench.core.units import Column, Unit, one_line

if TYPE_CHECKING:
    import pandas as pd

_SIDE = (
    ("run", Unit.TEXT, "the result file", "{0}.case.run"),
    ("id", Unit.TEXT, "the case's id there", "{0}.case.id"),
    ("status", Unit.TEXT, "how it ended", "{0}.case.status"),
    ("rounds", Unit.COUNT, "rounds that went well", "{0}.time.rounds"),
    ("median_s", Unit.SECONDS, "one call: median over rounds of the round's median block", "{0}.time.median_s"),
    ("p10_s", Unit.SECONDS, "one call: median over rounds of the p10 of a round's blocks, as it was tested", "tests.p10.medians_s.{1}"),
)
"""Of a side, with the path to each in a verdict."""
_CHANGE = (
    ("verdict", "verdict", Unit.TEXT, "what this test alone says"),
    ("change", "change", Unit.FRACTION, "of base: 0.1 is 10 % more time; Hodges-Lehmann estimate over the rounds"),
    ("ci_low", "change_interval.low", Unit.FRACTION, "lower end of its 95 % interval; null with too few rounds"),
    ("ci_high", "change_interval.high", Unit.FRACTION, "upper end of it"),
    (
        "confidence",
        "change_interval.confidence",
        Unit.FRACTION,
        "the interval's coverage: exact for rounds fixed beforehand, without a budget",
    ),
    ("p", "p", Unit.FRACTION, "exact two-sided {}, ties broken towards no difference"),
    ("p_holm", "p_holm", Unit.FRACTION, "that after Holm's correction for all tests of the comparison"),
)
"""Of a test, with the path to each in it."""


def _memory(of: Callable[[ValueChange], float | None], case: CaseVerdict) -> float | None:
    """Return what the peak memory of a case has of something; None where it can't be compared."""
    memory = next((each for each in case.values if each.is_memory), None)
    return of(memory) if memory else None


def _bytes(side: str, memory: ValueChange) -> int:
    found: float = getattr(memory, side)
    return round(found)


def _possible_growth(memory: ValueChange) -> float | None:
    base = memory.base
    return memory.possible / base if isinstance(base, int | float) and base and memory.possible is not None else None


COLUMNS = (
    Column("compare.case", Unit.TEXT, "the case; with --by, that of the new side"),
    Column("compare.verdict", Unit.TEXT, "slower, failed, missing, inconclusive, incomparable, faster, same, new or not measured"),
    Column("compare.regressed", Unit.TEXT, "what got worse: time, memory, energy and values by their columns").by(
        lambda case: ", ".join(case.regressed) or None
    ),
    Column("compare.note", Unit.TEXT, "why, and what to do about it", of=lambda case: case.note or None),
    Column("compare.statistic", Unit.TEXT, "what the verdict stands on: median, or another of the statistics below alone").by(
        lambda case: case.statistic if case.tests else None
    ),
    Column("compare.threshold", Unit.FRACTION, "from where on a change of its time matters; null where nothing was compared").by(
        at("thresholds.time")
    ),
    Column("compare.detect", Unit.FRACTION, "slowdown, or worsening, that has to be called or excluded; null where none has to"),
    Column(
        "compare.possible",
        Unit.FRACTION,
        "largest slowdown that is not excluded; null where none is excluded or tested, below 0 if surely faster",
    ),
    Column("compare.detectable", Unit.FRACTION, "smallest change that four of five comparisons would call; null where none would"),
    Column("compare.unseen", Unit.TEXT, "why compare.detect is neither called nor excluded; null where it is"),
    *(
        Column(f"{side}.{name}", unit, f"{side}: {meaning}", of=at(path.format(side, number)))
        for number, side in enumerate(("base", "new"))
        for name, unit, meaning, path in _SIDE
    ),
    *(
        Column(f"{side}.memory_bytes", Unit.BYTES, f"{side}: peak, the accelerator's, else median over rounds of what the process grew").by(
            partial(_memory, partial(_bytes, side))
        )
        for side in ("base", "new")
    ),
    *(
        Column(f"{test}.{name}", unit, f"{compared}: {meaning.format(p)}", of=at(f"tests.{test}.{path}"))
        for test, compared, p in (
            ("median", "median", "Mann-Whitney"),
            ("p10", "p10", "Mann-Whitney"),
            (MEAN, "mean of all calls", "Mann-Whitney"),
            (PAIRED, "pair by pair of the rounds of an A/B, their p10, or without one their median", "Wilcoxon signed rank"),
        )
        for name, path, unit, meaning in _CHANGE
    ),
    Column("memory.change", Unit.FRACTION, "of base's peak memory: 0.1 is 10 % more", of=partial(_memory, at("change"))),
    Column("memory.possible", Unit.FRACTION, "largest growth on the host that is not excluded, of base's; null where none is tested").by(
        partial(_memory, _possible_growth)
    ),
)
_VALUE = ("base", "new", "change", "verdict", "possible")


def as_table(comparisons: Sequence[Comparison]) -> "pd.DataFrame":
    """Return a row a case and comparison, columns as in `COLUMNS`; then ``value.NAME.base`` and the others of `_VALUE`."""
    cases = [case for comparison in comparisons for case in comparison.cases]
    values = [
        {f"{each.column.name}.{name}": _value(each, name) for each in case.values if not each.is_memory for name in _VALUE}
        for case in cases
    ]
    return as_frame([row | more for row, more in zip(cells(COLUMNS, cases), values, strict=True)], COLUMNS)


def _value(change: ValueChange, name: str) -> ParamValue | None:
    found = getattr(change, name)
    return WORDS.get(found, found) if name == "verdict" else cell(found)


_SEVERITIES = {
    Verdict.SLOWER: "error",
    Verdict.FAILED: "error",
    Verdict.MISSING: "error",
    Verdict.INCONCLUSIVE: "warning",
    Verdict.INCOMPARABLE: "warning",
    Verdict.FASTER: "notice",
}


def severity(case: CaseVerdict, report_only: bool) -> str | None:
    """Return how loud CI has to be about a case: ``error``, ``warning`` or ``notice``; None for not at all.

    ``report_only``: slower says nothing about the program, as the sides are of different machines.
    """
    left_out = case.verdict is Verdict.NOT_MEASURED and case.lost
    return "warning" if left_out or (report_only and case.verdict is Verdict.SLOWER) else _SEVERITIES.get(case.verdict)


VERDICT_VERSION = 2
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
                "unseen": comparison.unseen and asdict(comparison.unseen),
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
