"""Small pictures in text: a bar for each ratio, and a strip for the rounds of each case."""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import chain

from dlbench.core.stats import quantile

WIDTH = 15
"""Characters of a picture; odd, so that a strip has a middle."""
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_HEIGHTS = " ▂▄▆█"
"""By the number of rounds at a place; as many as there are heights for, and more, look alike."""
_ORIGIN = "│"
_SCALES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""Half the width of a strip, as a fraction of the median: numbers that a reader knows how to halve."""
_INSIDE = 0.9
"""Share of the rounds of all cases that the scale holds; a wild one is shown as beyond it and flattens no other."""


def bars(ratios: Sequence[float | None]) -> list[str]:
    """Return a bar for each ratio, on one logarithmic scale from 1 ×: to the right where it is above, to the left where below.

    On that scale twice and half as fast are as long, and 40 × leaves 2 × something to be seen of. None, and what is no positive number,
    has no bar. All are equally wide.
    """
    logs = [math.log(ratio) if ratio and 0 < ratio < math.inf else None for ratio in ratios]
    known = [each for each in logs if each is not None]
    least, most = min([0.0, *known]), max([0.0, *known])
    scale = most - least or 1.0
    left = min(max(1, round((WIDTH - 1) * -least / scale)), WIDTH - 2) if least < 0 else 0
    right = WIDTH - 1 - left
    # The side that has the less room for what it shows sets the scale of both.
    per_sign = max(most / right, -least / left if left else 0.0) or 1.0
    return ["" if each is None else _bar(each / per_sign, left, right) for each in logs]


def _bar(signs: float, left: int, right: int) -> str:
    """Draw so many characters, parts of one included, to the right of an origin, or to the left where they are negative."""
    if signs < 0:
        halves = min(round(-signs * 2), 2 * left)
        return ("▐" * (halves % 2) + "█" * (halves // 2)).rjust(left) + _ORIGIN + " " * right
    eighths = min(round(signs * 8), 8 * right)
    return " " * left + _ORIGIN + ("█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()).ljust(right)


def strips(rounds: Sequence[Sequence[float]]) -> tuple[float, list[str]]:
    """Return a strip for each case, given one positive number a round, and how far all of them reach to either side of their middle.

    The middle is the case's own median and the reach a fraction of it, the same for all, so that spread can be compared. The more rounds at
    a place, the higher it is; ``‹`` and ``›`` are rounds beyond. A case of fewer than two rounds has none.
    """
    deviations = [_deviations(each) if len(each) > 1 else [] for each in rounds]
    distances = sorted(abs(each) for each in chain.from_iterable(deviations))
    wanted = quantile(distances, _INSIDE) if distances else 0.0
    reach = next((scale for scale in _SCALES if wanted <= scale), _SCALES[-1])
    return reach, [_strip(each, reach) if each else "" for each in deviations]


def _deviations(values: Sequence[float]) -> list[float]:
    """Return how far each is from their median, as a fraction of it."""
    centre = quantile(sorted(values), 0.5)
    return [each / centre - 1 for each in values] if centre > 0 else []


def _strip(deviations: Sequence[float], reach: float) -> str:
    middle = (WIDTH - 2) // 2
    counts = Counter(middle + round(each / reach * middle) for each in deviations if abs(each) <= reach)
    inside = "".join(_HEIGHTS[min(counts[place], len(_HEIGHTS) - 1)] for place in range(WIDTH - 2))
    return f"{'‹' if min(deviations) < -reach else ' '}{inside}{'›' if max(deviations) > reach else ' '}"
