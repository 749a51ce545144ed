"""A pretend accelerator: the CPU under another name, with memory of its own to speak of, so that accelerator logic runs anywhere.

It says when it was synchronised and copied to, and one workload makes it fail as a faulty card does.
"""

import os
import time
from pathlib import Path

import torch

from dlbench import Backend, Memory, Unit, Value, Work, register_backend, workload


class Pretend(Backend):
    """Two devices, ``pretend:0`` and ``pretend:1``."""

    kind = "pretend"
    collectives = "gloo"
    block_s = 0.002
    warmup_s = 0.01

    def count(self):
        return 2

    def describe(self, index):
        return {"name": f"Pretend [/{index}] accelerator", "vendor": "nobody", "memory_bytes": 8 << 30}

    def device(self, index):
        return torch.device("cpu")

    def unsupported(self, device, dtype):
        return "a pretend device has no TF32" if dtype == "tf32" else None

    def peak(self, device):
        return Memory(peak_bytes=1_000_000, reserved_bytes=2_000_000)

    def to_device(self, tensors, device=None, *, non_blocking=False):
        return [tensor.detach().clone() for tensor in tensors]

    to_host = pin = to_device


register_backend(Pretend())


@workload(values=tuple(Value(name, Unit.NUMBER, None, "told") for name in ("pid",)))
def which_process(device: torch.device, *, n: int = 0) -> Work:
    """Tell which process it ran in."""
    return Work(observe=lambda clock: {"pid": os.getpid()})


def fail(error):
    raise error


@workload()
def faulty(device: torch.device, *, n: int = 0) -> Work:
    """Fail as CUDA does: the process is of no use afterwards."""
    return Work(call=lambda: fail(RuntimeError("CUDA error: an illegal memory access was encountered")))


@workload()
def runs_out(device: torch.device) -> Work:
    """Run out of device memory as CUDA does."""
    return Work(call=lambda: fail(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")))


@workload(values=tuple(Value(name, Unit.NUMBER, None, "told") for name in ("done",)))
def waits_for(device: torch.device, *, file: str) -> Work:
    """Run until a file exists, so that a test decides when a case ends."""

    def wait():
        while not Path(file).exists():
            time.sleep(0.01)

    return Work(observe=lambda clock: (wait(), {"done": 1.0})[1])
