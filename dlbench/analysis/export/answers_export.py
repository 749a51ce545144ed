"""Answers as data: one JSON document, or Markdown, of the same objects that the terminal shows."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from dlbench.analysis.answers.base import Answer, Missing, Table
from dlbench.analysis.export.tabular import escaped, lines
from dlbench.core.schema import Unit


def as_json(found: Sequence[Answer | Missing]) -> str:
    """Return one document: ``answers``, with a ``kind`` each (answer or missing), and tables as tidy rows in base units."""
    document = {"answers": [{"kind": type(each).__name__.lower(), **asdict(each)} for each in found]}
    return json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1, default=_unit) + "\n"


def as_markdown(found: Sequence[Answer | Missing]) -> str:
    """Return a section for each question: the sentences, what weakens them, and the tables as people see them."""
    parts: list[str] = []
    for each in found:
        parts.append(f"## {each.question.text}")
        if isinstance(each, Missing):
            parts.append(f"Not answered: {each.reason}{f'; measure it with `{each.command}`' if each.command else ''}.")
            continue
        parts += [escaped(" ".join(each.sentences)), "\n".join(f"- {escaped(weakness)}" for weakness in each.weaknesses)]
        tables = [table for table in each.tables if table.rows]
        parts += [part for table in tables for part in (f"**{table.title}**", _markdown(table), *map(escaped, table.notes))]
    return "\n\n".join(filter(None, parts)) + "\n"


def _markdown(table: Table) -> str:
    cells = table.cells()
    by_place = ({str(place): cell for place, cell in enumerate(row)} for row in zip(*(column for _, column in cells), strict=True))
    return "".join(lines([heading for heading, _ in cells], by_place, "md")).rstrip()  # two columns may have the same heading


def _unit(value: object) -> str:
    return value.value if isinstance(value, Unit) else str(value)
