"""Small pictures in text: a bar for each ratio, and a strip for the rounds of each case."""

import math
from collections import Counter
from collections.abc import Sequence

from dlbench.core.stats import quantile

WIDTH = 15
"""Characters of a picture; odd, so that each has a middle."""
_HALF = WIDTH // 2
_SCALES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""Half the width of a strip, as a fraction of the median: numbers that a reader knows how to halve."""
_INSIDE = 0.9
"""Share of the rounds of all cases that the scale holds; a wild one is shown as beyond it and flattens no other."""


def bars(ratios: Sequence[float | None]) -> list[str]:
    """Return a bar for each ratio, on one logarithmic scale from 1 × in the middle: to the right if it is above.

    On that scale twice and half as fast are as long, and 40 × leaves 2 × something to be seen of. None, and what is no positive number,
    has no bar.
    """
    logs = [math.log(each) if each and 0 < each < math.inf else None for each in ratios]
    most = max((abs(each) for each in logs if each), default=1.0)
    return ["" if each is None else _bar(each / most) for each in logs]


def _bar(length: float) -> str:
    """Draw a share of the room on one side, of a negative one on the left."""
    whole, half = divmod(round(abs(length) * 2 * _HALF), 2)
    left, right = ("▐" * half + "█" * whole, "") if length < 0 else ("", "█" * whole + "▌" * half)
    return f"{left:>{_HALF}}│{right:<{_HALF}}"


def strips(rounds: Sequence[Sequence[float]]) -> tuple[float, list[str]]:
    """Return a strip for each case, given one positive number a round, and how far all of them reach to either side of their middle.

    The middle is the case's own median and the reach a fraction of it, the same for all, so that spread can be compared. The more rounds at
    a place, the higher it is; ``‹`` and ``›`` are rounds beyond. A case of fewer than two rounds has none.
    """
    centres = [quantile(sorted(each), 0.5) if len(each) > 1 else 0.0 for each in rounds]
    deviations = [[each / centre - 1 for each in of] if centre > 0 else [] for of, centre in zip(rounds, centres, strict=True)]
    distances = sorted(abs(each) for of in deviations for each in of)
    wanted = quantile(distances, _INSIDE) if distances else 0.0
    reach = next((scale for scale in _SCALES if wanted <= scale), _SCALES[-1])
    return reach, [_strip(each, reach) if each else "" for each in deviations]


def _strip(deviations: Sequence[float], reach: float) -> str:
    ends = _HALF - 1
    counts = Counter(round(each / reach * ends) for each in deviations if abs(each) <= reach)
    inside = "".join(" ▂▄▆█"[min(counts[place], 4)] for place in range(-ends, ends + 1))
    return f"{'‹' if min(deviations) < -reach else ' '}{inside}{'›' if max(deviations) > reach else ' '}"
