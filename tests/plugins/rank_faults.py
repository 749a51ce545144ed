"""Workloads of several ranks, most of which go wrong in one of them, for tests of what becomes of the others."""

import os
import signal
import threading
from pathlib import Path

import torch
import torch.distributed as dist

from dlbench import Size, Unit, Value, Work, control_group, workload

_KEPT = []


def _fail(text):
    raise ValueError(text)


def _in_one(action, *, last: bool) -> Work:
    """The action in the last rank, or in all others; the rest wait for it in a collective."""

    def call():
        if (dist.get_rank() == dist.get_world_size() - 1) == last:
            action()
        dist.all_reduce(torch.ones(10))

    return Work(call=call)


@workload()
def together(device: torch.device, *, ranks: Size, n: int = 10) -> Work:
    """Add up a tensor that holds each rank's number plus one."""
    start = torch.full((n,), dist.get_rank() + 1.0)
    whole = start.clone()
    dist.all_reduce(whole)
    assert whole[0] == ranks * (ranks + 1) / 2

    def call():
        x = start.clone()
        dist.all_reduce(x)
        return x

    return Work(call=call, inputs=(start,), items=n * ranks)


@workload(values=tuple(Value(name, Unit.NUMBER, None, "told") for name in ("size", "threads", "processes", "pid", "seeds", "clock")))
def who_am_i(device: torch.device, *, ranks: Size, n: int = 1) -> Work:
    """Tell what this rank is, and whether all see the same."""

    def observe(clock):
        clock.now()
        seen = torch.tensor([dist.get_rank(), torch.get_num_threads(), os.getpid(), torch.rand(1).item()], dtype=torch.float64)
        everyone = [torch.zeros_like(seen) for _ in range(ranks)]
        dist.all_gather(everyone, seen, group=control_group())
        return {
            "size": dist.get_world_size(),
            "threads": everyone[-1][1].item(),
            "processes": len({each[2].item() for each in everyone}),
            "pid": os.getpid(),
            "seeds": len({each[3].item() for each in everyone}),
            "clock": clock.now(),
        }

    return Work(observe=observe)


@workload()
def raises_in_one(device: torch.device, *, ranks: Size, last: bool = True) -> Work:
    """Raise in one rank, or in all but one."""
    return _in_one(lambda: _fail("only here"), last=last)


@workload()
def refuses(device: torch.device, *, ranks: Size) -> Work:
    """Raise in every rank alike, before any collective."""
    _fail("3 does not divide by 2")


@workload()
def dies_in_one(device: torch.device, *, ranks: Size, number: int) -> Work:
    """End one rank by a signal, or, where the number is negative, by an exit code."""
    return _in_one(lambda: os.kill(os.getpid(), number) if number > 0 else os._exit(-number), last=True)


@workload()
def hangs_in_one(device: torch.device, *, ranks: Size, folder: str) -> Work:
    """Never return in one rank, once every rank has said who it is and which port torchrun took."""
    (Path(folder) / f"rank{dist.get_rank()}").write_text(f"{os.getpid()} {os.getppid()} {os.environ['MASTER_PORT']}")

    def wait_for_ever():
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # as one that is stuck inside a library
        threading.Event().wait()

    return _in_one(wait_for_ever, last=True)


@workload()
def takes_memory(device: torch.device, *, ranks: Size, n: int) -> Work:
    """Hold 64 MiB in parts that the C library keeps when they are freed, for behind them is one that stays."""
    parts = [torch.ones(1 << 15) for _ in range(512)]
    _KEPT.append(torch.ones(1 << 15))
    return Work(call=lambda: len(parts))


@workload()
def too_big_in_one(device: torch.device, *, ranks: Size) -> Work:
    """Ask for more memory than any machine has, in one rank."""
    return _in_one(lambda: torch.empty(1 << 50, dtype=torch.uint8), last=True)
