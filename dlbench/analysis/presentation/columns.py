"""Columns of records and pairs that tables, figures, sentences and files share, and records as cells of them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter, methodcaller
from typing import TYPE_CHECKING, Any, Literal, cast

from dlbench.analysis.presentation.names import HasRow, device_label, several_runs
from dlbench.analysis.presentation.wording import INTERVAL, value_name, value_words
from dlbench.analysis.ratios.matching import Match, MatchRecord, launch_bound, one_device
from dlbench.analysis.ratios.ratio import HasRatio, Ratio
from dlbench.analysis.read.table import as_frame
from dlbench.core.model import ParamValue
from dlbench.core.rows.columns import BY_NAME
from dlbench.core.rows.row import Cells, Row, cell
from dlbench.core.stats import known, known_median, median_interval
from dlbench.core.units import Column, Unit

if TYPE_CHECKING:
    import pandas as pd

_KNOWN = {**BY_NAME, "batch": Column("param.batch", Unit.COUNT, "batch size; null where the workload has none")}
Entry = Column | Callable[[Sequence[Any]], Column | Iterable[Column]]
"""Entry of a table: a column, or a function that makes one or several of all records shown."""


class _Path:
    """A path of attributes, as text: ``time.median_s``."""

    def __init__(self, text: str = "") -> None:
        self._text = text

    def __getattr__(self, name: str) -> "_Path":
        return _Path(f"{self._text}.{name}" if self._text else name)

    def __str__(self) -> str:
        return self._text


def at(path: str) -> Callable[[Any], Any]:
    """Return a function that follows a path of attributes, keys and indices: ``at("base.time.median_s")``; None where one is None."""

    def found(record: Any) -> Any:
        for name in path.split("."):
            if isinstance(record, Mapping):
                record = record.get(name)
            elif record is not None:
                record = record[int(name)] if name.isdigit() else getattr(record, name)
        return record

    return found


def of_row(field: Callable[[Row], object], heading: str = "", priority: int = 1, *ends: Callable[[Row], object]) -> Column:
    """Return the column of a field of rows, for records of a row: ``of_row(lambda row: row.time.median_s)``; ``ends``: of its interval."""
    known = BY_NAME[str(field(cast(Row, _Path())))]
    both = (of_row(ends[0]), of_row(ends[1])) if ends else None
    return replace(known, of=lambda record: field(record.row), heading=heading, priority=priority, ends=both)


def of_side(side: str, field: Callable[[Row], object], heading: str = "", priority: int = 1) -> Column:
    """Return the column of a field of one side of pairs, or of records of a pair: ``of_side("base", lambda row: row.time.median_s)``."""
    known = _KNOWN[str(field(cast(Row, _Path())))]
    place = ("base", "other").index(side)
    named = replace(known, name=f"{side}.{known.attribute}", meaning=f"{side}: {known.meaning}")
    return named.by(lambda record: field(record.sides[place])).headed(heading, priority)


def value_column(column: Column) -> Column:
    """Return the column of a value that workloads report, for records of a row."""
    return column.by(lambda record: record.row.values.get(value_name(column)), value_words(column))


def value_columns(rows: Iterable[HasRow]) -> list[Column]:
    """Return the columns of the numbers, not of series, that the workloads of these records declare."""
    found = {column.name: column for each in rows for column in each.row.value_columns if not column.series}
    return [value_column(each) for each in found.values()]


CASE = Column("pair.case", Unit.TEXT, "what both sides have in common", heading="case", priority=0)
WORK = Column("pair.work", Unit.TEXT, "that without what each side chooses where it is at its best").headed("work", 0)
KEY = of_row(lambda row: row.case.id, "case", 0).by(lambda record: record.row.key)
"""The case without its device, in the column of the case."""


def spanned(column: Column, ends: Callable[[Any], Sequence[float | None] | None], stem: str = "") -> Column:
    """Return a column with an interval: ``ends`` gives both ends for a record; their columns are named ``stem`` and ``low`` or ``high``."""

    def end(name: str, place: int) -> Column:
        made = Column(f"{stem or f'{column.name}_'}{name}", column.unit, f"{name} end of its 95 % interval")
        return made.by(lambda record: (ends(record) or (None, None))[place])

    return replace(column, ends=(end("low", 0), end("high", 1)))


def over_rounds(column: Column, rounds: Callable[[Any], Sequence[float]], stem: str = "") -> Column:
    """Return a column of the median over rounds, with its 95 % interval from six rounds on; ``rounds`` gives their values for a record."""
    return spanned(column.by(lambda record: known_median(rounds(record))), lambda record: median_interval(rounds(record)), stem)


def ratio_column(name: str, meaning: str, heading: str, of: Callable[[Any], Ratio | None], stem: str = "") -> Column:
    """Return a column of that name for a ratio, and two for its interval."""
    column = Column(name, Unit.RATIO, meaning, "higher", heading=heading, priority=0)
    low, high = at("low"), at("high")
    return spanned(column.by(lambda found: at("speedup")(of(found))), lambda found: (low(of(found)), high(of(found))), stem)


_SPEEDUP = "how many times as fast the other is: Hodges-Lehmann estimate over the rounds"
RATIO = ratio_column("ratio.speedup", _SPEEDUP, "ratio", attrgetter("ratio"), "ratio.ci_")
"""A ratio and its interval."""
TIME = of_row(lambda row: row.time.median_s, "time", 0, lambda row: row.time.ci_low_s, lambda row: row.time.ci_high_s)
"""Seconds of a call, and their interval."""
THROUGHPUT = of_row(
    lambda row: row.rate.items_per_s, "items/s", 0, lambda row: row.rate.items_per_s_low, lambda row: row.rate.items_per_s_high
)
"""Items a second, and their interval."""
PLACE = Column("place", Unit.TEXT, "where it ran", heading="device", priority=0)


def place(found: Sequence[HasRow]) -> Column:
    """Return the column of where rows ran, or records of one."""
    several = several_runs(found)
    return PLACE.by(lambda each: device_label(each.row, several))


def others_than(record: HasRow, found: Iterable[HasRow]) -> int:
    """Return the number of devices on which these records ran, without the device of ``record``."""
    return len({one_device(each.row) for each in found} - {one_device(record.row)})


def columns_of(entries: Iterable[Entry], found: Sequence[Any]) -> list[Column]:
    """Return the columns of a table; entries that are functions are called with its records."""
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
    """Return each record as cells of these columns; before them those of ``whole``, which only programs get."""
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


def pair_frame(pairs: Iterable[Match]) -> "pd.DataFrame":
    """Return a row a pair, columns as in `PAIR_COLUMNS`; ``run`` is the file of a side."""
    rows = [{**pair_cells(each), "base.run": each.base.file, "other.run": each.other.file} for each in pairs]
    return as_frame(rows, PAIR_COLUMNS.values())


def pair_cells(found: Match | MatchRecord) -> dict[str, ParamValue | None]:
    """Return a pair, or the pair of a record, as cells; the cells of the ratio are empty where rows report values."""
    pair = found.pair if isinstance(found, MatchRecord) else found
    ratio = of_ratio(pair) if pair.speeds else {}
    return {**dict.fromkeys(PAIR_COLUMNS), **cells(_PAIR, [pair])[0], **ratio, "base.file": pair.base.file, "other.file": pair.other.file}


def of_ratio(found: HasRatio) -> dict[str, ParamValue | None]:
    """Return the ratio of a record as cells."""
    return cells(_RATIO, [found])[0]


Mark = Literal["bar", "line", "dot", "stack"]
"""Bars begin at zero or, on a logarithmic axis, at the ``reference``; a stack has those of all series one behind the other. Lines join the
points of one series in the order of ``x``."""


@dataclass(frozen=True, slots=True)
class Figure:
    """Tidy rows and an encoding: enough to draw it, to print it as a table, and to say it to somebody who can't see it."""

    title: str
    about: str
    """One or two sentences: what is drawn, and what to read from it."""
    mark: Mark
    x: Column
    """A text or a flag makes a categorical axis, in the order of the rows; any other unit one of numbers."""
    y: Column
    rows: tuple[Cells, ...]
    series: Column | None = None
    """Tells lines, bars or dots apart, by colour and by shape or dash; a text."""
    place: Column | None = None
    """Where each row was measured; where these are several, it tells lines of one series apart by their dash."""
    interval: tuple[Column, ...] = ()
    """The ends of an interval around the number of each row, on the axis that has numbers: of two ``y`` for lines, else ``x``."""
    reference: float | None = None
    """A value on that axis to hold the others against, such as a ratio of 1."""
    band: tuple[Column, ...] = ()
    """The ends of a band around the reference, of each row its own, such as a threshold."""
    bound: tuple[Cells, ...] = ()
    """Corners of a line that no row should be beyond, such as a roofline: an ``x`` and a ``y`` each."""
    clip: tuple[float, float] | None = None
    """Ends of what is drawn of ``y``, or of ``x`` where ``y`` has words; a number beyond is an arrow at the end."""
    log: str = ""
    """The logarithmic axes: ``xy``."""

    @property
    def axes(self) -> tuple[Column, ...]:
        """All of them, ``x`` last."""
        return tuple(axis for axis in (self.y, self.series, self.place, self.x) if axis)


