"""The interface of a kind of device: its count, synchronization, clock, memory, copies and precisions; and the known kinds."""

import re
import statistics
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import repeat
from time import perf_counter
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from dlbench.core.errors import DlbenchError, Unavailable, Unknown, UsageError
from dlbench.core.measurement import Memory, Samples
from dlbench.core.model import Clock, Work
from dlbench.core.precision import PRECISIONS
from dlbench.core.units import byte_count
from dlbench.harness.worker.failures import error_text

_QUEUED_S = 1e-3
"""Host time of the launches in one reading: about 200 of 5 µs each, far fewer than the 1024 or so that a CUDA stream queues."""
_MARGIN = 1.5
"""Ratio of the delay to the expected time of the launches, which have to be queued before it ends."""
_LONGEST_DELAY_S = 0.25
_MOST_MISSES = 4
"""So many delays may end too soon, each twice the one before; then launches count as too slow to queue ahead."""
_MOST_READINGS = 5
_ENOUGH_S = 0.2
"""Time after which the readings so far are enough."""


class EventTimer(Protocol):
    """The device's own clock, and a delay that keeps the device waiting."""

    def delay(self, seconds: float) -> None:
        """Make the device wait for so long before its next work; return at once."""

    def mark(self) -> Any:
        """Make the device record its time when it reaches this point; return at once."""

    def seconds(self, start: Any, end: Any) -> float:
        """Return the time between two marks that the device has passed."""


def take_device_time(work: Work, samples: Samples, timer: EventTimer, clock: Clock, deadline: float) -> float:
    """Return the seconds of a call by the device's own clock: the median of a few readings.

    In each reading the device first waits for a delay, while the host queues the calls behind it. Then the device never waits for the host
    between calls. (NVBench uses a kernel that blocks until the host ends it. A delay ends by itself, so the device can't lock up.) A
    reading does not count if the delay ended before all calls were queued.

    ``samples`` are timed blocks of the same work, which has run before. A first call would load its kernels, and loading waits until the
    delay ends.
    Raises Unavailable if calls can't be queued ahead, or if two calls would take more than half of the time until ``deadline``, on
    ``clock``'s scale: the other half is for copies and checks.
    """
    # `block_s` has the seconds of a call in each block. At least two calls are made: one to time the launch, and one to read.
    if 2 * statistics.median(samples.block_s) > (deadline - clock.now()) / 2:
        raise Unavailable(Unknown.NO_TIME)
    call = work.call

    def read(calls: int, delay_s: float) -> tuple[float, float, float]:
        """Queue a delay and some calls.

        Return seconds: how long the host queued all of that, how long the device waited for the delay, and how long it took for one call.
        """
        if work.before:
            work.before()
        clock.now()  # wait for the device
        queueing_began_s = perf_counter()
        before_delay = timer.mark()
        timer.delay(delay_s)
        start = timer.mark()
        for _ in repeat(None, calls):
            call()  # type: ignore[misc]  # what is timed has a call
        end = timer.mark()
        queueing_s = perf_counter() - queueing_began_s
        clock.now()  # wait until the device has passed the marks
        return queueing_s, timer.seconds(before_delay, start), timer.seconds(start, end) / calls

    queueing_s, _, _ = read(1, 0.0)
    # A reading has as many calls as the host queues in `_QUEUED_S`, but no more than a timed block: that has few calls if each is slow.
    calls = min(samples.calls, max(1, int(_QUEUED_S / max(queueing_s, 1e-9))))
    delay_s = _MARGIN * queueing_s * calls
    misses = 0
    readings_began_s = clock.now()
    readings: list[float] = []
    while len(readings) < _MOST_READINGS and misses < _MOST_MISSES and delay_s <= _LONGEST_DELAY_S:
        queueing_s, waited_s, call_s = read(calls, delay_s)
        if queueing_s < waited_s:  # all calls were queued before the delay ended
            readings.append(call_s)
        else:
            delay_s *= 2
            misses += 1
        if readings and clock.now() - readings_began_s > _ENOUGH_S:
            break
    if not readings:
        raise Unavailable(Unknown.NOT_QUEUED)
    return statistics.median(readings)


