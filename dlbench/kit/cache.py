"""Cache state before a call: operands cached or not, as `Cache` says."""

import os
from collections.abc import Callable

import torch

from dlbench import Cache, caches_of, peak_of

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
