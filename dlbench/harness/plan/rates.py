"""State of a search for the highest rate: what its tries so far show, and the shares and gaps that its next tries are chosen by."""

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from dlbench.core.model import Params, Status
from dlbench.core.stats import RateVerdict

FIRST, LEAST = 1 / 4, 1 / 64
"""Where a search begins, and where it gives up, as shares of the rate of a closed loop, which no try reaches."""
CURVE = (0.25, 0.5, 0.75, 0.9)
"""Shares of the highest rate that held: a run at each gives the curve of latencies."""
TARGETS = {"p90": (0.1, 0.1), "p99": (0.01, 0.25)}
"""By percentile, the share of requests that may miss the bound, and the relative gap at which a search ends between the highest rate that
holds and the lowest that fails: a smaller one would take many thousands of requests a rate."""


@dataclass
class RateState:
    """Knowledge of a search for the highest rate after its tries so far."""

    saturation: float = 0.0
    """The rate of the closed loop."""
    verdicts: dict[float, RateVerdict] = field(default_factory=dict)
    curve: tuple[float, ...] | None = None
    """Latencies at the shares in `CURVE`."""
    wanted: Params | None = None
    """Values of the next try."""
    ended: tuple[Status, str] | None = None
    """Status and reason of a search that ended early."""

    @property
    def failing(self) -> float:
        """The lowest rate that failed; the saturation if none did."""
        return min((rate for rate, each in self.verdicts.items() if each.is_failure), default=self.saturation)

    @property
    def highest(self) -> float | None:
        """The highest rate below all that failed, of those that held."""
        return max((rate for rate, each in self.verdicts.items() if each is RateVerdict.HOLDS and rate < self.failing), default=None)

    def results(self) -> dict[Any, Any]:
        """Return the values that a finished search reports, by role. The curve is None if a rate of it was an overload."""
        return {"saturation": self.saturation, "highest_rate": self.highest, "failing_rate": self.failing, "rate_curve": self.curve}

    def between(self, held: float, resolution: float) -> float | None:
        """Return the next rate to try: the geometric mean of the lowest gap above ``held`` that is wider than ``resolution``.

        None if there is no such gap. One between two undecided rates does not count: a rate in it would be undecided, too.
        """
        undecided = sorted(rate for rate, each in self.verdicts.items() if each is RateVerdict.UNDECIDED and held < rate < self.failing)
        for low, high in pairwise([held, *undecided, self.failing]):
            if high > (1 + resolution) * low and not (low in undecided and high in undecided):
                return math.sqrt(low * high)
        return None


def rounded(rate: float) -> float:
    """Return a rate in three digits: more of them would only make ids long."""
    return float(f"{rate:.3g}")
