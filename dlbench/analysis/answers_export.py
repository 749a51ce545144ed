"""Answers as data: one JSON document, or Markdown, of the same objects that the terminal shows."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from enum import Enum

from dlbench.analysis.answers.base import Answer, Missing, Table
from dlbench.analysis.export import markdown


def as_json(found: Sequence[Answer | Missing]) -> str:
    """Return one document: ``answers``, with a ``kind`` each (answer or missing), and tables as tidy rows in base units."""
    document = {"answers": [{"kind": type(each).__name__.lower(), **asdict(each), **_tables(each)} for each in found]}
    return json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1, default=_plain) + "\n"


def as_markdown(found: Sequence[Answer | Missing]) -> str:
    """Return a section for each question: the sentences, what weakens them, and the tables as people see them."""
    parts: list[str] = []
    for each in found:
        parts.append(f"## {each.question.text}")
        if isinstance(each, Missing):
            command = f": `{each.command}`" if each.command else ""
            parts.append(f"Not answered: {each.reason}{command}.")
            continue
        parts.append(" ".join(each.sentences))
        if each.weaknesses:
            parts.append("\n".join(f"- {weakness}" for weakness in each.weaknesses))
        parts += [part for table in each.tables for part in (f"**{table.title}**", _markdown(table), *table.notes)]
    return "\n\n".join(parts) + "\n"


def _tables(found: Answer | Missing) -> dict[str, object]:
    """Return the tables with only what their columns have: rows may hold more."""
    if isinstance(found, Missing):
        return {}
    tables = []
    for table in found.tables:
        columns = [{"heading": heading, **asdict(column)} for heading, column in table.columns]
        rows = [{column.name: row.get(column.name) for _, column in table.columns} for row in table.rows]
        tables.append({"title": table.title, "columns": columns, "rows": rows, "notes": table.notes})
    return {"tables": tables}


def _markdown(table: Table) -> str:
    columns = table.cells()
    return markdown([heading for heading, _ in columns], list(zip(*(cells for _, cells in columns), strict=True))).rstrip()


def _plain(value: object) -> object:
    return value.value if isinstance(value, Enum) else str(value)
