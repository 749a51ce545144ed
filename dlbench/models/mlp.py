"""Deep perceptron of equal blocks, which splits evenly over devices, by its layers and within them.

A block is the feed-forward part of a transformer's layer (Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, section 3.3), with
another ReLU in place of all that stands between two of these.
"""

import math

from torch import nn

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
