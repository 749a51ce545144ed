"""Columns of pairs, and a pair as cells of them: for tables, files and programs."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dlbench.analysis.ratios.pairing import Pair, launch_bound
from dlbench.analysis.ratios.ratio import HasRatio
from dlbench.analysis.read.table import as_frame
from dlbench.core.model import ParamValue
from dlbench.core.rank_test import FEWEST_ROUNDS
from dlbench.core.rows.row import Row
from dlbench.core.schema import Column, Unit

if TYPE_CHECKING:
    import pandas as pd

_SETTINGS = (
    Column("dtype", Unit.TEXT, "precision"),
    Column("mode", Unit.TEXT, "eager, compile, graph or autotune"),
    Column("batch", Unit.COUNT, "batch size; null where the workload has none"),
    Column("layout", Unit.TEXT, "memory layout; null where the workload has none"),
    Column("optimizer", Unit.TEXT, "optimizer; null where the workload has none"),
    Column("implementation", Unit.TEXT, "implementation of the optimizer's update; null where the workload has none"),
)
_SIDE = (
    Column("id", Unit.TEXT, "the case"),
    Column("run", Unit.TEXT, "the result file it stands in"),
    Column("device", Unit.TEXT, "where it ran"),
    Column("device_name", Unit.TEXT, "what that device is called by its maker"),
    Column("threads", Unit.COUNT, "threads that torch used on the host"),
    *_SETTINGS,
    Column("value", Unit.TEXT, "its value in the column in which the pair differs"),
    Column("rounds", Unit.COUNT, "rounds that the interval stands on"),
    Column("median_s", Unit.SECONDS, "one call"),
    Column("device_s", Unit.SECONDS, "the same by the device's own events; null where they were not read"),
    Column("launch_bound", Unit.FLAG, "whether the device waits for launches a third of the time or more; null where that was not read"),
    Column("items_per_s", Unit.ITEMS_PER_S, "items of one call over the median time of a call"),
    Column("flops_per_s", Unit.FLOPS_PER_S, "stated operations, in the same way"),
)
CASE = Column("pair.case", Unit.TEXT, "what both sides have in common")
WORK = Column("pair.work", Unit.TEXT, "that without batch, precision, layout, mode and the optimizer's implementation")
BY = Column("pair.by", Unit.TEXT, "the column in which they differ; 'best' where each side is at its own best")
TIME = Column("pair.time", Unit.TEXT, "the time that the ratio is of: wall, or device by cache, where both sides have it")
SPEEDUP = Column(
    "ratio.speedup", Unit.RATIO, "how many times as fast the other is: Hodges-Lehmann estimate over the rounds", "higher", priority=0
)
LOW = Column("ratio.ci_low", Unit.RATIO, f"lower end of its 95 % interval; null with fewer than about {FEWEST_ROUNDS} rounds a side")
HIGH = Column("ratio.ci_high", Unit.RATIO, "upper end of it")
PAIR_COLUMNS: dict[str, Column] = {
    column.name: column
    for column in (
        *(CASE, WORK, BY, TIME),
        *(Column(f"{side}.{column.name}", column.unit, f"{side}: {column.meaning}") for side in ("base", "other") for column in _SIDE),
        *(SPEEDUP, LOW, HIGH),
        Column(
            "ratio.confidence",
            Unit.FRACTION,
            "least coverage of the interval if one side spreads more than the other, for rounds fixed beforehand, without a budget",
        ),
        Column("ratio.among", Unit.COUNT, "of how many the pair was chosen as the best; its interval allows for that"),
        Column("ratio.reason", Unit.TEXT, "why there is no interval"),
    )
}


def frame(pairs: Iterable[Pair]) -> "pd.DataFrame":
    """Return a row a pair, columns as in `PAIR_COLUMNS`; ``run`` is the file of a side."""
    return as_frame([{**cells(each), "base.run": each.base.file, "other.run": each.other.file} for each in pairs], PAIR_COLUMNS.values())


def cells(pair: Pair) -> dict[str, ParamValue | None]:
    """Return a pair as cells; of rows that report values without those of a ratio."""
    found = dict.fromkeys(PAIR_COLUMNS) | {CASE.name: pair.case, WORK.name: pair.work, BY.name: str(pair.by or "best")}
    for name, side in (("base", pair.base), ("other", pair.other)):
        found |= {f"{name}.{each}": value for each, value in _side(pair, side).items()} | {f"{name}.file": side.file}
    if pair.speeds is None:
        return found
    return found | {TIME.name: "device" if pair.on_device else "wall"} | of_ratio(pair)


def of_ratio(found: HasRatio) -> dict[str, ParamValue | None]:
    """Return the ratio of a record as cells."""
    ratio = found.ratio
    return {
        SPEEDUP.name: ratio.speedup,
        LOW.name: ratio.low,
        HIGH.name: ratio.high,
        "ratio.confidence": ratio.interval.confidence if ratio.interval else None,
        "ratio.among": ratio.among,
        "ratio.reason": ratio.reason,
    }


def _side(pair: Pair, side: Row) -> dict[str, ParamValue | None]:
    return {
        **{name: getattr(side.case, name) for name in ("id", "run", "device", "device_name", "threads")},
        **{each.name: side.setting(each.name) for each in _SETTINGS},
        "value": pair.value(side),
        "rounds": len(side.rounds.median_s),
        "median_s": side.time.median_s,
        "device_s": side.time.device_s,
        "launch_bound": launch_bound(side),
        "items_per_s": side.rate.items_per_s,
        "flops_per_s": side.rate.flops_per_s,
    }
