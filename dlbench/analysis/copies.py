"""Latency and bandwidth of copies, fitted to the times that several sizes take."""

import statistics
from collections.abc import Sequence

from dlbench.analysis.lines import LEAST_SIZES, MOST_OFF, Line, fit
from dlbench.analysis.ratios import grouped
from dlbench.core.rows.rounds import Rounds
from dlbench.core.rows.row import Cells as Row
from dlbench.core.schema import Column, Unit
from dlbench.core.stats import median_interval
from dlbench.core.units import percent

COLUMNS: dict[str, Column] = {
    column.name: column
    for column in (
        Column("copies.sizes", Unit.COUNT, "sizes whose times the line is fitted to"),
        Column(
            "copies.latency_s",
            Unit.SECONDS,
            "what a copy takes however small it is: median of the rounds' lines; null where it does not show",
            "lower",
        ),
        Column("copies.latency_s_low", Unit.SECONDS, "lower end of its 95 % interval; null below six rounds"),
        Column("copies.latency_s_high", Unit.SECONDS, "upper end of it"),
        Column("copies.bytes_per_s", Unit.BYTES_PER_S, "bytes over the time beyond the latency: median of the rounds' lines", "higher"),
        Column("copies.bytes_per_s_low", Unit.BYTES_PER_S, "lower end of its 95 % interval; null below six rounds"),
        Column("copies.bytes_per_s_high", Unit.BYTES_PER_S, "upper end of it"),
        Column("copies.off", Unit.FRACTION, "how far a size is from its round's line, in the median: caches and protocols bend it"),
        Column("copies.reason", Unit.TEXT, "why there is no line"),
    )
}


def latency_and_bandwidth(sizes: Sequence[tuple[float, Rounds]]) -> Row:
    """Return `COLUMNS` of copies that differ in their size alone: of each the bytes, and what its rounds gave.

    A copy takes latency + bytes / bandwidth (Hockney, The Communication Challenge for MPP, Parallel Computing 20(3), 1994). A line is
    fitted in each round, whose sizes one state of the machine has in common; the intervals are over rounds. Of a line that fits nothing
    neither is told (`lines.MOST_OFF`), nor a latency that is less than the line is off at the smallest size.
    """
    row: Row = {**dict.fromkeys(COLUMNS), "copies.sizes": len({size for size, _ in sizes})}
    points = [(number, (size, seconds)) for size, each in sizes for number, seconds in zip(each.numbers, each.median_s, strict=False)]
    by_round = [[point for _, point in found] for found in grouped(points, lambda each: each[0]).values()]
    fitted = [(line, each) for each in by_round if (line := fit(each))]
    if not fitted:
        return {**row, "copies.reason": f"no round has {LEAST_SIZES} sizes, the fewest that tell latency from bandwidth"}
    row["copies.off"] = off = statistics.median(line.off(each) for line, each in fitted)
    if off >= MOST_OFF:
        return {**row, "copies.reason": f"the sizes are {percent(off)} off the best line in the median, so it tells nothing of them"}
    fixed, slopes = ([getattr(line, part) for line, _ in fitted] for part in ("fixed", "slope"))
    middle = Line(statistics.median(fixed), statistics.median(slopes))
    shows = middle.shows_fixed(min(size for size, _ in sizes if size > 0), off)
    return {
        **row,
        **(_with_interval("copies.latency_s", fixed) if shows else {}),
        **_with_interval("copies.bytes_per_s", [1 / slope for slope in slopes]),
    }


def _with_interval(name: str, values: Sequence[float]) -> Row:
    interval = median_interval(values)
    ends = (interval.low, interval.high) if interval else (None, None)
    return {name: statistics.median(values), f"{name}_low": ends[0], f"{name}_high": ends[1]}
