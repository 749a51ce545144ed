"""Values that workloads report, as text: notes beside a case where they are few, else tables of their own."""

import json
from collections.abc import Sequence

from dlbench.analysis import sentences
from dlbench.analysis.scaling_text import Sheet, places
from dlbench.analysis.table import Results
from dlbench.core import schema, units
from dlbench.core.model import ParamValue
from dlbench.core.schema import Column, Unit
from dlbench.core.summary import Row

_FEW = 3
"""Values up to which they stand in the notes of a case."""


def name(column: Column) -> str:
    """Return what the workload calls a value."""
    return column.name.partition(".")[2]


def cell(value: ParamValue | None, column: Column) -> str:
    """Return a value with its unit; of a series its points where they have names, else the first, the last and how many there are."""
    if value is None:
        return ""
    if not isinstance(value, str):
        return schema.text(value, column.unit)
    points = json.loads(value)
    if column.points and len(points) == len(column.points):
        return ", ".join(f"{point}: {told}" for point, told in zip(column.points, _points(points, column.unit), strict=True) if told)
    ends = dict.fromkeys(schema.text(each, column.unit) for each in (*points[:1], *points[-1:]))
    return f"{' … '.join(ends)} ({sentences.plural(len(points), 'point')})"


def _points(points: Sequence[float], unit: Unit) -> list[str]:
    """Return the points as text, counts as shares of them all; nothing of a zero."""
    whole = sum(points) if unit is Unit.COUNT else 0
    return [(units.percent(each / whole) if whole else schema.text(each, unit)) if each else "" for each in points]


def notes(columns: Sequence[Column], row: Row) -> list[str]:
    """Return for example ``p99_s 12.3 ms``, of each value of a row that has few."""
    return [f"{name(each)} {cell(row[each.name], each)}" for each in columns] if len(columns) <= _FEW else []


def tables(results: Results) -> list[Sheet]:
    """Return a table of the values of each workload that reports many, one for each set of them."""
    groups: dict[tuple[str, tuple[Column, ...]], list[Row]] = {}
    for row in results.rows:
        if len(columns := results.declared(row)) > _FEW:
            groups.setdefault((str(row["case.workload"]), columns), []).append(row)
    found = []
    for (workload, columns), rows in groups.items():
        what = [("case", [sentences.short(sentences.key(row)) for row in rows]), ("device", places(rows, "case"))]
        values = [(name(each), [cell(row[each.name], each) for row in rows]) for each in columns]
        found.append((f"Values of {workload}", [each for each in (*what, *values) if any(each[1])]))
    return found


def legend(results: Results) -> list[str]:
    """Return what each value in those tables means."""
    several = (columns for row in results.rows if len(columns := results.declared(row)) > _FEW)
    meanings = {name(each): each.meaning for columns in several for each in columns}
    return [units.one_line(f"{value}: {meaning}") for value, meaning in meanings.items()]
