"""Stopping rules within a round: whether the block times so far suffice. They know no clock."""

import statistics
from collections.abc import Sequence
from itertools import combinations

from dlbench.core.conditions import undisturbed
from dlbench.core.measurement import STEADY_SHIFT
from dlbench.core.model import Policy

WINDOW, SHORT_WINDOW = 5, 3
"""Blocks in each of the two windows that must agree before measuring starts; the short ones are for long blocks."""
STEADY_TREND = {WINDOW: 0.6, SHORT_WINDOW: 0.85}
"""Kendall's tau over both windows from which on their order counts as a trend, with p = 0.017 in either size."""


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
    """Whether a round has the blocks it needs, of so many calls: the least, and all its time or its most of those that nobody disturbed.

    ``waits``: the longest of each block for a CPU.
    """
    if len(blocks) < policy.min_blocks:
        return False
    if calls * sum(blocks) >= policy.round_s:
        return True
    # Asked after each block: those that nobody disturbed are no more than all, so there is nothing to count before.
    return len(blocks) >= policy.max_blocks and len(undisturbed(blocks, waits, calls)) >= policy.max_blocks
