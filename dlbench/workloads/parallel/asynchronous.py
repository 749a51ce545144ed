"""Asynchronous stochastic gradient descent: a parameter server that nobody waits for, or one shared vector without a lock.

The server is as in DistBelief's Downpour SGD (Dean et al. 2012, "Large scale distributed deep networks", section 4.1), with one server and
a push and a pull at every step: a thread of rank 0, whose own replica asks it without a message. Without one it is Hogwild (Niu et al.
2011, https://arxiv.org/abs/1106.5730, algorithm 1), with whole gradients instead of sparse ones.
"""

import os
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

from dlbench import Clock, Reported, control_group
from dlbench.workloads.parallel.experiments import STALENESS, Experiment, Learner, Observe, histogram, outcome


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
