"""Stopping rules within a round: each takes numbers by ``add``, says by ``done`` whether they suffice, and knows no clock."""

import statistics
from itertools import combinations

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


class Steadiness:
    """Whether the block times have stopped moving: two windows agree in level and show no trend."""

    def __init__(self, window: int = WINDOW) -> None:
        self._window = window
        self.recent: list[float] = []
        """The last blocks, as many as both windows have, or fewer at first."""

    def add(self, seconds: float) -> None:
        """Take one block's seconds a call."""
        self.recent = [*self.recent[-(2 * self._window - 1) :], seconds]

    def done(self) -> bool:
        """Return whether the last blocks are steady."""
        if len(self.recent) < 2 * self._window:
            return False
        before, after = statistics.median(self.recent[: self._window]), statistics.median(self.recent[self._window :])
        pairs = list(combinations(self.recent, 2))
        kendall_tau = sum((b > a) - (b < a) for a, b in pairs) / len(pairs)  # tau-a of the values against their order
        return abs(after - before) <= STEADY_SHIFT * before and abs(kendall_tau) < STEADY_TREND[self._window]


class EnoughBlocks:
    """Whether a round has the blocks it needs: precise enough, out of time, or at its most."""

    def __init__(self, policy: Policy, calls: int) -> None:
        self._policy = policy
        self._calls = calls
        self.blocks: list[float] = []
        self._spent_s = 0.0

    def add(self, seconds: float) -> None:
        """Take one block's seconds a call."""
        self.blocks.append(seconds)
        self._spent_s += seconds * self._calls

    def done(self) -> bool:
        """Return whether to stop."""
        count = len(self.blocks)
        if count < self._policy.min_blocks:
            return False
        if count >= self._policy.max_blocks or self._spent_s >= self._policy.round_s:
            return True
        return count >= PRECISE_FROM and relative_half_width(self.blocks) <= PRECISE
