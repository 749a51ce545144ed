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


def _call(action):
    return Work(call=action, items=1)


@workload()
def fine(device: torch.device, *, n: int = 4) -> Work:
    """Add two small tensors."""
    a = torch.randn(n, device=device)
    return Work(call=lambda: a + a, inputs=(a,), items=1, flops=n, bytes=3 * a.nbytes)


@workload()
def raises(device: torch.device) -> Work:
    """Raise when called."""

    def fail():
        raise ValueError("the numbers do not add up\nand more lines that nobody wants in a table")

    return _call(fail)


@workload()
def returns_nothing(device: torch.device) -> Work:
    """Forget to return a Work."""


@workload()
def segfaults(device: torch.device) -> Work:
    """Die of a signal."""
    return _call(lambda: os.kill(os.getpid(), signal.SIGSEGV))


@workload()
def exits(device: torch.device) -> Work:
    """End the process without a word."""
    return _call(lambda: os._exit(7))


@workload()
def scribbles(device: torch.device) -> Work:
    """Write into every descriptor of its process, among them the one that dlbench's own messages take."""

    def scribble():
        for descriptor in range(3, 64):
            with contextlib.suppress(OSError):
                os.write(descriptor, b"1, 2, 3\n")

    return _call(scribble)


@workload(tags=("inference",))
def troubled_in_its_profile(device: torch.device, *, trouble: str) -> Work:
    """Go well until a profiler watches; a trouble that is the name of a file is waited in, once that is there."""
    a = torch.randn(4, device=device)

    def wait():
        Path(trouble).touch()
        threading.Event().wait()

    def fault():
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    troubles = {"segfault": lambda: os.kill(os.getpid(), signal.SIGSEGV), "exit": lambda: os._exit(7), "fault": fault}

    def call():
        if torch.autograd._profiler_enabled():
            troubles.get(trouble, wait)()
        return a + a

    return Work(call=call, inputs=(a,), items=1)


@workload()
def hangs(device: torch.device, *, pid_file: str = "") -> Work:
    """Never return, and leave a grandchild that never does either."""

    def hang():
        child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
        if pid_file:
            Path(pid_file).write_text(f"{os.getpid()} {child.pid}")
        threading.Event().wait()

    return _call(hang)


@workload()
def too_big(device: torch.device) -> Work:
    """Ask for more memory than any machine has."""
    return _call(lambda: torch.empty(1 << 50, dtype=torch.uint8))


@workload()
def unsupported_op(device: torch.device) -> Work:
    """Ask torch for what it has no kernel for."""
    a = torch.ones(2, 2, dtype=torch.bfloat16)
    return _call(lambda: torch.linalg.inv(a))


@workload()
def chatters(device: torch.device) -> Work:
    """Print to stdout, which is no place for a protocol."""
    sys.stdout.write("hello from the workload\n")
    os.write(1, b'{"pid": 1}\n')
    return _call(lambda: None)


@workload(values=tuple(Value(name, Unit.NUMBER, None, "told") for name in ("accuracy", "loss")))
def experiment(device: torch.device) -> Work:
    """Observe instead of being repeated."""
    return Work(observe=lambda clock: {"accuracy": 0.75, "loss": 1.5})


@workload(values=tuple(Value(name, Unit.NUMBER, None, "told") for name in ("loss",)))
def infinite_experiment(device: torch.device) -> Work:
    """Observe something that is no number."""
    return Work(observe=lambda clock: {"loss": float("inf")})


@workload()
def leaves_a_child(device: torch.device, *, pid_file: str) -> Work:
    """Start a process and forget it."""
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    Path(pid_file).write_text(str(child.pid))
    return _call(lambda: None)


@workload(
    values=tuple(Value(name, Unit.NUMBER, None, "told") for name in ("pid", "parent", "hash_seed", "padding", "threads", "first_random"))
)
def remembers_processes(device: torch.device) -> Work:
    """Tell which process it ran in and with which layout."""
    return Work(
        observe=lambda clock: {
            "pid": os.getpid(),
            "parent": os.getppid(),
            "hash_seed": int(os.environ["PYTHONHASHSEED"]),
            "padding": len(os.environ["DLBENCH_PADDING"]),
            "threads": torch.get_num_threads(),
            "first_random": torch.rand(1).item(),
        }
    )
