"""Columns of pairs, and a pair as cells of them: for tables, files and programs."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from operator import attrgetter, methodcaller
from typing import TYPE_CHECKING, Any

from dlbench.analysis.presentation import columns
from dlbench.analysis.presentation.columns import CASE, RATIO, WORK, at, with_intervals
from dlbench.analysis.ratios.pairing import Pair, launch_bound
from dlbench.analysis.ratios.ratio import HasRatio
from dlbench.analysis.read.table import as_frame
from dlbench.core.rows.columns import BY_NAME
from dlbench.core.schema import Column, Unit

if TYPE_CHECKING:
    import pandas as pd

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


def frame(pairs: Iterable[Pair]) -> "pd.DataFrame":
    """Return a row a pair, columns as in `PAIR_COLUMNS`; ``run`` is the file of a side."""
    return as_frame([{**cells(each), "base.run": each.base.file, "other.run": each.other.file} for each in pairs], PAIR_COLUMNS.values())


def cells(pair: Pair) -> dict[str, Any]:
    """Return a pair as cells; of rows that report values those of a ratio are empty."""
    (found,) = columns.cells(_PAIR, [pair])
    ratio = of_ratio(pair) if pair.speeds else {}
    return {**dict.fromkeys(PAIR_COLUMNS), **found, **ratio, "base.file": pair.base.file, "other.file": pair.other.file}


def of_ratio(found: HasRatio) -> dict[str, Any]:
    """Return the ratio of a record as cells."""
    return columns.cells(_RATIO, [found])[0]
