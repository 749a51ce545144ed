"""Data-parallel trainings that run for a time: two forms whose ranks keep in step, and two asynchronous ones.

Local stochastic gradient descent averages as in Stich 2019 (https://arxiv.org/abs/1805.09767, algorithm 1), but with momentum, which stays
each rank's own.
"""

import math
import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import torch
import torch.distributed as dist
from torch import Tensor, nn

from dlbench import Clock, Reported, Unit, Value, control_group
from dlbench.workloads.parallel.learner import Experiment, Learner, average, outcome

Observe = Callable[[Clock], Mapping[str, Reported]]
"""A training as the harness runs it: it gets a clock, trains for the time of the experiment, and returns the values of the case."""

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


def histogram(staleness: Iterable[int]) -> list[int]:
    """Return the number of updates in each of `_BINS`; ``staleness``: that of each update."""
    counts = Counter(max(least for least in _BINS if least <= updates_between) for updates_between in staleness)
    return [counts[least] for least in _BINS]


AVERAGINGS = Value("averagings", Unit.COUNT, None, "how often all ranks averaged their weights", when={"form": ("local",)})


def local(learner: Learner, experiment: Experiment) -> Observe:
    """Return a training in which every rank updates weights of its own, and all average them by an all-reduce every so many steps.

    If they average after each step, the weights equal those of one process that trains on the whole batch: an update is linear in the
    gradients.
    """
    weights = nn.Parameter(learner.weights)  # shares the memory of learner.weights
    weights.grad = learner.gradients
    optimizer = experiment.optimizer(weights)

    def observe(clock: Clock) -> dict[str, Reported]:
        learner.compute_gradients()  # warm-up: the first step is slower
        dist.all_reduce(learner.gradients)  # the first message is slower, too; it sends gradients, as the weights must not change yet
        before = learner.mean_loss()
        begun_s = clock.now()
        steps, steps_to_next_reading = 0, 1  # the clock is read after one step for the first time
        while steps_to_next_reading > 0:
            for _ in range(steps_to_next_reading):
                learner.compute_gradients()
                optimizer.step()
                steps += 1
                if steps % experiment.average_every == 0:
                    average(learner)
            elapsed_s = clock.now() - begun_s
            # Reading the clock makes all ranks wait for each other, so it is rare: the next one is after half of the steps that still fit.
            # All ranks read the same time, and so take equally many steps.
            steps_that_fit = int((experiment.seconds / elapsed_s - 1) * steps)  # the time left, over the time of a step
            steps_to_next_reading = (steps_that_fit + 1) // 2  # rounded up; 0 or less if none fits
        if steps % experiment.average_every:
            average(learner)
        images = steps * dist.get_world_size() * learner.items
        averagings = math.ceil(steps / experiment.average_every)  # the last one may come after fewer steps
        return outcome(before, learner.mean_loss(), steps, images, elapsed_s) | {AVERAGINGS.name: averagings}

    return observe


