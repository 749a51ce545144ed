"""Counts that a step of a network states of one call: operations, and bytes through memory."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from dlbench import Dtype, find_network
from dlbench.kit.precision import output
from dlbench.kit.user_networks import Inputs, arguments_of, refuse_unfit
from dlbench.models.flops import FASTER_CONVOLUTION, forward_flops, train_flops
from dlbench.models.operations import Operations, count_operations
from dlbench.models.shapes import tensors_of
from dlbench.models.traffic import Traffic, count_traffic, forward_bytes, layer_traffic, train_bytes, weight_bytes


@dataclass(frozen=True, slots=True)
class Counts:
    """The fields of a `Work` that count."""

    flops: float | None
    least_flops: float | None
    bytes: float | None
    least_bytes: float | None
    unknown: Mapping[str, str] = field(default_factory=dict)

    def of_work(self) -> dict[str, Any]:
        """Return them as arguments of a `Work`."""
        return {name: getattr(self, name) for name in self.__slots__}


def train_counts(network: nn.Module, model: str, inputs: Inputs, batch: int, dtype: Dtype, update_passes: int | None) -> Counts:
    """Return those of a training step; ``update_passes``: how often the update goes over the weights, None where nobody knows."""
    updated = None if update_passes is None else update_passes * weight_bytes(network)
    least = None if updated is None else _nbytes(inputs) + updated  # were all else in caches
    if find_network(model):
        operations, layers, unknown = _counted(network, model, inputs)
        moved = None if layers is None or updated is None else train_bytes(list(layers), 1, output(dtype).itemsize, updated)
        if layers is not None and updated is None:
            unknown["bytes"] = "nobody knows what its optimizer moves"
        return _counts(network, operations.train, moved, least, unknown)
    shape = tuple(inputs.shape[1:])
    moved = train_bytes(layer_traffic(network, shape), batch, output(dtype).itemsize, updated or 0)
    return _counts(network, batch * train_flops(network, shape), moved, least, {})


def forward_counts(network: nn.Module, model: str, inputs: Inputs, batch: int, dtype: Dtype) -> Counts:
    """Return those of a forward pass."""
    least = _nbytes(inputs) + weight_bytes(network)  # were all else in caches
    if find_network(model):
        operations, layers, unknown = _counted(network, model, inputs)
        moved = None if layers is None else forward_bytes(list(layers), 1, output(dtype).itemsize)
        return _counts(network, operations.forward, moved, least, unknown)
    shape = tuple(inputs.shape[1:])
    moved = forward_bytes(layer_traffic(network, shape), batch, output(dtype).itemsize)
    return _counts(network, batch * forward_flops(network, shape), moved, least, {})


def training_operations(network: nn.Module, model: str, inputs: Inputs, batch: int) -> Counts:
    """Return the operations of a training step alone."""
    if find_network(model):
        operations = _operations(network, model, inputs)
        return _counts(network, operations.train, None, None, {"flops": operations.reason} if operations.reason else {})
    return _counts(network, batch * train_flops(network, tuple(inputs.shape[1:])), None, None, {})


def _counted(network: nn.Module, model: str, inputs: Inputs) -> tuple[Operations, tuple[Traffic, ...] | None, dict[str, str]]:
    """Count what a network of the user's takes for a whole batch, and say why where that is unknown.

    Raises ValueError where it does not take its inputs.
    """
    operations, traffic = _operations(network, model, inputs), count_traffic(network, *arguments_of(inputs))
    reasons = {"flops": operations.reason, "bytes": traffic.reason}
    return operations, traffic.layers, {name: reason for name, reason in reasons.items() if reason}


def _operations(network: nn.Module, model: str, inputs: Inputs) -> Operations:
    operations = count_operations(network, *arguments_of(inputs))
    if operations.forward is None and not operations.uncounted:
        refuse_unfit(network, model, inputs)  # which shapes alone can't tell from one that needs numbers
    return operations


def _counts(network: nn.Module, flops: float | None, moved: float | None, least_bytes: float | None, unknown: Mapping[str, str]) -> Counts:
    faster = flops is not None and any(isinstance(each, nn.Conv2d) for each in network.modules())
    missing = {name: reason for name, reason in unknown.items() if {"flops": flops, "bytes": moved}[name] is None}
    return Counts(flops, flops / FASTER_CONVOLUTION if flops and faster else None, moved, least_bytes, missing)


def _nbytes(inputs: Inputs) -> int:
    return sum(each.nbytes for each in tensors_of(inputs))
