"""Plugin of `benchmarks.live_ab`: programs that an environment variable makes slower on one side of an A/B."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter_ns
from typing import Literal

import torch
from torch import nn

from dlbench import Work, workload

SLOWER, FIGHTING = "LIVE_AB_SLOWER", "LIVE_AB_FIGHTING"
"""Percent of its own time that a call wastes; whether a thread of the program takes a CPU in every tenth call."""
FIGHTS_EVERY = 10


@workload(tags=("self",))
def changed(device: torch.device, *, program: Literal["matmul", "conv2d"]) -> Work:
    """Run a program, and what the environment adds to it."""
    run, percent, fights = _program(program, device), int(os.environ.get(SLOWER, "0")), bool(os.environ.get(FIGHTING))
    other_thread = ThreadPoolExecutor(1)
    burnt = torch.randn(512, 512)
    calls = 0

    def call() -> None:
        nonlocal calls
        calls += 1
        started = perf_counter_ns()
        spinning = other_thread.submit(_spin, burnt, run) if fights and calls % FIGHTS_EVERY == 0 else None
        run()
        if spinning:
            spinning.result()
        ended = perf_counter_ns()
        until = ended + (ended - started) * percent // 100
        while perf_counter_ns() < until:
            pass

    return Work(call=call, items=1)


def _spin(burnt: torch.Tensor, run: Callable[[], object]) -> None:
    until = perf_counter_ns() + 2_000_000
    while perf_counter_ns() < until:
        burnt @ burnt  # leaves the interpreter to the call meanwhile


def _program(name: str, device: torch.device) -> Callable[[], object]:
    if name == "matmul":
        a, b = torch.randn(512, 512, device=device), torch.randn(512, 512, device=device)
        return lambda: a @ b
    images, filters = torch.randn(8, 64, 56, 56, device=device), torch.randn(64, 64, 3, 3, device=device)
    return lambda: nn.functional.conv2d(images, filters, padding=1)
