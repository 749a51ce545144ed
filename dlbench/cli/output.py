"""Results on stdout, for people and programs. Commands import it when they have been called, so that --help stays quick."""

import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from shutil import get_terminal_size
from textwrap import wrap

import click

from dlbench.analysis.answers import answers
from dlbench.analysis.answers.engine.costs import devices_of
from dlbench.analysis.answers.engine.pairs import reported_pairs, same_case
from dlbench.analysis.answers.engine.question import Answer, Missing
from dlbench.analysis.claims import claims_table
from dlbench.analysis.export import answers_export, tabular
from dlbench.analysis.presentation.columns import pair_frame
from dlbench.analysis.ratios import matching
from dlbench.analysis.read.runs import merged
from dlbench.analysis.read.table import Results
from dlbench.analysis.read.usability import all_disturbed
from dlbench.analysis.report import sentences, terminal
from dlbench.analysis.scaling import projection, speedup
from dlbench.cli.options import typed_options
from dlbench.cli.terminal import draw, say_unbroken, unread, write_notes
from dlbench.core.errors import UsageError
from dlbench.core.model import Status, kind_of
from dlbench.core.store import read_header
from dlbench.core.units import one_line


def left_open(outcomes: Sequence[Answer | Missing], *, with_time: bool) -> str:
    """Return the topics that were not measured and one command for most of them: ``batch, default: dlbench run batch modes, 20 min``.

    ``with_time``: with the sum of the suites' budgets, if all have one. That imports the harness, which ``show`` does without.
    """
    topics, command = terminal.left_open(outcomes)
    suites = command.split()[2:] or ["quick"]
    time = _minutes(suites) if with_time else ""
    return f"{topics}: {command}{time}" if topics else ""


def _minutes(suites: Sequence[str]) -> str:
    from dlbench.harness.plan.suite import builtin_names, load

    budgets_s = [load(name).policy.budget_s if name in builtin_names() else None for name in suites]
    return "" if None in budgets_s else f", {round(sum(filter(None, budgets_s)) / 60)} min"


def last_line(
    files: Sequence[Path], outcomes: Iterable[Answer | Missing], width: int | None, *, saved: bool = False, first: str | None = None
) -> str:
    """Return the last line of a screen: the command to type next, and as much about the files as fits into ``width`` columns.

    The command is ``first`` if that is given. Else it measures what most of the missing answers among the ``outcomes`` need. If no answer
    is missing, it writes a page on the files. ``saved``: whether the files were written just now. Without a width everything fits.
    """
    names = list(map(str, files))
    missing = [each for each in outcomes if isinstance(each, Missing) and each.commands]
    if first:
        command = first
    elif missing:
        command = terminal.most_wanted(missing)
    else:
        command = shlex.join(["dlbench", "report", *names])
    file_text = f"{'saved in' if saved else 'of'} {', '.join(names)}"
    reasoning_text = f"why: {shlex.join(['dlbench', 'show', *names, '--topic', 'all'])}"
    label = "next".ljust(terminal.LABEL)
    # The longest line that fits.
    for parts in ([command, file_text, reasoning_text], [command, file_text], [command]):
        line = label + one_line(" · ".join(parts))
        if width is None or len(line) <= width:
            return line
    return one_line(command)  # too long in any case; without the label it can be copied as a whole


@unread()
def write_results(
    results: Results,
    form: str,
    files: Sequence[Path],
    notes: Sequence[str] = (),
    *,
    details: bool = False,
    saved: bool = False,
) -> None:
    """Write results to stdout, and to stderr the notes and a last line with the command to type next.

    ``details``: with all tables. ``saved``: the files were written just now, so the screen names them in its commands.
    """
    outcomes: Sequence[Answer | Missing] = ()
    if form == "table":
        outcomes = answers(results)
        _draw_overview(results, outcomes, files, notes, details=details, saved=saved)
    else:
        click.echo(tabular.render(results.frame, form), nl=False)
        notes = (*sentences.not_usable(results), *notes)  # a table has these sentences in it, data has not
    write_notes(notes)
    # The last line of a run says where it is saved, so it is always written. That of other commands is advice to somebody who watches.
    somebody_watches = form == "table" and sys.stdout.isatty()
    if saved or somebody_watches:
        width = get_terminal_size().columns if sys.stderr.isatty() else None
        say_unbroken(last_line(files, outcomes, width, saved=saved, first=_most_urgent(results, files)))


def _draw_overview(
    results: Results, outcomes: Sequence[Answer | Missing], files: Sequence[Path], notes: Sequence[str], *, details: bool, saved: bool
) -> None:
    """Write the screen of results to stdout. On a terminal it is short enough for the notes and the last line to fit below it.

    ``details`` and ``saved`` are those of `write_results`.
    """
    terminal_size = get_terminal_size()
    note_lines = sum(len(wrap(f"note: {note}", terminal_size.columns)) for note in notes)
    height = terminal_size.lines - note_lines - 2  # the last line and the prompt
    # After show, ``--topic details`` is enough: the user adds it to the command that was typed.
    details_command = shlex.join(["dlbench", "show", *map(str, files), "--topic", "details"]) if saved else "--topic details"
    any_is_ok = any(row.is_ok for row in results.rows)
    # Where every case went wrong, that has to be mended first, so no further suites are offered. Their time is told only after
    # measuring (``saved``), when the harness, which knows it, is imported already.
    open_questions = left_open(outcomes, with_time=saved) if any_is_ok else ""
    screen = terminal.overview(
        results,
        outcomes,
        details=details,
        height=max(1, height) if sys.stdout.isatty() else None,
        more=details_command,
        left_open=open_questions,
    )
    draw(screen)


