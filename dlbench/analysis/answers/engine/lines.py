"""Robust fits of lines: a few outliers don't move them."""

import math
import statistics
import sys
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

LEAST_SIZES = 3
"""Through two points there is always a line, whatever lies between them."""
MOST_OFF = 0.25
"""Relative median distance of points from their line at which it is no fit: half of the points are a quarter or more off it, while noise
moves a point by a few percent. The reason is a bend, by a cache or a protocol."""


class Line(NamedTuple):
    """Time or memory by size: ``fixed`` + ``slope`` × size."""

    fixed: float
    slope: float

    def distance(self, size: float, taken: float) -> float:
        """Return the distance of a point from the line: the absolute logarithm of measured over fitted."""
        fitted = max(self.fixed + self.slope * size, sys.float_info.min)
        return abs(math.log(taken) - math.log(fitted))  # their quotient may be beyond a float

    def off(self, points: Sequence[tuple[float, float]]) -> float:
        """Return the median distance of points from the line, as a relative deviation: 0.25 for 25 %."""
        distance = statistics.median(self.distance(*point) for point in points if min(point) > 0)
        return math.expm1(min(distance, 700.0))  # e to a little more is beyond a float

    def shows_fixed(self, smallest: float, off: float) -> bool:
        """Whether its fixed part is larger than the deviation at the smallest size; ``off`` is that of `off`."""
        return self.fixed > off * (self.fixed + self.slope * smallest)


def fit(points: Sequence[tuple[float, float]]) -> Line | None:
    """Return the line through points (size, time or memory); None for fewer than three sizes.

    Candidates are the lines through two of the points with a fixed part of zero or more, and those through zero and one point. The one
    with the least sum of |log(measured / fitted)| is returned. The sizes of copies span five decades and their times four: with plain
    differences instead of logarithms the largest sizes would decide alone, and the fixed part would be lost. Absolute values instead of
    squares, and candidates through measured points, keep outliers from pulling the line: these are the elemental sets of Rousseeuw and
    Leroy, Robust Regression and Outlier Detection, Wiley 1987.
    """
    known = sorted((size, taken) for size, taken in points if 0 < size < math.inf and 0 < taken < math.inf)
    if len({size for size, _ in known}) < LEAST_SIZES:
        return None
    lines = [Line(0.0, taken / size) for size, taken in known]
    for (size, taken), (larger, more) in combinations(known, 2):
        if larger > size and more > taken:
            slope = (more - taken) / (larger - size)
            lines.append(Line(taken - slope * size, slope))
    possible = [line for line in lines if line.fixed >= 0 and 0 < line.slope < math.inf]
    return min(possible, key=lambda line: sum(line.distance(*point) for point in known), default=None)
