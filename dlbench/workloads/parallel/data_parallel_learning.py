"""Shared parts of the data-parallel experiments: a rank's replica of the network, and the values that are reported."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from dlbench import Clock, Dtype, Reported, Unit, Value, control_group
from dlbench.kit.precision import autocast, scales_gradients
from dlbench.kit.user_networks import Inputs, Loss
from dlbench.models.shapes import tensors_of
from dlbench.workloads.cnn import OPTIMIZERS

Observe = Callable[[Clock], Mapping[str, Reported]]

TRAINED = {"form": ("tower", "async", "hogwild", "local")}
"""The forms that train for a time."""
OUTCOME = (
    Value("loss_before", Unit.NUMBER, None, "loss of the whole batch before training", when=TRAINED),
    Value("loss", Unit.NUMBER, "lower", "loss of the whole batch after it", when=TRAINED),
    Value("updates", Unit.COUNT, None, "updates of the weights", when=TRAINED),
    Value("updates_per_s", Unit.PER_S, "higher", "updates of the weights a second", when=TRAINED),
    Value("items_per_s", Unit.ITEMS_PER_S, "higher", "images that all ranks trained on a second", when=TRAINED),
)
_BINS = {0: "0", 1: "1", 2: "2-3", 4: "4-7", 8: "8-15", 16: "16+"}
"""Of the histogram, by their least staleness."""
STALENESS = Value(
    "staleness",
    Unit.COUNT,
    None,
    "updates by how many others changed the weights between their being read and this change",
    series=True,
    points=tuple(_BINS.values()),
    when={"form": ("async", "hogwild")},
)


@dataclass(frozen=True, slots=True)
class Experiment:
    """How an experiment trains."""

    seconds: float
    """The same for every form, so that losses can be compared; what is not done by then does not count."""
    learning_rate: float
    average_every: int = 1
    """Steps of ``local`` from one averaging to the next."""

    def optimizer(self, weights: Tensor) -> torch.optim.Optimizer:
        """Return what updates weights in place."""
        return OPTIMIZERS["sgd"]([weights], lr=self.learning_rate)


class Learner:
    """A rank's replica of the network and its share of the batch.

    All weights are one vector, and all gradients another, which the network's parameters are views of: messages carry vectors.
    """

    def __init__(self, network: nn.Module, loss: Loss, batch: tuple[Inputs, Any], items: int, dtype: Dtype, straggler: int = 0) -> None:
        """Take over the network, which ``loss`` calls, and the rank's part of the batch: inputs and targets of so many ``items``.

        A ``straggler`` is slower by so many percent.

        Raises NotImplementedError for a precision that scales gradients.
        """
        if scales_gradients(dtype):
            raise NotImplementedError(f"{dtype} scales gradients in turn with the update, and here they are apart; take amp_bf16")
        parameters = list(network.parameters())
        buffers = [each for each in network.buffers() if each.is_floating_point()]
        self.state = torch.cat([each.detach().flatten() for each in (*parameters, *buffers)])
        """The weights, and behind them the floating-point buffers, such as batch statistics."""
        self.weights = self.state[: sum(each.numel() for each in parameters)]
        self.gradients = torch.zeros_like(self.weights)
        begin = 0
        for each in (*parameters, *buffers):
            end = begin + each.numel()
            each.data = self.state[begin:end].view_as(each)
            if isinstance(each, nn.Parameter):
                each.grad = self.gradients[begin:end].view_as(each)
            begin = end
        inputs, targets = batch
        self.share = (*tensors_of(inputs), *tensors_of(targets))
        """Tensors of the rank's part of the batch."""
        self.items = items
        device = self.weights.device
        self.wait_for_device = torch.get_device_module(device).synchronize
        self._forward = autocast(device, dtype, lambda: loss(inputs, targets))
        self._straggler = straggler
        self._begun_s = 0.0

    def forward(self) -> Tensor:
        """Return the loss of the share, to go backward from."""
        self._begun_s = time.perf_counter()
        return self._forward()

    def backward(self, loss: Tensor) -> None:
        """Fill the gradients; a straggler then sleeps, for it stands for a slower device and not for a busy host."""
        self.gradients.zero_()
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        if self._straggler:
            self.wait_for_device()
            time.sleep((time.perf_counter() - self._begun_s) * self._straggler / 100)

    def mean_loss(self) -> float:
        """Return the loss of the whole batch, each rank's share under its own weights; every rank has to ask."""
        with torch.no_grad():
            loss = self._forward().cpu().double()  # not every device has fp64
        dist.all_reduce(loss, group=control_group())
        return loss.item() / dist.get_world_size()


def outcome(before: float, after: float, updates: int, images: int, seconds: float) -> dict[str, Reported]:
    """Return the values that every experiment has: losses, and updates and images a second.

    Raises ValueError where there was no update.
    """
    if not updates:
        raise ValueError(f"no gradient was ready within {seconds:g} s; give more seconds")
    return {
        "loss_before": before,
        "loss": after,
        "updates": updates,
        "updates_per_s": updates / seconds,
        "items_per_s": images / seconds,
    }


def histogram(staleness: Iterable[int]) -> list[int]:
    """Count updates by staleness: how many other updates came between reading the weights and changing them."""
    counts = Counter(max(least for least in _BINS if least <= each) for each in staleness)
    return [counts[least] for least in _BINS]
