"""Fields of records that tables and figures show: a column, and how a record has it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Generic, Literal, Protocol, TypeVar

from dlbench.analysis.presentation import columns, pair_columns
from dlbench.analysis.presentation.columns import plain
from dlbench.analysis.presentation.names import HasRow, device_label, several_runs
from dlbench.analysis.presentation.wording import INTERVAL, value_name
from dlbench.analysis.ratios.pairing import Pair
from dlbench.analysis.ratios.ratio import HasRatio, speedup_of
from dlbench.analysis.read import declared
from dlbench.core.model import ParamValue
from dlbench.core.rows.row import Row, cell
from dlbench.core.rows.row import cells as row_cells
from dlbench.core.schema import Column, Direction, Unit

R = TypeVar("R", contravariant=True)
S = TypeVar("S")
Side = Literal["base", "other"]
SIDES: Mapping[Side, Callable[[Pair], Row]] = {"base": lambda pair: pair.base, "other": lambda pair: pair.other}


@dataclass(frozen=True, slots=True)
class Field(Generic[R]):
    """A column, and how a record has it."""

    column: Column
    of: Callable[[R], object]

    def on(self, record: Callable[[S], R]) -> "Field[S]":
        """Return the same of what a record has: ``TIME.on(lambda pair: pair.base)``."""
        return Field(self.column, lambda found: self.of(record(found)))


Headed = tuple[str, Field[R]]
"""A column of a table, or an axis of a figure: its heading and its field."""
Fields = tuple[Headed[R], ...]
"""The columns of a table; two of one heading, one behind the other, are the ends of an interval."""


def own(
    heading: str, name: str, unit: Unit, meaning: str, of: Callable[[R], object] | None = None, better: Direction | None = None
) -> Headed[R]:
    """Return a column that only one table has; by default of the property that is called as what stands behind the dot of its name."""
    return heading, Field(Column(name, unit, meaning, better), of or attrgetter(name.rpartition(".")[2]))


def of_row(field: Callable[[Row], object]) -> Field[HasRow]:
    """Return the field of rows, and of records of one, that is a column of the table: ``of_row(lambda row: row.time.median_s)``."""
    return Field(plain(columns.of_row(field)), lambda record: field(record.row))


def value_field(column: Column) -> Field[HasRow]:
    """Return the field of a value that workloads report."""
    return Field(column, lambda record: record.row.values.get(value_name(column)))


def value_fields(rows: Iterable[Row]) -> list[Field[HasRow]]:
    """Return those of the numbers that the workloads of rows declare."""
    known = {column.name: column for row in rows for column in declared.columns(row) if not column.series}
    return [value_field(each) for each in known.values()]


def of_side(side: Side, field: Callable[[Row], object]) -> Field[Pair]:
    """Return the field of a side of a pair: ``of_side("base", lambda row: row.time.median_s)`` is the column ``base.median_s``."""
    return Field(plain(columns.of_side(side, field)), lambda pair: field(SIDES[side](pair)))


class HasCase(Protocol):
    """A record of some work."""

    @property
    def case(self) -> str:
        """What that is called."""


PLACE = Column("place", Unit.TEXT, "where it ran")
CASE: Field[HasCase] = Field(pair_columns.CASE, lambda found: found.case)
WORK: Field[Pair] = Field(pair_columns.WORK, lambda pair: pair.work)
SPEEDUP: tuple[Field[HasRatio], ...] = (
    Field(pair_columns.SPEEDUP, speedup_of),
    Field(pair_columns.LOW, lambda found: found.ratio.low),
    Field(pair_columns.HIGH, lambda found: found.ratio.high),
)
"""A ratio, and the ends of the interval."""
RATIO: Fields[HasRatio] = tuple(zip(("ratio", INTERVAL, INTERVAL), SPEEDUP, strict=True))
KEY = replace(of_row(lambda row: row.case.id), of=lambda record: record.row.key)
"""The case without its device, in the column of the case."""
WORK_OF_ROW = replace(KEY, column=pair_columns.CASE)
"""The same in the column of what is done."""
THROUGHPUT = (
    of_row(lambda row: row.rate.items_per_s),
    of_row(lambda row: row.rate.items_per_s_low),
    of_row(lambda row: row.rate.items_per_s_high),
)
"""Items a second, and the ends of the interval."""


def device_column(of: Callable[[R], object] = attrgetter("place")) -> Headed[R]:
    """Return the column of where something was measured; by default of the property ``place``."""
    return "device", Field(PLACE, of)


def place(found: Iterable[HasRow]) -> Headed[HasRow]:
    """Return the column of where rows ran, or records of one."""
    several = several_runs(found)
    return device_column(lambda each: device_label(each, several))


def whole_row(record: HasRow) -> dict[str, ParamValue | None]:
    """Return all cells of a row, or of that of a record."""
    return row_cells(record.row)


def cells(
    fields: Iterable[Field[S]], found: Iterable[S], whole: Callable[[S], Mapping[str, Any]] | None = None
) -> tuple[dict[str, ParamValue | None], ...]:
    """Return records as cells of these columns; in front of them ``whole``, where a program gets more of a record than is shown."""
    known = list(fields)
    return tuple({**(whole(each) if whole else {}), **{field.column.name: cell(field.of(each)) for field in known}} for each in found)
