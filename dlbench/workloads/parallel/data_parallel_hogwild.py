"""Asynchronous stochastic gradient descent without a server and without a lock: all ranks write into one shared vector of weights.

Hogwild (Niu et al. 2011, https://arxiv.org/abs/1106.5730, algorithm 1), with whole gradients instead of sparse ones.
"""

import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

from dlbench import Clock, Reported, control_group
from dlbench.workloads.parallel.data_parallel_learning import STALENESS, Experiment, Learner, Observe, histogram, outcome


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
