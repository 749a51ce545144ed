"""Stopping rules within a round: whether the block times so far suffice. They know no clock."""

import statistics
from collections.abc import Sequence
from itertools import combinations

from dlbench.core.conditions import undisturbed
from dlbench.core.measurement import STEADY_SHIFT
from dlbench.core.model import Policy
from dlbench.core.stats import relative_half_width

WINDOW, SHORT_WINDOW = 5, 3
"""Blocks in each of the two windows that must agree before measuring starts; the short ones are for long blocks."""
STEADY_TREND = {WINDOW: 0.6, SHORT_WINDOW: 0.85}
"""Kendall's tau over both windows from which on their order counts as a trend, with p = 0.017 in either size."""
PRECISE = 0.01
"""Half-width of the interval of the block median, relative, at which a round has enough blocks."""
PRECISE_FROM = 10
"""Blocks from which on that interval is believed."""


def steady(blocks: Sequence[float], window: int = WINDOW) -> bool:
    """Whether block times have stopped moving: the last two windows of them agree in level and show no trend."""
    before, after = blocks[-2 * window : -window], blocks[-window:]
    if len(before) < window:
        return False
    level = statistics.median(before)
    pairs = list(combinations((*before, *after), 2))
    kendall_tau = sum((b > a) - (b < a) for a, b in pairs) / len(pairs)  # tau-a of the values against their order
    return abs(statistics.median(after) - level) <= STEADY_SHIFT * level and abs(kendall_tau) < STEADY_TREND[window]


def enough(blocks: Sequence[float], waits: Sequence[float] | None, calls: int, policy: Policy) -> bool:
    """Whether a round has the blocks it needs, of so many calls: precise enough, out of time, or at its most.

    ``waits``: the longest of each block for a CPU. Those that were disturbed take time, and nothing else of them counts.
    """
    if len(blocks) < policy.min_blocks:
        return False
    counted = [blocks[at] for at in undisturbed(blocks, waits, calls)]
    if len(counted) >= policy.max_blocks or calls * sum(blocks) >= policy.round_s:
        return True
    return len(counted) >= PRECISE_FROM and relative_half_width(counted) <= PRECISE
