"""Columns of records and pairs that tables, figures, sentences and files share, and records as cells of them."""

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter, methodcaller
from typing import TYPE_CHECKING, Any, cast

from dlbench.analysis.presentation.names import HasRow, device_label, several_runs
from dlbench.analysis.presentation.wording import INTERVAL, value_name, value_words
from dlbench.analysis.ratios.pairing import OfPair, Pair, launch_bound, one_device
from dlbench.analysis.ratios.ratio import HasRatio, Ratio
from dlbench.analysis.read import declared
from dlbench.analysis.read.table import as_frame
from dlbench.core.model import ParamValue
from dlbench.core.rank_test import FEWEST_ROUNDS
from dlbench.core.rows.columns import BY_NAME
from dlbench.core.rows.row import Row, cell
from dlbench.core.schema import Column, Unit
from dlbench.core.stats import median_interval

if TYPE_CHECKING:
    import pandas as pd

_KNOWN = {**BY_NAME, "batch": Column("param.batch", Unit.COUNT, "batch size; null where the workload has none")}
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
    at, known = ("base", "other").index(side), _KNOWN[str(field(cast(Row, _Path())))]
    named = replace(known, name=f"{side}.{known.attribute}", meaning=f"{side}: {known.meaning}")
    return named.by(lambda record: field(record.sides[at])).headed(heading, priority)


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


CASE = Column("pair.case", Unit.TEXT, "what both sides have in common", heading="case", priority=0)
WORK = Column("pair.work", Unit.TEXT, "that without what each side chooses where it is at its best").headed("work", 0)
KEY = of_row(lambda row: row.case.id, "case", 0).by(lambda record: record.row.key)
"""The case without its device, in the column of the case."""


def spanned(column: Column, ends: Callable[[Any], Sequence[float | None]], stem: str = "") -> Column:
    """Return a column with the ends of its interval, as records have both; they are called ``stem`` with ``low`` and ``high``."""
    names, meaning = (f"{stem or f'{column.name}_'}{end}" for end in ("low", "high")), "end of its 95 % interval"
    low, high = (Column(name, column.unit, f"{name[-4:].strip('_')} {meaning}") for name in names)
    return replace(column, ends=(low.by(lambda each: ends(each)[0]), high.by(lambda each: ends(each)[1])))


def over_rounds(column: Column, rounds: Callable[[Any], Sequence[float]], stem: str = "") -> Column:
    """Return a column of the median over what each round gave, empty where none did, with its 95 % interval, from six rounds on."""

    def ends(record: Any) -> Sequence[float | None]:
        interval = median_interval(rounds(record))
        return (interval.low, interval.high) if interval else (None, None)

    return spanned(column.by(lambda record: statistics.median(found) if (found := rounds(record)) else None), ends, stem)


def ratio_column(name: str, meaning: str, heading: str, of: Callable[[Any], Ratio | None]) -> Column:
    """Return a column of that name for a ratio, and two for its interval."""
    column = Column(
        name, Unit.RATIO, meaning, "higher", of=lambda found: (ratio := of(found)) and ratio.speedup, heading=heading, priority=0
    )
    return spanned(column, lambda found: (ratio.low, ratio.high) if (ratio := of(found)) else (None, None))


RATIO = with_ends(
    Column(
        "ratio.speedup",
        Unit.RATIO,
        "how many times as fast the other is: Hodges-Lehmann estimate over the rounds",
        "higher",
        of=lambda record: record.ratio and record.ratio.speedup,
        heading="ratio",
        priority=0,
    ),
    Column("ratio.ci_low", Unit.RATIO, f"lower end of its 95 % interval; null with fewer than about {FEWEST_ROUNDS} rounds a side").by(
        lambda record: record.ratio and record.ratio.low
    ),
    Column("ratio.ci_high", Unit.RATIO, "upper end of it").by(lambda record: record.ratio and record.ratio.high),
)
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


def place(found: Sequence[HasRow]) -> Column:
    """Return the column of where rows ran, or records of one."""
    several = several_runs(found)
    return PLACE.by(lambda each: device_label(each.row, several))


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


_OF_TABLE = (
    *("case.id", "case.run", "case.device", "case.device_name", "case.threads", "case.dtype", "case.mode"),
    *("time.median_s", "time.device_s", "rate.items_per_s", "rate.flops_per_s"),
)
_PARAMETERS = {"batch": Unit.COUNT, "layout": Unit.TEXT, "optimizer": Unit.TEXT, "implementation": Unit.TEXT}
_ROW = (
    *(BY_NAME[name].by(at(name)) for name in _OF_TABLE),
    *(
        Column(name, unit, "that parameter; null where there is none", of=methodcaller("setting", name))
        for name, unit in _PARAMETERS.items()
    ),
    Column("rounds", Unit.COUNT, "rounds that the interval stands on", of=lambda row: len(row.rounds.median_s)),
    Column("launch_bound", Unit.FLAG, "whether it waits for launches a third of the time or more; null where not read", of=launch_bound),
)


def _side(name: str) -> Iterator[Column]:
    """Yield the columns of one side."""
    row = attrgetter(name)
    for each in _ROW:
        yield replace(each.on(row), name=f"{name}.{each.attribute}", meaning=f"{name}: {each.meaning}")
    yield Column(f"{name}.value", Unit.TEXT, f"{name}: its value in the column in which the pair differs").by(
        lambda pair: pair.value(row(pair))
    )


_PAIR = (
    CASE,
    WORK,
    Column("pair.by", Unit.TEXT, "the column in which they differ; 'best' where each side is at its own best").by(
        lambda pair: str(pair.by or "best")
    ),
    Column("pair.time", Unit.TEXT, "the time that the ratio is of: wall, or device by cache, where both sides have it").by(
        lambda pair: pair.speeds and ("device" if pair.on_device else "wall")
    ),
    *_side("base"),
    *_side("other"),
)
_RATIO = (
    RATIO,
    Column("ratio.confidence", Unit.FRACTION, "its least coverage if one side spreads more than the other, for rounds fixed beforehand").by(
        at("ratio.interval.confidence")
    ),
    Column("ratio.among", Unit.COUNT, "of how many the pair was chosen as the best; its interval allows for that", of=at("ratio.among")),
    Column("ratio.reason", Unit.TEXT, "why there is no interval", of=at("ratio.reason")),
)
PAIR_COLUMNS = {each.name: each for each in with_intervals((*_PAIR, *_RATIO))}


def pair_frame(pairs: Iterable[Pair]) -> "pd.DataFrame":
    """Return a row a pair, columns as in `PAIR_COLUMNS`; ``run`` is the file of a side."""
    rows = [{**pair_cells(each), "base.run": each.base.file, "other.run": each.other.file} for each in pairs]
    return as_frame(rows, PAIR_COLUMNS.values())


def pair_cells(found: Pair | OfPair) -> dict[str, ParamValue | None]:
    """Return a pair, or that of a record of one, as cells; of rows that report values those of a ratio are empty."""
    pair = found.pair if isinstance(found, OfPair) else found
    ratio = of_ratio(pair) if pair.speeds else {}
    return {**dict.fromkeys(PAIR_COLUMNS), **cells(_PAIR, [pair])[0], **ratio, "base.file": pair.base.file, "other.file": pair.other.file}


def of_ratio(found: HasRatio) -> dict[str, ParamValue | None]:
    """Return the ratio of a record as cells."""
    return cells(_RATIO, [found])[0]
