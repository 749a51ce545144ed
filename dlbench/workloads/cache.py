"""Cache state before a call: operands cached or not, as `Cache` says."""

from collections.abc import Callable
from pathlib import Path

import torch

from dlbench import Cache

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
"""Where Linux tells the sizes, as ``32768K``."""
_UNKNOWN = 256 << 20
"""Bytes of a last cache that nothing tells: as large as any of today's processors has for one socket's cores to share."""


def before_call(device: torch.device, cache: Cache) -> Callable[[], object] | None:
    """Return what runs ahead of every call: nothing for a hot cache, and a write of twice the last cache's size for a cold one.

    Twice, because no cache replaces strictly what is oldest (NVBench and Triton's do_bench clear theirs likewise).
    """
    if cache == "hot":
        return None
    filler = torch.empty(2 * last_cache_bytes(device), dtype=torch.uint8, device=device)
    return filler.zero_


def last_cache_bytes(device: torch.device) -> int:
    """Return the size of a device's largest cache, or a safe guess where nothing tells it."""
    if device.type == "cuda":
        return int(getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0)) or _UNKNOWN
    files = _CACHES.glob("index*/size") if device.type == "cpu" else ()
    return max([int(size) << 10 for file in files if (size := file.read_text().strip().removesuffix("K")).isdecimal()], default=_UNKNOWN)
