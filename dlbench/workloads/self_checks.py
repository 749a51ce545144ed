"""Calls of known cost, and programs made slower on purpose: they measure the harness itself, and comparisons with a known answer."""

from collections.abc import Callable
from functools import partial
from time import perf_counter_ns
from typing import Annotated, Literal

import torch
from torch import nn

from dlbench import Duration, Least, Work, workload


@workload(tags=("self",))
def noop(device: torch.device) -> Work:
    """Do nothing: what is left is the harness's own time."""
    return Work(call=lambda: None)


@workload(tags=("self",))
def spin(device: torch.device, *, seconds: Duration = 1e-3) -> Work:
    """Keep the host busy for exactly that long, by its own clock."""
    wait_ns = round(seconds * 1e9)

    def call() -> None:
        end = perf_counter_ns() + wait_ns
        while perf_counter_ns() < end:
            pass

    return Work(call=call)


Program = Literal["matmul", "add", "softmax", "conv", "linear", "mlp_step"]
Percent = Annotated[int, Least(0)]
TAIL_EVERY = 10
"""With ``tail``, one call in so many takes twice its time."""


@workload(tags=("self", "training"))  # one of the programs is a step with an optimizer
def slowed(device: torch.device, *, program: Program, percent: Percent = 0, tail: bool = False) -> Work:
    """Run a small program, and then waste `percent` of the time it took; with `tail`, one call of ten takes twice as long."""
    run = _prepare_program(program, device)
    wait_for_device = torch.get_device_module(device).synchronize
    calls = 0

    def call() -> None:
        nonlocal calls
        calls += 1
        start = perf_counter_ns()
        run()
        wait_for_device()
        end = perf_counter_ns()
        extra_percent = 100 if tail and calls % TAIL_EVERY == 0 else percent
        until = end + (end - start) * extra_percent // 100
        while perf_counter_ns() < until:
            pass

    return Work(call=call, items=1)


def _prepare_program(program: Program, device: torch.device) -> Callable[[], object]:
    """Create what a program computes on, and return a function that runs it once."""
    draw = partial(torch.randn, device=device)
    match program:
        case "matmul":
            a, b = draw(256, 256), draw(256, 256)
            return lambda: a @ b
        case "add":
            x, y, out = (draw(1 << 18) for _ in range(3))
            return lambda: torch.add(x, y, out=out)
        case "softmax":
            scores = draw(256, 1024)
            return lambda: torch.softmax(scores, dim=-1)
        case "conv":
            images, filters = draw(2, 32, 28, 28), draw(32, 32, 3, 3)
            return lambda: nn.functional.conv2d(images, filters, padding=1)
        case "linear":
            layer, features = nn.Linear(512, 512).to(device), draw(64, 512)
            return torch.inference_mode()(lambda: layer(features))
        case "mlp_step":
            network = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 10)).to(device)
            optimizer = torch.optim.SGD(network.parameters(), lr=1e-9)
            inputs, labels = draw(32, 128), torch.randint(0, 10, (32,), device=device)

            def run() -> None:
                optimizer.zero_grad()
                nn.functional.cross_entropy(network(inputs), labels).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
                optimizer.step()

            return run
