"""Memory of the host and caches: limits, page-locked and fresh memory, cold caches, and copies within a call."""

import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from dlbench import Cache, Role, Work, caches_of, peak_of, too_little_memory, too_much_to_lock


def refuse_more_than_left(needed: int, who: str) -> None:
    """Raise MemoryError, with both numbers, where the host has less than ``needed`` bytes left; ``who``: such as "the data set takes"."""
    if (left := too_little_memory(needed)) is not None:
        raise MemoryError(f"{who} {gibibytes(needed)}, and the host has {gibibytes(left)} left")


def gibibytes(count: float) -> str:
    """Return ``1.50 GiB``."""
    return f"{count / 2**30:.2f} GiB"


def page_locked(like: Tensor) -> Tensor:
    """Return page-locked memory for a tensor of this shape, type and layout.

    Raises MemoryError where that would take too much of the memory that the host has left, and what `page_locking` raises.
    """
    if (left := too_much_to_lock(like.nbytes)) is not None:
        raise MemoryError(f"{like.nbytes:,} bytes of page-locked memory would be too much of the {left:,} that the host has left")
    with page_locking():
        return torch.empty_like(like, device="cpu", pin_memory=True)


@contextmanager
def page_locking() -> Iterator[None]:
    """Turn a RuntimeError of torch that refuses to lock pages into NotImplementedError; one for want of memory stays as it is."""
    try:
        yield
    except RuntimeError as error:
        if "out of memory" in str(error).lower():
            raise
        raise NotImplementedError(f"no page-locked memory: {error}") from error


def fresh_pages(size: int) -> Tensor:
    """Return ``size`` bytes of private memory whose pages the system provides only when they are first written to.

    On Linux they are huge pages if possible: those are provided 3 times as fast, and reading them takes the bandwidth of memory alone,
    and none for page tables.
    """
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.empty(size, dtype=torch.uint8)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel without huge pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.uint8)


_ASSUMED_BYTES = 256 << 20
"""Assumed bytes of an unknown last cache: as large as that of any processor today that one socket's cores share."""


def before_call(device: torch.device, cache: Cache) -> Callable[[], object] | None:
    """Return an action for before each call: for a cold cache a write of twice the last cache's size, and None for a hot one.

    Twice, because no cache replaces strictly its oldest lines (NVBench and Triton's do_bench clear caches in the same manner).
    """
    if cache == "hot":
        return None
    filler = torch.empty(2 * last_cache_bytes(device), dtype=torch.uint8, device=device)
    return filler.zero_


def last_cache_bytes(device: torch.device) -> int:
    """Return the bytes of a device's last-level cache; if they are unknown, `_ASSUMED_BYTES`.

    On a CPU it is the sum of the last-level caches of those CPUs that this process may use.
    """
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        published = peak_of(properties.name)
        published_bytes = published.last_cache_bytes if published else 0
        # torch knows the second level only, and some of AMD's devices have a third one.
        return max(properties.L2_cache_size, published_bytes) or _ASSUMED_BYTES
    if device.type != "cpu":
        return _ASSUMED_BYTES
    usable_cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    # In some processors each group of CPUs shares a last cache of its own. Each such cache counts once, however many CPUs share it.
    size_by_cpus = {}
    for cpu in usable_cpus:
        if caches := caches_of(cpu):
            last_cache = max(caches)  # of the highest level
            size_by_cpus[last_cache.shared_by] = last_cache.size
    return sum(size_by_cpus.values()) or _ASSUMED_BYTES


Copies = Annotated[Literal["none", "pageable", "pinned"], Role("copies")]
"""Where operands for an accelerator are: in its memory, or in pageable or page-locked host memory, from which each call copies them."""


def with_copies(device: torch.device, work: Work, copies: Copies) -> Work:
    """Return the work with calls that copy its inputs to the device, compute, and copy the output back to the host.

    Inputs are copied into the tensors that the work computes on; the output is a tensor or a tuple of them. "pageable" copies as plain code
    does: blocking, and the output into fresh memory. "pinned" only starts the copies, on the current stream, from and to page-locked
    memory. The new work has its inputs in host memory, and returns the output on the device; its counts stay those of the operation.

    Raises NotImplementedError on a CPU and where torch locks no memory for such a device, and MemoryError where it would lock too much.
    """
    if copies == "none":
        return work
    if device.type == "cpu":
        raise NotImplementedError("a CPU computes on host memory, so there is nothing to copy to it")
    compute = work.call
    assert compute is not None, "an observe has no call to copy for"  # noqa: S101  # only works with a call come here
    device_inputs = [tensor.detach() for tensor in work.inputs]  # share their memory; autograd does not see the copies
    to_host = _pinned if copies == "pinned" else Tensor.cpu
    host_inputs = tuple(map(to_host, device_inputs))
    output_buffers: list[Tensor] = []

    def call() -> Any:
        for device_input, host_input in zip(device_inputs, host_inputs, strict=True):
            device_input.copy_(host_input, non_blocking=copies == "pinned")
        output = compute()
        outputs = output if isinstance(output, tuple) else (output,)
        detached = [each.detach() for each in outputs]
        if copies == "pageable":
            _ = [each.cpu() for each in detached]  # a list, so that all copies exist together, as in code that uses them
            return output
        if not output_buffers:  # in the first call, which is never timed
            output_buffers.extend(map(_pinned, detached))
        for buffer, each in zip(output_buffers, detached, strict=True):
            buffer.copy_(each, non_blocking=True)
        return output

    return replace(work, call=call, inputs=host_inputs)


def _pinned(tensor: Tensor) -> Tensor:
    """Return a page-locked copy on the host, in the same memory layout."""
    on_host = tensor.cpu()
    return page_locked(on_host).copy_(on_host)
