"""Ceilings of a machine other than arithmetic: bandwidth of its memory, launches, synchronisations."""

from typing import Literal

import torch
from torch import Tensor

from dlbench import Size, Work, workload
from dlbench.kit.memory import fresh_pages, last_cache_bytes, refuse_more_than_left
from dlbench.kit.precision import fill_repeating

TIMES_THE_CACHE = 4
"""Least size of each array in last caches by STREAM's rules, so that caches hold little of it (see "Sizing" at
https://www.cs.virginia.edu/stream/ref.html)."""
UNCACHED = 8
"""Bytes that a call moves on a card, in last caches: what a rate needs for a share of the published bandwidth (`core.reference.peaks`)."""
LEAST = 256 << 20
"""Least bytes of each buffer by default: an accelerator moves them in more time than a launch takes."""
_WHOLE = 4096
"""Default sizes are multiples of this."""


@workload(tags=("ceiling",), ceiling="memory")
def stream(device: torch.device, *, op: Literal["copy", "triad", "sum", "fill"], bytes: Size | None = None) -> Work:  # noqa: A002  # its standard name
    """Move buffers of `bytes` bytes through memory: a = b, a = b + 3 c, sum of a, or a = 3.

    The default size is the largest of 256 MiB, four times the last cache, and on CUDA what makes all buffers together eight times the
    last cache. A given size below four times the cache is refused.

    McCalpin's STREAM (https://www.cs.virginia.edu/stream/), copy and triad as there but in fp32. Bytes count as there: what the
    program reads and writes, without the lines of `a` that a CPU reads only because they are written.
    """
    buffers = {"copy": 2, "triad": 3, "sum": 1, "fill": 1}[op]
    cache = last_cache_bytes(device)
    least = TIMES_THE_CACHE * cache
    uncached = UNCACHED * cache // buffers if device.type == "cuda" else 0
    bytes = bytes or -(-max(LEAST, least, uncached) // _WHOLE) * _WHOLE  # noqa: A001  # see above
    if bytes < least:
        raise ValueError(
            f"buffers of {bytes} bytes would measure the cache; give {least} at least, {TIMES_THE_CACHE} times its size, or none"
        )
    if device.type == "cpu":
        refuse_more_than_left(buffers * bytes, "its buffers take")
    a, *others = (_buffer(device, bytes // 4) for _ in range(buffers))

    def call() -> None:
        match op:
            case "copy":
                a.copy_(others[0])
            case "triad":
                torch.add(*others, alpha=3, out=a)
            case "sum":
                a.sum()
            case "fill":
                a.fill_(3)

    return Work(call=call, bytes=buffers * a.nbytes)


def _buffer(device: torch.device, numbers: int) -> Tensor:
    """Return a vector of repeated normal fp32 numbers; all its pages are mapped, so that none is while the clock runs."""
    on_host = device.type == "cpu"
    values = fresh_pages(4 * numbers).view(torch.float32) if on_host else torch.empty(numbers, device=device)
    return fill_repeating(values, torch.randn)


@workload(tags=("ceiling",), ceiling="launch")
def launch_kernel(device: torch.device) -> Work:
    """Negate one number: what a launch takes where the device keeps up, and on a CPU what torch takes to find and call its kernel."""
    return Work(call=torch.ones(1, device=device).neg_, items=1)


@workload(tags=("ceiling",), ceiling="synchronisation")
def synchronise(device: torch.device) -> Work:
    """Negate one number and wait until that is done: on a CPU, which is done when it returns, no more than `launch_kernel`."""
    one = torch.ones(1, device=device)

    def call() -> None:
        one.neg_()
        torch.accelerator.synchronize(device)

    return Work(call=one.neg_ if device.type == "cpu" else call, items=1)
