"""What one writes by hand to time a step on several ranks: a script for torchrun, for `benchmarks.ranks` to hold dlbench against.

    torchrun --standalone --nproc-per-node 2 -m benchmarks.bare_ranks resnet18 4

It prints the seconds of one step: blocks of steps between barriers by the clock of rank 0, their median.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BLOCK_S = 0.05
"""Least time between two barriers, which are in the time and shall not show."""


def training_step(batch: int) -> Callable[[], object]:
    """Return a step of ResNet-18 under DDP on ``batch`` images of 224 x 224 a rank."""
    from dlbench.models import build  # the same network; all else is written out

    torch.manual_seed(0)
    network = DistributedDataParallel(build("resnet18").train())
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-9, momentum=0.9, weight_decay=1e-4)
    images, labels = torch.randn(batch, 3, 224, 224), torch.randint(1000, (batch,))

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(images), labels).backward()
        optimizer.step()

    return step


def all_reduce(size: int) -> Callable[[], object]:
    """Return an all-reduce of ``size`` bytes of fp32."""
    tensor = torch.randn(size // 4)
    start = tensor.clone()
    calls = 0

    def call() -> None:
        nonlocal calls
        calls += 1
        if calls % 100 == 0:  # or the sums become infinite
            tensor.copy_(start)
        dist.all_reduce(tensor)

    return call


def timed(step: Callable[[], object], seconds: float) -> float:
    """Return the median seconds of a step."""

    def block(steps: int) -> float:
        dist.barrier()
        start = time.perf_counter()
        for _ in range(steps):
            step()
        dist.barrier()
        return (time.perf_counter() - start) / steps

    for _ in range(2):
        step()
    # Every rank has to take the same number of steps, so rank 0's time decides.
    usual_s = torch.tensor([block(3)])
    dist.broadcast(usual_s, 0)
    steps = max(1, round(BLOCK_S / usual_s.item()))
    blocks = max(3, round(seconds / (steps * usual_s.item())))
    return statistics.median(block(steps) for _ in range(blocks))


def main() -> None:
    """Time the step that the arguments name, in every rank, and print it in one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("resnet18", "all_reduce"))
    parser.add_argument("size", type=int, help="images a rank, or bytes")
    parser.add_argument("--seconds", type=float, default=1.0, help="of timed steps")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    step = training_step(options.size) if options.what == "resnet18" else all_reduce(options.size)
    seconds = timed(step, options.seconds)
    if dist.get_rank() == 0:
        print(seconds)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
