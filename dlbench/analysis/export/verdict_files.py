"""Comparisons as data: a frame, one JSON document, summary and annotations for GitHub Actions, and JUnit XML."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from dlbench.analysis.compare.judge import MEAN, PAIRED, Verdict
from dlbench.analysis.compare.values import WORDS, ValueChange
from dlbench.analysis.compare.verdict import CaseVerdict, Comparison, attention
from dlbench.analysis.export.tabular import code, markdown_table
from dlbench.analysis.presentation.columns import at, cells
from dlbench.analysis.read.table import as_frame, records
from dlbench.analysis.report.compare_terminal import HEADINGS, count, span, verdict_texts, word
from dlbench.core.errors import ExitCode
from dlbench.core.files import __version__
from dlbench.core.model import ParamValue
from dlbench.core.rows.row import cell
from dlbench.core.units import Column, Unit, one_line, relative_change

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


def _memory(name: str) -> Callable[[CaseVerdict], float | None]:
    """Return a function for the attribute ``name`` of the change of a case's peak memory; None where that can't be compared."""
    return lambda case: next((getattr(each, name) for each in case.values if each.is_memory), None)


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
            _memory(side)
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
    Column("memory.change", Unit.FRACTION, "of base's peak memory: 0.1 is 10 % more", of=_memory("change")),
    Column(
        "memory.possible", Unit.BYTES, "largest growth on the host that is not excluded; null where none is tested", of=_memory("possible")
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
    """Return the kind of a case's annotation: ``error``, ``warning`` or ``notice``; None if it needs none.

    ``report_only``: the sides are of different machines, so slower is only a warning.
    """
    left_out = case.verdict is Verdict.NOT_MEASURED and case.lost
    return "warning" if left_out or (report_only and case.verdict is Verdict.SLOWER) else _SEVERITIES.get(case.verdict)


VERDICT_VERSION = 2
"""Version of the document below: new keys keep it, a key that changes its meaning or goes away makes a new one."""


def verdict_document(comparisons: Sequence[Comparison], code: ExitCode, notes: Sequence[str]) -> dict[str, Any]:
    """Return comparisons as one object for JSON: the exit code and its name, counts, notes, and each comparison with its cases.

    Cases have the columns of `COLUMNS`; the other keys of a comparison are the fields of `Comparison` with these names.
    """
    return {
        "version": VERDICT_VERSION,
        "dlbench": __version__,
        "verdict": code.name.lower(),
        "exit_code": code.value,
        "counts": _counts(case for comparison in comparisons for case in comparison.cases),
        "notes": list(notes),
        "comparisons": list(map(_comparison_document, comparisons)),
    }


def _comparison_document(comparison: Comparison) -> dict[str, Any]:
    return {
        "title": one_line(comparison.title),
        "report_only": comparison.report_only,
        "powerless": comparison.powerless,
        "unseen": comparison.unseen and asdict(comparison.unseen),
        "other_occasion": comparison.other_occasion,
        "counts": _counts(comparison.cases),
        "cases": records(as_table([comparison])),
    }


def _counts(cases: Iterable[CaseVerdict]) -> dict[str, int]:
    """Return the number of cases with each verdict, zeros included."""
    found = Counter(case.verdict for case in cases)
    return {each.value: found[each] for each in Verdict}


SUMMARY_LIMIT = 1 << 20
"""Bytes of all summaries of a step; the runner drops a larger one as a whole."""
ANNOTATIONS_LIMIT = 10
"""Annotations of one kind and step; GitHub drops further ones without a word."""

# Commands, escapes and limits are those of "Workflow commands for GitHub Actions" and of the runner (github.com/actions/runner).
_ESCAPES = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_IN_TITLES = str.maketrans({":": "%3A", ",": "%2C"})
_LONGEST = 1000  # characters of a cell or a note in the summary: one endless reason must not push out all the other cases
_MOST_NOTES = 20  # the log has all of them
_TAIL = 400  # bytes kept free in each section for the sentence that counts what was left out


def annotations(comparisons: Sequence[Comparison]) -> list[str]:
    """Return a workflow command of GitHub for each case that needs attention.

    Errors come first, then warnings, then notices. There are ten of each kind at most, the worst first.

    Errors are slower, failed and missing cases, and comparisons with too few rounds to call any case slower. Warnings are undecided cases,
    and those that the new run left out. Notices are faster cases. A comparison of different machines only reports: there a slower case is a
    warning, and too few rounds are no error.
    """
    entries: dict[str, list[tuple[str, str]]] = {"error": [], "warning": [], "notice": []}
    entries["error"] = [(each.title, each.powerless) for each in comparisons if each.powerless and not each.report_only]
    graded = [(case, severity(case, comparison.report_only)) for comparison in comparisons for case in comparison.cases]
    for case, kind in sorted(graded, key=lambda each: attention(each[0])):
        if kind:
            entries[kind].append((case.case, _sentence(case)))
    for listed in entries.values():
        if len(listed) > ANNOTATIONS_LIMIT:
            with_text = ANNOTATIONS_LIMIT - 1  # the last place is for the number of the others
            number_of_others = ("dlbench", f"{len(listed) - with_text:,} more; the summary of this step names them")
            listed[with_text:] = [number_of_others]
    return [_command(kind, one_line(title), text) for kind, listed in entries.items() for title, text in listed]


def _sentence(case: CaseVerdict) -> str:
    """Return for example ``slower: time +20.0 %, 95 % interval +18.2 % … +21.8 %``, and the note behind it."""
    time = interval = ""
    if case.shown:
        time = f"time {relative_change(case.shown.change)}"
        ends = case.shown.change_interval
        interval = f", 95 % interval {span(ends)}" if ends else ""
    return one_line(f"{word(case)}: {'; '.join(filter(None, (time + interval, case.note)))}")


def _command(kind: str, title: str, text: str) -> str:
    return f"::{kind} title={title.translate(_ESCAPES | _IN_TITLES)}::{text.translate(_ESCAPES)}"


def step_summary(comparisons: Sequence[Comparison], conclusion: str, notes: Sequence[str], room: int) -> str:
    """Return Markdown: the conclusion, a table a comparison with the worst cases on top, and the notes.

    Cases that don't fit into ``room`` bytes are counted instead. Room for one case of each comparison is taken even where it is not there.
    """
    head = f"### dlbench: {conclusion}\n\n"
    tail = "".join(f"- {_code(note)}\n" for note in notes[:_MOST_NOTES])
    if len(notes) > _MOST_NOTES:
        tail += f"- and {len(notes) - _MOST_NOTES:,} more notes in the log\n"
    share = (room - _size(head + tail)) // max(1, len(comparisons))
    return head + "".join(_section(comparison, share) for comparison in comparisons) + tail


def _section(comparison: Comparison, room: int) -> str:
    rows = markdown_table(
        (*HEADINGS, "note"), ((_code(case.case), *verdict_texts(case)[1:], _code(case.note)) for case in comparison.cases)
    )
    lines = [f"{_code(comparison.title)}: {count(comparison.cases)}\n\n", *islice(rows, 2)]
    room -= sum(map(_size, lines)) + _TAIL
    for number, line in enumerate(rows):
        room -= _size(line)
        if room < 0 and number:
            rest = comparison.cases[number:]
            lines.append(f"\nNo room here for {len(rest):,} more: {count(rest)}. None needs more attention than those above.\n")
            break
        lines.append(line)
    return "".join(lines) + "\n"


def _code(text: str) -> str:
    """Return foreign text as code in a cell, whose end it may not hold."""
    text = one_line(text).replace("|", "¦")
    return code(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")


def _size(text: str) -> int:
    return len(text.encode(errors="replace"))


_JUNIT_OUTCOMES = {"error": "failure", "warning": "skipped"}
"""Element of JUnit in the test of a case, by the severity of the case."""


def junit(comparisons: Sequence[Comparison]) -> bytes:
    """Return JUnit XML: a suite for each comparison, with a test for each case.

    Slower, missing and failed cases are failures; inconclusive, incomparable and unmeasured ones are skipped. A comparison of different
    machines only reports, so there slower cases are skipped, too. A comparison that decides nothing has one more test, which ends in an
    error: see `Comparison.undecidable` for the reasons, such as too few rounds to call a slowdown.
    """
    suites = ElementTree.Element("testsuites")
    for comparison in comparisons:
        suite = ElementTree.SubElement(suites, "testsuite", name=one_line(comparison.title))
        for case in comparison.cases:
            workload = case.case.partition("[")[0]
            test = ElementTree.SubElement(suite, "testcase", classname=one_line(workload), name=one_line(case.case))
            if outcome := _junit_outcome(case, comparison.report_only):
                ElementTree.SubElement(test, outcome, message=_sentence(case))
        if reason := comparison.undecidable:
            test = ElementTree.SubElement(suite, "testcase", classname="dlbench", name="the comparison decides")
            ElementTree.SubElement(test, "error", message=one_line(reason))
        suite.set("tests", str(len(suite)))  # so far all children of the suite are tests; its output comes last
        for attribute, outcome in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            suite.set(attribute, str(len(suite.findall(f"*/{outcome}"))))
        ElementTree.SubElement(suite, "system-out").text = count(comparison.cases)
    ElementTree.indent(suites)
    document: bytes = ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True)
    return document


def _junit_outcome(case: CaseVerdict, report_only: bool) -> str | None:
    """Return the element that the test of a case has, ``failure`` or ``skipped``; None for a test that passes."""
    if case.verdict is Verdict.NOT_MEASURED:
        return "skipped"
    return _JUNIT_OUTCOMES.get(severity(case, report_only) or "")
