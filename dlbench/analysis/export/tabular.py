"""Tables as data: csv, json, Markdown and Parquet with full column names and base units, nothing rounded and nothing cut."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from dlbench.core.units import one_line

# csv and json are imported where something is written: the command line needs the names of the formats for its help.
if TYPE_CHECKING:
    import pandas as pd

FILE_FORMATS = ("bencher", "csv", "github-action-benchmark", "google-benchmark", "parquet", "pyperf")
"""Formats of exported result files; `formats` makes them."""
NEEDS_NAME = {"parquet": "is not text", "github-action-benchmark": "makes two files"}
"""Why files of a format can't go to stdout."""
Row = Mapping[str, Any]
"""Plain values by column; a group of them is one cell of JSON."""

_FORMULA = ("=", "+", "-", "@")
"""A spreadsheet runs a cell that begins so (OWASP, CSV injection); a quote in front makes it text."""


def render(frame: "pd.DataFrame", to: str) -> str:
    """Return the frame as text in the format ``to``, as `lines` has it."""
    # Not at the top: rows that are there already need no table.
    from dlbench.analysis.read.table import records

    return "".join(lines(list(frame.columns), records(frame), to))


def lines(columns: Sequence[str], rows: Iterable[Row], to: str) -> Iterator[str]:
    """Yield rows, as they come, as text in the format ``to``: csv, json or md, a line break at the end.

    A null is an empty cell, in json ``null``; flags are true and false. In csv and md every row is one line.
    """
    return FORMATS[to](columns, rows)


def _csv(columns: Sequence[str], rows: Iterable[Row]) -> Iterator[str]:
    import csv

    writer = csv.writer(_Echo(), lineterminator="\n")
    for cells in chain([columns], (row.values() for row in rows)):
        yield writer.writerow([_inert(cell) if isinstance(cell, str) else _cell(cell) for cell in cells])


class _Echo:
    """A file for `csv.writer`, whose ``writerow`` returns what ``write`` does."""

    def write(self, text: str) -> str:
        return text


def _json(_: Sequence[str], rows: Iterable[Row]) -> Iterator[str]:
    import json

    before, after = "[\n", "[]\n"
    for row in rows:
        yield before + json.dumps(row, ensure_ascii=False, allow_nan=False)
        before, after = ",\n", "\n]\n"
    yield after


def _markdown(columns: Sequence[str], rows: Iterable[Row]) -> Iterator[str]:
    return markdown_table([markdown(column) for column in columns], ((markdown(_cell(cell)) for cell in row.values()) for row in rows))


def markdown_table(headings: Sequence[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """Yield the lines of a table, as its rows come; cells are Markdown."""
    for cells in chain([headings, ["---"] * len(headings)], rows):
        yield f"| {' | '.join(cells)} |\n"


FORMATS: Mapping[str, Callable[[Sequence[str], Iterable[Row]], Iterator[str]]] = {"json": _json, "csv": _csv, "md": _markdown}


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, Mapping):
        import json

        return json.dumps(value, ensure_ascii=False)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _inert(text: str) -> str:
    line = one_line(text)
    return f"'{line}" if line.startswith(_FORMULA) else line


def markdown(text: str) -> str:
    """Return a text as one line of Markdown that shows it: nothing in it is markup, a link in brackets, or the end of a table's cell.

    The rules are those of CommonMark 0.31 and of GitHub's tables; an underscore between letters is none of markup. What some pages
    make of plain text, such as links of bare addresses, they make of this, too.
    """
    return _BLOCK.sub(r"\1\\\2", _MARKUP.sub(r"\\\g<0>", one_line(text))).replace("<", "&lt;")


def code(text: str) -> str:
    """Return foreign text as a code span, where nothing is a mention, a link or markup; a backtick, which would end it, is replaced."""
    return f"`{shown}`" if (shown := one_line(text).replace("`", "'")) else ""


_MARKUP = re.compile(r"[\\`*~|]|(?<![^\W_])_|_(?![^\W_])|(?<=\])[(\[:]|!(?=\[)|&(?=[#A-Za-z])|^>")
_BLOCK = re.compile(r"^(\d*)([#+.)-])(?=[#\s-]|$)")
"""Beginning of a line that Markdown reads as a heading or a list item."""
