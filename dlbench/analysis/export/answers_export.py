"""Answers as data: one JSON document, or Markdown, of the same objects that the terminal shows."""

import json
from collections.abc import Sequence

from dlbench.analysis.answers import answers
from dlbench.analysis.answers.engine.question import EXPLANATIONS, Answer, Missing, Table, as_data, cut
from dlbench.analysis.export.tabular import code, markdown, markdown_table
from dlbench.analysis.presentation.names import without_folders
from dlbench.analysis.presentation.wording import few
from dlbench.analysis.ratios.matching import grouped
from dlbench.analysis.read.runs import merged
from dlbench.analysis.read.table import Results
from dlbench.analysis.report import sentences, terminal
from dlbench.core.errors import UsageError


def as_json(found: Sequence[Answer | Missing], not_usable: Sequence[str] = ()) -> str:
    """Return the answers as one JSON document; each has a ``kind`` (answer or missing), and tables as tidy rows in base units.

    ``not_usable``: a line for each run that is not usable, which come first.
    """
    document = {
        "not_usable": list(not_usable),
        "answers": list(map(as_data, found)),
    }
    # All else is plain.
    return json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1, default=lambda unit: unit.value) + "\n"


def as_markdown(found: Sequence[Answer | Missing], not_usable: Sequence[str] = ()) -> str:
    """Return a section of Markdown for each question: headline, sentences, cautions, and the tables.

    ``not_usable``: a line for each run that is not usable, which come first.
    """
    parts = [f"**{markdown(line)}**" for line in not_usable]
    for each in found:
        parts.append(f"## {each.question.text}")
        command = isinstance(each, Missing) and each.command
        parts.append(f"**{markdown(each.headline)}** {f'`{command}`' if command else markdown(each.qualifier)}".rstrip())
        if isinstance(each, Missing):
            parts.append(f"Not answered: {markdown(each.reason)}.")
            continue
        cautions = [*(f"{tag}: {EXPLANATIONS[tag]}" for tag in each.tags), *each.weaknesses]
        parts += [markdown(" ".join(each.sentences)), "Caution:" if cautions else "", "\n".join(f"- {markdown(line)}" for line in cautions)]
        parts += [part for table in each.tables if table.rows for part in section(table)]
    return "\n\n".join(filter(None, parts)) + "\n"


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
    rows, files = results.rows, results.files
    if not any(row.is_ok for row in rows):
        raise UsageError(f"no case went well, so there is no card ({sentences.extent(results)}); dlbench show has the reasons")
    machines = "; ".join(sentences.devices(rows, 2 * _NAMED))
    made_with = ", ".join((sentences.extent(results), *sentences.dates_and_versions(files.environments)))
    about = [markdown(_short(text)) for text in (*sentences.not_usable(results)[:1], made_with)]
    lines: list[str] = []
    label = ""
    for own_label, text in terminal.lines(answers(results), _MOST):
        label = own_label or label  # an empty one is that of the line before
        lines.append(f"- {label}: {markdown('; '.join(text.split('  ')))}")
    runs = grouped(files.rows, lambda row: row.file).items()
    commands = (sentences.measuring_command(alike, files.environments.get(run, {})) for run, alike in runs)
    again = few(dict.fromkeys(code(_short(each)) for each in commands), _NAMED, "command")
    return "\n".join([f"**{markdown(_short(machines))}**", *about, "", *lines, "", f"Measured again by {again}", ""])


def _short(text: str) -> str:
    return without_folders(cut(text, _MOST))
