"""Ratios between rows that differ in one column."""

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple, TypeVar

from dlbench.analysis.read.places import file_of
from dlbench.analysis.read.table import Results
from dlbench.core.errors import UsageError, nearest
from dlbench.core.model import ParamValue, settings_in
from dlbench.core.rank_test import FEWEST_ROUNDS, rounds_for_interval, shift_interval
from dlbench.core.rows.rounds import Rounds
from dlbench.core.rows.row import Cells as Row
from dlbench.core.rows.row import ending
from dlbench.core.schema import Column, Unit

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

MACHINE = ("case.device", "case.device_name", "case.threads", "case.math", "case.run")
WORK = ("case.workload", "case.dtype", "case.mode")

# What can't stay the same when a column differs; all else that identifies a case must be equal in a pair.
_GOES_WITH = {
    "case.device": MACHINE,
    "case.device_name": MACHINE,
    "case.run": ("case.device_name", "case.threads", "case.math"),
    "case.threads": ("case.run",),
    "case.math": ("case.run",),
    "param.ranks": ("case.threads",),
    "case.dtype": ("case.math",),
    "case.mode": ("case.math",),
}

_USUAL_BASE = {"case.device": "cpu", "case.dtype": "fp32", "case.mode": "eager", "param.layout": "nchw"}

_SIDE = (
    Column("id", Unit.TEXT, "the case"),
    Column("run", Unit.TEXT, "the result file it stands in"),
    Column("device", Unit.TEXT, "where it ran"),
    Column("device_name", Unit.TEXT, "what that device is called by its maker"),
    Column("threads", Unit.COUNT, "threads that torch used on the host"),
    Column("dtype", Unit.TEXT, "precision"),
    Column("mode", Unit.TEXT, "eager, compile, graph or autotune"),
    Column("batch", Unit.COUNT, "batch size; null where the workload has none"),
    Column("layout", Unit.TEXT, "memory layout; null where the workload has none"),
    Column("optimizer", Unit.TEXT, "optimizer; null where the workload has none"),
    Column("value", Unit.TEXT, "its value in the column in which the pair differs"),
    Column("rounds", Unit.COUNT, "rounds that the interval stands on"),
    Column("median_s", Unit.SECONDS, "one call"),
    Column("device_s", Unit.SECONDS, "the same by the device's own events; null where they were not read"),
    Column("launch_bound", Unit.FLAG, "whether the device waits for launches a third of the time or more; null where that was not read"),
    Column("items_per_s", Unit.ITEMS_PER_S, "items over the time of all calls, slow ones included"),
    Column("flops_per_s", Unit.FLOPS_PER_S, "stated operations of one call over the median time of a call"),
)
PAIR_COLUMNS: dict[str, Column] = {
    column.name: column
    for column in (
        Column("pair.case", Unit.TEXT, "what both sides have in common"),
        Column("pair.work", Unit.TEXT, "that without batch, precision, layout, mode and optimizer"),
        Column("pair.by", Unit.TEXT, "the column in which they differ; 'best' where each side is at its own best"),
        Column("pair.time", Unit.TEXT, "the time that the ratio is of: wall, or device by cache, where both sides have it"),
        *(Column(f"{side}.{column.name}", column.unit, f"{side}: {column.meaning}") for side in ("base", "other") for column in _SIDE),
        Column("ratio.speedup", Unit.RATIO, "how many times as fast the other is: Hodges-Lehmann estimate over the rounds", "higher"),
        Column("ratio.ci_low", Unit.RATIO, f"lower end of its 95 % interval; null with fewer than about {FEWEST_ROUNDS} rounds a side"),
        Column("ratio.ci_high", Unit.RATIO, "upper end of it"),
        Column(
            "ratio.confidence",
            Unit.FRACTION,
            "least coverage of the interval if one side spreads more than the other, for rounds fixed beforehand, without a budget",
        ),
        Column("ratio.among", Unit.COUNT, "of how many the pair was chosen as the best; its interval allows for that"),
        Column("ratio.reason", Unit.TEXT, "why there is no interval"),
    )
}


class Unpaired(NamedTuple):
    """A row that stands in no pair, and why."""

    case: str
    run: str
    reason: str


CHOSEN = ("batch", "dtype", "layout", "mode", "optimizer")
"""What each side chooses for itself where it is at its best."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A row, and what each of its rounds gave."""

    row: Row
    rounds: Rounds


@dataclass(frozen=True, slots=True)
class Couples:
    """Rows that differ in one column, two and two."""

    column: str
    """Its full name."""
    base_value: ParamValue | None
    """What the first of each two has there."""
    couples: tuple[tuple[Entry, Entry], ...]
    """The base and the other, both ``ok`` and with times."""
    unpaired: tuple[Unpaired, ...]


