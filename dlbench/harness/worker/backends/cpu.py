"""The host processor as a device."""

from typing import Any

import torch

from dlbench.harness.worker.backends.base import Backend


class CpuBackend(Backend):
    """The host processor."""

    kind = "cpu"
    is_host = True
    block_s = 0.002
    warmup_s = 0.2
    warmup_calls = 2
    collectives = "gloo"

    def count(self) -> int:
        """Return 1: all cores together are one device."""
        return 1

    def describe(self, index: int) -> dict[str, Any]:
        """Return the bare entry; the parent process knows more of the CPU than torch does."""
        return {"name": None}

    def start(self, index: int) -> None:
        """Do nothing: it runs already, and a process that will fork must not compute."""

    def device(self, index: int) -> torch.device:
        """Return the device without an index, as torch writes it."""
        return torch.device("cpu")
