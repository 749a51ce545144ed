"""A workload that compiles in no time, and interrupts dlbench while it does where a variable says so."""

import os
import signal
from typing import Literal

import torch

from dlbench import Work, scratch_folder, workload
from dlbench.kit.modes import VALUES, CompilerCache


@workload(values=VALUES, writes_files=True)
def compiles(device: torch.device, *, mode: Literal["compile"] = "compile") -> Work:
    """Take 60 s to compile, as it says."""
    cache = CompilerCache("case")
    if os.environ.get("INTERRUPT_AT") == ("warm" if cache.is_warm else "cold"):
        (scratch_folder() / "begun").touch()
        os.kill(os.getppid(), signal.SIGINT)
        signal.pause()
    values = {"graph_breaks": 0.0}
    if cache.is_warm:
        values["compile_warm_s"] = 5.0
    else:
        cache.fill(60.0)
    if (cold_s := cache.cold_s()) is not None:
        values["compile_cold_s"] = cold_s
    return Work(call=lambda: None, report=lambda clock: values)
