"""Operations and bytes of a step of a network, which its `Work` states."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from dlbench import Dtype, find_network
from dlbench.kit.precision import autocast
from dlbench.kit.user_networks import Inputs, Loss, forward_of, refuse_inputs_that_fail
from dlbench.models.operations import FASTER_CONVOLUTION, Step, count_step
from dlbench.models.shapes import tensors_of


@dataclass(frozen=True, slots=True)
class Counts:
    """The counts among the fields of a `Work`, with the reason for each that is unknown."""

    flops: float | None
    least_flops: float | None
    bytes: float | None
    least_bytes: float | None
    unknown: Mapping[str, str] = field(default_factory=dict)

    def of_work(self) -> dict[str, Any]:
        """Return the counts as keyword arguments of a `Work`."""
        return {name: getattr(self, name) for name in self.__slots__}


def train_counts(
    network: nn.Module, model: str, loss_of: Callable[[Any], Loss], batch: tuple[Inputs, Any], dtype: Dtype, update_passes: int | None
) -> Counts:
    """Count a training step on a batch of inputs and targets; ``loss_of`` returns the loss of a network.

    ``update_passes``: how often the optimizer's update reads or writes the weights' size in bytes; None where that is unknown.

    Raises ValueError where a user's network does not take its inputs.
    """
    device = next(network.parameters()).device

    def step(network: nn.Module, inputs: Inputs, targets: Any) -> None:
        autocast(device, dtype, loss_of(network))(inputs, targets).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped

    update_bytes = None if update_passes is None else update_passes * _weight_bytes(network)
    return _count(step, network, model, batch, update_bytes)


def forward_counts(network: nn.Module, model: str, inputs: Inputs, dtype: Dtype) -> Counts:
    """Count a forward pass. Raises ValueError where a user's network does not take its inputs."""
    device = next((each.device for each in (*network.parameters(), *tensors_of(inputs))), torch.device("cpu"))

    @torch.no_grad()
    def step(network: nn.Module, inputs: Inputs) -> None:
        autocast(device, dtype, forward_of(network, inputs))(inputs)

    return _count(step, network, model, (inputs,), 0)


def _count(step: Step, network: nn.Module, model: str, batch: tuple[Any, ...], update_bytes: int | None) -> Counts:
    """Count a step, and add the bytes of its update: 0 without one, None where they are unknown."""
    inputs, *_ = batch
    counted = count_step(step, network, *batch)
    flops, moved, unknown = counted.flops, counted.bytes, dict(counted.unknown)
    if moved is None:
        if find_network(model):
            refuse_inputs_that_fail(network, model, inputs)  # counting on shapes fails for wrong inputs as for a network that needs numbers
    elif update_bytes is None:
        unknown["bytes"], moved = "nobody knows what its optimizer moves", None
    else:
        moved += update_bytes
    least_moved = None
    if update_bytes is not None:  # as if caches held all but the inputs and the weights
        least_moved = sum(each.nbytes for each in tensors_of(inputs)) + (update_bytes or _weight_bytes(network))
    has_convolutions = any(isinstance(each, nn.Conv2d) for each in network.modules())
    return Counts(flops, flops / FASTER_CONVOLUTION if flops and has_convolutions else None, moved, least_moved, unknown)


def _weight_bytes(network: nn.Module) -> int:
    return sum(each.nbytes for each in network.parameters())
