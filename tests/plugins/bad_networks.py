"""Networks that can't be measured, or hardly, each for another reason."""

import sys

import torch
from torch import nn

import dlbench


@dlbench.network(inputs=(6,), classes=3)
def sound() -> nn.Module:
    return nn.Linear(6, 3)


@dlbench.network(inputs=(6,), classes=3)
def unbuilt() -> nn.Module:
    raise KeyError("depth")


@dlbench.network(inputs=(6,), classes=3)
def no_module() -> nn.Module:
    return object()


@dlbench.network(inputs=(7,), classes=3)
def misfit() -> nn.Module:
    return nn.Linear(6, 3)


@dlbench.network(inputs=(6,), classes=6)
def weightless() -> nn.Module:
    return nn.ReLU()


class Overflowing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 3)

    def forward(self, features):
        return self.head(features) * 1e38 * 1e38


@dlbench.network(inputs=(6,), classes=3)
def overflowing() -> nn.Module:
    return Overflowing()


@dlbench.network(example=lambda batch: torch.randn(batch + 1, 6), classes=3)
def other_batch() -> nn.Module:
    return nn.Linear(6, 3)


@dlbench.network(inputs=(6,))
def no_loss() -> nn.Module:
    return nn.Linear(6, 3)


@dlbench.network(inputs=(6,), loss=lambda output: output)
def many_losses() -> nn.Module:
    return nn.Linear(6, 3)


@dlbench.network(inputs=(6,), classes=3, optimizer=lambda weights: "adam")
def no_optimizer() -> nn.Module:
    return nn.Linear(6, 3)


class Loud(nn.Linear):
    def forward(self, features):
        sys.stdout.write("loud " * 100_000)
        return super().forward(features)


@dlbench.network(inputs=(6,), classes=3)
def loud() -> nn.Module:
    return Loud(6, 3)
