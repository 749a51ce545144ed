"""Memory of the host and caches: page-locked and fresh memory, operands that are cached or not, and copies within a call."""

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
    """Raise MemoryError with both numbers where the host has less than so many bytes left; ``who`` is such as "the data set takes"."""
    if (left := too_little_memory(needed)) is not None:
        raise MemoryError(f"{who} {gibibytes(needed)}, and the host has {gibibytes(left)} left")


def gibibytes(count: float) -> str:
    """Return ``1.50 GiB``."""
    return f"{count / 2**30:.2f} GiB"


def page_locked(like: Tensor) -> Tensor:
    """Return page-locked memory for a tensor of this shape, type and layout.

    Raises MemoryError where that would be too much of what the host has left, and else what `page_locking` does.
    """
    if (left := too_much_to_lock(like.nbytes)) is not None:
        raise MemoryError(f"{like.nbytes:,} bytes of page-locked memory would be too much of the {left:,} that the host has left")
    with page_locking():
        return torch.empty_like(like, device="cpu", pin_memory=True)


@contextmanager
def page_locking() -> Iterator[None]:
    """Turn torch's refusal to lock pages into NotImplementedError with its reason, but for want of memory, whose error stays."""
    try:
        yield
    except RuntimeError as error:
        if "out of memory" in str(error).lower():
            raise
        raise NotImplementedError(f"no page-locked memory: {error}") from error


def fresh_pages(size: int) -> Tensor:
    """Return `size` bytes of memory as torch's is, private to this process, but of pages that are not there before something is written.

    On Linux they are huge ones if possible: those are there 3 times as soon, and what they are read with is then the bandwidth of memory
    and not that of its page tables.
    """
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.empty(size, dtype=torch.uint8)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel without huge pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.uint8)


_UNKNOWN = 256 << 20
"""Bytes of a last cache that nothing tells: as large as any of today's processors has for one socket's cores to share."""


def before_call(device: torch.device, cache: Cache) -> Callable[[], object] | None:
    """Return what runs ahead of every call: nothing for a hot cache, and a write of twice the last cache's size for a cold one.

    Twice, because no cache replaces strictly what is oldest (NVBench and Triton's do_bench clear theirs, too).
    """
    if cache == "hot":
        return None
    filler = torch.empty(2 * last_cache_bytes(device), dtype=torch.uint8, device=device)
    return filler.zero_


def last_cache_bytes(device: torch.device) -> int:
    """Return the size of a device's last cache, or a safe guess where nothing tells it.

    Of a CPU it is the sum of the last caches of all CPUs that this process may use: some processors have one for a few cores each. Of a
    CUDA device torch tells the second level, behind which AMD has another one on some: the published size counts where it is larger.
    """
    if device.type == "cuda":
        known = torch.cuda.get_device_properties(device)
        published = peak_of(known.name)
        least = published.last_cache_bytes if published else _UNKNOWN if torch.version.hip else 0
        return max(int(getattr(known, "L2_cache_size", 0)), least) or _UNKNOWN
    if device.type != "cpu":
        return _UNKNOWN
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    last = [max(caches) for cpu in allowed if (caches := caches_of(cpu))]
    return sum({each.shared_by: each.size for each in last}.values()) or _UNKNOWN


Copies = Annotated[Literal["none", "pageable", "pinned"], Role("copies")]
"""How operands get to an accelerator: they are there, or each call copies them from pageable or from page-locked host memory."""


def with_copies(device: torch.device, work: Work, copies: Copies) -> Work:
    """Return the work with calls that copy its inputs to the device ahead, into the same tensors, and its output back behind.

    The output is a tensor or a tuple of them. ``pageable`` copies as plain code does: blocking, the output into fresh memory.
    ``pinned`` only starts the copies, in the order of the current stream, from and to page-locked memory that the first call, which is
    never timed, leaves there. The inputs of the new work are those in host memory; it returns the output on the device, and its counts
    are those of the operation.

    Raises NotImplementedError on a CPU and where torch locks no memory for such a device, MemoryError where that would be too much.
    """
    if copies == "none":
        return work
    if device.type == "cpu":
        raise NotImplementedError("a CPU computes on host memory, so there is nothing to copy to it")
    compute = work.call
    assert compute is not None, "an observe has no call to copy for"  # noqa: S101  # Work's own rule
    there = [tensor.detach() for tensor in work.inputs]
    on_host = tuple(tensor.cpu() for tensor in there)
    if copies == "pinned":
        on_host = tuple(map(_pinned, on_host))
    buffers: list[Tensor] = []

    def call() -> Any:
        for tensor, source in zip(there, on_host, strict=True):
            tensor.copy_(source, non_blocking=copies == "pinned")
        output = compute()
        outputs = [each.detach() for each in (output if isinstance(output, tuple) else (output,))]
        if copies == "pageable":
            _ = [each.cpu() for each in outputs]  # all there together, as they are where somebody uses them
            return output
        if not buffers:
            buffers.extend(_pinned(each.cpu()) for each in outputs)
        for buffer, each in zip(buffers, outputs, strict=True):
            buffer.copy_(each, non_blocking=True)
        return output

    return replace(work, call=call, inputs=on_host)


def _pinned(tensor: Tensor) -> Tensor:
    """Return a page-locked copy in the same memory layout."""
    return page_locked(tensor).copy_(tensor)
