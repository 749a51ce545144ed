"""The output of the commands: results for people and programs, and the verdicts, files for CI and exit code of those that judge."""

import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from shutil import get_terminal_size
from textwrap import wrap
from typing import TYPE_CHECKING

import click

from dlbench.analysis.export import tabular
from dlbench.cli import defaults
from dlbench.cli.options import OutputOptions
from dlbench.cli.output_files import create, overwrite, writing
from dlbench.cli.terminal import unread, wrapped
from dlbench.core.errors import ExitCode, UsageError
from dlbench.core.units import one_line

if TYPE_CHECKING:
    from rich.console import RenderableType

    from dlbench.analysis.answers.parts.base import Answer, Missing
    from dlbench.analysis.compare.verdict import Comparison
    from dlbench.analysis.read.table import Results

_DRAWN_AT_MOST = 300
"""Verdicts that are laid out for a screen, which takes a millisecond each."""
_UNBOUNDED = 100_000
"""Columns for output that goes to a file or a pipe, so that nothing is folded or cut."""


@unread()
def write_results(
    results: "Results",
    form: str,
    files: Sequence[Path],
    notes: Sequence[str] = (),
    *,
    details: bool = False,
    pictures: bool = False,
    saved: bool = False,
) -> None:
    """Write results to stdout; to stderr notes, and last the files with the command to type next. ``saved``: they were written just now."""
    from dlbench.analysis.answers import answers
    from dlbench.analysis.report import sentences, terminal
    from dlbench.cli.next_step import after

    found: Sequence[Answer | Missing] = ()
    if form == "table":
        found, screen = answers(results), get_terminal_size()
        # Behind them come the notes, the last line and the prompt.
        behind = sum(len(wrap(f"note: {note}", screen.columns)) for note in notes) + 2
        height = max(1, screen.lines - behind) if sys.stdout.isatty() else None
        more = shlex.join(["dlbench", "show", *map(str, files), "--details"]) if saved else "--details"
        draw(terminal.overview(results, found, details=details, pictures=pictures, height=height, more=more))
    else:
        click.echo(tabular.render(results.frame, form), nl=False)
        notes = (*sentences.not_usable(results), *notes)
    write_notes(notes)
    if saved or (form == "table" and sys.stdout.isatty()):
        click.echo(after(files, found, get_terminal_size().columns if sys.stderr.isatty() else None, saved=saved), err=True)


@unread()
def write_pairs(results: "Results", by: str, form: str, *, pictures: bool) -> None:
    """Write pairs of rows that differ in ``by`` to stdout, and rows without a partner to stderr."""
    from dlbench.analysis.answers.parts.pair_tables import reported
    from dlbench.analysis.presentation import pair_columns
    from dlbench.analysis.ratios import pairing
    from dlbench.analysis.read.merge import merged
    from dlbench.analysis.report import sentences, terminal

    if by.removeprefix("case.") != "run":
        results = merged(results)
    if by.removeprefix("param.") == "ranks":
        _write_scaling(results, form, pictures)
        return
    pairs = pairing.match_rows(results, by)
    unpaired = pairs.unpaired
    if form == "table":
        with_values, values, _ = reported(results, by)
        draw(terminal.paired(results, pairs, values, pictures=pictures))
        shown = {(row.case.id, row.file) for row in pairing.both_sides(results, with_values.rows)}
        unpaired = tuple(each for each in unpaired if (each.case, each.run) not in shown)
    else:
        click.echo(tabular.render(pair_columns.frame(pairs.rows), form), nl=False)
        write_notes(sentences.not_usable(results))
    write_notes(sentences.unpaired(unpaired))


def write_answers(results: "Results", form: str, topic: str | None = None) -> None:
    """Write the answers alone to stdout, or that on one topic, as Markdown or one JSON document."""
    from dlbench.analysis.answers import answers
    from dlbench.analysis.export import answers_export
    from dlbench.analysis.report import sentences

    write = {"md": answers_export.as_markdown, "json": answers_export.as_json}[form]
    found = [each for each in answers(results) if topic in (None, each.question.topic)]
    click.echo(write(found, sentences.not_usable(results)), nl=False)


@unread()
def write_reasoning(results: "Results", topic: str | None, *, pictures: bool) -> None:
    """Write the reasoning of the answers to stdout, or of one with its tables."""
    from dlbench.analysis.report import terminal

    draw(terminal.reasoning(results, topic, pictures=pictures))


def _write_scaling(results: "Results", form: str, pictures: bool) -> None:
    """Write speedup and efficiency by number of ranks, which ratios of rows alone do not show."""
    from dlbench.analysis.report import terminal
    from dlbench.analysis.scaling import columns, projection, speedup

    steps = speedup.scaling(results)
    if not steps:
        raise UsageError("no row has ranks to pair it by; measure some: dlbench run scaling")
    if form == "table":
        draw(terminal.more_devices(results, pictures=pictures))
    else:
        click.echo(tabular.render(columns.frame(steps, projection.projected(steps, results)), form), nl=False)


def draw(renderable: "RenderableType") -> None:
    """Write what rich lays out to stdout, as wide as the terminal, or off one as wide as it gets."""
    from rich.console import Console

    console = Console()
    if not sys.stdout.isatty():
        console.width = _UNBOUNDED
    # Through click, because rich answers a closed pipe with exit code 1. What is wider than the screen the terminal breaks.
    with console.capture() as capture:
        console.print(renderable, crop=False)
    click.echo(capture.get(), nl=False)


