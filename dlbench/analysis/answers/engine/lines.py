"""Lines through measured points that few wild ones can't carry away."""

import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

LEAST_SIZES = 3
"""Through two points there is always a line, whatever lies between them."""
MOST_OFF = 0.25
"""Median distance of points from their line, relative, from which on it fits nothing, and neither of its numbers is told: half of the
points lie a quarter off it or more, while noise moves a point by some percent. What is left is the bend of a cache or of a protocol."""
_MOST_SIZES = 24
"""As many as are fitted, spread evenly over those there are: the work grows with their third power."""


@dataclass(frozen=True, slots=True)
class Line:
    """What a size takes, of time or memory: ``fixed`` however small it is, and ``slope`` for each unit of it."""

    fixed: float
    slope: float

    def distance(self, size: float, taken: float) -> float:
        """Return how far a point is from the line, as the logarithm of their ratio without its sign."""
        fitted = max(self.fixed + self.slope * size, sys.float_info.min)
        return abs(math.log(taken) - math.log(fitted))  # their quotient may be beyond a float

    def off(self, points: Sequence[tuple[float, float]]) -> float:
        """Return how far points are from it in the median, relative."""
        distance = statistics.median(self.distance(*point) for point in points if min(point) > 0)
        return math.expm1(min(distance, 700.0))  # e to a little more is beyond a float

    def shows_fixed(self, smallest: float, off: float) -> bool:
        """Whether its fixed part is more than the line is off at the smallest size, where most of it shows."""
        return self.fixed > off * (self.fixed + self.slope * smallest)


def fit(points: Sequence[tuple[float, float]]) -> Line | None:
    """Return the line through points of a size and what it takes; None for fewer than three sizes.

    Of the lines through two of the points, with a fixed part of zero or more, and those through zero and one point, it is the one with
    the least sum of |log(measured / fitted)|. Logarithms, as the sizes of copies span five decades and their times four: by plain
    differences the largest alone would decide, and of the fixed part nothing would be left. Absolute values and not squares, and lines
    through points that were measured, as then wild points don't pull: the elemental sets of Rousseeuw and Leroy, Robust Regression and
    Outlier Detection, Wiley 1987.
    """
    known = sorted((size, taken) for size, taken in points if 0 < size < math.inf and 0 < taken < math.inf)
    known = known[:: len(known) // _MOST_SIZES + 1]
    if len({size for size, _ in known}) < LEAST_SIZES:
        return None
    lines = [Line(0.0, taken / size) for size, taken in known]
    for (size, taken), (larger, more) in combinations(known, 2):
        if larger > size and more > taken:
            slope = (more - taken) / (larger - size)
            lines.append(Line(taken - slope * size, slope))
    possible = [line for line in lines if line.fixed >= 0 and 0 < line.slope < math.inf]
    return min(possible, key=lambda line: sum(line.distance(*point) for point in known), default=None)