def couple(results: Results, by: str, base: str | None = None, *, timed: bool = True) -> Couples:
    """Find the ``ok`` rows that differ in one column: see `pair`. Raises UsageError for an unknown column or base."""
    column = _column(results.columns, by)
    free = {column, *_GOES_WITH.get(column, ())}
    identity = [name for name in identifying(results.columns) if name not in free]
    of_interest = [each for each in entries(results) if each.row[column] is not None]
    trouble_of = {id(each): unfit(each, column, timed) for each in of_interest}
    base_value = _base_value(results, [each for each in of_interest if trouble_of[id(each)] is None] or of_interest, column, base)
    couples: list[tuple[Entry, Entry]] = []
    unpaired: list[Unpaired] = []
    for group in grouped(of_interest, lambda each: tuple(each.row[name] for name in identity)).values():
        unpaired += [left_out(each, trouble) for each in group if (trouble := trouble_of[id(each)])]
        fit = [each for each in group if trouble_of[id(each)] is None]
        bases = [each for each in fit if each.row[column] == base_value]
        others = [each for each in fit if each.row[column] != base_value]
        if not bases:
            unpaired += [left_out(each, f"nothing to pair it with at {column} = {base_value}") for each in others]
        if not others:
            unpaired += [left_out(each, f"nothing to pair it with at another {column}") for each in bases]
        couples += product(bases, others)
    return Couples(column, base_value, tuple(couples), tuple(unpaired))


def entries(results: Results) -> list[Entry]:
    """Return the rows as plain values, each with its rounds."""
    return [Entry(row, rounds) for row, rounds in zip(results.rows, results.rounds, strict=True)]


def identifying(columns: Iterable[str]) -> list[str]:
    """Return the columns that tell what was measured, and where."""
    return [*WORK, *MACHINE, *(name for name in columns if name.startswith("param."))]


def _column(columns: Iterable[str], by: str) -> str:
    """Return the full name of a column given in full or by its last part."""
    names = identifying(columns)
    for name in (by, f"case.{by}", f"param.{by}"):
        if name in names:
            return name
    short = [name.partition(".")[2] for name in names]
    raise UsageError(
        f"rows can't be paired by '{by}': it is not a column that identifies a case{nearest(by, [*short, *names] if '.' in by else short)}"
    )


def _base_value(results: Results, entries: Sequence[Entry], column: str, base: str | None) -> ParamValue | None:
    values = {str(each.row[column]): each.row[column] for each in entries}
    if base is None:
        declared = (results.declaration(each.row).plain_default(column.partition(".")[2]) for each in entries)
        plain = (each for each in (_USUAL_BASE.get(column), *declared) if each in values)
        return values[first] if (first := next(plain, None)) is not None else next(iter(values.values()), None)
    if base not in values:
        raise UsageError(f"no row has {column} = '{base}'{nearest(base, list(values))}")
    return values[base]


def unfit(entry: Entry, column: str, timed: bool) -> str | None:
    """Say why a row can't be in a ratio of rows that differ in this column, if so."""
    if entry.row["case.status"] != "ok":
        return ": ".join(ending(entry.row))
    if bool(entry.rounds.median_s) is not timed:
        return "it reports values, not times" if timed else "it has times"
    if timed and min(entry.rounds.median_s) <= 0:
        return "its time reads as zero"
    if column == "case.device" and entry.row.get("param.ranks") not in (None, 1):
        return "it has several devices, and ranks on a CPU share one; see --by ranks"
    if entry.row["case.found"] is not None:
        return "it stands for what its search found, which another's need not have"
    return f"implausible: {entry.row['flag.implausible_reason']}" if entry.row["flag.implausible"] else None


def left_out(entry: Entry, reason: str) -> Unpaired:
    """Return a row as one that stands in no pair."""
    return Unpaired(str(entry.row["case.id"]), file_of(entry.row), reason)


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Return the items by their key, in the order in which each key came first."""
    groups: dict[K, list[T]] = {}
    for each in items:
        groups.setdefault(key(each), []).append(each)
    return groups


def speed_ratio(base: Sequence[float], other: Sequence[float], *, among: int = 1) -> Row:
    """Return how many times the speeds of ``other`` are those of ``base``: the columns ``ratio.*``; all have to be above zero.

    Where the two were chosen for being the fastest ``among`` so many pairs, the interval allows for that.
    """
    shift, interval = shift_interval([_log(speed) for speed in base], [_log(speed) for speed in other], among)
    chosen, enough = f" for the best of {among}" if among > 1 else "", rounds_for_interval(among)
    few = f"{len(base)} and {len(other)} rounds are too few for a 95 % interval{chosen}; {enough} and {enough} are enough"
    return {
        "ratio.speedup": math.exp(shift),
        "ratio.ci_low": math.exp(interval.low) if interval else None,
        "ratio.ci_high": math.exp(interval.high) if interval else None,
        "ratio.confidence": interval.confidence if interval else None,
        "ratio.among": among,
        "ratio.reason": None if interval else few,
    }


def _log(speed: float) -> float:
    return math.log(min(max(speed, 1e-150), 1e150))  # an edited file may hold any, and a float has to hold the ratio of two


def chosen(row: Row, name: str) -> ParamValue | None:
    """Return what a row has for a parameter: its own, or what its search found; None where it has none."""
    own = row.get(f"case.{name}", row.get(f"param.{name}"))
    if own is None and row["case.found"] is not None:
        found = settings_in(str(row["case.found"])).get(name)
        return int(found) if found and found.isdecimal() and len(found) < 20 else found
    return own


def label(row: Row, hidden: Iterable[str]) -> str:
    """Return the case's id without its device and without the parameters on which the sides may differ."""
    key = str(row["case.id"]).rpartition("@")[0]
    if key == row["case.workload"]:
        return key  # a name that another tool's benchmark has: its brackets are its own
    workload, _, shown = key.removesuffix("]").partition("[")
    drop = tuple(f"{name}=" for name in hidden)
    kept = [part for part in shown.split(",") if not part.startswith(drop)]
    return f"{workload}[{','.join(kept)}]"