STEP_PARTS = tuple(
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

    Each rank's device with its replica of the network is a tower: it gets weights and a share of the batch, and returns gradients.
    The time of each part of a step is read on rank 0's own clock: a barrier after each part would hide how long rank 0 waits for others.
    """
    group, ranks = control_group(), dist.get_world_size()  # the group sends between CPUs, whatever the device
    is_first = dist.get_rank() == 0
    master_weights = nn.Parameter(learner.weights.detach().cpu().clone())
    optimizer = experiment.optimizer(master_weights)
    cpu_share = [tensor.cpu() for tensor in learner.share]
    cpu_shares_of_all = [_gather(tensor) for tensor in cpu_share]  # on rank 0 the whole batch, elsewhere None
    gradients_of_all = torch.empty(ranks if is_first else 0, master_weights.numel(), dtype=master_weights.dtype)  # a row for each rank
    mean_gradients = torch.empty_like(master_weights)
    if is_first:
        master_weights.grad = mean_gradients

    def replicate() -> None:
        """Send every rank the weights."""
        dist.broadcast(master_weights.data, src=0, group=group)
        learner.weights.copy_(master_weights.data)

    def split() -> None:
        """Send every rank its share of the batch."""
        for cpu_tensor, tensors_of_all, device_tensor in zip(cpu_share, cpu_shares_of_all, learner.share, strict=True):
            dist.scatter(cpu_tensor, tensors_of_all, src=0, group=group)
            device_tensor.copy_(cpu_tensor)

    def run_step() -> Iterator[None]:
        """Train by one step; yield after each of its parts, in the order of `STEP_PARTS`, so that the caller can time it."""
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
        if is_first:  # the other ranks have nothing to do, but yield for each part as well
            torch.mean(gradients_of_all, dim=0, out=mean_gradients)
        yield
        if is_first:
            optimizer.step()
        yield

    def observe(clock: Clock) -> dict[str, Reported]:
        learner.compute_gradients()  # warm-up: the first step is slower
        before = learner.mean_loss()
        seconds_of_steps, elapsed_s = _time_steps(run_step, learner, clock, experiment.seconds)
        replicate()  # the last update has not reached the replicas yet, and the loss is theirs
        steps = len(seconds_of_steps)
        values = outcome(before, learner.mean_loss(), steps, steps * ranks * learner.items, elapsed_s)
        for part, seconds_by_step in zip(STEP_PARTS, zip(*seconds_of_steps, strict=True), strict=True):
            values[part.name] = fmean(seconds_by_step)
        return values

    return observe


def _gather(share: torch.Tensor) -> list[torch.Tensor] | None:
    """Return every rank's share on rank 0, and None on other ranks."""
    shares = [torch.empty_like(share) for _ in range(dist.get_world_size())] if dist.get_rank() == 0 else None
    dist.gather(share, shares, dst=0, group=control_group())
    return shares


def _time_steps(run_step: Callable[[], Iterator[None]], learner: Learner, clock: Clock, seconds: float) -> tuple[list[list[float]], float]:
    """Repeat a step while there is time for one more; return the seconds of each step's parts, and those of all steps together."""
    begun_s = clock.now()
    seconds_of_steps: list[list[float]] = []
    has_time = True
    while has_time:
        stamps = [_stamp(learner), *(_stamp(learner) for _ in run_step())]
        seconds_of_steps.append([end - start for start, end in pairwise(stamps)])
        elapsed_s = clock.now() - begun_s
        has_time = elapsed_s + elapsed_s / len(seconds_of_steps) <= seconds
    return seconds_of_steps, elapsed_s


def _stamp(learner: Learner) -> float:
    """Return the time on the host's clock, in s, once the device has done its work."""
    learner.wait_for_device()
    return time.perf_counter()


def asynchronous(learner: Learner, experiment: Experiment) -> Observe:
    """Return a training with a parameter server on rank 0's CPU; gradients and weights travel as point-to-point messages between CPUs.

    No rank waits for another's gradients: the server updates by those of one rank at a time, as they come, and sends new weights back.
    The server uses no gradients that come after the experiment's seconds, so all updates are counted over these seconds.
    """

    def observe(clock: Clock) -> dict[str, Reported]:
        learner.compute_gradients()  # warm-up: the first step is slower
        before = learner.mean_loss()
        server = ParameterServer(learner.weights.cpu().clone(), experiment) if dist.get_rank() == 0 else None
        clock.now()  # all ranks begin together
        if server:
            _serve(server, learner, time.perf_counter() + experiment.seconds)
        else:
            _work(learner)
        final_weights = server.weights if server else learner.weights.cpu()
        dist.broadcast(final_weights, src=0, group=control_group())  # on other ranks it overwrites what they had
        learner.weights.copy_(final_weights)
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
            learner.compute_gradients()
            gradients = learner.gradients.cpu()
            if time.perf_counter() >= end_s:
                break
            server.exchange(0, gradients, learner.weights)
        answering.result()


def _answer(server: ParameterServer, end_s: float) -> None:
    """Receive gradients from whichever rank sends next and send new weights back; after ``end_s`` tell each rank to stop."""
    inbox, outbox = torch.empty_like(server.weights), torch.empty_like(server.weights)
    working_ranks = dist.get_world_size() - 1
    while working_ranks:
        rank = dist.recv(inbox, group=control_group())
        proceed = time.perf_counter() < end_s
        dist.send(torch.tensor(proceed), dst=rank, group=control_group())
        if proceed:
            server.exchange(rank, inbox, outbox)
            dist.send(outbox, dst=rank, group=control_group())
        else:
            working_ranks -= 1


def _work(learner: Learner) -> None:
    """Train on another rank: send gradients and receive weights, until the server says to stop."""
    weights = learner.weights.cpu().clone()
    proceed = torch.tensor(True)
    while True:
        learner.compute_gradients()
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
    if int(os.environ.get("LOCAL_WORLD_SIZE", ranks)) != ranks:  # torchrun sets it to the number of ranks on this machine
        raise NotImplementedError("hogwild writes into memory that all ranks share, and several machines share none")
    update_counts, shared_weights = _share_memory(learner.weights.cpu(), ranks)
    parameter = nn.Parameter(shared_weights)  # shares the memory of shared_weights
    optimizer = experiment.optimizer(parameter)

    def observe(clock: Clock) -> dict[str, Reported]:
        learner.compute_gradients()  # warm-up: the first step is slower
        before = learner.mean_loss()
        clock.now()  # all ranks begin together
        staleness = train_until(time.perf_counter() + experiment.seconds)
        clock.now()  # wait until all ranks have ended
        learner.weights.copy_(shared_weights)
        after = learner.mean_loss()
        bins = torch.tensor(histogram(staleness))
        dist.all_reduce(bins, group=control_group())
        updates = int(update_counts.sum())
        values = outcome(before, after, updates, updates * learner.items, experiment.seconds)
        return values | {STALENESS.name: bins.tolist()}

    def train_until(end_s: float) -> list[int]:
        """Train until ``end_s`` on the host's clock, and return the staleness of each update of this rank."""
        staleness: list[int] = []
        while True:
            updates_before = int(update_counts.sum())
            learner.weights.copy_(shared_weights)
            learner.compute_gradients()
            parameter.grad = learner.gradients.cpu()
            if time.perf_counter() >= end_s:  # a step that has not ended by then does not count
                return staleness
            staleness.append(int(update_counts.sum()) - updates_before)
            optimizer.step()
            update_counts[rank] += 1  # a count of its own for each rank, so that none needs a lock

    return observe


def _share_memory(weights: Tensor, ranks: int) -> tuple[Tensor, Tensor]:
    """Return two vectors in memory that all ranks of this machine share: a count for each rank, 0 at first, and rank 0's weights.

    The memory is that of a temporary file, which every rank maps.
    """
    is_first = dist.get_rank() == 0
    count_bytes = ranks * torch.int64.itemsize
    file_bytes = count_bytes + weights.nbytes
    path: list[str | None] = [None]  # a list, as torch broadcasts objects in one
    if is_first:
        descriptor, path[0] = tempfile.mkstemp(prefix="dlbench-")
        # This fills the file with zeros. A full disk is an error here; a write to a mapping without space would end the process.
        os.posix_fallocate(descriptor, 0, file_bytes)
        os.close(descriptor)
    dist.broadcast_object_list(path, src=0, group=control_group())
    assert path[0] is not None  # noqa: S101  # rank 0 has just named it
    memory = torch.from_file(path[0], shared=True, size=file_bytes, dtype=torch.uint8)
    counts = memory[:count_bytes].view(torch.int64)
    shared_weights = memory[count_bytes:].view(weights.dtype)
    if is_first:
        shared_weights.copy_(weights)
    dist.barrier(group=control_group())  # every rank has mapped the file, and the weights are there
    if is_first:
        Path(path[0]).unlink()  # the mappings stay valid, and no file is left behind however this ends
    return counts, shared_weights


EXPERIMENTS = {"tower": tower, "async": asynchronous, "hogwild": hogwild, "local": local}
"""Forms that train for a time and report the outcome."""