def _most_urgent(results: Results, files: Sequence[Path]) -> str | None:
    """Return the command for a run that is not usable, measured nothing, failed or is the first; None for others."""
    if sentences.not_usable(results) or all_disturbed(results.rows):
        return "dlbench doctor"
    if any(row.case.status is not Status.SKIPPED for row in results.rows):
        return _own_network(results)
    # From here on all cases were skipped.
    if results.rows and not any(row.has_device for row in results.rows):
        return "dlbench devices"
    if len(files) == 1 and files[0].is_file() and "sides" not in read_header(files[0]):  # an A/B can't be resumed
        return shlex.join(["dlbench", "run", "--resume", str(files[0])])
    return None


def _own_network(results: Results) -> str | None:
    """Return the next step with the user's own network: to measure one after a run of quick, or to mend the file that failed."""
    if {row.case.suite for row in results.rows} == {"quick"}:
        return "dlbench run mine.py"
    failed = [row for row in results.rows if row.is_failure]
    if not failed:
        return None
    command = sentences.measuring_command(failed, results.environments.get(failed[0].case.run, {}))
    file = next((word for word in shlex.split(command) if word.endswith(".py")), None)
    return f"mend {shlex.quote(file)}, then {command}" if file else None


@unread()
def write_pairs(results: Results, by: str, form: str) -> None:
    """Write pairs of rows that differ in the column ``by`` to stdout, and rows without a partner to stderr."""
    if by.removeprefix("case.") != "run":  # files of one machine are one, unless they are what is to be paired
        results = merged(results)
    if by.removeprefix("param.") == "ranks":
        _write_scaling(results, form)
    elif form == "table":
        _draw_pairs(results, by)
    else:
        pairs = matching.match_rows(results, by)
        click.echo(tabular.render(pair_frame(pairs.rows), form), nl=False)
        write_notes([*sentences.not_usable(results), *sentences.unpaired(pairs.unmatched)])


def _draw_pairs(results: Results, by: str) -> None:
    """Write the screen of the pairs to stdout, those with times and those that only report values, and rows without a partner to stderr."""
    timed = matching.match_rows(results, by)
    reporting = reported_pairs(results, by)
    draw(terminal.pairs_screen(results, timed, same_case(reporting)))
    if not timed.rows and not reporting.rows:
        return  # the screen says that nothing is paired, and a list of all cases would add nothing
    # A row without times stands in no timed pair, but its values may be paired.
    reported = {(row.case.id, row.file) for pair in reporting.rows for row in pair.sides}
    write_notes(sentences.unpaired(each for each in timed.unmatched if (each.case, each.run) not in reported))


@unread()
def write_answers(results: Results, form: str, topic: str | None) -> None:
    """Write the reasoning of all answers to stdout, or of the one on ``topic`` with its tables: as text, Markdown or one JSON document."""
    if form == "table":
        draw(terminal.reasoning(results, topic))
        return
    write = {"md": answers_export.as_markdown, "json": answers_export.as_json}[form]
    outcomes = [each for each in answers(results) if topic in (None, each.question.topic)]
    click.echo(write(outcomes, sentences.not_usable(results)), nl=False)


@unread()
def write_claims(results: Results, form: str) -> None:
    """Write claims of others with the measured rows that test them to stdout: as text, or the rows of that table."""
    if form == "table":
        draw(terminal.claims(results))
        return
    claims = claims_table(results)
    if form == "md":
        text = "\n\n".join(answers_export.section(claims))
    else:
        text = "".join(tabular.lines(list(claims.rows[0]), claims.rows, form)).rstrip("\n")
    click.echo(text)
    write_notes(sentences.not_usable(results))


@unread()
def write_card(results: Results) -> None:
    """Write a card to paste to stdout. Raises UsageError where no case went well."""
    click.echo(answers_export.card(results), nl=False)


def _write_scaling(results: Results, form: str) -> None:
    """Write speed-up and efficiency by number of ranks to stdout. Raises UsageError where no row has ranks."""
    steps = speedup.scaling(results)
    if not steps:
        raise UsageError("no row has ranks to pair it by; measure some: dlbench run scaling")
    if form == "table":
        draw(terminal.more_devices(results))
    else:
        click.echo(tabular.render(projection.frame(steps, projection.project_steps(steps, results)), form), nl=False)


def notes_on(results: Results, files: Sequence[Path]) -> list[str]:
    """Return a sentence for each thing that a reader of these files has to know with their rows."""
    notes = list(results.notes)
    # Most files need no comparison, nor to wait for what it takes.
    if any("side" in each for each in results.environments.values()):
        from dlbench.analysis.compare.provenance import side_notes
        from dlbench.analysis.compare.sides import are_sides

        notes += side_notes(results) if are_sides(results) else ()
    if any(path.is_dir() for path in files):
        from dlbench.analysis.scaling.outliers import fleet_notes

        notes += fleet_notes(results)
    return notes


def check_priced_devices(results: Results) -> None:
    """Raise UsageError for a price on the command line of a device that no row has; one of the user's defaults gets a note instead.

    A file of defaults may have the prices of several machines.
    """
    measured = list(dict.fromkeys(device for row in results.rows if row.has_device for device in devices_of(row)))
    devices_and_kinds = {*measured, *map(kind_of, measured)}
    for name in dict.fromkeys((*results.prices.per_hour.named, *results.prices.price.named)):
        if name not in devices_and_kinds:
            absent = f"--price {name}=: no row of these files is of {name}; they have {', '.join(measured) or 'none'}"
            if "price" in typed_options():
                raise UsageError(absent)
            write_notes([absent])
