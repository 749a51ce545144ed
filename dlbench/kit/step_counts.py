"""What a step of a network states of itself: operations, and bytes through memory, of one call."""

from typing import TypedDict

from torch import nn

from dlbench import Dtype, find_network
from dlbench.kit.brought_networks import Inputs, tensors_of
from dlbench.kit.precision import output
from dlbench.models.flops import FASTER_CONVOLUTION, forward_flops, train_flops
from dlbench.models.traffic import forward_bytes, layer_traffic, train_bytes, weight_bytes


class Counts(TypedDict):
    """Fields of a `Work`."""

    flops: float | None
    least_flops: float | None
    bytes: float | None
    least_bytes: float | None


def train_counts(network: nn.Module, model: str, inputs: Inputs, batch: int, dtype: Dtype, update_passes: int | None) -> Counts:
    """Return those of a training step; ``update_passes``: how often the update goes over the weights, None where nobody knows."""
    updated = None if update_passes is None else update_passes * weight_bytes(network)
    read = sum(each.nbytes for each in tensors_of(inputs))
    least = None if updated is None else read + updated  # were all else in caches
    if find_network(model):
        return Counts(flops=None, least_flops=None, bytes=None, least_bytes=None)
    shape = tuple(inputs.shape[1:])
    flops = batch * train_flops(network, shape)
    moved = train_bytes(layer_traffic(network, shape), batch, output(dtype).itemsize, updated or 0)
    return Counts(flops=flops, least_flops=flops / FASTER_CONVOLUTION, bytes=moved, least_bytes=least)


def forward_counts(network: nn.Module, model: str, inputs: Inputs, batch: int, dtype: Dtype) -> Counts:
    """Return those of a forward pass."""
    least = sum(each.nbytes for each in tensors_of(inputs)) + weight_bytes(network)  # were all else in caches
    if find_network(model):
        return Counts(flops=None, least_flops=None, bytes=None, least_bytes=None)
    shape = tuple(inputs.shape[1:])
    flops = batch * forward_flops(network, shape)
    moved = forward_bytes(layer_traffic(network, shape), batch, output(dtype).itemsize)
    return Counts(flops=flops, least_flops=flops / FASTER_CONVOLUTION, bytes=moved, least_bytes=least)
