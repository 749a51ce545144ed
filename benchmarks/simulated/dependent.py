"""How often the interval of a row holds the truth where each round is like the one before it

Logarithms of a case's rounds follow a first-order autoregression whose rounds differ by 3.5 % in all. The interval supposes that they are
independent, which is the first of each three lines.
"""

import math
import random
from collections.abc import Iterator

from benchmarks.simulated import Finding
from dlbench.core.model import Policy
from dlbench.core.stats import median_interval
from dlbench.harness.rounds import SeriesRounds

SD = 0.035
LAGS = (0.0, 0.2, 0.46)
"""Correlations of a round with the one before it."""
POLICIES = {"seven rounds": Policy(), "twenty rounds": Policy(rounds=20), "a budget": Policy(budget_s=60)}


def findings(deals: int, chance: random.Random) -> Iterator[Finding]:
    """Yield how often the interval holds the true median, by policy and correlation."""
    for name, policy in POLICIES.items():
        for lag in LAGS:
            intervals = [median_interval(_rounds(policy, lag, chance)) for _ in range(deals)]
            holds = sum(each is not None and each.low <= 0 <= each.high for each in intervals)
            yield Finding(f"{name}, correlation {lag:g}", holds, deals)


def _rounds(policy: Policy, lag: float, chance: random.Random) -> list[float]:
    """Return logarithms of the rounds' times around zero, as many as the rule takes."""
    rule, found, last = SeriesRounds(policy), list[float](), chance.gauss(0, SD)
    while not rule.done():
        last = lag * last + chance.gauss(0, SD * (1 - lag**2) ** 0.5)
        found.append(last)
        rule.add([math.exp(last)])
    return found
