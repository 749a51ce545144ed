"""Comparisons for GitHub Actions: a summary for the page of the run, and annotations.

The commands, their escapes and the limits are those of GitHub's documentation ("Workflow commands for GitHub Actions") and of the
runner's source (github.com/actions/runner: ActionCommand, CreateStepSummaryCommand).
"""

from collections.abc import Sequence
from itertools import islice

from dlbench.analysis.compare.verdict import CaseVerdict, Comparison, attention
from dlbench.analysis.export.compare_export import severity
from dlbench.analysis.export.tabular import code, markdown_table
from dlbench.analysis.report.compare_terminal import HEADINGS, cells, count, span, word
from dlbench.core.units import one_line, relative_change

SUMMARY_LIMIT = 1 << 20
"""Bytes of all summaries of a step; the runner drops a larger one as a whole."""
ANNOTATIONS_LIMIT = 10
"""Annotations of one kind and step; GitHub drops further ones without a word."""

_ESCAPES = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_IN_TITLES = str.maketrans({":": "%3A", ",": "%2C"})
_LONGEST = 1000  # characters of a cell or a note in the summary: one endless reason must not push out all the other cases
_MOST_NOTES = 20  # the log has all of them
_TAIL = 400  # bytes kept free in each section for the sentence that counts what was left out


def annotations(comparisons: Sequence[Comparison]) -> list[str]:
    """Return workflow commands, a line each, the worst first and at most ten a kind: errors, warnings, notices.

    Slower, failed and missing cases are errors, and so is a comparison that could not have failed; undecided cases are warnings, and so
    is slower where different machines are only reported on; faster cases are notices.
    """
    found: dict[str, list[tuple[str, str]]] = {"error": [], "warning": [], "notice": []}
    found["error"] = [(each.title, each.powerless) for each in comparisons if each.powerless and not each.report_only]
    every = [(case, severity(case, comparison.report_only)) for comparison in comparisons for case in comparison.cases]
    for case, kind in sorted(every, key=lambda each: attention(each[0])):
        if kind:
            found[kind].append((case.case, _sentence(case)))
    for each in found.values():
        if (more := len(each) - ANNOTATIONS_LIMIT) > 0:
            each[ANNOTATIONS_LIMIT - 1 :] = [("dlbench", f"{more + 1:,} more; the summary of this step names them")]
    return [_command(kind, one_line(title), text) for kind, each in found.items() for title, text in each]


def _sentence(case: CaseVerdict) -> str:
    """Return for example ``slower: time +20.0 %, 95 % interval +18.2 % … +21.8 %``, and the note behind it."""
    time = ""
    if shown := case.shown:
        time = f"time {relative_change(shown.change)}{f', 95 % interval {span(ends)}' if (ends := shown.change_interval) else ''}"
    return one_line(f"{word(case)}: {'; '.join(filter(None, (time, case.note)))}")


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
    rows = markdown_table((*HEADINGS, "note"), ((_code(case.case), *cells(case)[1:], _code(case.note)) for case in comparison.cases))
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
