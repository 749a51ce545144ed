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
    """Return the experiment: the weights on rank 0's CPU, and gradients and weights as point-to-point messages between CPUs."""

    def observe(clock: Clock) -> dict[str, Reported]:
        learner.backward(learner.forward())  # the first is slower: not what a step takes
        before = learner.mean_loss()
        server = ParameterServer(learner.weights.cpu().clone(), experiment) if dist.get_rank() == 0 else None
        clock.now()  # all begin together
        if server:
            _serve(server, learner, time.perf_counter() + experiment.seconds)
        else:
            _work(learner)
        weights = server.weights if server else learner.weights.cpu()
        dist.broadcast(weights, src=0, group=control_group())
        learner.weights.copy_(weights)
        after = learner.mean_loss()
        if not server:
            return {}  # the values of a case are those of rank 0
        updates = len(server.staleness)
        values = outcome(before, after, updates, updates * learner.items, experiment.seconds)
        return values | {STALENESS.name: histogram(server.staleness)}

    return observe


class ParameterServer:
    """The weights, one vector on the CPU, and what was done to them."""

    def __init__(self, weights: Tensor, experiment: Experiment) -> None:
        self.weights = weights
        self.staleness: list[int] = []
        """Staleness of each update, in order: how many others came between its rank's last weights and this push."""
        self._parameter = nn.Parameter(weights)  # the same memory
        self._optimizer = experiment.optimizer(self._parameter)
        self._handed_out: dict[int, int] = {}
        self._lock = threading.Lock()

    def exchange(self, rank: int, gradients: Tensor, weights: Tensor) -> None:
        """Update by a rank's gradients, a vector on the CPU, and write the new weights into a vector on any device."""
        with self._lock:
            self.staleness.append(len(self.staleness) - self._handed_out.get(rank, 0))
            self._parameter.grad = gradients
            self._optimizer.step()
            self._handed_out[rank] = len(self.staleness)
            weights.copy_(self.weights)


def _serve(server: ParameterServer, learner: Learner, end_s: float) -> None:
    """Serve the other ranks in a thread and train meanwhile, until ``end_s`` on the host's clock."""
    with ThreadPoolExecutor(1) as executor:
        answered = executor.submit(_answer, server, end_s)
        while True:
            learner.backward(learner.forward())
            gradients = learner.gradients.cpu()
            if time.perf_counter() >= end_s:
                break
            server.exchange(0, gradients, learner.weights)
        answered.result()


def _answer(server: ParameterServer, end_s: float) -> None:
    """Take the gradients of whichever rank sends next, and send new weights back; at the end tell each to stop."""
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
    """Send gradients and receive weights until the server says to stop."""
    weights, proceed = learner.weights.cpu().clone(), torch.tensor(True)
    while True:
        learner.backward(learner.forward())
        dist.send(learner.gradients.cpu(), dst=0, group=control_group())
        dist.recv(proceed, src=0, group=control_group())
        if not proceed:
            return
        dist.recv(weights, src=0, group=control_group())
        learner.weights.copy_(weights)


def hogwild(learner: Learner, experiment: Experiment) -> Observe:
    """Return the experiment: read the shared weights, compute the gradients, update the shared weights, and wait for nobody.

    Raises NotImplementedError where the ranks are on several machines, which share no memory.
    """
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if int(os.environ.get("LOCAL_WORLD_SIZE", ranks)) != ranks:
        raise NotImplementedError("hogwild writes into memory that all ranks share, and several machines share none")
    # Each rank counts its own updates, so that no count needs a lock.
    counts, weights = _shared(learner.weights.cpu(), ranks)
    parameter = nn.Parameter(weights)  # the same memory
    optimizer = experiment.optimizer(parameter)

    def observe(clock: Clock) -> dict[str, Reported]:
        learner.backward(learner.forward())  # the first is slower: not what a step takes
        before = learner.mean_loss()
        clock.now()  # all begin together
        end_s = time.perf_counter() + experiment.seconds
        staleness = []
        while True:
            seen = int(counts.sum())
            learner.weights.copy_(weights)
            learner.backward(learner.forward())
            parameter.grad = learner.gradients.cpu()
            if time.perf_counter() >= end_s:
                break
            staleness.append(int(counts.sum()) - seen)
            optimizer.step()
            counts[rank] += 1
        clock.now()  # all have ended
        learner.weights.copy_(weights)
        after = learner.mean_loss()
        bins = torch.tensor(histogram(staleness))
        dist.all_reduce(bins, group=control_group())
        updates = int(counts.sum())
        values = outcome(before, after, updates, updates * learner.items, experiment.seconds)
        return values | {STALENESS.name: bins.tolist()}

    return observe


def _shared(weights: Tensor, ranks: int) -> tuple[Tensor, Tensor]:
    """Return a count for each rank, from 0, and rank 0's weights, in memory that all ranks of this machine write to."""
    first = dist.get_rank() == 0
    count_bytes = ranks * torch.int64.itemsize
    path: list[str | None] = [None]
    if first:
        descriptor, path[0] = tempfile.mkstemp(prefix="dlbench-")
        os.posix_fallocate(descriptor, 0, count_bytes + weights.nbytes)  # a full disk is an error here, and a crash when written to
        os.close(descriptor)
    dist.broadcast_object_list(path, src=0, group=control_group())
    assert path[0] is not None  # noqa: S101  # rank 0 has just named it
    memory = torch.from_file(path[0], shared=True, size=count_bytes + weights.nbytes, dtype=torch.uint8)
    counts, shared = memory[:count_bytes].view(torch.int64), memory[count_bytes:].view(weights.dtype)
    if first:
        shared.copy_(weights)
    dist.barrier(group=control_group())
    if first:
        Path(path[0]).unlink()  # what is mapped stays, and nothing is left behind however this ends
    return counts, shared
