"""Workloads that tell on which side they run, and whose fate the environment decides."""

import os
import sys
from pathlib import Path
from typing import Literal

import torch

from dlbench import Unit, Value, Work, workload

STATE = 1


@workload(values=tuple(Value(name, Unit.NUMBER, None, "told") for name in ("state", "pid", "hash_seed", "first_random", "here")))
def tells(device: torch.device) -> Work:
    """Tell what it is, and in which process it runs."""
    process = {"state": STATE, "pid": os.getpid(), "hash_seed": int(os.environ["PYTHONHASHSEED"]), "here": Path("here.txt").is_file()}
    return Work(observe=lambda clock: {**process, "first_random": torch.rand(1).item()})


PACKAGES = ("click", "msgspec", "rich", "pandas", "psutil", "pynvml", "torch")


@workload(values=tuple(Value(name, Unit.NUMBER, None, "1 if imported") for name in PACKAGES))
def lists_modules(device: torch.device) -> Work:
    """Tell which packages that a measuring process can do without were imported all the same."""
    return Work(observe=lambda clock: {name: name in sys.modules for name in PACKAGES})


@workload()
def meets_its_fate(device: torch.device, *, fate: Literal["raises", "dies", "lives"]) -> Work:
    """Fail in that way if the environment says that it is fated to."""

    def call():
        if "FATED" in os.environ and fate == "raises":
            raise ValueError("so it was written")
        if "FATED" in os.environ and fate == "dies":
            os._exit(9)

    return Work(call=call)
