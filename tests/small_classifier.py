"""A classifier that trains in milliseconds, in place of every model, in the processes of a test."""

from functools import partial

import torch
from torch import nn

from dlbench.workloads import cnn

LEARNING_RATE = 0.05


def tiny_network(name: str) -> nn.Module:
    """Return a network of two layers, whichever is named."""
    return nn.Sequential(nn.Conv2d(3, 2, kernel_size=32, stride=32), nn.ReLU(), nn.Flatten(), nn.Linear(2 * 7 * 7, 1000))


class Frozen(nn.Sequential):
    """Without dropout, and with fixed batch statistics: with them on, a batch in parts is other mathematics than the batch whole."""

    def train(self, mode: bool = True) -> "Frozen":
        super().train(False)
        return self


def replace_models(kind: type[nn.Sequential] = nn.Sequential) -> list[nn.Module]:
    """Make every model a small one; the list holds those that are built."""
    built: list[nn.Module] = []

    def build(name: str) -> nn.Module:
        stage = nn.Sequential(nn.Conv2d(3, 4, kernel_size=32, stride=32), nn.BatchNorm2d(4), nn.ReLU())
        built.append(kind(stage, nn.Flatten(), nn.Dropout(), nn.Linear(4 * 7 * 7, 1000)))
        built[-1][0][1].running_mean.normal_()
        built[-1][0][1].running_var.uniform_(0.5, 2)
        return built[-1]

    cnn.build = build
    return built


def learn_visibly() -> None:
    """Set a learning rate that shows after a step, as the one for measuring does not."""
    for name, optimizer in cnn.OPTIMIZERS.items():
        cnn.OPTIMIZERS[name] = partial(optimizer, lr=LEARNING_RATE)


def train_alone(network: nn.Module, images: torch.Tensor, labels: torch.Tensor, steps: int) -> torch.Tensor:
    """Train by stochastic gradient descent written out; return all weights as one vector."""
    velocity = [torch.zeros_like(p) for p in network.parameters()]
    for _ in range(steps):
        network.zero_grad()
        loss = -torch.log_softmax(network(images), 1)[torch.arange(len(labels)), labels].mean()
        loss.backward()
        with torch.no_grad():
            for p, v in zip(network.parameters(), velocity, strict=True):
                v.mul_(0.9).add_(p.grad + 1e-4 * p)
                p -= LEARNING_RATE * v
    return weights_of(network)


def weights_of(network: nn.Module) -> torch.Tensor:
    """All weights as one vector, gathered from every rank where they are sharded."""
    whole = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in network.parameters()]
    return torch.cat([p.detach().flatten() for p in whole])
