"""Latency and bandwidth of copies, fitted to the times that several sizes take."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dlbench.analysis.answers.parts.lines import LEAST_SIZES, MOST_OFF, Line, fit
from dlbench.analysis.ratios.pairing import grouped
from dlbench.core.rows.rounds import Rounds
from dlbench.core.stats import median_interval
from dlbench.core.units import percent


class OverRounds(NamedTuple):
    """The median of what each round gave, and its 95 % interval, without ends below six rounds."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Fit:
    """Latency and bandwidth of copies that differ in their size alone."""

    sizes: int
    """How many there are."""
    latency_s: OverRounds | None = None
    """What a copy takes however small it is; None where it does not show."""
    bytes_per_s: OverRounds | None = None
    """Bytes over the time beyond the latency."""
    off: float | None = None
    """How far a size is from its round's line, relative, in the median."""
    reason: str | None = None
    """Why there is no line."""


def latency_and_bandwidth(sizes: Sequence[tuple[float, Rounds]]) -> Fit:
    """Fit copies that differ in their size alone: of each the bytes, and what its rounds gave.

    A copy takes latency + bytes / bandwidth (Hockney, The Communication Challenge for MPP, Parallel Computing 20(3), 1994). A line is
    fitted in each round, whose sizes one state of the machine has in common; the intervals are over rounds. Of a line that fits nothing
    neither is told (`lines.MOST_OFF`), nor a latency that is less than the line is off at the smallest size.
    """
    count = len({size for size, _ in sizes})
    points = [(number, (size, seconds)) for size, each in sizes for number, seconds in zip(each.numbers, each.median_s, strict=False)]
    by_round = [[point for _, point in found] for found in grouped(points, lambda each: each[0]).values()]
    fitted = [(line, each) for each in by_round if (line := fit(each))]
    if not fitted:
        return Fit(count, reason=f"no round has {LEAST_SIZES} sizes, the fewest that tell latency from bandwidth")
    off = statistics.median(line.off(each) for line, each in fitted)
    if off >= MOST_OFF:
        return Fit(count, off=off, reason=f"the sizes are {percent(off)} off the best line in the median, so it tells nothing of them")
    fixed, slopes = [line.fixed for line, _ in fitted], [line.slope for line, _ in fitted]
    middle = Line(statistics.median(fixed), statistics.median(slopes))
    shows = middle.shows_fixed(min(size for size, _ in sizes if size > 0), off)
    return Fit(count, _over_rounds(fixed) if shows else None, _over_rounds([1 / slope for slope in slopes]), off)


def _over_rounds(values: Sequence[float]) -> OverRounds:
    interval = median_interval(values)
    low, high = (interval.low, interval.high) if interval else (None, None)
    return OverRounds(statistics.median(values), low, high)