class Backend(ABC):
    """One kind of device. Subclasses override what differs; a plugin may `register_backend` a kind of its own."""

    kind: str
    is_host = False
    """Whether its memory is the host's, so that nothing needs to be copied."""
    block_s = 0.02
    """Least length of a timed block: a synchronisation of 10 to 40 µs is then below 0.2 %."""
    warmup_s = 0.5
    warmup_calls = 10

    collectives: str | None = None
    """The backend of torch.distributed for several such devices, each in a process of its own; None if there is none."""

    @abstractmethod
    def count(self) -> int:
        """Return how many there are."""

    @abstractmethod
    def describe(self, index: int) -> dict[str, Any]:
        """Return torch's description of one of them, as plain data."""

    def start(self, index: int) -> None:
        """Compute a little there. Raises torch's own error if that fails, or DeviceAbsent with a sentence for the user."""
        torch.zeros(1, device=self.device(index)).add_(1)
        self.synchronize(self.device(index))

    def device(self, index: int) -> torch.device:
        """Return the torch device to put tensors on."""
        return torch.device(self.kind, index)

    def activate(self, device: torch.device) -> None:  # noqa: B027  # not every kind has a current device
        """Make it the current device."""

    def synchronize(self, device: torch.device) -> None:  # noqa: B027  # a CPU has nothing to wait for
        """Wait until its work is done."""

    def unsupported(self, device: torch.device, dtype: str) -> str | None:
        """Return why it can't compute in this precision; None if it can, or if only an attempt will show."""
        precision = PRECISIONS.get(dtype)
        return precision.missing_on.get(self.kind) if precision else None

    def reset_peak(self, device: torch.device) -> None:  # noqa: B027  # not every kind counts
        """Empty the cache and reset the memory peak."""

    def restart_peak(self, device: torch.device) -> None:  # noqa: B027  # not every kind counts
        """Reset the memory peak, but keep the cache."""

    def limit_memory(self, device: torch.device, limit_bytes: int | None) -> None:
        """Limit the memory that torch allocates there, or lift the limit. Raises NotImplementedError if torch can't."""
        if limit_bytes is not None:
            raise NotImplementedError(f"dlbench can't limit the memory of {self.kind} devices")

    def free_memory(self, device: torch.device) -> int | None:
        """Return the bytes of its memory that are free; None if unknown."""
        return None

    def failed_allocations(self, device: torch.device) -> int:
        """Return how many requests torch's allocator has refused so far for lack of memory; 0 if it does not count them."""
        return 0

    def peak(self, device: torch.device) -> Memory:
        """Return the device's peaks since the reset; None if torch does not count them."""
        return Memory()

    def held(self, device: torch.device) -> Memory:
        """Return the bytes of live tensors and of the allocator now, counted as in `peak`."""
        return Memory()

    def event_timer(self, device: torch.device) -> EventTimer | None:
        """Return the device's own clock; None if there is none, or dlbench can't read it."""
        return None

    def to_device(self, tensors: Sequence[Tensor], device: torch.device, *, non_blocking: bool = False) -> list[Tensor]:
        """Copy there as plain user code does, blocking; or only start to, which takes page-locked memory."""
        return [tensor.to(device, non_blocking=non_blocking) for tensor in tensors]

    def to_host(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Copy to pageable host memory, blocking: fresh memory each time, as in plain user code."""
        return [tensor.cpu() for tensor in tensors]

    def pin(self, tensors: Sequence[Tensor]) -> list[Tensor] | None:
        """Return page-locked copies; None if dlbench can't lock any for this kind. Raises RuntimeError if the system refuses."""
        return None

    def to_pinned(self, tensors: Sequence[Tensor], pinned: Sequence[Tensor]) -> None:
        """Start copying into page-locked memory."""
        for tensor, target in zip(tensors, pinned, strict=True):
            target.copy_(tensor.detach(), non_blocking=True)


class CachingBackend(Backend):
    """A kind of device with torch's caching allocator, through the functions that ``torch.cuda`` and ``torch.xpu`` share."""

    def __init__(self) -> None:
        self._torch: Any = getattr(torch, self.kind)

    def count(self) -> int:
        """Return how many are visible."""
        return int(self._torch.device_count())

    def activate(self, device: torch.device) -> None:
        """Make it the current device."""
        self._torch.set_device(device)

    def synchronize(self, device: torch.device) -> None:
        """Wait for all its streams."""
        self._torch.synchronize(device)

    def reset_peak(self, device: torch.device) -> None:
        """Empty the cache first, so that reserved memory is this case's alone."""
        self._torch.empty_cache()
        self.restart_peak(device)

    def restart_peak(self, device: torch.device) -> None:
        """Leave the cache as it is."""
        self._torch.reset_peak_memory_stats(device)

    def limit_memory(self, device: torch.device, limit_bytes: int | None) -> None:
        """Limit the allocator, without what a context takes. Raises NotImplementedError for more memory than the device has."""
        has_bytes = self._torch.get_device_properties(device).total_memory
        if limit_bytes is not None and limit_bytes > has_bytes:
            raise NotImplementedError(f"this device has {byte_count(has_bytes)} of memory, which is less than {byte_count(limit_bytes)}")
        self._torch.set_per_process_memory_fraction(1.0 if limit_bytes is None else limit_bytes / has_bytes, device)

    def free_memory(self, device: torch.device) -> int | None:
        """Return the free bytes by the driver's count, after this process has given back its cache."""
        self._torch.empty_cache()
        return int(self._torch.mem_get_info(device)[0])

    def peak(self, device: torch.device) -> Memory:
        """Return the allocator's peaks."""
        return Memory(self._torch.max_memory_allocated(device), self._torch.max_memory_reserved(device))

    def held(self, device: torch.device) -> Memory:
        """Return the allocator's counts."""
        return Memory(self._torch.memory_allocated(device), self._torch.memory_reserved(device))

    def pin(self, tensors: Sequence[Tensor]) -> list[Tensor] | None:
        """Return copies that the accelerators of this torch read directly. Raises RuntimeError if the system refuses."""
        return [tensor.detach().pin_memory() for tensor in tensors]


BACKENDS: dict[str, Backend] = {}
"""The kinds of device that are known, the CPU first."""


def register_backend(backend: Backend) -> None:
    """Add a kind of device, or replace the backend of one."""
    BACKENDS[backend.kind] = backend


def find(device_id: str) -> tuple[Backend, torch.device]:
    """Return the backend and the torch device of an id such as ``cpu`` or ``cuda:1``. Raises UsageError if there is none."""
    kind, _, number = device_id.partition(":")
    backend, index = BACKENDS.get(kind), int(number or 0)
    if backend is None or index >= backend.count():
        raise UsageError(f"there is no device '{device_id}' here")
    return backend, backend.device(index)


_STARTS = (
    (
        "invalid device id",  # torch counts by NVML until it has started CUDA
        "no cuda gpus are available",
        "its driver counts it and CUDA does not: in MIG mode without an instance, lost, or kept from this container; see nvidia-smi",
    ),
    ("busy or unavailable", "another process has it to itself, or its compute mode prohibits computing; see nvidia-smi -q -d COMPUTE"),
    (
        "driver / cuda driver combination",
        "the NVIDIA libraries and the loaded driver are of different versions: reboot, or match them",
    ),
    ("out of memory", "other processes have taken all of its memory; see nvidia-smi"),
    (
        "no kernel image",
        "invalid device function",  # of ROCm
        "this torch has no kernels for it, only for {}; install one that was built for it",
    ),
)
"""Words of an error, in lower case, and last the sentence for a device that does not start because of it.

``{}`` stands for the architectures that this torch is built for.
"""
_OLD_DRIVER = re.compile(r"driver on your system is too old \(found version (\d+)\)")


def why_not_started(error: Exception) -> str:
    """Return a sentence that says why a device does not start."""
    if isinstance(error, DlbenchError):
        return str(error)
    if found := _OLD_DRIVER.search(str(error)):
        major, minor = divmod(int(found[1]), 1000)  # CUDA writes 12.4 as 12040
        return f"its driver is too old for this torch, as it goes up to CUDA {major}.{minor // 10}; update it, or install a torch for that"
    built_for = ", ".join(torch.cuda.get_arch_list())  # of ROCm, too
    known = (sentence.format(built_for) for *words, sentence in _STARTS if any(word in str(error).lower() for word in words))
    return next(known, f"it does not start ({error_text(error)}); see what its driver says")


def describe_devices() -> Iterator[dict[str, Any]]:
    """Yield a description of every device, the CPU first; one that does not start has the reason as ``unusable``.

    A kind whose devices can't be counted has one entry, numbered 0. Starts accelerators, so it needs a process of its own.
    """
    for kind, backend in BACKENDS.items():
        try:
            count = backend.count()
        except Exception as error:  # noqa: BLE001  # whatever a driver raises: the other devices are there all the same
            yield {"id": f"{kind}:0", "kind": kind, "unusable": why_not_started(error)}
            continue
        for index in range(count):
            description: dict[str, Any] = {"id": kind if backend.is_host else f"{kind}:{index}", "kind": kind}
            try:
                description |= backend.describe(index)
                backend.start(index)
            except Exception as error:  # noqa: BLE001  # whatever a driver raises is a sentence about this device
                description["unusable"] = why_not_started(error)
            yield description


def tensors_in(value: object) -> list[Tensor]:
    """Return the tensors in the output of a call: a tensor, or tuples, lists and dicts of them."""
    return [each for each in tree_leaves(value) if isinstance(each, Tensor)]
