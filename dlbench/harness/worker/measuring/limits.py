"""The memory of a case: the limit that it computes within, whether it ran out, and its peaks on an accelerator."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress

import torch

from dlbench.core.declarations import Declaration
from dlbench.core.measurement import Memory
from dlbench.core.model import ParamValue, Status
from dlbench.core.units import byte_count
from dlbench.harness.probe.linux import added_memory
from dlbench.harness.worker.backends.base import Backend
from dlbench.harness.worker.failures import NO_ENGINE, Unmeasurable
from dlbench.harness.worker.parent import limit_memory, memory_in_force
from dlbench.harness.worker.usage import read_status

SAFE_SHARE = 0.8
"""Of the host's memory that is left: a search stays below it, as other processes may take the rest meanwhile."""


class DeviceMemory:
    """Peaks of one case on its device, without what earlier cases of its process left there: a tensor that something still refers to."""

    def __init__(self, backend: Backend, device: torch.device) -> None:
        """Begin with nothing cached."""
        self._backend, self._device = backend, device
        backend.reset_peak(device)
        self.left_bytes, self._left_reserved = self._held()
        """What an earlier case left, which is in no peak."""
        self._reserved_before = 0

    def _held(self) -> tuple[int, int]:
        """Return the bytes of live tensors and of what the allocator has reserved, 0 where torch does not count them."""
        held = self._backend.held(self._device)
        return held.peak_bytes or 0, held.reserved_bytes or 0

    def forget_set_up(self) -> None:
        """Count live tensors afresh, without those of set-up alone, such as the workspaces that cuDNN tried; the allocator held those."""
        self._reserved_before = self._backend.peak(self._device).reserved_bytes or 0
        self._backend.restart_peak(self._device)
        # Of what earlier cases left, set-up may have had some freed.
        held, reserved = self._held()
        self.left_bytes, self._left_reserved = min(self.left_bytes, held), min(self._left_reserved, reserved)

    def peaks(self) -> Memory:
        """Return the device's peaks so far; None where torch does not count them."""
        peak = self._backend.peak(self._device)
        live, reserved = peak.peak_bytes, peak.reserved_bytes
        return Memory(
            peak_bytes=None if live is None else live - self.left_bytes,
            reserved_bytes=None if reserved is None else max(reserved, self._reserved_before) - self._left_reserved,
        )


@contextmanager
def name_out_of_memory(backend: Backend, device: torch.device) -> Iterator[None]:
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
    and where nothing tells. Raises Unmeasurable, to be skipped, where its own limit is more than the host or the device has left, and
    NotImplementedError where the device has no such limits or less memory in all.
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
            if left_bytes is None:  # a machine that is given memory as it uses it: a search would take all that there is
                left_bytes = added_memory()
            known = memory_in_force(used), None if left_bytes is None else int(SAFE_SHARE * left_bytes)
            left_bytes = min((each for each in known if each is not None), default=None)
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
    with suppress(RuntimeError):  # a device that has failed meanwhile has said so already
        backend.limit_memory(device, None)
