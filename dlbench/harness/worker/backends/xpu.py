"""Intel GPUs."""

from contextlib import suppress
from typing import Any

import torch

from dlbench.harness.worker.backends.base import CachingBackend


class XpuBackend(CachingBackend):
    """Intel GPUs."""

    kind = "xpu"
    collectives = "xccl"

    def describe(self, index: int) -> dict[str, Any]:
        """Return name, memory and multiprocessors (Intel's execution units)."""
        known = self._torch.get_device_properties(index)
        return {
            "name": known.name,
            "vendor": "intel",
            "memory_bytes": known.total_memory,
            "multiprocessors": getattr(known, "max_compute_units", None),
        }

    def free_memory(self, device: torch.device) -> int | None:
        """Return what no process has taken; None in an older torch, and where the driver does not tell."""
        with suppress(AttributeError, RuntimeError):
            return super().free_memory(device)
        return None
