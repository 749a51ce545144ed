"""Networks split over several devices: a deep perceptron that divides evenly, and stages of any network for pipelines.

A block of the perceptron is the feed-forward part of a transformer's layer (Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, section
3.3), followed by a ReLU instead of the rest of the layer.
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
    """Return the smallest multiple of GRANULE by which the perceptron's matrices have at least so many parameters.

    Each block has two matrices of width x EXPANSION width.
    """
    return GRANULE * math.ceil(math.sqrt(least / (BLOCKS * 2 * EXPANSION)) / GRANULE)


def stages(network: nn.Module, input_shape: tuple[int, ...], number: int) -> list[nn.Sequential]:
    """Cut a network into stages of consecutive `layers`, so that the stage with the most training operations has as few as possible.

    Raises ValueError where there are fewer layers than stages.
    """
    all_layers = layers(network)
    if len(all_layers) < number:
        raise ValueError(f"the network has {len(all_layers)} layers, too few for {number} ranks; take {len(all_layers)} at most")
    begins = cut(train_costs(all_layers, input_shape), number)
    return [nn.Sequential(*all_layers[begin:end]) for begin, end in pairwise((*begins, len(all_layers)))]


def layers(network: nn.Module) -> list[nn.Sequential]:
    """Return a network's layers in the order of their definition, which has to be the order in which they run; it can be cut between them.

    A layer is a module with weights (a convolution, a linear layer or a residual block) and the modules without weights behind it. These
    are not cut off, because a stage that began with an operation in place, such as a ReLU, would overwrite its input.

    A network may flatten in its own ``forward``. Then a flatten is added before the first linear layer.
    """
    row: list[nn.Sequential] = []
    is_flat = False
    for module in _children(network):
        has_weights = any(isinstance(each, nn.Conv2d | nn.Linear) for each in module.modules())
        if has_weights or not row:  # modules without weights at the beginning have no layer before them, so they make one
            if isinstance(module, nn.Linear) and row and not is_flat:  # a network that begins with a linear layer has flat inputs
                row[-1].append(nn.Flatten())
            row.append(nn.Sequential())
        is_flat = is_flat or isinstance(module, nn.Flatten | nn.Linear)
        row[-1].append(module)
    return row


def _children(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the children of a module, and for a Sequential among them its own children."""
    for child in module.children():
        yield from _children(child) if isinstance(child, nn.Sequential) else (child,)


def train_costs(row: Sequence[nn.Module], input_shape: tuple[int, ...]) -> list[int]:
    """Return the operations of each layer in ``row`` in a training step on one input, forward and backward.

    The layers run one behind the other; ``input_shape``: that of the first layer's input, without a batch.
    """
    costs: list[int] = []
    shapes = [(1, *input_shape)]

    def step(layer: nn.Module, x: Tensor) -> None:
        """Run a layer, and note its output's shape, which is that of the next layer's input."""
        shapes.append(tuple(layer(x).shape))

    for layer in row:
        counted = count_step(step, layer, torch.empty(shapes[-1], device="meta"))
        forward_flops = counted.flops or 0  # None for an operator without a formula, which these layers do not have
        # The gradient of the weights takes as many operations as the forward pass, and so does that of the input. The first layer's input
        # is the network's own, and needs no gradient.
        passes = 3 if costs else 2
        costs.append(passes * forward_flops)
    return costs


def cut(costs: Sequence[int], parts: int) -> tuple[int, ...]:
    """Cut a row of costs into so many consecutive parts, so that the costliest is as cheap as possible; return where each part begins."""

    @cache
    def best(end: int, parts: int) -> tuple[int, tuple[int, ...]]:
        """Cut ``costs[:end]``; return the cost of the costliest part, and where the parts begin."""
        if parts == 1:
            return sum(costs[:end]), (0,)
        earlier = ((begin, *best(begin, parts - 1)) for begin in range(parts - 1, end))
        return min((max(cost, sum(costs[begin:end])), (*begins, begin)) for begin, cost, begins in earlier)

    _, begins = best(len(costs), parts)
    return begins
