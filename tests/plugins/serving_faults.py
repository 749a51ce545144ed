"""Networks that serve until requests are sent, and then fail or never return."""

import threading
from pathlib import Path

import psutil
import torch
from torch import Tensor, nn

import dlbench
from dlbench.workloads import serving, transfer

serving.CLOSED_S = transfer.WARMUP_S = 0.01
NOTE = Path("client")
"""In the folder of the command, of what never returns: the process that sends it requests."""


class Failing(nn.Linear):
    def forward(self, features: Tensor) -> Tensor:
        if psutil.Process().children():
            raise RuntimeError("the weights are gone")
        return super().forward(features)


class Staying(nn.Linear):
    def forward(self, features: Tensor) -> Tensor:
        for client in psutil.Process().children():
            NOTE.with_suffix(".new").write_text(str(client.pid))
            NOTE.with_suffix(".new").rename(NOTE)
            threading.Event().wait()
        return super().forward(features)


@dlbench.network(inputs=(6,), classes=3)
def server() -> nn.Module:
    return nn.Linear(6, 3)


@dlbench.network(inputs=(6,), classes=3)
def failing() -> nn.Module:
    return Failing(6, 3)


@dlbench.network(inputs=(6,), classes=3)
def staying() -> nn.Module:
    return Staying(6, 3)


@dlbench.network(inputs=(6,), classes=3)
def filling() -> nn.Module:
    """Runs out of memory at a batch of more than one."""

    class Filling(nn.Linear):
        def forward(self, features: Tensor) -> Tensor:
            if len(features) > 1:
                raise torch.OutOfMemoryError("out of memory")
            return super().forward(features)

    return Filling(6, 3)
