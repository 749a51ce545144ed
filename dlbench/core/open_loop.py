"""Verdicts on an open loop: whether a rate of requests keeps a bound of latency, by several runs together."""

import math
from collections.abc import Sequence
from enum import StrEnum
from statistics import fmean, variance
from typing import NamedTuple

CLIENT_BOUND = 0.05
"""Share of the bound that 99 % of the requests may be late by where a run tells of the server and not of its client."""
RUNS = 3
"""That a verdict rests on at most."""
_DECIDED = {1: 5.5, 2: 5.5, 3: 3.0}
"""Standard deviations from the target that decide after so many runs: one alone only where all is clear. Misses come in busy periods, and
runs that happen to have few of them show little of their variance, too: of M/D/1 that just keeps its bound, 1.6 of three runs would call
15 to 30 % a success, and these do 5 % at most."""
_GROWN = {1: 5.02, 2: 7.38, 3: 9.35}
"""Of the chi-squared distribution with so many degrees of freedom the 97.5 % quantile, as both a first run and all three are looked at."""


class RateVerdict(StrEnum):
    """What runs at one rate come to."""

    HOLDS = "holds"
    FAILS = "fails"
    OVERLOAD = "overload"
    UNDECIDED = "undecided"
    CLIENT_BOUND = "client bound"

    @property
    def is_failure(self) -> bool:
        """Whether the rate is too high."""
        return self in (RateVerdict.FAILS, RateVerdict.OVERLOAD)


class OpenRun(NamedTuple):
    """What a verdict takes of one run."""

    missed: Sequence[float]
    """Share of the requests over the bound, in parts of equal length."""
    requests: float
    late: float
    """How late 99 % of them were sent at most, as a share of the bound."""
    backlog: float
    """Requests that waited, beyond a batch, at its end."""


def verdict(runs: Sequence[OpenRun], allowed: float) -> RateVerdict:
    """Return what runs at one rate, `RUNS` at most, come to where a share of ``allowed`` may miss the bound.

    A run whose client was late does not count.
    """
    counted = [each for each in runs if each.late <= CLIENT_BOUND]
    if not counted:
        return RateVerdict.CLIENT_BOUND
    if overloaded(counted):
        return RateVerdict.OVERLOAD
    score, decided = _score(counted, allowed), _DECIDED[len(counted)]
    return RateVerdict.HOLDS if score < -decided else RateVerdict.FAILS if score > decided else RateVerdict.UNDECIDED


def overloaded(runs: Sequence[OpenRun]) -> bool:
    """Whether backlogs have grown beyond what a queue at capacity has.

    That is a random walk of Poisson arrivals, reflected at zero: after n of them it has grown by as much as a standard normal number,
    without its sign, times the root of n (Kingman's heavy traffic), of which the squares of several runs are chi-squared.
    """
    return sum(each.backlog**2 / each.requests for each in runs) > _GROWN[len(runs)]


def _score(runs: Sequence[OpenRun], allowed: float) -> float:
    """Return how many standard deviations more than ``allowed`` missed the bound.

    Requests next to each other miss it together: the variance of the parts over that of independent requests says to how few
    independent ones they come (batch means; Conway, Some Tactical Problems in Digital Simulation, Management Science 10, 1963).
    """
    parts, requests = [share for each in runs for share in each.missed], sum(each.requests for each in runs)
    missed = fmean(parts)
    alone = missed * (1 - missed)
    inflation = max(1.0, variance(parts) * requests / len(parts) / alone) if alone else 1.0
    return (missed - allowed) / math.sqrt(allowed * (1 - allowed) * inflation / requests)
