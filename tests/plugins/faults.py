"""Workloads that go wrong, each in its own way, for tests of what the runner makes of it."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import torch

from dlbench import Unit, Value, Work, workload

WAITING = [sys.executable, "-c", "import signal; signal.pause()"]


def numbers(*names):
    return tuple(Value(name, Unit.NUMBER, None, "told") for name in names)


def raise_error():
    raise ValueError("the numbers do not add up\nand more lines that nobody wants in a table")


def scribble():
    """Write into every descriptor of its process, among them the one that dlbench's own messages take."""
    for descriptor in range(3, 64):
        with contextlib.suppress(OSError):
            os.write(descriptor, b"1, 2, 3\n")


CALLS = {
    "raises": raise_error,
    "segfaults": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "exits": lambda: os._exit(7),
    "scribbles": scribble,
    "too_big": lambda: torch.empty(1 << 50, dtype=torch.uint8),
    "unsupported_op": lambda: torch.linalg.inv(torch.ones(2, 2, dtype=torch.bfloat16)),
}
EXPERIMENTS = {"experiment": {"accuracy": 0.75, "loss": 1.5}, "infinite_experiment": {"loss": float("inf")}}


def register(name, work, **declared):
    def function(device: torch.device) -> Work:
        return work

    function.__name__ = name
    workload(**declared)(function)


for name, call in CALLS.items():
    register(name, Work(call=call, items=1))
for name, values in EXPERIMENTS.items():
    register(name, Work(observe=lambda clock, values=values: values), values=numbers(*values))
register("returns_nothing", None)


@workload
def fine(device: torch.device, *, n: int = 4) -> Work:
    """Add two small tensors."""
    a = torch.randn(n, device=device)
    return Work(call=lambda: a + a, inputs=(a,), items=1, flops=n, bytes=3 * a.nbytes)


@workload(tags=("inference",))
def troubled_in_its_profile(device: torch.device, *, trouble: str) -> Work:
    """Go well until a profiler watches; a trouble that is the name of a file is waited in, once that is there."""
    a = torch.randn(4, device=device)

    def wait():
        Path(trouble).touch()
        threading.Event().wait()

    def fault():
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    troubles = {"segfault": CALLS["segfaults"], "exit": CALLS["exits"], "fault": fault}

    def call():
        if torch.autograd._profiler_enabled():
            troubles.get(trouble, wait)()
        return a + a

    return Work(call=call, inputs=(a,), items=1)


@workload
def hangs(device: torch.device, *, pid_file: str = "") -> Work:
    """Never return, and leave a grandchild that never does either."""

    def hang():
        child = subprocess.Popen(WAITING)
        if pid_file:
            Path(pid_file).write_text(f"{os.getpid()} {child.pid}")
        threading.Event().wait()

    return Work(call=hang, items=1)


@workload
def chatters(device: torch.device) -> Work:
    """Print to stdout, which is no place for a protocol."""
    sys.stdout.write("hello from the workload\n")
    os.write(1, b'{"pid": 1}\n')
    return Work(call=lambda: None, items=1)


@workload
def leaves_a_child(device: torch.device, *, pid_file: str) -> Work:
    """Start a process and forget it."""
    Path(pid_file).write_text(str(subprocess.Popen(WAITING).pid))
    return Work(call=lambda: None, items=1)


@workload(values=numbers("pid", "parent", "hash_seed", "padding", "threads", "first_random"))
def remembers_processes(device: torch.device) -> Work:
    """Tell which process it ran in and with which layout."""
    process = {"pid": os.getpid(), "parent": os.getppid(), "threads": torch.get_num_threads()}
    layout = {"hash_seed": int(os.environ["PYTHONHASHSEED"]), "padding": len(os.environ["DLBENCH_PADDING"])}
    return Work(observe=lambda clock: {**process, **layout, "first_random": torch.rand(1).item()})
