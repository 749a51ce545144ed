"""Counts that a step of a network states of one call: operations, and bytes through memory."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from dlbench import Dtype, find_network
from dlbench.kit.precision import autocast
from dlbench.kit.user_networks import Inputs, Loss, forward_of, refuse_unfit
from dlbench.models.operations import FASTER_CONVOLUTION, Step, count_step
from dlbench.models.shapes import tensors_of


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


def train_counts(
    network: nn.Module, model: str, loss_of: Callable[[Any], Loss], batch: tuple[Inputs, Any], dtype: Dtype, update_passes: int | None
) -> Counts:
    """Return those of a training step on inputs and targets by the loss that ``loss_of`` makes of a network.

    ``update_passes``: how often the update goes over the weights, None where nobody knows.
    """
    device = next(network.parameters()).device

    def step(network: nn.Module, inputs: Inputs, targets: Any) -> None:
        autocast(device, dtype, loss_of(network))(inputs, targets).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped

    return _counted(step, network, model, batch, None if update_passes is None else update_passes * _nbytes(network))


def forward_counts(network: nn.Module, model: str, inputs: Inputs, dtype: Dtype) -> Counts:
    """Return those of a forward pass."""
    device = next((each.device for each in (*network.parameters(), *tensors_of(inputs))), torch.device("cpu"))

    @torch.no_grad()
    def step(network: nn.Module, inputs: Inputs) -> None:
        autocast(device, dtype, forward_of(network, inputs))(inputs)

    return _counted(step, network, model, (inputs,), 0)


def _counted(step: Step, network: nn.Module, model: str, batch: tuple[Any, ...], updated: int | None) -> Counts:
    """Count a step and the bytes of its update. Raises ValueError where a network does not take its inputs."""
    inputs, *_ = batch
    counted = count_step(step, network, *batch)
    flops, moved, unknown = counted.flops, counted.bytes, dict(counted.unknown)
    if moved is None and find_network(model):
        refuse_unfit(network, model, inputs)  # which shapes alone can't tell from one that needs numbers
    if moved is not None and updated is None:
        unknown["bytes"], moved = "nobody knows what its optimizer moves", None
    elif moved is not None:
        moved += updated or 0
    inputs_bytes = sum(each.nbytes for each in tensors_of(inputs))
    least = None if updated is None else inputs_bytes + (updated or _nbytes(network))  # were all else in caches
    faster = flops and any(isinstance(each, nn.Conv2d) for each in network.modules())
    return Counts(flops, flops / FASTER_CONVOLUTION if flops and faster else None, moved, least, unknown)


def _nbytes(network: nn.Module) -> int:
    return sum(each.nbytes for each in network.parameters())
