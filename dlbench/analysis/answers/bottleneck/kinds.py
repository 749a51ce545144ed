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
    times = _kind_times(row)
    if not times:
        return []
    step_s = row.time.median_s or 0.0
    explained_s = math.fsum(each.seconds for each in times.values())
    unexplained_s = step_s - explained_s
    if unexplained_s > _NOTHING * step_s:
        rest = times.get(OperationKind.REST, KindTime(OperationKind.REST, 0.0))
        times[OperationKind.REST] = replace(rest, seconds=rest.seconds + unexplained_s)
    whole_s = max(step_s, explained_s)  # kinds are timed in other calls than the step, so they may add up to more
    limits = _Limits(row, list(times.values()), ceilings, whole_s)
    return sorted(map(limits.with_ceiling, times.values()), key=lambda each: -each.time_s)


def _kind_times(row: Row) -> dict[str, KindTime]:
    """Return the time of each kind of operation of a step: the kinds of its profile, and the parts that its workload reports.

    The kind `OperationKind.WAITING` is the time in which the device is idle. A reported part, such as waiting for a batch, explains some
    of this time. So the time of the part is taken from the idle time.
    """
    profiled = row.profile.kinds if row.profile else ()
    times = {each.kind: each for each in profiled if each.seconds > 0}
    waiting = times.pop(OperationKind.WAITING, None)  # put back below, without the parts
    if waiting:
        idle_s = waiting.seconds
    elif times:
        idle_s = 0.0  # it has a profile, which shows no idle time
    else:
        idle_s = row.time.median_s or 0.0  # without a profile all of the step may be idle
    for part, kind in _REPORTED:
        part_s = min(row.in_role(part) or 0.0, idle_s)
        if part_s > 0 and kind not in times:  # a kind in the profile was timed apart from the idle time
            times[kind] = KindTime(kind, part_s)
            idle_s -= part_s
    if waiting:
        times[OperationKind.WAITING] = replace(waiting, seconds=idle_s)
    return times


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
        computing_s, moving_s = self._computing_s(kind), self._moving_s(kind)
        if kind.kind not in OF_PRODUCTS or computing_s is None or not moving_s:
            return None
        return computing_s / moving_s

    def _limit(self, kind: KindTime) -> tuple[str, float] | None:
        """Return the name of the ceiling of a kind, and its least time there in seconds; None if it has no ceiling."""
        # Batches are loaded and copied, and kernels launched, while other kinds run. At best they cost a step only the time by which
        # they take longer than all other kinds together.
        others_s = self.step_s - kind.seconds
        match kind.kind:
            case OperationKind.REST | "host":
                return None
            case OperationKind.DATA:
                # The kind's own time is only the wait for a batch. Loading takes at least as long, so the wait stands in for it
                # if loading was not timed alone.
                alone_s = self.row.in_role("input_alone") or kind.seconds
                return "input meanwhile", max(0.0, alone_s - others_s)
            case "transfer":
                return "copies meanwhile", max(0.0, kind.seconds - others_s)
            case OperationKind.WAITING:
                launching_s = self._launching_s(kind)  # waiting counts the operations of all kinds
                return None if launching_s is None else (_LAUNCH, max(0.0, launching_s - others_s))
            case OperationKind.PRODUCTS | OperationKind.ATTENTION:
                return self._limit_of_product(kind)
            case _:
                return self._limit_of_moves(kind)

    def _limit_of_product(self, kind: KindTime) -> tuple[str, float] | None:
        """Return the ceiling of a product, arithmetic or memory, and its least time there; None if that of arithmetic is not known."""
        computing_s, memory_s = self._computing_s(kind), self._memory_s(kind)
        if not computing_s:
            return None
        # A product faster than memory is served by caches, so memory is no limit of it.
        if memory_s and computing_s < memory_s <= kind.seconds:
            return _MEMORY, memory_s
        return f"best product in {computed_in(self.row)}", computing_s

    def _limit_of_moves(self, kind: KindTime) -> tuple[str, float] | None:
        """Return the ceiling of a kind that computes little for its bytes, and its least time there; None if it has no ceiling."""
        launching_s, moving_s, memory_s = self._launching_s(kind), self._moving_s(kind), self._memory_s(kind)
        # A CPU launches each operation itself; where an accelerator waits for launches, that is a kind of its own.
        if self.row.is_on_cpu and launching_s is not None and moving_s is not None and launching_s > moving_s:
            return _LAUNCH, launching_s
        return None if memory_s is None else (_MEMORY, memory_s)

    def _launching_s(self, kind: KindTime) -> float | None:
        """Return the time to launch the operations of a kind at the ceiling of launches; None if that is not known."""
        launches_per_s = self._rate("launch")
        return kind.operations / launches_per_s if launches_per_s else None

    def _moving_s(self, kind: KindTime) -> float | None:
        """Return the time to move the bytes of a kind at the ceiling of memory; None if that is not known."""
        bytes_per_s = self._rate("memory")
        return (kind.bytes or 0) / bytes_per_s if bytes_per_s else None

    def _memory_s(self, kind: KindTime) -> float | None:
        """Return that time if memory may bound the kind; None for fewer bytes than its ceiling was measured with: caches may hold them."""
        moving_s = self._moving_s(kind)
        if moving_s is None or (kind.bytes or 0) < self.ceilings["memory", ""].least_bytes:
            return None
        return moving_s

    def _computing_s(self, kind: KindTime) -> float | None:
        """Return the time of the operations of a product at the ceiling of arithmetic; None if that is not known."""
        rate = self._rate("arithmetic", computed_in(self.row) or "")
        return self._flops(kind) / rate if rate else None

    def _rate(self, kind: Ceiling, precision: str = "") -> float | None:
        """Return the rate of a ceiling of the device; None if it is not known, or if this very step reached it."""
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
