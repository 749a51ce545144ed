"""Networks split over several devices: a deep perceptron that divides evenly, and stages of any network for pipelines.

A block of the perceptron is the feed-forward part of a transformer's layer (Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, section
3.3), with another ReLU in place of all that stands between two of these.
"""

import math
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise

import torch
from torch import Tensor, nn

from dlbench.models.operations import count_step

WIDTH = 1024
BLOCKS = 8
EXPANSION = 4
"""How many times wider a block is inside."""
GRANULE = 64
"""Widths are multiples of it, so that they suit matrix units and divide among devices."""


def mlp(width: int) -> nn.Sequential:
    """Return BLOCKS blocks in a row: (batch, width) to the (batch, width) logits of as many classes."""
    return nn.Sequential(*(block(width) for _ in range(BLOCKS)))


def block(width: int) -> nn.Sequential:
    """Return two linear layers, the inner activations four times as wide: (batch, width) to (batch, width)."""
    return nn.Sequential(nn.Linear(width, EXPANSION * width), nn.ReLU(), nn.Linear(EXPANSION * width, width), nn.ReLU())


def width_for(least: float) -> int:
    """Return the smallest width, a multiple of GRANULE, whose matrices have at least so many parameters: two of width x 4 width a block."""
    return GRANULE * math.ceil(math.sqrt(least / (BLOCKS * 2 * EXPANSION)) / GRANULE)


def stages(network: nn.Module, input_shape: tuple[int, ...], number: int) -> list[nn.Sequential]:
    """Cut into stages of consecutive layers, so that the largest number of training operations is as small as possible.

    Each stage is a row of layers, as `layers` returns them. Raises ValueError where there are fewer layers than stages.
    """
    row = layers(network)
    if len(row) < number:
        raise ValueError(f"the network has {len(row)} layers, too few for {number} ranks; take {len(row)} at most")
    begins = cut(train_costs(row, input_shape), number)
    return [nn.Sequential(*row[begin:end]) for begin, end in pairwise((*begins, len(row)))]


def layers(network: nn.Module) -> list[nn.Sequential]:
    """Return the network as layers that run one after the other.

    Each begins with a convolution, a linear layer or a residual block, so that no stage begins with an operation in place, which would
    overwrite its input. The network's children must run in the order of their definition; a flatten goes before its first linear layer.
    """
    found: list[nn.Sequential] = []
    flat = False
    for module in _opened(network):
        if not found or any(isinstance(each, nn.Conv2d | nn.Linear) for each in module.modules()):
            if isinstance(module, nn.Linear) and found and not flat:
                found[-1].append(nn.Flatten())
            found.append(nn.Sequential())
        flat = flat or isinstance(module, nn.Flatten | nn.Linear)
        found[-1].append(module)
    return found


def _opened(module: nn.Module) -> Iterator[nn.Module]:
    for child in module.children():
        yield from _opened(child) if isinstance(child, nn.Sequential) else (child,)


def train_costs(row: Sequence[nn.Module], input_shape: tuple[int, ...]) -> list[int]:
    """Return the operations that each layer takes in training for one input, backward one forward pass for the gradient of each operand.

    The first layer, a single product, needs no gradient of its input.
    """
    costs: list[int] = []
    shape: tuple[int, ...] = (1, *input_shape)

    def step(layer: nn.Module, x: Tensor) -> None:
        nonlocal shape
        shape = tuple(layer(x).shape)

    for layer in row:
        forward = count_step(step, layer, torch.empty(shape, device="meta")).flops or 0
        costs.append((3 if costs else 2) * forward)
    return costs


def cut(costs: Sequence[int], parts: int) -> tuple[int, ...]:
    """Return where each of so many consecutive parts begins, so that the costliest costs as little as possible."""

    @cache
    def best(end: int, parts: int) -> tuple[int, tuple[int, ...]]:
        """Cut what is in front of ``end``: the cost of the costliest part, and where the parts begin."""
        if parts == 1:
            return sum(costs[:end]), (0,)
        earlier = ((begin, *best(begin, parts - 1)) for begin in range(parts - 1, end))
        return min((max(cost, sum(costs[begin:end])), (*begins, begin)) for begin, cost, begins in earlier)

    return best(len(costs), parts)[1]
