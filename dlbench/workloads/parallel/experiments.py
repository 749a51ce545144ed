"""Data-parallel trainings that run for a time: replicas and values, two forms whose ranks keep in step, and two asynchronous ones.

Local stochastic gradient descent averages as in Stich 2019 (https://arxiv.org/abs/1805.09767, algorithm 1), but with momentum, which stays
each rank's own.
"""

import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from dlbench import PRECISIONS, Clock, Dtype, Reported, Unit, Value, control_group
from dlbench.kit.precision import autocast
from dlbench.kit.user_networks import Inputs, Loss
from dlbench.models.operations import tensors_of
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
"""Bins of the histogram, by the smallest staleness in each."""
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

    def __init__(self, network: nn.Module, loss: Loss, batch: tuple[Inputs, Any], items: int, dtype: Dtype, straggler: int = 0) -> None:
        """Make the network's parameters views of one vector; ``loss`` calls the network, and ``items`` is the size of the rank's batch.

        ``straggler``: percent by which a step of this rank is slowed down.

        Raises NotImplementedError for a precision that scales gradients.
        """
        if PRECISIONS[dtype].scales_gradients:
            raise NotImplementedError(f"{dtype} scales gradients in turn with the update, and here they are apart; take amp_bf16")
        parameters = list(network.parameters())
        buffers = [each for each in network.buffers() if each.is_floating_point()]
        self.state = torch.cat([each.detach().flatten() for each in (*parameters, *buffers)])
        """The weights, followed by the floating-point buffers, such as batch statistics."""
        self.weights = self.state[: sum(each.numel() for each in parameters)]
        self.gradients = torch.zeros_like(self.weights)
        begin = 0
        for tensor in (*parameters, *buffers):
            end = begin + tensor.numel()
            tensor.data = self.state[begin:end].view_as(tensor)
            if isinstance(tensor, nn.Parameter):
                tensor.grad = self.gradients[begin:end].view_as(tensor)
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
        """Return the loss of the rank's share, for `backward`."""
        self._begun_s = time.perf_counter()
        return self._forward()

    def backward(self, loss: Tensor) -> None:
        """Fill the gradients. A straggler then sleeps: it stands for a slower device, which leaves its host idle."""
        self.gradients.zero_()
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        if self._straggler:
            self.wait_for_device()
            time.sleep((time.perf_counter() - self._begun_s) * self._straggler / 100)

    def mean_loss(self) -> float:
        """Return the mean over all ranks of the loss of each one's share under its own weights; every rank has to call it."""
        with torch.no_grad():
            loss = self._forward().cpu().double()  # not every device has fp64
        dist.all_reduce(loss, group=control_group())
        return loss.item() / dist.get_world_size()


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


def histogram(staleness: Iterable[int]) -> list[int]:
    """Return the number of updates in each bin of staleness: how many other updates came between reading the weights and changing them."""
    counts = Counter(max(least for least in _BINS if least <= updates_between) for updates_between in staleness)
    return [counts[least] for least in _BINS]


AVERAGINGS = Value("averagings", Unit.COUNT, None, "how often all ranks averaged their weights", when={"form": ("local",)})


