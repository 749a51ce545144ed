"""Tables as data: csv, json, Markdown and Parquet with full column names and base units, nothing rounded and nothing cut."""

import csv
import io
import json
from collections.abc import Callable, Sequence

import pandas as pd

from dlbench.analysis.table import records
from dlbench.core.errors import UsageError, nearest
from dlbench.core.model import ParamValue
from dlbench.core.summary import Row
from dlbench.core.units import one_line

_FORMULA = ("=", "+", "-", "@")
"""A spreadsheet runs a cell that begins so (OWASP, CSV injection); a quote in front makes it text."""


def render(frame: pd.DataFrame, to: str) -> str:
    """Return the frame as text in the format ``to``: csv, json or md, a line break at the end.

    A null is an empty cell, in json ``null``; flags are true and false. In csv and md every row is one line. Raises
    UsageError for another format.
    """
    if to not in FORMATS:
        raise UsageError(f"there is no format '{to}'{nearest(to, list(FORMATS))}")
    return FORMATS[to](list(frame.columns), records(frame))


def parquet(frame: pd.DataFrame) -> bytes:
    """Return the frame as a Parquet file: every column with its type, a null as a null. Raises UsageError without pyarrow."""
    try:
        return frame.to_parquet(engine="pyarrow", index=False)
    except ImportError as error:
        raise UsageError("parquet needs the package pyarrow, which is not installed here; add it: pip install pyarrow") from error


def _csv(columns: Sequence[str], rows: Sequence[Row]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([_inert(name) for name in columns])
    writer.writerows([_inert(value) if isinstance(value, str) else _cell(value) for value in row.values()] for row in rows)
    return text.getvalue()


def _json(columns: Sequence[str], rows: Sequence[Row]) -> str:
    lines = ",\n".join(json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows)
    return f"[\n{lines}\n]\n" if rows else "[]\n"


def _markdown(columns: Sequence[str], rows: Sequence[Row]) -> str:
    return markdown(columns, [list(row.values()) for row in rows])


def markdown(columns: Sequence[str], rows: Sequence[Sequence[ParamValue | None]]) -> str:
    """Return a Markdown table of cells below headings, each row one line."""
    lines = [[_escaped(name) for name in columns], ["---"] * len(columns)]
    lines += [[_escaped(_cell(value)) for value in row] for row in rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


FORMATS: dict[str, Callable[[Sequence[str], Sequence[Row]], str]] = {"json": _json, "csv": _csv, "md": _markdown}


def _cell(value: ParamValue | None) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _inert(text: str) -> str:
    line = one_line(text)
    return f"'{line}" if line.startswith(_FORMULA) else line


def _escaped(text: str) -> str:
    """One cell of a Markdown table: a line of its own, with nothing in it that ends the cell."""
    return one_line(text).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
