"""Time of a step by kind of operation, and what each kind would take at the measured ceiling that bounds it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from dlbench.analysis.read.ceilings import Ceilings, computed_in
from dlbench.core.declarations import Ceiling
from dlbench.core.rows.row import Row
from dlbench.core.step_profile import KindTime, OperationKind, StepProfile
from dlbench.core.units import percent


class _Words(NamedTuple):
    name: str
    """In a table."""
    subject: str
    """Of a sentence."""
    brief: str
    """Where there is little room."""
    verb: str = "takes"
    their: str = "its"


_WORDS: Mapping[str, _Words] = {
    OperationKind.PRODUCTS: _Words("products and convolutions", "products and convolutions", "products", "take", "their"),
    OperationKind.ATTENTION: _Words("attention", "attention", "attention"),
    OperationKind.NORMALISATION: _Words("normalisation and elementwise", "normalisation with elementwise operations", "normalisation"),
    OperationKind.POOLING: _Words("pooling", "pooling", "pooling"),
    OperationKind.UPDATE: _Words("update", "the update of weights", "update"),
    OperationKind.COPIES: _Words("casts and copies", "casts and copies", "copies", "take", "their"),
    OperationKind.DATA: _Words("data", "fetching data", "data"),
    OperationKind.WAITING: _Words("waiting for launches", "waiting for launches", "waiting"),
    OperationKind.REST: _Words("the rest", "other code", "other code"),
}
NAMES = {kind: words.name for kind, words in _WORDS.items()}
"""What kinds are called."""
BRIEF = {kind: words.brief for kind, words in _WORDS.items()}
"""The same where there is little room."""
_OF_PRODUCTS = (OperationKind.PRODUCTS, OperationKind.ATTENTION)


@dataclass(frozen=True, slots=True)
class TimedKind:
    """One kind of operation in a step."""

    row: Row
    kind: str
    share: float
    """Of the step as it was timed."""
    time_s: float
    """As much of that step."""
    bound: Ceiling | None = None
    """The ceiling at which it would take longest; None where none was measured that bounds it."""
    limit_s: float | None = None
    """What it would take there."""

    @property
    def words(self) -> _Words:
        """What it is called; a kind of a later version by its own name."""
        return _WORDS.get(self.kind, _Words(self.kind, self.kind, self.kind))

    @property
    def takes(self) -> str:
        """How much of the step it takes, as the beginning of a sentence."""
        subject = self.words.subject
        return f"{subject[:1].upper()}{subject[1:]} {self.words.verb} {percent(self.share)}"

    @property
    def reached(self) -> float | None:
        """Share of that ceiling that it reaches; above 1 where it beats it, as some algorithms and caches do."""
        return self.limit_s / self.time_s if self.limit_s is not None and self.time_s else None

    @property
    def limit(self) -> str | None:
        """What bounds it, in words: ``best product in fp32``."""
        names = {"arithmetic": f"best product in {computed_in(self.row)}", "memory": "memory bandwidth", "launch": "launch latency"}
        return names[self.bound] if self.bound else None


def kinds_of(row: Row, profile: StepProfile, ceilings: Ceilings) -> list[TimedKind]:
    """Return the kinds of operations of a step, those that take most first; ``ceilings`` are those of its device."""
    found = []
    for kind in profile.kinds:
        share = kind.seconds / profile.step_s if profile.step_s else 0.0
        timed = TimedKind(row, kind.kind, share, kind.seconds)
        limits = _limits(kind, timed, profile, ceilings)
        bound = max(limits, key=limits.__getitem__, default=None)
        found.append(replace(timed, bound=bound, limit_s=limits[bound] if bound else None))
    return sorted(found, key=lambda each: -each.share)


def _limits(kind: KindTime, timed: TimedKind, profile: StepProfile, ceilings: Ceilings) -> dict[Ceiling, float]:
    """Return what a kind would take at each of the ceilings that say something of it."""
    row, limits = timed.row, dict[Ceiling, float]()
    arithmetic, memory, launch = (ceilings.get(key) for key in (("arithmetic", computed_in(row) or ""), ("memory", ""), ("launch", "")))
    if kind.kind == OperationKind.REST:
        return limits
    if kind.kind == OperationKind.WAITING:
        if launch:  # launched one behind the other, what the device works meanwhile apart
            limits["launch"] = max(0.0, kind.operations / launch.per_s - (row.time.median_s or 0.0) * (1 - timed.share))
        return limits
    if arithmetic and kind.kind in _OF_PRODUCTS and (flops := _flops(kind, row, profile)):
        limits["arithmetic"] = flops / arithmetic.per_s
    moved = kind.bytes or 0
    memory_s, launch_s = (moved / memory.per_s if memory else math.inf), (kind.operations / launch.per_s if launch else 0.0)
    # As of a whole step: fewer bytes may come from a cache, and what is faster than memory does.
    if memory and moved >= memory.least_bytes and memory_s <= timed.time_s:
        limits["memory"] = memory_s
    if row.is_on_cpu and launch_s > memory_s:  # else memory, or a cache, bounds it before
        limits["launch"] = launch_s
    return limits


def _flops(kind: KindTime, row: Row, profile: StepProfile) -> float:
    """Return the operations of attention as counted, of other products what is left of those that the step states."""
    if kind.flops is not None:
        return float(kind.flops)
    stated = (row.rate.flops_per_s or 0.0) * (row.time.median_s or 0.0)
    return max(0.0, stated - sum(each.flops or 0.0 for each in profile.kinds))


def most_of(row: Row, ceilings: Ceilings) -> TimedKind | None:
    """Return the kind of operation that takes most of a step; None of one without a profile."""
    return kinds_of(row, row.profile, ceilings)[0] if row.profile and row.profile.kinds else None


def headlines(most: TimedKind) -> tuple[str, ...]:
    """Return what takes most of a step, and how far that is from its limit, the longest wording first."""
    words, share = most.words, percent(most.share)
    plain = f"{words.brief} {words.verb} {share}"
    alone = (f"{plain} of a step", plain, f"{share}: {words.brief}")
    return alone if most.reached is None or most.reached > 1 else (f"{plain}, at {most.reached:.2f} of {words.their} limit", *alone)
