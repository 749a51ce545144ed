"""Parts of every training that runs for a time: a replica of the network on each rank, and the values that all of them report."""

import time
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from dlbench import PRECISIONS, Dtype, Reported, Unit, Value, control_group
from dlbench.kit.precision import autocast
from dlbench.kit.user_networks import Inputs, Loss
from dlbench.models.operations import tensors_of
from dlbench.workloads.cnn import OPTIMIZERS

TRAINED = {"form": ("tower", "async", "hogwild", "local")}
"""The forms that train for a time."""
OUTCOME = (
    Value("loss_before", Unit.NUMBER, None, "loss of the whole batch before training", when=TRAINED),
    Value("loss", Unit.NUMBER, "lower", "loss of the whole batch after it", when=TRAINED),
    Value("updates", Unit.COUNT, None, "updates of the weights", when=TRAINED),
    Value("updates_per_s", Unit.PER_S, "higher", "updates of the weights a second", when=TRAINED),
    Value("items_per_s", Unit.ITEMS_PER_S, "higher", "images that all ranks trained on a second", when=TRAINED),
)


@dataclass(frozen=True, slots=True)
class Experiment:
    """How an experiment trains."""

    seconds: float
    """Training time; the same for every form, so that losses can be compared. A step that has not ended by then does not count."""
    learning_rate: float
    average_every: int = 1
    """Steps of ``local`` from one averaging to the next."""

    def optimizer(self, weights: Tensor) -> torch.optim.Optimizer:
        """Return an optimizer that updates the weights in place."""
        return OPTIMIZERS["sgd"]([weights], lr=self.learning_rate)


class Learner:
    """A rank's replica of the network and its share of the batch.

    All weights are one vector and all gradients another, so that each is sent as one message; the network's parameters are views of both.
    """

    def __init__(
        self, network: nn.Module, loss: Loss, batch: tuple[Inputs, Any], items: int, dtype: Dtype, straggler_percent: int = 0
    ) -> None:
        """Make the network's parameters and floating-point buffers views of one vector.

        ``loss`` takes inputs and targets, runs the network on the inputs and returns the loss. ``items``: size of the rank's batch.
        ``straggler_percent``: by how much a step of this rank is slowed down. Raises NotImplementedError for a precision that scales
        gradients.
        """
        if PRECISIONS[dtype].scales_gradients:
            raise NotImplementedError(f"{dtype} scales gradients in turn with the update, and here they are apart; take amp_bf16")
        parameters = list(network.parameters())
        buffers = [buffer for buffer in network.buffers() if buffer.is_floating_point()]
        self.state = torch.cat([tensor.detach().flatten() for tensor in (*parameters, *buffers)])
        """The weights, followed by the floating-point buffers, such as batch statistics: `average` takes the mean of both."""
        self.weights = self.state[: sum(parameter.numel() for parameter in parameters)]
        self.gradients = torch.zeros_like(self.weights)
        _make_views(parameters, buffers, self.state, self.gradients)
        inputs, targets = batch
        self.share = (*tensors_of(inputs), *tensors_of(targets))
        """Tensors of the rank's part of the batch."""
        self.items = items
        device = self.weights.device
        self.wait_for_device = torch.get_device_module(device).synchronize
        self._forward = autocast(device, dtype, lambda: loss(inputs, targets))
        self._straggler_percent = straggler_percent
        self._begun_s = 0.0

    def forward(self) -> Tensor:
        """Return the loss of the rank's share, for `backward`."""
        self._begun_s = time.perf_counter()
        return self._forward()

    def backward(self, loss: Tensor) -> None:
        """Fill the gradients. A straggler then sleeps: it stands for a slower device, which leaves its host idle."""
        self.gradients.zero_()
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        if self._straggler_percent:
            self.wait_for_device()
            step_s = time.perf_counter() - self._begun_s
            time.sleep(step_s * self._straggler_percent / 100)

    def compute_gradients(self) -> None:
        """Fill the gradients by one pass forward and backward."""
        self.backward(self.forward())

    def mean_loss(self) -> float:
        """Return the mean over all ranks of the loss of each one's share under its own weights; every rank has to call it."""
        with torch.no_grad():
            loss = self._forward().cpu().double()  # not every device has fp64
        dist.all_reduce(loss, group=control_group())
        return loss.item() / dist.get_world_size()


def _make_views(parameters: list[nn.Parameter], buffers: list[Tensor], state: Tensor, gradients: Tensor) -> None:
    """Make parameters and buffers views of the vector ``state``, one after the other, and the parameters' gradients of ``gradients``."""
    begin = 0
    for tensor in (*parameters, *buffers):
        end = begin + tensor.numel()
        tensor.data = state[begin:end].view_as(tensor)
        if isinstance(tensor, nn.Parameter):
            tensor.grad = gradients[begin:end].view_as(tensor)
        begin = end


def average(learner: Learner) -> None:
    """Replace the weights and floating-point buffers of every rank by their mean over all ranks."""
    dist.all_reduce(learner.state)
    learner.state.div_(dist.get_world_size())


def outcome(before: float, after: float, updates: int, images: int, seconds: float) -> dict[str, Reported]:
    """Return the values that all forms report: loss before and after, and updates and images a second. Raises ValueError for no update."""
    if not updates:
        raise ValueError(f"no gradient was ready within {seconds:g} s; give more seconds")
    return {
        "loss_before": before,
        "loss": after,
        "updates": updates,
        "updates_per_s": updates / seconds,
        "items_per_s": images / seconds,
    }
