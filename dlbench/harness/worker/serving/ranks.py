"""Ranks of a case: processes that join each other, and read one clock."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Self, TypeVar

import torch
import torch.distributed as dist

T = TypeVar("T")
BLOCK_S = 0.02
"""Least length of a timed block, as the ranks take a fraction of a millisecond to agree on its time."""
_PATIENCE = timedelta(days=1)
"""The parent process owns the only deadline; torch's own is half an hour."""

_control: "dist.ProcessGroup | None" = None


def control_group() -> "dist.ProcessGroup":
    """Return the gloo group of all ranks, for tensors in host memory. Raises RuntimeError in a process that has not joined the others."""
    if _control is None:
        raise RuntimeError("this process is no rank of a case: only a workload with a parameter 'ranks' has a group")
    return _control


def of_each_rank(own: T) -> list[T]:
    """Return the value of each rank. Every rank has to call it; in a process that is no rank it returns its own value alone."""
    if _control is None:
        return [own]
    found = [own] * dist.get_world_size()
    dist.all_gather_object(found, own, group=_control)
    return found


def _largest(number: float) -> float:
    """Return the largest of the ranks' numbers. Every rank has to call it."""
    seen = torch.tensor([number], dtype=torch.float64)
    dist.all_reduce(seen, dist.ReduceOp.MAX, group=control_group())
    return seen.item()


@dataclass(slots=True)
class RankProcess:
    """This process as one of the ranks that torchrun has started."""

    rank: int
    size: int
    _store: Any
    _joined: int = 0

    @classmethod
    def of_torchrun(cls, rank: int, size: int, store: str) -> Self:
        """Connect to the store that all ranks share: ``host:port/prefix``, or torchrun's own if that is empty."""
        # Not at the top: this module is imported in builds of torch without it, too.
        from torch.distributed.rendezvous import rendezvous

        if not store:
            shared, rank, size = next(rendezvous("env://", timeout=_PATIENCE))
            return cls(rank, size, shared)
        address, _, prefix = store.partition("/")
        host, _, port = address.rpartition(":")
        shared = dist.TCPStore(host, int(port), None, False, timeout=_PATIENCE)  # type: ignore[attr-defined]  # torch exports it all the same
        return cls(rank, size, dist.PrefixStore(prefix, shared))  # type: ignore[attr-defined]  # likewise

    def join(self, backend: str | None, device: torch.device) -> None:
        """Join the other ranks for a case, in two new groups of processes.

        The default group is for the case itself. ``backend`` is the name of its backend in torch.distributed; None if torch has none for
        the kind of the device. The control group is for dlbench and uses gloo, see `control_group`.
        Every rank has to call it. Raises NotImplementedError if this torch has no such backend.
        """
        global _control
        is_available = getattr(dist, f"is_{backend}_available", None)  # a torch that is built without the backend may lack this function
        if not (backend and is_available and is_available()):
            what = backend.upper() if backend else "collectives"
            raise NotImplementedError(f"this torch has no {what} for {device.type} devices to talk through, as ranks have to")
        if dist.is_initialized():
            dist.destroy_process_group()
        self._joined += 1
        # A store keeps what an earlier group of the same name wrote into it.
        store = dist.PrefixStore(f"group{self._joined}", self._store)  # type: ignore[attr-defined]  # torch has it all the same
        bound_to = None if backend == "gloo" else device  # with a device NCCL connects here and not in the first call
        dist.init_process_group(backend, store=store, rank=self.rank, world_size=self.size, timeout=_PATIENCE, device_id=bound_to)
        _control = dist.new_group(backend="gloo", timeout=_PATIENCE)


class RanksClock:
    """One clock for all ranks: they read the same numbers, and between two readings the time of the slowest rank passes.

    Each rank measures from the end of one reading to the beginning of the next, and a reading adds the largest of these times. So no time
    includes the waiting inside a reading, and the clocks of several machines need not agree.
    """

    def __init__(self, synchronize: Callable[[], None], timer: Callable[[], float] = time.perf_counter) -> None:
        self._synchronize = synchronize
        self._timer = timer
        self._seconds = 0.0
        self._left = timer()

    def now(self) -> float:
        """Wait for the device and for all ranks, then return seconds since the start. Every rank has to call it."""
        self._synchronize()
        self._seconds += _largest(self._timer() - self._left)
        self._left = self._timer()
        return self._seconds

    def stamp(self) -> float:
        """Return the host's time, without waiting."""
        return self._timer()
