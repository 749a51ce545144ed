"""Data-parallel trainings for a time, in step: their replicas and values, averaged weights, and towers with the weights on the CPU.

Local stochastic gradient descent averages as in Stich 2019 (https://arxiv.org/abs/1805.09767, algorithm 1), but with momentum, which stays
each rank's own.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
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
"""Bins of the histogram, by their least staleness."""
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


AVERAGINGS = Value("averagings", Unit.COUNT, None, "how often all ranks averaged their weights", when={"form": ("local",)})


def local(learner: Learner, experiment: Experiment) -> Observe:
    """Return the experiment: every rank updates the weights on its own device, which all-reduces them.

    Averaged after each step they are those of one process with the whole batch, as an update is linear in gradients and momentum.
    """
    weights = nn.Parameter(learner.weights)  # the same memory
    weights.grad = learner.gradients
    optimizer = experiment.optimizer(weights)

    def observe(clock: Clock) -> dict[str, Reported]:
        learner.backward(learner.forward())  # the first is slower: not what a step takes
        dist.all_reduce(learner.gradients)  # and so is the first message; the weights are to start as those of other forms
        before, begun, steps, planned = learner.mean_loss(), clock.now(), 0, 1
        while planned > 0:
            for _ in range(planned):
                learner.backward(learner.forward())
                optimizer.step()
                steps += 1
                if steps % experiment.average_every == 0:
                    average(learner)
            elapsed_s = clock.now() - begun
            # Half of what still fits, as all wait for each other at the clock: it is read a few times only, however rarely they average.
            planned = (int((experiment.seconds / elapsed_s - 1) * steps) + 1) // 2
        if steps % experiment.average_every:
            average(learner)
        values = outcome(before, learner.mean_loss(), steps, steps * dist.get_world_size() * learner.items, elapsed_s)
        return values | {AVERAGINGS.name: -(-steps // experiment.average_every)}

    return observe


def average(learner: Learner) -> None:
    """Give all ranks the mean of their weights and floating-point buffers."""
    dist.all_reduce(learner.state)
    learner.state.div_(dist.get_world_size())


STEPS = tuple(
    Value(name, Unit.SECONDS, "lower", f"of a step: {meaning}", when={"form": ("tower",)})
    for name, meaning in (
        ("replicate_s", "sending every rank the weights"),
        ("split_s", "sending every rank its share of the batch"),
        ("forward_s", "forward"),
        ("gradients_s", "backward"),
        ("wait_s", "waiting for every rank's gradients, and fetching them"),
        ("average_s", "averaging them"),
        ("update_s", "updating the weights"),
    )
)


def tower(learner: Learner, experiment: Experiment) -> Observe:
    """Return the experiment: rank 0's CPU has the weights and the whole batch, and every rank computes on its own device.

    Times are those that rank 0 sees, by its own clock: a barrier between the steps would hide the waiting in the step before it.
    """
    group, first, ranks = control_group(), dist.get_rank() == 0, dist.get_world_size()
    master = nn.Parameter(learner.weights.detach().cpu().clone())
    optimizer = experiment.optimizer(master)
    share = [each.cpu() for each in learner.share]
    batch = [_gathered(each) for each in share]
    gradients = torch.empty(ranks if first else 0, master.numel(), dtype=master.dtype)
    mean = torch.empty_like(master)
    if first:
        master.grad = mean

    def replicate() -> None:
        dist.broadcast(master.data, src=0, group=group)
        learner.weights.copy_(master.data)

    def split() -> None:
        for part, parts, on_device in zip(share, batch, learner.share, strict=True):
            dist.scatter(part, parts, src=0, group=group)
            on_device.copy_(part)

    def step() -> Iterator[None]:
        """Train by one step; yield after each of its seven parts."""
        replicate()
        yield
        split()
        yield
        loss = learner.forward()
        yield
        learner.backward(loss)
        yield
        dist.gather(learner.gradients.cpu(), list(gradients) if first else None, dst=0, group=group)
        yield
        if first:
            torch.mean(gradients, dim=0, out=mean)
        yield
        if first:
            optimizer.step()
        yield

    def observe(clock: Clock) -> dict[str, Reported]:
        learner.backward(learner.forward())  # the first is slower: not what a step takes
        before, begun, took = learner.mean_loss(), clock.now(), []
        while True:
            stamps = [_stamp(learner), *(_stamp(learner) for _ in step())]
            took.append([end - start for start, end in pairwise(stamps)])
            elapsed_s = clock.now() - begun
            if elapsed_s * (1 + 1 / len(took)) > experiment.seconds:  # another one would end too late
                break
        replicate()
        values = outcome(before, learner.mean_loss(), len(took), len(took) * ranks * learner.items, elapsed_s)
        return values | {step.name: sum(each) / len(took) for step, each in zip(STEPS, zip(*took, strict=True), strict=True)}

    return observe


def _gathered(share: torch.Tensor) -> list[torch.Tensor] | None:
    """Return every rank's share, on rank 0; None elsewhere."""
    shares = [torch.empty_like(share) for _ in range(dist.get_world_size())] if dist.get_rank() == 0 else None
    dist.gather(share, shares, dst=0, group=control_group())
    return shares


def _stamp(learner: Learner) -> float:
    learner.wait_for_device()
    return time.perf_counter()
