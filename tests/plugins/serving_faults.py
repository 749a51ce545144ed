"""Networks that serve until requests are sent, and then fail or never return; they note the process that sends them."""

import threading
from pathlib import Path

import psutil
import torch
from torch import Tensor, nn

import dlbench
from dlbench.workloads import open_loop, transfer

open_loop.CLOSED_S = transfer.WARMUP_S = 0.01
NOTE = Path("client")
"""In the folder of the command: the id of the process that sends requests."""


class Noting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 3)

    def forward(self, features: Tensor) -> Tensor:
        for client in psutil.Process().children():
            NOTE.with_suffix(".new").write_text(str(client.pid))
            NOTE.with_suffix(".new").rename(NOTE)
            self.end()
        answer: Tensor = self.head(features)
        return answer

    def end(self) -> None:
        """End in its own way."""
        raise NotImplementedError


class Failing(Noting):
    def end(self) -> None:
        raise RuntimeError("the weights are gone")


class Staying(Noting):
    def end(self) -> None:
        threading.Event().wait()


@dlbench.network(inputs=(6,), classes=3)
def server() -> nn.Module:
    return nn.Linear(6, 3)


@dlbench.network(inputs=(6,), classes=3)
def failing() -> nn.Module:
    return Failing()


@dlbench.network(inputs=(6,), classes=3)
def staying() -> nn.Module:
    return Staying()


@dlbench.network(inputs=(6,), classes=3)
def filling() -> nn.Module:
    """Runs out of memory at a batch of more than one."""

    class Filling(nn.Linear):
        def forward(self, features: Tensor) -> Tensor:
            if len(features) > 1:
                raise torch.OutOfMemoryError("out of memory")
            return super().forward(features)

    return Filling(6, 3)
