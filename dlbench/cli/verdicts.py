"""Verdicts of the commands that judge: on stdout, in the files for CI, and as an exit code. They import it once they are called."""

import json
from collections.abc import Sequence
from pathlib import Path

import click

from dlbench.analysis.compare.judge import Verdict
from dlbench.analysis.compare.verdict import Comparison
from dlbench.analysis.export import tabular, verdict_files
from dlbench.analysis.presentation.names import paths_of, without_folders
from dlbench.analysis.read.table import Results
from dlbench.analysis.report import compare_terminal, sentences, terminal
from dlbench.analysis.report.screen import Note
from dlbench.cli import defaults
from dlbench.cli.options import OutputOptions
from dlbench.cli.output_files import create, overwrite, writing
from dlbench.cli.terminal import draw, say, say_unbroken, unread, write_notes
from dlbench.core.errors import ExitCode

_NO_TIME = "the change is the shift of the rounds, which was tested; a time of new that differs from base's by another share is left out"


def conclude(comparisons: Sequence[Comparison], notes: Sequence[str], options: OutputOptions, results: Results) -> ExitCode:
    """Write the verdicts to stdout, the notes to stderr, and the files that options ask for. Return the exit code."""
    code = exit_code(comparisons, options.strict)
    cases = [case for comparison in comparisons for case in comparison.cases]
    conclusion = f"{compare_terminal.count(cases)}; exit {code.value}"
    all_notes = _all_notes(comparisons, notes, results)
    _write_verdicts(comparisons, conclusion, options.form)
    # A table names a file without its folders, so notes tell files of the same name apart.
    write_notes([*all_notes, *paths_of(results.paths)] if options.form == "table" else all_notes)
    # What is sent to others does not name folders of this machine; the page is for its user.
    notes_for_others = [without_folders(note, results.paths.values()) for note in all_notes]
    if options.junit:
        overwrite(options.junit, verdict_files.junit(comparisons))
    if options.verdict:
        document = verdict_files.verdict_document(comparisons, code, notes_for_others)
        overwrite(options.verdict, json.dumps(document, ensure_ascii=False, allow_nan=False).encode(errors="replace") + b"\n")
    if options.report:  # unlike the files above, a page is never overwritten
        from dlbench.analysis.report import page

        create(options.report, page.comparison(comparisons, conclusion, all_notes, results).html.encode(errors="replace"))
        say(f"saved in {options.report}")
    if options.summary:  # the file for the summary of a step in GitHub Actions
        _tell_github(comparisons, conclusion, notes_for_others, options.summary)
    return code


def _all_notes(comparisons: Sequence[Comparison], notes: Sequence[str], results: Results) -> list[str]:
    """Return what the files lack, then ``notes``, then what limits the verdicts, and last the user's defaults that were used."""
    unpaired = [line for comparison in comparisons for line in sentences.unpaired(comparison.unmatched)]
    doubts = [comparison.doubt for comparison in comparisons if comparison.doubt is not None]
    tested_cases = [case for comparison in comparisons for case in comparison.cases if case.shown]
    new_times = [new_s for _, new_s in map(compare_terminal.times_s, tested_cases)]
    lacks_time = None in new_times  # a table leaves out a time that would contradict the tested change, as `_NO_TIME` says
    spent_budgets = dict.fromkeys(map(str, results.budgets.values()))
    return [
        *results.notes,
        *notes,
        *unpaired,
        *doubts,
        *([_NO_TIME] if lacks_time else []),
        *spent_budgets,
        *sentences.not_usable(results),
        *defaults.in_force().notes(),
    ]


def exit_code(comparisons: Sequence[Comparison], strict: bool) -> ExitCode:
    """Return the code of the first that holds: a case is slower (3), a case failed or is missing (5), or a comparison decides nothing (4).

    If none holds, return 0. A comparison across machines only reports, so none of its cases counts as slower or as undecided. With
    ``strict`` one undecided case is enough for 4.
    """
    all_cases = [case for comparison in comparisons for case in comparison.cases]
    judged_cases = [case for comparison in comparisons if not comparison.report_only for case in comparison.cases]
    if any(case.verdict is Verdict.SLOWER for case in judged_cases):
        return ExitCode.REGRESSION
    if any(case.verdict in (Verdict.FAILED, Verdict.MISSING) for case in all_cases):
        return ExitCode.CASES_FAILED
    # ``lost``: damaged lines may have held rounds of the case, or a budget left it out.
    any_undecided = any(case.lost or case.verdict in (Verdict.INCONCLUSIVE, Verdict.INCOMPARABLE) for case in judged_cases)
    if any(comparison.undecidable for comparison in comparisons) or (strict and any_undecided):
        return ExitCode.UNDECIDABLE
    return ExitCode.OK


@unread()
def _write_verdicts(comparisons: Sequence[Comparison], conclusion: str, form: str) -> None:
    """Write the cases to stdout, then the conclusion: after a table to stdout, else to stderr."""
    if form != "table":
        click.echo(tabular.render(verdict_files.as_table(comparisons), form), nl=False)
        say(conclusion)
        return
    for comparison in comparisons:
        draw(Note(compare_terminal.title(comparison), ""))
        if not comparison.nothing_in_common:  # else a note says what each side has
            draw(terminal.verdicts(comparison, len(comparisons) > 1))
    draw(Note(conclusion, ""))


def _tell_github(comparisons: Sequence[Comparison], conclusion: str, notes: Sequence[str], path: Path) -> None:
    """Write annotations to stderr, which the runner reads like stdout, and add to the step's summary as much as fits."""
    for line in verdict_files.annotations(comparisons):
        say_unbroken(line)
    with writing(path), path.open("ab") as file:
        room = verdict_files.SUMMARY_LIMIT - file.tell()
        text = verdict_files.step_summary(comparisons, conclusion, notes, room).encode(errors="replace")
        if len(text) <= room:
            file.write(text)
        else:  # GitHub would drop what the summary has so far as well
            write_notes(["the summary of this step is full, so nothing was added to it"])