def has_words(column: Column) -> bool:
    """Whether a column makes a categorical axis."""
    return column.unit in (Unit.TEXT, Unit.FLAG)


def figure(
    title: str,
    about: str,
    mark: Mark,
    records: Sequence[Any],
    x: Column,
    y: Column,
    series: Column | None = None,
    place: Column | None = None,
    *,
    interval: Sequence[Column] = (),
    band: Sequence[Column] = (),
    **other_fields: Any,
) -> Figure:
    """Return the figure of records. It has a row for each record, with the cells of all columns that are passed here.

    ``interval`` and ``band`` are two columns each, of a lower and an upper end; by default the interval is that of ``x``, or else of ``y``.
    ``other_fields`` are those of `Figure`, whose fields say what the parameters mean.
    """
    interval = interval or x.ends or y.ends or ()
    columns = known((x, y, series, place, *interval, *band))
    # The ends that are drawn are among these columns. `cells` would add the ends of each column once more, so they are removed.
    rows = cells([replace(each, ends=None) for each in columns], records)
    return Figure(
        title,
        about,
        mark,
        plain(x),
        plain(y),
        rows,
        series and plain(series),
        place and plain(place),
        interval=tuple(map(plain, interval)),
        band=tuple(map(plain, band)),
        **other_fields,
    )
