"""Kinds of operations in a step: the time of each, its least time at the ceiling that bounds it, and changes that may help."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from dlbench.analysis.read.ceilings import Ceilings, computed_in
from dlbench.core.declarations import Ceiling, Part
from dlbench.core.measurement import KindTime, OperationKind
from dlbench.core.precision import PRECISIONS
from dlbench.core.rows.row import Row

TENTH = 0.1
"""Least gain of a kind, as a share of its step, for which changes are named."""
_NOTHING = 1e-9
"""Share of a step that may be left by rounding alone."""
_LARGER, _COMPILE, _LAUNCH, _MEMORY = "larger batch", "compile", "launch latency", "memory bandwidth"


class KindOf(NamedTuple):
    """Names of a kind of operation, and changes that may help it."""

    name: str
    short: str
    """A shorter name."""
    changes: Sequence[str] = ()
    """Changes that may bring it nearer to its ceiling, the best first."""


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
"""Parts whose time workloads report, and their kinds."""
OF_PRODUCTS = (OperationKind.PRODUCTS, OperationKind.ATTENTION)


class TimedKind(NamedTuple):
    """One kind of operation in a step."""

    row: Row
    kind: str
    of: KindOf
    """Its names and changes; a kind that this version does not know is called by its identifier."""
    time_s: float
    share: float
    """Share of the step."""
    limit: str | None = None
    """Name of the ceiling that bounds it: ``best product in fp32``; None if it has no ceiling."""
    limit_s: float | None = None
    """Its time at that ceiling."""
    balance: float | None = None
    """For products: time of their operations at the ceiling of arithmetic, over the time of their bytes at that of memory."""
    from_items: int | None = None
    """Fewest items of a call from which on that is 1 or more in all larger calls; None if one size alone was measured."""

    @property
    def reached(self) -> float | None:
        """Share of its ceiling that it reaches; some algorithms and caches exceed 1."""
        return self.limit_s / self.time_s if self.limit_s is not None and self.time_s else None

    @property
    def gain(self) -> float:
        """Share of the step that would be saved at its ceiling; zero without one."""
        return 0.0 if self.reached is None else self.share * max(0.0, 1 - self.reached)

    @property
    def change(self) -> str | None:
        """Changes that may bring it nearer to its ceiling; None if it has less than a tenth of the step to gain."""
        return ", ".join(self.of.changes) if self.gain >= TENTH else None

    @property
    def nearness(self) -> str:
        """Share of its ceiling in words."""
        best = f"this {'CPU' if self.row.is_on_cpu else 'card'}'s best"
        return "no ceiling measured" if self.reached is None else f"at {whole_percent(min(1.0, self.reached))} of {best}"


def whole_percent(share: float) -> str:
    """Return a share as whole percent: ``58 %``."""
    return f"{100 * share:.0f} %"


def timed_kinds(row: Row, ceilings: Ceilings) -> list[TimedKind]:
    """Return the kinds of operations of a step, longest first; ``ceilings`` are those of its device. Their shares add up to 1."""
    found = _kind_times(row)
    if not found:
        return []
    step_s = row.time.median_s or 0.0
    known_s = math.fsum(each.seconds for each in found.values())
    unexplained_s = step_s - known_s
    if unexplained_s > _NOTHING * step_s:
        rest = found.get(OperationKind.REST, KindTime(OperationKind.REST, 0.0))
        found[OperationKind.REST] = replace(rest, seconds=rest.seconds + unexplained_s)
    limits = _Limits(row, list(found.values()), ceilings, max(step_s, known_s))
    return sorted(map(limits.with_ceiling, found.values()), key=lambda each: -each.time_s)


def _kind_times(row: Row) -> dict[str, KindTime]:
    """Return the time of each kind of operation of a step: those of its profile, and the parts of idle time that its workload reports."""
    found = {each.kind: each for each in (row.profile.kinds if row.profile else ()) if each.seconds > 0}
    waiting = found.pop(OperationKind.WAITING, None)
    idle_s = 0.0 if found else row.time.median_s or 0.0  # without a profile all of the step may be idle
    if waiting:
        idle_s = waiting.seconds
    for part, kind in _REPORTED:
        part_s = min(row.in_role(part) or 0.0, idle_s)
        if part_s > 0 and kind not in found:
            found[kind] = KindTime(kind, part_s)
            idle_s -= part_s
    if waiting:
        found[OperationKind.WAITING] = replace(waiting, seconds=idle_s)
    return found


class _Limits(NamedTuple):
    """Least times of the kinds of a step at the ceilings of its device, except for a ceiling that this very step reached."""

    row: Row
    kinds: Sequence[KindTime]
    ceilings: Ceilings
    step_s: float

    def with_ceiling(self, kind: KindTime) -> TimedKind:
        """Return a kind with its ceiling."""
        of = KINDS.get(kind.kind, KindOf(kind.kind, kind.kind))
        if kind.kind in OF_PRODUCTS and (narrower := self._faster_precision()):
            of = of._replace(changes=(narrower, *of.changes))
        limit, limit_s = self._limit(kind) or (None, None)
        return TimedKind(self.row, kind.kind, of, kind.seconds, kind.seconds / self.step_s, limit, limit_s, self._balance(kind))

    def _balance(self, kind: KindTime) -> float | None:
        """Return `TimedKind.balance`; None if a ceiling or the bytes are not known."""
        computing_s, bytes_per_s = self._computing_s(kind), self._rate("memory")
        if kind.kind not in OF_PRODUCTS or computing_s is None or not bytes_per_s or not kind.bytes:
            return None
        return computing_s * bytes_per_s / kind.bytes

    def _limit(self, kind: KindTime) -> tuple[str, float] | None:
        """Return the name of the ceiling of a kind, and its time there; None if it has no ceiling."""
        launches_per_s, bytes_per_s = self._rate("launch"), self._rate("memory")
        # Batches are loaded and copied, and kernels launched, while other kinds run: only the time beyond theirs is lost.
        others_s = self.step_s - kind.seconds
        match kind.kind:
            case OperationKind.REST | "host":
                return None
            case OperationKind.DATA:
                return "input meanwhile", max(0.0, (self.row.in_role("input_alone") or kind.seconds) - others_s)
            case "transfer":
                return "copies meanwhile", max(0.0, kind.seconds - others_s)
            case OperationKind.WAITING:
                return (_LAUNCH, max(0.0, kind.operations / launches_per_s - others_s)) if launches_per_s else None
        moved = kind.bytes or 0
        moving_s = moved / bytes_per_s if bytes_per_s else None
        # Caches may hold fewer bytes than those that the ceiling was measured with, so memory does not bound them.
        memory_s = moving_s if moving_s is not None and moved >= self.ceilings["memory", ""].least_bytes else None
        if kind.kind in OF_PRODUCTS:
            return self._limit_of_product(kind, memory_s)
        if self.row.is_on_cpu and launches_per_s and moving_s is not None and kind.operations / launches_per_s > moving_s:
            return _LAUNCH, kind.operations / launches_per_s
        return None if memory_s is None else (_MEMORY, memory_s)

    def _limit_of_product(self, kind: KindTime, memory_s: float | None) -> tuple[str, float] | None:
        """Return the ceiling of a product and its time there; ``memory_s`` is that of its bytes, if they are more than caches hold."""
        computing_s = self._computing_s(kind)
        if not computing_s:
            return None
        # A product faster than memory is served by caches, so memory is no limit of it.
        if memory_s and computing_s < memory_s <= kind.seconds:
            return _MEMORY, memory_s
        return f"best product in {computed_in(self.row)}", computing_s

    def _computing_s(self, kind: KindTime) -> float | None:
        """Return the time of the operations of a product at the ceiling of arithmetic; None if that is not known."""
        rate = self._rate("arithmetic", computed_in(self.row) or "")
        return self._flops(kind) / rate if rate else None

    def _rate(self, kind: Ceiling, precision: str = "") -> float | None:
        found = self.ceilings.get((kind, precision))
        return found.per_s if found and found.case != self.row.case.id else None

    def _flops(self, kind: KindTime) -> float:
        """Return the operations of a kind: those counted for it, or else those that the step states, less all that were counted."""
        if kind.flops is not None:
            return float(kind.flops)
        stated = (self.row.rate.flops_per_s or 0.0) * (self.row.time.median_s or 0.0)
        return max(0.0, stated - sum(each.flops or 0.0 for each in self.kinds))

    def _faster_precision(self) -> str | None:
        """Return the precision of the fastest product of the device, if it is narrower than that of the step, and faster."""
        arithmetic = {name: each.per_s for (kind, name), each in self.ceilings.items() if kind == "arithmetic"}
        rates = {name: rate for name, rate in arithmetic.items() if name in PRECISIONS and not PRECISIONS[name].scaled}
        own = computed_in(self.row)
        if own not in rates:
            return None
        fastest = max(rates, key=rates.__getitem__)
        is_narrower = PRECISIONS[own].roundoff < PRECISIONS[fastest].roundoff
        return fastest if is_narrower and rates[own] < rates[fastest] else None
