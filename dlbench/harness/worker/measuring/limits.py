"""The memory of a case: its limit, errors for lack of memory, and its peaks on an accelerator."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import torch

from dlbench.core.declarations import Declaration
from dlbench.core.measurement import Memory
from dlbench.core.model import Params, Status
from dlbench.core.units import byte_count
from dlbench.harness.probe.linux import added_memory
from dlbench.harness.worker.backends.base import Backend
from dlbench.harness.worker.failures import NO_ENGINE, Unmeasurable
from dlbench.harness.worker.parent import limit_memory, memory_in_force
from dlbench.harness.worker.usage import read_status

SAFE_SHARE = 0.8
"""Share of the host's free memory that a search may take, as other processes may take more meanwhile."""


class DeviceMemory:
    """Peaks of one case on its device, without tensors that earlier cases of its process have left there."""

    def __init__(self, backend: Backend, device: torch.device) -> None:
        """Begin with nothing cached."""
        self._backend, self._device = backend, device
        backend.reset_peak(device)
        self.left_bytes, self._left_reserved = self._held()
        """Bytes that earlier cases have left, which count in no peak."""

    def _held(self) -> tuple[int, int]:
        """Return the bytes of live tensors and of what the allocator has reserved, 0 where torch does not count them."""
        held = self._backend.held(self._device)
        return held.peak_bytes or 0, held.reserved_bytes or 0

    def forget_set_up(self) -> None:
        """Reset the peak of live tensors, so that what only set-up used does not count: workspaces that cuDNN tried, for example.

        The peak of reserved memory still counts them, as the allocator holds that.
        """
        self._backend.restart_peak(self._device)
        # Set-up may have freed something that earlier cases had left.
        self.left_bytes, self._left_reserved = map(min, (self.left_bytes, self._left_reserved), self._held())

    def peaks(self) -> Memory:
        """Return the device's peaks so far; None if torch does not count them."""
        peak = self._backend.peak(self._device)
        if peak.peak_bytes is None or peak.reserved_bytes is None:
            return Memory()
        return Memory(peak.peak_bytes - self.left_bytes, peak.reserved_bytes - self._left_reserved)


@contextmanager
def name_out_of_memory(backend: Backend, device: torch.device) -> Iterator[None]:
    """Turn torch's error that cuDNN has no plan for a convolution into MemoryError if its allocator refused memory meanwhile.

    torch catches the allocator's error of each plan that it tries, and its last error does not mention memory:
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
    declared: Declaration, params: Params, backend: Backend, device: torch.device, left_bytes: int | None
) -> Iterator[int | None]:
    """Limit the memory of a case to its parameter with the role ``limit``, in GiB, and on the host to ``left_bytes``.

    Beyond that torch raises its own error. Yields the limit in bytes if the workload has such a parameter; without a value for it on an
    accelerator all that is free. Yields None for other workloads, or if the free memory is unknown. Raises Unmeasurable, to be skipped,
    if the parameter is more than the host or the device has left, and NotImplementedError if the device takes no limits or has less
    memory in all.
    """
    name = declared.parameter("limit")
    gibibytes = params.get(name or "")
    own = None if gibibytes is None else max(1, int(float(gibibytes) * 2**30))
    used = read_status("VmData") or 0
    with ExitStack() as limits:
        if not backend.is_host:
            if own is not None:
                backend.limit_memory(device, own)
                limits.callback(_lift, backend, device)
            left_bytes = backend.free_memory(device) if name else None
        elif name:
            if left_bytes is None:  # a hypervisor may add more on demand, and a search would take it all
                left_bytes = added_memory()
            safe_bytes = None if left_bytes is None else int(SAFE_SHARE * left_bytes)
            left_bytes = min((each for each in (memory_in_force(used), safe_bytes) if each is not None), default=None)
        if own is not None and left_bytes is not None and own > left_bytes:
            left = byte_count(left_bytes)
            if backend.is_host:
                more = f"{name}={own / 2**30:g} is more than the {left} that this process can be given"
                reason = f"{more}; give less, or free some memory and go on with --resume"
            else:
                reason = f"the device has {left} left, and the limit is {byte_count(own)}; free its memory, or give less"
            raise Unmeasurable(Status.SKIPPED, reason)
        limit = left_bytes if own is None else own
        if backend.is_host and limit is not None:
            limits.enter_context(limit_memory(limit, used))
        yield limit if name else None


def _lift(backend: Backend, device: torch.device) -> None:
    with suppress(RuntimeError):  # a device that has failed meanwhile has raised already
        backend.limit_memory(device, None)
