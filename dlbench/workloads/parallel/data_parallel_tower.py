"""Data parallelism with the weights on the CPU (towers of devices under one host), each of its seven parts timed on its own."""

import time
from collections.abc import Iterator
from itertools import pairwise

import torch
import torch.distributed as dist
from torch import nn

from dlbench import Clock, Reported, Unit, Value, control_group
from dlbench.workloads.parallel.data_parallel_learning import Experiment, Learner, Observe, outcome

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
