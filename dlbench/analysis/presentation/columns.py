"""Columns of records that tables, figures, sentences and files share, and records as cells of them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, cast

from dlbench.analysis.presentation import pair_columns
from dlbench.analysis.presentation.names import HasRow, device_label, several_runs
from dlbench.analysis.presentation.wording import INTERVAL, value_name, value_words
from dlbench.analysis.ratios.pairing import one_device
from dlbench.analysis.ratios.ratio import Ratio
from dlbench.analysis.read import declared
from dlbench.core.model import ParamValue
from dlbench.core.rows.columns import BY_NAME
from dlbench.core.rows.row import Row, cell
from dlbench.core.schema import Column, Unit

Entry = Column | Callable[[Sequence[Any]], Column | Iterable[Column]]
"""What a table declares: a column, or what makes one, or several, of all records that it shows."""


class _Path:
    """A path of attributes, as text: ``time.median_s``."""

    def __init__(self, text: str = "") -> None:
        self._text = text

    def __getattr__(self, name: str) -> "_Path":
        return _Path(f"{self._text}.{name}" if self._text else name)

    def __str__(self) -> str:
        return self._text


def at(path: str) -> Callable[[Any], Any]:
    """Return what follows a path of attributes, keys and places of a record: ``at("base.time.median_s")``; None where one is not there."""

    def found(record: Any) -> Any:
        for name in path.split("."):
            if isinstance(record, Mapping):
                record = record.get(name)
            elif record is not None:
                record = record[int(name)] if name.isdigit() else getattr(record, name)
        return record

    return found


def of_row(field: Callable[[Row], object], heading: str = "", priority: int = 1) -> Column:
    """Return the column of the table that a field of rows is, for records of one: ``of_row(lambda row: row.time.median_s)``."""
    known = BY_NAME[str(field(cast(Row, _Path())))]
    return replace(known, of=lambda record: field(record.row), heading=heading, priority=priority)


def of_side(side: str, field: Callable[[Row], object], heading: str = "", priority: int = 1) -> Column:
    """Return the column of a side of a pair, or of a record of one: ``of_side("base", lambda row: row.time.median_s)``."""
    name = str(field(cast(Row, _Path()))).rpartition(".")[2]
    known = pair_columns.PAIR_COLUMNS[f"{side}.{name}"]
    at = ("base", "other").index(side)
    return replace(known, of=lambda record: field(record.sides[at]), heading=heading, priority=priority)


def value_column(column: Column) -> Column:
    """Return the column of a value that workloads report, for records of a row."""
    return column.by(lambda record: record.row.values.get(value_name(column)), value_words(column))


def value_columns(rows: Iterable[HasRow]) -> list[Column]:
    """Return those of the numbers that the workloads of these records declare."""
    found = {column.name: column for each in rows for column in declared.columns(each.row) if not column.series}
    return [value_column(each) for each in found.values()]


def with_ends(column: Column, low: Column, high: Column) -> Column:
    """Return a column with the ends of its interval."""
    return replace(column, ends=(low, high))


CASE = replace(pair_columns.CASE, of=lambda found: found.case, heading="case", priority=0)
WORK = replace(pair_columns.WORK, of=lambda found: found.work, heading="work", priority=0)
KEY = of_row(lambda row: row.case.id, "case", 0).by(lambda record: record.row.key)
"""The case without its device, in the column of the case."""


def ratio_columns(column: Column, low: Column, high: Column, of: Callable[[Any], Ratio | None]) -> Column:
    """Return the column of a ratio, with its interval, as records have it."""
    ends = low.by(lambda found: (ratio := of(found)) and ratio.low), high.by(lambda found: (ratio := of(found)) and ratio.high)
    return replace(column, of=lambda found: (ratio := of(found)) and ratio.speedup, priority=0, ends=ends)


def spanned(column: Column, ends: Callable[[Any], Sequence[float | None]], stem: str = "") -> Column:
    """Return a column with the ends of its interval, as records have both; they are called ``stem`` with ``low`` and ``high``."""
    names, meaning = (f"{stem or f'{column.name}_'}{end}" for end in ("low", "high")), "end of its 95 % interval"
    low, high = (Column(name, column.unit, f"{name[-4:].strip('_')} {meaning}") for name in names)
    return replace(column, ends=(low.by(lambda each: ends(each)[0]), high.by(lambda each: ends(each)[1])))


def ratio_column(name: str, meaning: str, heading: str, of: Callable[[Any], Ratio | None]) -> Column:
    """Return a column of that name for a ratio, and two for its interval."""
    column = Column(
        name, Unit.RATIO, meaning, "higher", of=lambda found: (ratio := of(found)) and ratio.speedup, heading=heading, priority=0
    )
    return spanned(column, lambda found: (ratio.low, ratio.high) if (ratio := of(found)) else (None, None))


RATIO = ratio_columns(pair_columns.SPEEDUP.headed("ratio"), pair_columns.LOW, pair_columns.HIGH, attrgetter("ratio"))
"""A ratio and its interval."""
TIME = with_ends(
    of_row(lambda row: row.time.median_s, "time", 0), of_row(lambda row: row.time.ci_low_s), of_row(lambda row: row.time.ci_high_s)
)
"""Seconds of a call, and their interval."""
THROUGHPUT = with_ends(
    of_row(lambda row: row.rate.items_per_s, "items/s", 0),
    of_row(lambda row: row.rate.items_per_s_low),
    of_row(lambda row: row.rate.items_per_s_high),
)
"""Items a second, and their interval."""
PLACE = Column("place", Unit.TEXT, "where it ran", heading="device", priority=0)
OTHERS = Column("others", Unit.COUNT, "how many other accelerators there are in these files; null for none", heading="others", priority=9)


def place(found: Sequence[HasRow]) -> Column:
    """Return the column of where rows ran, or records of one."""
    several = several_runs(found)
    return PLACE.by(lambda each: device_label(each.row, several))


def others(found: Sequence[HasRow]) -> Column:
    """Return the column of how many other devices there are."""
    return OTHERS.by(lambda record: others_than(record, found) or None)


def others_than(record: HasRow, found: Iterable[HasRow]) -> int:
    """Return on how many other devices records ran than on that of one."""
    return len({one_device(each.row) for each in found} - {one_device(record.row)})


def columns_of(entries: Iterable[Entry], found: Sequence[Any]) -> list[Column]:
    """Return the columns that a table declares, those that depend on its records made of them."""
    columns = list[Column]()
    for each in entries:
        made = each if isinstance(each, Column) else each(found)
        columns += [made] if isinstance(made, Column) else made
    return columns


def with_intervals(columns: Iterable[Column]) -> Iterator[Column]:
    """Yield columns, each with those of the ends of its interval behind it."""
    for each in columns:
        yield each
        yield from (replace(end, heading=INTERVAL, priority=each.priority + 1) for end in each.ends or ())


def cells(
    columns: Iterable[Column], found: Iterable[Any], whole: Callable[[Any], Mapping[str, Any]] | None = None
) -> tuple[dict[str, ParamValue | None], ...]:
    """Return records as cells of these columns; in front of them ``whole``, where a program gets more of a record than is shown."""
    known = list(with_intervals(columns))
    return tuple({**(whole(each) if whole else {}), **{column.name: cell(column.value(each)) for column in known}} for each in found)


def plain(column: Column) -> Column:
    """Return a column as data: rows are cells already."""
    return replace(column, of=None, ends=None)