def local(learner: Learner, experiment: Experiment) -> Observe:
    """Return a training in which every rank updates weights of its own, and all average them by an all-reduce every so many steps.

    Averaged after each step they are those of one process with the whole batch, as an update is linear in gradients and momentum.
    """
    weights = nn.Parameter(learner.weights)  # shares the memory of learner.weights
    weights.grad = learner.gradients
    optimizer = experiment.optimizer(weights)

    def observe(clock: Clock) -> dict[str, Reported]:
        learner.backward(learner.forward())  # warm-up: the first step is slower
        dist.all_reduce(learner.gradients)  # and so is the first message; of gradients, because the weights must not change yet
        before, begun_s = learner.mean_loss(), clock.now()
        steps, steps_ahead = 0, 1
        while steps_ahead > 0:
            for _ in range(steps_ahead):
                learner.backward(learner.forward())
                optimizer.step()
                steps += 1
                if steps % experiment.average_every == 0:
                    average(learner)
            elapsed_s = clock.now() - begun_s
            # Ranks wait for each other at the clock, so it is read rarely: after half of the steps that still fit into the time.
            steps_ahead = (int((experiment.seconds / elapsed_s - 1) * steps) + 1) // 2
        if steps % experiment.average_every:
            average(learner)
        values = outcome(before, learner.mean_loss(), steps, steps * dist.get_world_size() * learner.items, elapsed_s)
        averagings = -(-steps // experiment.average_every)  # the last one may come after fewer steps
        return values | {AVERAGINGS.name: averagings}

    return observe


def average(learner: Learner) -> None:
    """Replace the weights and floating-point buffers of every rank by their mean over all ranks."""
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
    """Return a training whose weights and whole batch are on rank 0's CPU, while every rank computes on its own device.

    The time of each part of a step is read on rank 0's own clock: a barrier after each part would hide how long rank 0 waits for others.
    """
    group, ranks = control_group(), dist.get_world_size()
    is_first = dist.get_rank() == 0
    master = nn.Parameter(learner.weights.detach().cpu().clone())
    optimizer = experiment.optimizer(master)
    share = [tensor.cpu() for tensor in learner.share]
    shares_of_all = [_gather(tensor) for tensor in share]
    gradients_of_all = torch.empty(ranks if is_first else 0, master.numel(), dtype=master.dtype)
    mean = torch.empty_like(master)
    if is_first:
        master.grad = mean

    def replicate() -> None:
        dist.broadcast(master.data, src=0, group=group)
        learner.weights.copy_(master.data)

    def split() -> None:
        for tensor, tensors_of_all, on_device in zip(share, shares_of_all, learner.share, strict=True):
            dist.scatter(tensor, tensors_of_all, src=0, group=group)
            on_device.copy_(tensor)

    def run_step() -> Iterator[None]:
        """Train by one step; yield after each of its parts, which `STEPS` names."""
        replicate()
        yield
        split()
        yield
        loss = learner.forward()
        yield
        learner.backward(loss)
        yield
        dist.gather(learner.gradients.cpu(), list(gradients_of_all) if is_first else None, dst=0, group=group)
        yield
        if is_first:
            torch.mean(gradients_of_all, dim=0, out=mean)
        yield
        if is_first:
            optimizer.step()
        yield

    def observe(clock: Clock) -> dict[str, Reported]:
        learner.backward(learner.forward())  # warm-up: the first step is slower
        before, begun_s = learner.mean_loss(), clock.now()
        steps: list[list[float]] = []  # of each step the seconds of its parts
        while True:
            stamps = [_stamp(learner), *(_stamp(learner) for _ in run_step())]
            steps.append([end - start for start, end in pairwise(stamps)])
            elapsed_s = clock.now() - begun_s
            if elapsed_s * (1 + 1 / len(steps)) > experiment.seconds:  # another step would end too late
                break
        replicate()
        values = outcome(before, learner.mean_loss(), len(steps), len(steps) * ranks * learner.items, elapsed_s)
        times_of_parts = zip(*steps, strict=True)
        return values | {part.name: sum(times) / len(steps) for part, times in zip(STEPS, times_of_parts, strict=True)}

    return observe


def _gather(share: torch.Tensor) -> list[torch.Tensor] | None:
    """Return every rank's share on rank 0, and None on other ranks."""
    shares = [torch.empty_like(share) for _ in range(dist.get_world_size())] if dist.get_rank() == 0 else None
    dist.gather(share, shares, dst=0, group=control_group())
    return shares


def _stamp(learner: Learner) -> float:
    """Return the time on the host's clock, in s, once the device has done its work."""
    learner.wait_for_device()
    return time.perf_counter()


def asynchronous(learner: Learner, experiment: Experiment) -> Observe:
    """Return a training with a parameter server on rank 0's CPU; gradients and weights travel as point-to-point messages between CPUs."""

    def observe(clock: Clock) -> dict[str, Reported]:
        learner.backward(learner.forward())  # warm-up: the first step is slower
        before = learner.mean_loss()
        server = ParameterServer(learner.weights.cpu().clone(), experiment) if dist.get_rank() == 0 else None
        clock.now()  # all ranks begin together
        if server:
            _serve(server, learner, time.perf_counter() + experiment.seconds)
        else:
            _work(learner)
        weights = server.weights if server else learner.weights.cpu()
        dist.broadcast(weights, src=0, group=control_group())
        learner.weights.copy_(weights)
        after = learner.mean_loss()
        if not server:
            return {}  # rank 0 reports the values of the case
        updates = len(server.staleness)
        values = outcome(before, after, updates, updates * learner.items, experiment.seconds)
        return values | {STALENESS.name: histogram(server.staleness)}

    return observe


class ParameterServer:
    """The weights, one vector on the CPU, and the staleness of each update of them."""

    def __init__(self, weights: Tensor, experiment: Experiment) -> None:
        self.weights = weights
        self.staleness: list[int] = []
        """Staleness of each update, in order: how many others came between its rank's last weights and this push."""
        self._parameter = nn.Parameter(weights)  # shares the memory of weights
        self._optimizer = experiment.optimizer(self._parameter)
        self._updates_when_sent: dict[int, int] = {}
        """Number of updates in the weights that each rank got last."""
        self._lock = threading.Lock()

    def exchange(self, rank: int, gradients: Tensor, weights: Tensor) -> None:
        """Update the weights by a rank's gradients, a vector on the CPU, and copy them into ``weights``, on any device."""
        with self._lock:
            self.staleness.append(len(self.staleness) - self._updates_when_sent.get(rank, 0))
            self._parameter.grad = gradients
            self._optimizer.step()
            self._updates_when_sent[rank] = len(self.staleness)
            weights.copy_(self.weights)


def _serve(server: ParameterServer, learner: Learner, end_s: float) -> None:
    """Train on rank 0, and meanwhile serve the other ranks in a thread, until ``end_s`` on the host's clock."""
    with ThreadPoolExecutor(1) as executor:
        answering = executor.submit(_answer, server, end_s)
        while True:
            learner.backward(learner.forward())
            gradients = learner.gradients.cpu()
            if time.perf_counter() >= end_s:
                break
            server.exchange(0, gradients, learner.weights)
        answering.result()


def _answer(server: ParameterServer, end_s: float) -> None:
    """Receive gradients from whichever rank sends next and send new weights back; after ``end_s`` tell each rank to stop."""
    inbox, outbox = torch.empty_like(server.weights), torch.empty_like(server.weights)
    working = dist.get_world_size() - 1
    while working:
        rank = dist.recv(inbox, group=control_group())
        proceed = time.perf_counter() < end_s
        dist.send(torch.tensor(proceed), dst=rank, group=control_group())
        if proceed:
            server.exchange(rank, inbox, outbox)
            dist.send(outbox, dst=rank, group=control_group())
        else:
            working -= 1


def _work(learner: Learner) -> None:
    """Train on another rank: send gradients and receive weights, until the server says to stop."""
    weights = learner.weights.cpu().clone()
    proceed = torch.tensor(True)
    while True:
        learner.backward(learner.forward())
        dist.send(learner.gradients.cpu(), dst=0, group=control_group())
        dist.recv(proceed, src=0, group=control_group())
        if not proceed:
            return
        dist.recv(weights, src=0, group=control_group())
        learner.weights.copy_(weights)


def hogwild(learner: Learner, experiment: Experiment) -> Observe:
    """Return a training in which each rank reads shared weights, computes gradients and updates the weights, without waiting for others.

    Raises NotImplementedError where the ranks are on several machines, which share no memory.
    """
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if int(os.environ.get("LOCAL_WORLD_SIZE", ranks)) != ranks:
        raise NotImplementedError("hogwild writes into memory that all ranks share, and several machines share none")
    update_counts, weights = _share_memory(learner.weights.cpu(), ranks)
    parameter = nn.Parameter(weights)  # shares the memory of weights
    optimizer = experiment.optimizer(parameter)

    def observe(clock: Clock) -> dict[str, Reported]:
        learner.backward(learner.forward())  # warm-up: the first step is slower
        before = learner.mean_loss()
        clock.now()  # all ranks begin together
        end_s = time.perf_counter() + experiment.seconds
        staleness = []
        while True:
            updates_before = int(update_counts.sum())
            learner.weights.copy_(weights)
            learner.backward(learner.forward())
            parameter.grad = learner.gradients.cpu()
            if time.perf_counter() >= end_s:
                break
            staleness.append(int(update_counts.sum()) - updates_before)
            optimizer.step()
            update_counts[rank] += 1  # a count of its own for each rank, so that none needs a lock
        clock.now()  # wait until all ranks have ended
        learner.weights.copy_(weights)
        after = learner.mean_loss()
        bins = torch.tensor(histogram(staleness))
        dist.all_reduce(bins, group=control_group())
        updates = int(update_counts.sum())
        values = outcome(before, after, updates, updates * learner.items, experiment.seconds)
        return values | {STALENESS.name: bins.tolist()}

    return observe


def _share_memory(weights: Tensor, ranks: int) -> tuple[Tensor, Tensor]:
    """Return two vectors in memory that all ranks of this machine share: a count for each rank, 0 at first, and rank 0's weights."""
    is_first = dist.get_rank() == 0
    count_bytes = ranks * torch.int64.itemsize
    path: list[str | None] = [None]
    if is_first:
        descriptor, path[0] = tempfile.mkstemp(prefix="dlbench-")
        # A full disk is an error here; a write to a mapping without space would end the process.
        os.posix_fallocate(descriptor, 0, count_bytes + weights.nbytes)
        os.close(descriptor)
    dist.broadcast_object_list(path, src=0, group=control_group())
    assert path[0] is not None  # noqa: S101  # rank 0 has just named it
    memory = torch.from_file(path[0], shared=True, size=count_bytes + weights.nbytes, dtype=torch.uint8)
    counts = memory[:count_bytes].view(torch.int64)
    shared_weights = memory[count_bytes:].view(weights.dtype)
    if is_first:
        shared_weights.copy_(weights)
    dist.barrier(group=control_group())
    if is_first:
        Path(path[0]).unlink()  # the mappings stay valid, and no file is left behind however this ends
    return counts, shared_weights


EXPERIMENTS = {"tower": tower, "async": asynchronous, "hogwild": hogwild, "local": local}
"""Forms that train for a time and report the outcome."""
