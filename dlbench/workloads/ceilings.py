"""Ceilings of a machine other than arithmetic (bandwidth of its memory, launches, synchronisations), and calls of known cost."""

import math
from collections.abc import Callable
from functools import partial
from time import perf_counter_ns
from typing import Annotated, Literal

import torch
from torch import Tensor, nn

from dlbench import Duration, Least, Size, Work, workload
from dlbench.kit.memory import fresh_pages, last_cache_bytes, refuse_more_than_left
from dlbench.kit.precision import fill_repeating

TIMES_THE_CACHE = 4
"""Each array is at least so many times as large as the last-level cache, so that the cache holds little of it. This is STREAM's own rule:
see "Sizing" at https://www.cs.virginia.edu/stream/ref.html."""
UNCACHED = 8
"""On CUDA a call of default size moves at least so many times the bytes of the last cache. `core.reference.peaks` compares the rate of a
smaller call with no published bandwidth."""
LEAST = 256 << 20
"""Least bytes of each buffer by default: an accelerator moves them in more time than a launch takes."""
_WHOLE = 4096
"""Default sizes are multiples of this."""


@workload(tags=("ceiling",), ceiling="memory")
def stream(device: torch.device, *, op: Literal["copy", "triad", "sum", "fill"], bytes: Size | None = None) -> Work:  # noqa: A002  # its standard name
    """Move buffers of `bytes` bytes through memory: a = b, a = b + 3 c, sum of a, or a = 3.

    The default size is 256 MiB, or four times the last cache where that is more. On CUDA it also makes all buffers together eight
    times the last cache at least. A given size below four times the cache is refused.

    Copy and triad are those of McCalpin's STREAM (https://www.cs.virginia.edu/stream/) in fp32. Bytes count as there: each number that the
    program reads or writes. A CPU also reads the cache lines of `a` before it writes them, and these reads do not count.
    """
    buffer_count = {"copy": 2, "triad": 3, "sum": 1, "fill": 1}[op]
    cache_bytes = last_cache_bytes(device)
    least_bytes = TIMES_THE_CACHE * cache_bytes
    bytes = bytes or _default_bytes(device, buffer_count, cache_bytes)  # noqa: A001  # see above
    if bytes < least_bytes:
        raise ValueError(
            f"buffers of {bytes} bytes would measure the cache; give {least_bytes} at least, {TIMES_THE_CACHE} times its size, or none"
        )
    if device.type == "cpu":  # an accelerator refuses what it lacks; a host may promise it, and kill the process that writes there
        refuse_more_than_left(buffer_count * bytes, "its buffers take")
    a, *others = (_buffer(device, bytes // 4) for _ in range(buffer_count))  # a number in fp32 has 4 bytes

    def call() -> None:
        match op:
            case "copy":
                a.copy_(others[0])
            case "triad":
                torch.add(*others, alpha=3, out=a)
            case "sum":
                a.sum()
            case "fill":
                a.fill_(3)

    return Work(call=call, bytes=buffer_count * a.nbytes)


def _default_bytes(device: torch.device, buffer_count: int, cache_bytes: int) -> int:
    """Return the default size of each of ``buffer_count`` buffers in bytes; ``cache_bytes``: the size of the device's last cache."""
    wanted = max(LEAST, TIMES_THE_CACHE * cache_bytes)
    if device.type == "cuda":
        wanted = max(wanted, UNCACHED * cache_bytes // buffer_count)
    return math.ceil(wanted / _WHOLE) * _WHOLE


def _buffer(device: torch.device, numbers: int) -> Tensor:
    """Return a vector of repeated normal fp32 numbers; all its pages are mapped, so that none is while the clock runs."""
    on_host = device.type == "cpu"
    values = fresh_pages(4 * numbers).view(torch.float32) if on_host else torch.empty(numbers, device=device)
    return fill_repeating(values, torch.randn)


@workload(tags=("ceiling",), ceiling="launch")
def launch_kernel(device: torch.device) -> Work:
    """Negate one number. On an accelerator that keeps up this is the time of a launch, on a CPU that of finding and calling a kernel."""
    return Work(call=torch.ones(1, device=device).neg_, items=1)


@workload(tags=("ceiling",), ceiling="synchronisation")
def synchronise(device: torch.device) -> Work:
    """Negate one number and wait until that is done. On a CPU, which is done when the call returns, this is the same as `launch_kernel`."""
    one = torch.ones(1, device=device)

    def call() -> None:
        one.neg_()
        torch.accelerator.synchronize(device)

    return Work(call=one.neg_ if device.type == "cpu" else call, items=1)


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
        start_ns = perf_counter_ns()
        run()
        wait_for_device()
        end_ns = perf_counter_ns()
        extra_percent = 100 if tail and calls % TAIL_EVERY == 0 else percent
        slowed_end_ns = end_ns + (end_ns - start_ns) * extra_percent // 100
        while perf_counter_ns() < slowed_end_ns:
            pass

    return Work(call=call, items=1)


def _prepare_program(program: Program, device: torch.device) -> Callable[[], object]:
    """Create the tensors and layers of a program, and return a function that runs the program once."""
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
            optimizer = torch.optim.SGD(network.parameters(), lr=1e-9)  # so small that the weights, and with them the work, stay the same
            inputs, labels = draw(32, 128), torch.randint(0, 10, (32,), device=device)

            def run() -> None:
                optimizer.zero_grad()
                nn.functional.cross_entropy(network(inputs), labels).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
                optimizer.step()

            return run
