"""The output of the commands: results for people and programs, and the verdicts, files for CI and exit code of those that judge."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dlbench.analysis.export import tabular
from dlbench.cli import defaults
from dlbench.cli.options import OutputOptions
from dlbench.cli.output_files import create, overwrite, writing
from dlbench.cli.terminal import unread
from dlbench.core.errors import ExitCode, UsageError
from dlbench.core.units import one_line

if TYPE_CHECKING:
    from rich.console import RenderableType

    from dlbench.analysis.compare.verdict import Comparison
    from dlbench.analysis.read.table import Results

_DRAWN_AT_MOST = 300
"""Verdicts that are laid out for a screen, which takes a millisecond each."""
_UNBOUNDED = 100_000
"""Columns for output that goes to a file or a pipe, so that nothing is folded or cut."""
_LEAST = 40
"""Columns that the numbers of a row need; a narrower terminal breaks the lines itself, which loses nothing."""


@unread()
def write_results(results: "Results", form: str, **parts: bool) -> None:
    """Write results to stdout; ``parts`` of a table are those of `analysis.report.terminal.overview`."""
    from dlbench.analysis.report import sentences, terminal

    if form == "table":
        draw(terminal.overview(results, **parts))
    else:
        click.echo(tabular.render(results.frame, form), nl=False)
        write_notes(sentences.not_usable(results))


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


def write_answers(results: "Results", form: str) -> None:
    """Write the answers alone to stdout, as Markdown or one JSON document."""
    from dlbench.analysis.answers import answers
    from dlbench.analysis.export import answers_export
    from dlbench.analysis.report import sentences

    write = {"md": answers_export.as_markdown, "json": answers_export.as_json}[form]
    click.echo(write(answers(results), sentences.not_usable(results)), nl=False)


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
    console.width = max(_LEAST, console.width) if sys.stdout.isatty() else _UNBOUNDED
    # Through click, because rich answers a closed pipe with exit code 1.
    with console.capture() as capture:
        console.print(renderable)
    click.echo(capture.get(), nl=False)


def write_notes(notes: Iterable[str]) -> None:
    """Write sentences that a reader has to know to stderr, a line each."""
    for note in notes:
        click.echo(f"note: {note}", err=True)


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
    write_notes(notes)
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
    for comparison in comparisons:
        click.echo(one_line(comparison.title))
        if sys.stdout.isatty() and len(comparison.cases) <= _DRAWN_AT_MOST:
            from dlbench.analysis.report import terminal

            draw(terminal.verdicts(comparison))
        else:
            click.echo("\n".join(["", *compare_terminal.table(comparison), ""]))
        if len(comparisons) > 1:
            click.echo(f"{compare_terminal.summary([comparison])}\n")
    click.echo(conclusion)


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
            click.echo("note: the summary of this step is full, so nothing was added to it", err=True)
