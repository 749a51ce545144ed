"""Answers as plain text for snapshots: everything that an answer says, whatever screen or page shows it."""

from collections.abc import Iterable, Mapping
from typing import Any

from dlbench.analysis.answers.engine.question import Answer, Missing, Table


def plain(found: Answer | Missing) -> str:
    """Return an answer, or what is missing for one, in lines that a reviewer can read."""
    head = f"{found.question.topic}: {found.headline}  {found.qualifier}".rstrip()
    if isinstance(found, Missing):
        return "\n".join([head, f"  missing: {found.reason}", *(f"  {command}" for command in found.commands)]) + "\n"
    lines = [f"{head}  [{', '.join(found.tags)}]" if found.tags else head, *(f"  {each}" for each in found.sentences)]
    lines += [f"  caution: {each}" for each in found.weaknesses]
    lines += [line for table in found.tables for line in ("", *lines_of(table))]
    lines += ["", *(f"figure: {figure.title}, {len(figure.rows)} rows" for figure in found.figures)] if found.figures else []
    return "\n".join(lines) + "\n"


def lines_of(table: Table) -> list[str]:
    """Return a table with its title and notes, each column as wide as its longest cell."""
    columns = [[heading, *texts] for heading, texts in table.cells()]
    widths = [max(map(len, column)) for column in columns]
    rows = zip(*columns, strict=True)
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return [table.title, *(f"  {line}" for line in lines), *(f"  * {note}" for note in table.notes)]


def head_of(answer: Mapping[str, Any]) -> tuple[str, str, list[str]]:
    """Return headline, qualifier and tags of an answer of the JSON document."""
    return answer["headline"], answer["qualifier"], answer["tags"]


def rows_of(answer: Mapping[str, Any], title: str) -> list[dict[str, Any]]:
    """Return the rows of the first table of such an answer whose title begins so; none without such a table."""
    return next((table["rows"] for table in answer["tables"] if table["title"].startswith(title)), [])


def columns_of(rows: Iterable[Mapping[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    """Return the cells of some columns of each row."""
    return [tuple(row[name] for name in names) for row in rows]