def write_notes(notes: Iterable[str]) -> None:
    """Write sentences that a reader has to know to stderr, a line each, on a terminal broken between words."""
    for note in notes:
        click.echo(wrapped(f"note: {note}", sys.stderr), err=True)


def notes_on(results: "Results", files: Sequence[Path]) -> list[str]:
    """Return a sentence for each thing that a reader of these files has to know with their rows."""
    from dlbench.analysis.compare.ab import are_sides
    from dlbench.analysis.compare.outliers import fleet_notes
    from dlbench.analysis.compare.provenance import side_notes

    notes = [*results.notes, *(side_notes(results) if are_sides(results) else ())]
    return [*notes, *(fleet_notes(results) if any(path.is_dir() for path in files) else ())]


def conclude(comparisons: Sequence["Comparison"], notes: Sequence[str], options: OutputOptions, results: "Results") -> ExitCode:
    """Write the cases to stdout, the notes to stderr, and the files that are asked for; return the code to exit with."""
    import json  # not at the top, so that --help stays quick

    from dlbench.analysis.export import compare_export, junit
    from dlbench.analysis.report import compare_terminal, sentences

    code = exit_code(comparisons, options.strict)
    conclusion = f"{compare_terminal.summary(comparisons)}; exit {code.value}"
    notes = [
        *results.notes,
        *notes,
        *(line for comparison in comparisons for line in sentences.unpaired(comparison.unpaired)),
        *(doubt for comparison in comparisons for doubt in comparison.doubts),
        *dict.fromkeys(map(str, results.budgets.values())),
        *sentences.not_usable(results),
        *defaults.in_force().notes(),
    ]
    _write_verdicts(comparisons, conclusion, options.form)
    brief = {doubt: short for each in comparisons for doubt, short in zip(each.doubts, each.brief_doubts, strict=True)}
    write_notes([brief.get(note, note) for note in notes] if options.form == "table" else notes)
    if options.junit:
        overwrite(options.junit, junit.junit(comparisons))
    if options.verdict:
        document = compare_export.verdict(comparisons, code, notes)
        overwrite(options.verdict, json.dumps(document, ensure_ascii=False, allow_nan=False).encode(errors="replace") + b"\n")
    if options.report:
        from dlbench.analysis.report import page

        create(options.report, page.comparison(comparisons, conclusion, notes, results).html.encode(errors="replace"))
    if options.summary:
        _tell_github(comparisons, conclusion, notes, options.summary)
    return code


def exit_code(comparisons: Sequence["Comparison"], strict: bool) -> ExitCode:
    """Return the first that holds: 3 something is slower, 5 something failed or is missing, 4 nothing could be, or was, decided."""
    from dlbench.analysis.compare.judge import Verdict

    gate = [each for each in comparisons if not each.report_only]
    found, judged = ({case.verdict for each in some for case in each.cases} for some in (comparisons, gate))
    if Verdict.SLOWER in judged:
        return ExitCode.REGRESSION
    if found & {Verdict.FAILED, Verdict.MISSING}:
        return ExitCode.CASES_FAILED
    unsure = judged & {Verdict.INCONCLUSIVE, Verdict.INCOMPARABLE} or any(case.lost for each in gate for case in each.cases)
    if any(each.undecidable for each in comparisons) or (strict and unsure):
        return ExitCode.UNDECIDABLE
    return ExitCode.OK


@unread()
def _write_verdicts(comparisons: Sequence["Comparison"], conclusion: str, form: str) -> None:
    """Write the cases to stdout, and what they come to: behind a table there too, else to stderr."""
    from dlbench.analysis.report import compare_terminal

    if form != "table":
        from dlbench.analysis.export import compare_export

        click.echo(tabular.render(compare_export.as_table(comparisons), form), nl=False)
        click.echo(conclusion, err=True)
        return
    on_terminal = sys.stdout.isatty()
    for comparison in comparisons:
        title = compare_terminal.title(comparison) if on_terminal else comparison.title
        click.echo(wrapped(one_line(title), sys.stdout))
        if on_terminal and comparison.nothing_in_common:
            continue  # a note says what each side has
        if on_terminal and 0 < len(comparison.cases) <= _DRAWN_AT_MOST:
            from dlbench.analysis.report import terminal

            draw(terminal.verdicts(comparison))
        else:
            click.echo("\n".join(["", *compare_terminal.table(comparison), ""]))
        reasons = compare_terminal.reasons(comparison, compare_terminal.short_names(comparison) if on_terminal else {})
        click.echo("".join(f"{wrapped(reason, sys.stdout)}\n" for reason in reasons), nl=False)
        if len(comparisons) > 1:
            click.echo(f"{compare_terminal.summary([comparison])}\n")
    click.echo(wrapped(conclusion, sys.stdout))


def _tell_github(comparisons: Sequence["Comparison"], conclusion: str, notes: Sequence[str], path: Path) -> None:
    """Write annotations to stderr, which the runner reads like stdout, and add to the step's summary as much as fits."""
    from dlbench.analysis.export import github

    for line in github.annotations(comparisons):
        click.echo(line, err=True)
    with writing(path), path.open("ab") as file:
        room = github.SUMMARY_LIMIT - file.tell()
        text = github.step_summary(comparisons, conclusion, notes, room).encode(errors="replace")
        if len(text) <= room:
            file.write(text)
        else:  # what stands there already would be lost as well
            write_notes(["the summary of this step is full, so nothing was added to it"])
