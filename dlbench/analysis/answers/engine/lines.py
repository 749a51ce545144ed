"""Robust fits of lines: a few outliers don't move them."""

import math
import statistics
import sys
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

LEAST_SIZES = 3
"""Through two points there is always a line, whatever lies between them."""
MOST_DEVIATION = 0.25
"""Relative median distance of points from their line at which it is no fit: half of the points are a quarter or more off it, while noise
moves a point by a few percent. The reason is a bend, by a cache or a protocol."""


class Line(NamedTuple):
    """Time or memory by size: ``fixed`` + ``slope`` × size."""

    fixed: float
    slope: float

    def distance(self, size: float, measured: float) -> float:
        """Return the distance of a point from the line: the absolute logarithm of measured over fitted."""
        fitted = max(self.fixed + self.slope * size, sys.float_info.min)
        return abs(math.log(measured) - math.log(fitted))  # their quotient may be beyond a float

    def deviation(self, points: Sequence[tuple[float, float]]) -> float:
        """Return the median distance of points from the line, as a relative deviation: 0.25 for 25 %."""
        distance = statistics.median(self.distance(*point) for point in points if min(point) > 0)
        return math.expm1(min(distance, 700.0))  # e to a little more is beyond a float

    def shows_fixed(self, smallest: float, deviation: float) -> bool:
        """Whether its fixed part is larger than the deviation of the points at the smallest size, which is a share of the value there."""
        return self.fixed > deviation * (self.fixed + self.slope * smallest)


def fit(points: Sequence[tuple[float, float]]) -> Line | None:
    """Return the line with the least sum of distances from points (size, time or memory); None for fewer than three sizes.

    A distance is |log(measured / fitted)|: sizes of copies span five decades, so with plain differences the largest would decide alone,
    and the fixed part would be lost. Absolute values instead of squares keep outliers from pulling the line.

    Candidates are the lines through every two points with a fixed part of zero or more, and those through zero and a point. These are
    the elemental sets of Rousseeuw and Leroy, Robust Regression and Outlier Detection, Wiley 1987.
    """
    usable = sorted((size, measured) for size, measured in points if 0 < size < math.inf and 0 < measured < math.inf)
    if len({size for size, _ in usable}) < LEAST_SIZES:
        return None
    lines = [Line(0.0, measured / size) for size, measured in usable]
    for (small, measured_small), (large, measured_large) in combinations(usable, 2):
        if large > small and measured_large > measured_small:
            slope = (measured_large - measured_small) / (large - small)
            lines.append(Line(measured_small - slope * small, slope))
    # No candidate is left if every slope is too large or too small for a float.
    candidates = [line for line in lines if line.fixed >= 0 and 0 < line.slope < math.inf]
    return min(candidates, key=lambda line: sum(line.distance(*point) for point in usable), default=None)
