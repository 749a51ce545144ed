"""Six small programs, each as it is or made slower on purpose: comparisons of them have a known answer.

The slowdown is real: after its work a call keeps the processor busy for so many percent of the time that the work has just taken.
Every variant reads the clock alike, so that the variants differ in nothing else.
"""

from collections.abc import Callable
from time import perf_counter_ns
from typing import Annotated, Literal

import torch
from torch import nn

from dlbench import Least, Work, workload

Program = Literal["matmul", "add", "softmax", "conv", "linear", "mlp_step"]
Percent = Annotated[int, Least(0)]
TAIL_EVERY = 10
"""With a tail, one call of so many takes twice its time."""


@workload(tags=("self",))
def slowed(device: torch.device, *, program: Program, percent: Percent = 0, tail: bool = False) -> Work:
    """Run a small program, and then waste `percent` of the time it took; with `tail`, one call of ten takes twice as long."""
    run = _PROGRAMS[program](device)
    wait_for_device = torch.get_device_module(device).synchronize
    calls = 0

    def call() -> None:
        nonlocal calls
        calls += 1
        start = perf_counter_ns()
        run()
        wait_for_device()
        end = perf_counter_ns()
        extra = 100 if tail and calls % TAIL_EVERY == 0 else percent
        until = end + (end - start) * extra // 100
        while perf_counter_ns() < until:
            pass

    return Work(call=call, items=1)


def _matmul(device: torch.device) -> Callable[[], object]:
    a, b = torch.randn(256, 256, device=device), torch.randn(256, 256, device=device)
    return lambda: a @ b


def _add(device: torch.device) -> Callable[[], object]:
    a, b, out = (torch.randn(1 << 18, device=device) for _ in range(3))
    return lambda: torch.add(a, b, out=out)


def _softmax(device: torch.device) -> Callable[[], object]:
    scores = torch.randn(256, 1024, device=device)
    return lambda: torch.softmax(scores, dim=-1)


def _conv(device: torch.device) -> Callable[[], object]:
    images, filters = torch.randn(2, 32, 28, 28, device=device), torch.randn(32, 32, 3, 3, device=device)
    return lambda: nn.functional.conv2d(images, filters, padding=1)


def _linear(device: torch.device) -> Callable[[], object]:
    layer, features = nn.Linear(512, 512).to(device), torch.randn(64, 512, device=device)

    def run() -> object:
        with torch.inference_mode():
            return layer(features)

    return run


def _mlp_step(device: torch.device) -> Callable[[], object]:
    network = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 10)).to(device)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-9)
    features, labels = torch.randn(32, 128, device=device), torch.randint(0, 10, (32,), device=device)

    def run() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(features), labels).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        optimizer.step()

    return run


_PROGRAMS: dict[str, Callable[[torch.device], Callable[[], object]]] = {
    "matmul": _matmul,
    "add": _add,
    "softmax": _softmax,
    "conv": _conv,
    "linear": _linear,
    "mlp_step": _mlp_step,
}
