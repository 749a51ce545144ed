"""Networks that serve until requests are sent, and then fail or never return."""

import psutil
import torch
from torch import Tensor, nn

import dlbench
from dlbench.workloads import serving, transfer

serving.CLOSED_S = transfer.WARMUP_S = 0.01


class Failing(nn.Linear):
    def forward(self, features: Tensor) -> Tensor:
        if psutil.Process().children():
            raise RuntimeError("the weights are gone")
        return super().forward(features)


@dlbench.network(inputs=(6,), classes=3)
def server() -> nn.Module:
    return nn.Linear(6, 3)


@dlbench.network(inputs=(6,), classes=3)
def failing() -> nn.Module:
    return Failing(6, 3)


@dlbench.network(inputs=(6,), classes=3)
def filling() -> nn.Module:
    """Runs out of memory at a batch of more than one."""

    class Filling(nn.Linear):
        def forward(self, features: Tensor) -> Tensor:
            if len(features) > 1:
                raise torch.OutOfMemoryError("out of memory")
            return super().forward(features)

    return Filling(6, 3)
