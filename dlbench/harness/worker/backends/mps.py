"""The GPU of Apple silicon."""

import platform
from typing import Any

import torch

from dlbench.harness.worker.backends.base import Backend


class MpsBackend(Backend):
    """The GPU of Apple silicon."""

    kind = "mps"

    def count(self) -> int:
        """Return 1 where there is one."""
        return int(torch.backends.mps.is_available())

    def describe(self, index: int) -> dict[str, Any]:
        """Return the processor's name; it shares the machine's memory."""
        return {
            "name": f"{platform.processor() or platform.machine()} GPU",
            "vendor": "apple",
            "memory_bytes": torch.mps.recommended_max_memory(),
        }

    def synchronize(self, device: torch.device) -> None:
        """Wait for it."""
        torch.mps.synchronize()
