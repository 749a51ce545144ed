"""The memory of a case: the limit that it computes within, whether it ran out, and its peaks on an accelerator."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress

import torch

from dlbench.core.declarations import Declaration
from dlbench.core.measurement import Memory
from dlbench.core.model import ParamValue, Status
from dlbench.core.units import byte_count
from dlbench.harness.probe.memory import added_memory
from dlbench.harness.worker.backends.base import Backend
from dlbench.harness.worker.failures import NO_ENGINE, Unmeasurable
from dlbench.harness.worker.lifecycle import limited_memory, memory_in_force
from dlbench.harness.worker.usage import read_status

SAFE_SHARE = 0.8
"""Of the host's memory that is left: a search stays below it, as other processes may take the rest meanwhile."""


class DeviceMemory:
    """Peaks of one case on its device, without what earlier cases of its process left there: a tensor that something still refers to."""

    def __init__(self, backend: Backend, device: torch.device) -> None:
        """Begin with nothing cached."""
        self._backend, self._device = backend, device
        backend.reset_peak(device)
        self._left = backend.held(device)
        self._reserved_before = 0

    def forget_set_up(self) -> None:
        """Count live tensors afresh, without those of set-up alone, such as the workspaces that cuDNN tried; the allocator held those."""
        self._reserved_before = self._backend.peak(self._device).reserved_bytes or 0
        self._backend.restart_peak(self._device)
        left, held = self._left, self._backend.held(self._device)
        # Of what earlier cases left, set-up may have had some freed.
        self._left = Memory(_least(left.peak_bytes, held.peak_bytes), _least(left.reserved_bytes, held.reserved_bytes))

    @property
    def left_bytes(self) -> int:
        """What an earlier case left, which is in no peak."""
        return self._left.peak_bytes or 0

    def peaks(self) -> Memory:
        """Return the device's peaks so far; None where torch does not count them."""
        peak = self._backend.peak(self._device)
        live, reserved = peak.peak_bytes, peak.reserved_bytes
        return Memory(
            peak_bytes=None if live is None else live - (self._left.peak_bytes or 0),
            reserved_bytes=None if reserved is None else max(reserved, self._reserved_before) - (self._left.reserved_bytes or 0),
        )


@contextmanager
def out_of_memory_named(backend: Backend, device: torch.device) -> Iterator[None]:
    """Raise MemoryError where torch says that cuDNN has no plan for a convolution, and its allocator refused memory meanwhile.

    torch catches the allocator's error of each plan that it tries, and what it raises in the end does not name memory:
    https://github.com/pytorch/pytorch/issues/108645.
    """
    refused = backend.failed_allocations(device)
    try:
        yield
    except RuntimeError as error:
        if NO_ENGINE in str(error) and backend.failed_allocations(device) > refused:
            raise MemoryError(str(error)) from error
        raise


@contextmanager
def memory_limit(
    declared: Declaration, params: Mapping[str, ParamValue], backend: Backend, device: torch.device, left_bytes: int | None
) -> Iterator[int | None]:
    """Have torch raise an error beyond what the case may take: of its own limit, and of ``left_bytes`` on the host.

    Yields the limit in bytes where the workload searches for what fits; on an accelerator without one all that is free. None elsewhere,
    and where nothing tells. Raises Unmeasurable where its own limit is more than the host can spare, NotImplementedError where the device
    has no such limits.
    """
    name = declared.parameter("limit")
    gibibytes = params.get(name or "")
    limit = None if gibibytes is None else max(1, int(float(gibibytes) * 2**30))
    limited: AbstractContextManager[object] = nullcontext()
    if backend.is_host:
        used = read_status("VmData") or 0
        limit = _of_host(name, limit, left_bytes, used)
        limited = limited if limit is None else limited_memory(limit, used)
    elif limit is not None:
        limited = _on_accelerator(backend, device, limit)
    elif name:
        limit = backend.free_memory(device)
    with limited:
        yield limit if name else None


@contextmanager
def _on_accelerator(backend: Backend, device: torch.device, own: int) -> Iterator[None]:
    backend.limit_memory(device, own)
    try:
        left = backend.free_memory(device)
        if left is not None and own > left:
            raise Unmeasurable(
                Status.SKIPPED,
                f"the device has {byte_count(left)} left, and the limit is {byte_count(own)}; free its memory, or give less",
            )
        yield
    finally:
        with suppress(RuntimeError):  # a device that has failed meanwhile has said so already
            backend.limit_memory(device, None)


def _of_host(name: str | None, own: int | None, left_bytes: int | None, used_bytes: int) -> int | None:
    """Return how much more memory a case on the host may take; None where nothing limits it."""
    if name:
        if left_bytes is None:  # a machine that is given memory as it uses it: a search would take all that there is
            left_bytes = added_memory()
        left_bytes = _least(memory_in_force(used_bytes), None if left_bytes is None else int(SAFE_SHARE * left_bytes))
        if own is not None and left_bytes is not None and own > left_bytes:
            raise Unmeasurable(
                Status.SKIPPED,
                f"{name}={own / 2**30:g} is more than the {byte_count(left_bytes)} that this process can be given; "
                "give less, or free some memory and go on with --resume",
            )
    return left_bytes if own is None else own


def _least(*limits: int | None) -> int | None:
    """Return the least of those that are known."""
    return min((each for each in limits if each is not None), default=None)
