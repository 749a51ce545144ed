"""Latency and bandwidth of copies, fitted to the times that several sizes take."""

import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from dlbench.analysis.ratios import grouped
from dlbench.core.rows.summary import Rounds, Row
from dlbench.core.schema import Column, Unit
from dlbench.core.stats import median_interval

LEAST_SIZES = 3
"""Through two points there is always a line, whatever lies between them."""
_MOST_SIZES = 24
"""As many as are fitted, spread evenly over those there are: the work grows with their third power."""

COLUMNS: dict[str, Column] = {
    column.name: column
    for column in (
        Column("copies.sizes", Unit.COUNT, "sizes whose times the line is fitted to"),
        Column("copies.latency_s", Unit.SECONDS, "what a copy takes however small it is: median of the rounds' lines", "lower"),
        Column("copies.latency_s_low", Unit.SECONDS, "lower end of its 95 % interval; null below six rounds"),
        Column("copies.latency_s_high", Unit.SECONDS, "upper end of it"),
        Column("copies.bytes_per_s", Unit.BYTES_PER_S, "bytes over the time beyond the latency: median of the rounds' lines", "higher"),
        Column("copies.bytes_per_s_low", Unit.BYTES_PER_S, "lower end of its 95 % interval; null below six rounds"),
        Column("copies.bytes_per_s_high", Unit.BYTES_PER_S, "upper end of it"),
        Column("copies.off", Unit.FRACTION, "how far a size is from its round's line, in the median: caches and protocols bend it"),
        Column("copies.reason", Unit.TEXT, "why there is no line"),
    )
}


@dataclass(frozen=True, slots=True)
class Line:
    """Time of a copy as latency + bytes / bandwidth.

    Hockney, The Communication Challenge for MPP, Parallel Computing 20(3), 1994.
    """

    latency_s: float
    s_per_byte: float

    def distance(self, size: float, seconds: float) -> float:
        """Return how far a time is from the line, as the logarithm of their ratio without its sign."""
        fitted_s = max(self.latency_s + self.s_per_byte * size, sys.float_info.min)
        return abs(math.log(seconds) - math.log(fitted_s))  # their quotient may be beyond a float


def fit(points: Sequence[tuple[float, float]]) -> Line | None:
    """Return the line through (bytes, seconds) that few wild points can't carry away; None for fewer than three sizes.

    Of the lines through two of the points, with a latency of zero or more, and those through zero and one point, it is the one with the
    least sum of |log(measured / fitted)|. Logarithms, as sizes span five decades and times four: by plain differences the largest
    copies alone would decide, and of the latency nothing would be left. Absolute values and not squares, and lines through points that
    were measured, as then wild points don't pull: the elemental sets of Rousseeuw and Leroy, Robust Regression and Outlier
    Detection, Wiley 1987.
    """
    known = sorted((size, seconds) for size, seconds in points if 0 < size < math.inf and 0 < seconds < math.inf)
    known = _spread(known)
    if len({size for size, _ in known}) < LEAST_SIZES:
        return None
    lines = [Line(0.0, seconds / size) for size, seconds in known]
    for (size, seconds), (larger, longer) in combinations(known, 2):
        if larger > size and longer > seconds:
            s_per_byte = (longer - seconds) / (larger - size)
            lines.append(Line(seconds - s_per_byte * size, s_per_byte))
    possible = [line for line in lines if line.latency_s >= 0 and 0 < line.s_per_byte < math.inf]
    return min(possible, key=lambda line: sum(line.distance(*point) for point in known), default=None)


def _spread(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    last = len(points) - 1
    return points if last < _MOST_SIZES else [points[round(step * last / (_MOST_SIZES - 1))] for step in range(_MOST_SIZES)]


def latency_and_bandwidth(sizes: Sequence[tuple[float, Rounds]]) -> Row:
    """Return `COLUMNS` of copies that differ in their size alone: of each the bytes, and what its rounds gave.

    A line is fitted in each round, whose sizes one state of the machine has in common; the intervals are over rounds.
    """
    row: Row = {**dict.fromkeys(COLUMNS), "copies.sizes": len({size for size, _ in sizes})}
    points = [(number, (size, seconds)) for size, each in sizes for number, seconds in zip(each.numbers, each.median_s, strict=False)]
    by_round = [[point for _, point in found] for found in grouped(points, lambda each: each[0]).values()]
    fitted = [(line, each) for each in by_round if (line := fit(each))]
    if not fitted:
        return {**row, "copies.reason": f"no round has {LEAST_SIZES} sizes, the fewest that tell latency from bandwidth"}
    lines = [line for line, _ in fitted]
    distances = [statistics.median(line.distance(*point) for point in each if min(point) > 0) for line, each in fitted]
    return {
        **row,
        **_with_interval("copies.latency_s", [line.latency_s for line in lines]),
        **_with_interval("copies.bytes_per_s", [1 / line.s_per_byte for line in lines]),
        "copies.off": math.expm1(min(statistics.median(distances), 700.0)),  # e to a little more is beyond a float
    }


def _with_interval(name: str, values: Sequence[float]) -> Row:
    interval = median_interval(values)
    ends = (interval.low, interval.high) if interval else (None, None)
    return {name: statistics.median(values), f"{name}_low": ends[0], f"{name}_high": ends[1]}
