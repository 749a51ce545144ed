"""Kinds of operations in a step: the time of each, the ceiling that bounds it, what it has to gain, and what may bring it nearer."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from dlbench.analysis.read.ceilings import Ceilings, computed_in
from dlbench.core.declarations import Ceiling, Part
from dlbench.core.measurement import KindTime, OperationKind
from dlbench.core.precision import PRECISIONS
from dlbench.core.rows.row import Row

TENTH = 0.1
"""Share of a step that a kind has to gain to be named with what to change."""
_NOTHING = 1e-9
"""Share of a step that is left by rounding alone."""
_LARGER = "larger batch"
_COMPILE = "compile"
_LAUNCH, _MEMORY = "launch latency", "memory bandwidth"


class KindOf(NamedTuple):
    """What holds of a kind of operation."""

    name: str
    short: str
    """The same where there is little room."""
    changes: Sequence[str] = ()
    """What may bring it nearer to its ceiling, the first choice first."""


KINDS: Mapping[str, KindOf] = {
    OperationKind.PRODUCTS: KindOf("products and convolutions", "products", (_LARGER, "another layout", _COMPILE)),
    OperationKind.ATTENTION: KindOf("attention", "attention", (_LARGER, _COMPILE)),
    OperationKind.NORMALISATION: KindOf("normalisation and elementwise", "elementwise", (_COMPILE,)),
    OperationKind.POOLING: KindOf("pooling", "pooling", ("another layout", _COMPILE)),
    OperationKind.UPDATE: KindOf("update of weights", "update", (_LARGER, "fused update")),
    OperationKind.COPIES: KindOf("casts and copies", "casts", (_COMPILE,)),
    OperationKind.DATA: KindOf("waiting for its batch", "input", ("prefetch", "more workers")),
    "transfer": KindOf("copying its batch", "copies", ("pinned memory", "prefetch")),
    OperationKind.WAITING: KindOf("waiting for launches", "idle", (_LARGER, "CUDA graphs")),
    "host": KindOf("other code on the host", "host code"),
    OperationKind.REST: KindOf("the rest", "the rest"),
}
_REPORTED: tuple[tuple[Part, str], ...] = (("input", OperationKind.DATA), ("transfer", "transfer"), ("host", "host"))
"""Parts whose time workloads report, and the kinds that they are."""
OF_PRODUCTS = (OperationKind.PRODUCTS, OperationKind.ATTENTION)


class TimedKind(NamedTuple):
    """One kind of operation in a step."""

    row: Row
    kind: str
    of: KindOf
    """What holds of it; a kind of a later version has its own name."""
    time_s: float
    """Of the step as it was timed."""
    share: float
    limit: str | None = None
    """The ceiling that bounds it: ``best product in fp32``; None where it has none."""
    limit_s: float | None = None
    """What it would take there."""
    balance: float | None = None
    """Of products the time that their operations would take at the ceiling of arithmetic, over that of their bytes at that of memory."""
    from_items: int | None = None
    """Items of a call from which on that is 1 or more, in all sizes of the step that were measured; None of a single one."""

    @property
    def reached(self) -> float | None:
        """Share of its ceiling that it reaches; above 1 where it beats that, as some algorithms and caches do."""
        return self.limit_s / self.time_s if self.limit_s is not None and self.time_s else None

    @property
    def gain(self) -> float:
        """Share of the step that it takes longer than at its ceiling; nothing without one."""
        return 0.0 if self.reached is None else self.share * max(0.0, 1 - self.reached)

    @property
    def nearness(self) -> str:
        """How near its ceiling it is, in words."""
        if self.reached is None:
            return "no ceiling measured"
        return f"at {whole(min(1.0, self.reached))} of this {'CPU' if self.row.is_on_cpu else 'card'}'s best"


def whole(share: float) -> str:
    """Return a share where there is little room: ``58 %``."""
    return f"{100 * share:.0f} %"


def kinds_of(row: Row, ceilings: Ceilings) -> list[TimedKind]:
    """Return the kinds of operations of a step, those that take most first; ``ceilings`` are those of its device.

    What a step reports of its batch counts where the profile has none of it: an accelerator's kernels don't wait for a loader. What is
    left of the whole is the rest, so that the shares add up.
    """
    whole_s = row.time.median_s or 0.0
    found = {each.kind: each for each in (row.profile.kinds if row.profile else ()) if each.seconds > 0}
    waiting = found.pop(OperationKind.WAITING, None)
    idle_s = waiting.seconds if waiting else 0.0 if found else whole_s
    for part, kind in _REPORTED:
        part_s = min(row.in_role(part) or 0.0, idle_s)
        if part_s > 0 and kind not in found:
            found[kind], idle_s = KindTime(kind, part_s), idle_s - part_s
    if waiting:
        found[OperationKind.WAITING] = replace(waiting, seconds=idle_s)
    if not found:
        return []
    known_s = math.fsum(each.seconds for each in found.values())
    if whole_s - known_s > _NOTHING * whole_s:
        rest = found.get(OperationKind.REST, KindTime(OperationKind.REST, 0.0))
        found[OperationKind.REST] = replace(rest, seconds=rest.seconds + whole_s - known_s)
    of = _Limits(row, list(found.values()), ceilings, max(whole_s, known_s))
    return sorted(map(of.timed, found.values()), key=lambda each: -each.time_s)


@dataclass(frozen=True, slots=True)
class _Limits:
    """What kinds of a step would take at the ceilings of its device. A ceiling that the step itself reached says nothing of it."""

    row: Row
    kinds: Sequence[KindTime]
    ceilings: Ceilings
    whole_s: float

    def timed(self, kind: KindTime) -> TimedKind:
        """Return a kind with its ceiling."""
        of = KINDS.get(kind.kind, KindOf(kind.kind, kind.kind))
        if kind.kind in OF_PRODUCTS and (narrower := self._narrower()):
            of = of._replace(changes=(narrower, *of.changes))
        limit, limit_s = self._limit(kind) or (None, None)
        return TimedKind(self.row, kind.kind, of, kind.seconds, kind.seconds / self.whole_s, limit, limit_s, self._balance(kind))

    def _balance(self, kind: KindTime) -> float | None:
        arithmetic, memory = self._rate("arithmetic", computed_in(self.row) or ""), self._rate("memory")
        known = kind.kind in OF_PRODUCTS and arithmetic and memory and kind.bytes
        return self._flops(kind) * memory / (arithmetic * kind.bytes) if known else None  # type: ignore[operator]  # known says so

    def _limit(self, kind: KindTime) -> tuple[str, float] | None:
        """Return the ceiling of a kind and what it would take there; None where it has none."""
        others_s, launch, memory = self.whole_s - kind.seconds, self._rate("launch"), self._rate("memory")
        match kind.kind:
            case OperationKind.REST | "host":
                return None
            case OperationKind.DATA:  # got ready while the step goes on
                return "input meanwhile", max(0.0, (self.row.in_role("input_alone") or kind.seconds) - others_s)
            case "transfer":
                return "copies meanwhile", max(0.0, kind.seconds - others_s)
            case OperationKind.WAITING:  # launched one behind the other, while the device works
                return (_LAUNCH, max(0.0, kind.operations / launch - others_s)) if launch else None
        least = self.ceilings["memory", ""].least_bytes if memory else math.inf
        moved_s = (kind.bytes or 0) / memory if memory and (kind.bytes or 0) >= least else None
        if kind.kind in OF_PRODUCTS:
            precision, flops = computed_in(self.row) or "", self._flops(kind)
            rate = self._rate("arithmetic", precision)
            if not rate or not flops:
                return None
            # Caches serve what is faster than memory, so only a longer time there bounds products.
            best_s = flops / rate
            return (_MEMORY, moved_s) if moved_s and best_s < moved_s <= kind.seconds else (f"best product in {precision}", best_s)
        if self.row.is_on_cpu and launch and memory and kind.operations / launch > (kind.bytes or 0) / memory:
            return _LAUNCH, kind.operations / launch
        return None if moved_s is None else (_MEMORY, moved_s)

    def _rate(self, kind: Ceiling, precision: str = "") -> float | None:
        found = self.ceilings.get((kind, precision))
        return found.per_s if found and found.case != self.row.case.id else None

    def _flops(self, kind: KindTime) -> float:
        """Return the operations of attention as counted, of other products what is left of those that the step states."""
        if kind.flops is not None:
            return float(kind.flops)
        stated = (self.row.rate.flops_per_s or 0.0) * (self.row.time.median_s or 0.0)
        return max(0.0, stated - sum(each.flops or 0.0 for each in self.kinds))

    def _narrower(self) -> str | None:
        """Return the narrower precision in which the best product of the device is the fastest, where it beats that of the step."""
        rates = {name: each.per_s for (kind, name), each in self.ceilings.items() if kind == "arithmetic" and name in PRECISIONS}
        own, unscaled = computed_in(self.row), [name for name in rates if not PRECISIONS[name].scaled]
        best = max(unscaled, key=rates.__getitem__, default=None)
        if own not in unscaled or best is None or rates[own] >= rates[best]:
            return None
        return best if PRECISIONS[own].roundoff < PRECISIONS[best].roundoff else None
