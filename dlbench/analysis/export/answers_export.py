"""Answers as data: one JSON document, or Markdown, of the same objects that the terminal shows."""

import json
from collections.abc import Sequence

from dlbench.analysis.answers.engine.question import EXPLANATIONS, Answer, Missing, Table, as_data
from dlbench.analysis.export.tabular import markdown, markdown_table


def as_json(found: Sequence[Answer | Missing], not_usable: Sequence[str] = ()) -> str:
    """Return one document: ``answers``, with a ``kind`` each (answer or missing), and tables as tidy rows in base units.

    ``not_usable``, first in it, is a line for each run that is not.
    """
    document = {
        "not_usable": list(not_usable),
        "answers": list(map(as_data, found)),
    }
    # All else is plain.
    return json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1, default=lambda unit: unit.value) + "\n"


def as_markdown(found: Sequence[Answer | Missing], not_usable: Sequence[str] = ()) -> str:
    """Return a section for each question: headline, sentences, what weakens them, and the tables as people see them.

    First comes a line for each run that is not usable.
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
