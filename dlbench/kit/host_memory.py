"""Memory of the host: no more than it has left, page-locked memory, and pages that nobody has used before."""

import mmap
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch
from torch import Tensor

from dlbench import too_little_memory, too_much_to_lock


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
