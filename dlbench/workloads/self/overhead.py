"""Calls of known cost, which measure the harness itself."""

from time import perf_counter_ns

import torch

from dlbench import Duration, Work, workload


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
