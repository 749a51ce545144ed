"""Answers as data: one JSON document, or Markdown, of the same objects that the terminal shows."""

import json
from collections.abc import Iterator, Sequence

from dlbench.analysis.answers import answers as every_answer
from dlbench.analysis.answers.engine.question import EXPLANATIONS, Answer, Missing, Table, as_data, cut
from dlbench.analysis.export.tabular import code, markdown, markdown_table
from dlbench.analysis.presentation.names import without_folders
from dlbench.analysis.presentation.wording import few
from dlbench.analysis.ratios.matching import grouped
from dlbench.analysis.read.runs import merged
from dlbench.analysis.read.table import Results
from dlbench.analysis.report import sentences, terminal
from dlbench.core.errors import UsageError


def as_json(answers: Sequence[Answer | Missing], not_usable: Sequence[str] = ()) -> str:
    """Return the answers as one JSON document; each has a ``kind`` (answer or missing), and tables as tidy rows in base units.

    ``not_usable``: a line for each run that is not usable, which come first.
    """
    document = {
        "not_usable": list(not_usable),
        "answers": list(map(as_data, answers)),
    }
    # All else is plain.
    return json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1, default=lambda unit: unit.value) + "\n"


def as_markdown(answers: Sequence[Answer | Missing], not_usable: Sequence[str] = ()) -> str:
    """Return a section of Markdown for each question: headline, sentences, cautions, and the tables.

    ``not_usable``: a line for each run that is not usable, which come first.
    """
    parts = [f"**{markdown(line)}**" for line in not_usable]
    for each in answers:
        parts.append(f"## {each.question.text}")
        headline = f"**{markdown(each.headline)}**"
        if isinstance(each, Missing):
            # The qualifier is the command that would give the answer. If there is no such command, it is a short reason, or empty.
            command_or_reason = f"`{each.command}`" if each.command else markdown(each.qualifier)
            parts += [f"{headline} {command_or_reason}".rstrip(), f"Not answered: {markdown(each.reason)}."]
        else:
            parts += [f"{headline} {markdown(each.qualifier)}".rstrip(), *_evidence(each)]
    return "\n\n".join(filter(None, parts)) + "\n"


def _evidence(answer: Answer) -> Iterator[str]:
    """Yield the parts of Markdown below the headline of an answer: its sentences, its cautions as a list, and its tables with rows."""
    yield markdown(" ".join(answer.sentences))
    cautions = [*(f"{tag}: {EXPLANATIONS[tag]}" for tag in answer.tags), *answer.weaknesses]
    if cautions:
        yield "Caution:"
        yield "\n".join(f"- {markdown(line)}" for line in cautions)
    for table in answer.tables:
        if table.rows:
            yield from section(table)


def section(table: Table) -> list[str]:
    """Return the title of a table, its rows, and its notes."""
    cells = table.cells()
    rows = zip(*(map(markdown, column) for _, column in cells), strict=True)
    lines = markdown_table([markdown(heading) for heading, _ in cells], rows)
    return [f"**{markdown(table.title)}**", "".join(lines).rstrip(), *map(markdown, table.notes)]


_MOST = 300
"""Characters of a line about the files, and of a command."""
_NAMED = 2
"""Suites and commands that are named, and machines of a CPU and an accelerator."""


def card(results: Results) -> str:
    """Return a card to paste, in Markdown without the user's folders: machines, extent and versions, answers, and the commands.

    Raises UsageError where no case went well.
    """
    results = merged(results)
    if not any(row.is_ok for row in results.rows):
        raise UsageError(f"no case went well, so there is no card ({sentences.extent(results)}); dlbench show has the reasons")
    machines = "; ".join(sentences.devices(results.rows, 2 * _NAMED))
    made_with = ", ".join((sentences.extent(results), *sentences.dates_and_versions(results.files.environments)))
    about = [markdown(_short(text)) for text in (*sentences.not_usable(results)[:1], made_with)]
    again = f"Measured again by {_commands(results.files)}"
    return "\n".join([f"**{markdown(_short(machines))}**", *about, "", *_answer_lines(results), "", again, ""])


def _answer_lines(results: Results) -> list[str]:
    """Return the lines of the answers as items of a list, each with its label: ``- worth it: 41.2× training``."""
    lines: list[str] = []
    label = ""
    for own_label, text in terminal.lines(every_answer(results), _MOST):
        label = own_label or label  # an empty one is that of the line before
        parts = text.split("  ")  # headline, qualifier and tags have two blanks between them
        lines.append(f"- {label}: {markdown('; '.join(parts))}")
    return lines


def _commands(files: Results) -> str:
    """Return the commands that measure the runs again, as code; of many the first `_NAMED`."""
    rows_by_run = grouped(files.rows, lambda row: row.file).items()
    commands = (sentences.measuring_command(rows, files.environments.get(run, {})) for run, rows in rows_by_run)
    return few(dict.fromkeys(code(_short(each)) for each in commands), _NAMED, "command")


def _short(text: str) -> str:
    """Return a text for a card: cut to `_MOST` characters, and without the user's folders."""
    return without_folders(cut(text, _MOST))
