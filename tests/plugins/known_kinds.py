"""Steps whose time is of one known kind of operation each, and steps that can't be profiled."""

from pathlib import Path

import torch
from torch import nn

from dlbench import Searched, Size, Work, workload

N = 256


def sixteen_times(function):
    def call():
        for _ in range(16):
            found = function()
        return found

    return call


def refuse():
    if torch.autograd._profiler_enabled():
        raise RuntimeError("not while you watch")


def register(name, call, tag="inference", **given):
    """Register a workload that calls a function of a square matrix."""

    def function(device: torch.device) -> Work:
        a = torch.randn(N, N, device=device)
        return Work(call=call(a), **given)

    function.__name__ = name
    workload(tags=(tag,))(function)


register("products", lambda a: sixteen_times(lambda: a @ a), items=1, flops=16 * 2 * N**3)
register("by_number", lambda a: sixteen_times(lambda: (a + 1).sin()), items=1)
register("captured_step", lambda a: lambda: None, countable_operations=False)
register("refuses", lambda a: refuse)
register("no_step", lambda a: lambda: a @ a, tag="compute", flops=2 * N**3)


@workload(tags=("inference",))
def tried(device: torch.device, *, batch: Searched[Size] = None) -> Work:
    """Stand for a try of a search."""
    return Work(call=lambda: None, items=batch)


@workload(tags=("training",))
def large_update(device: torch.device) -> Work:
    """Update many weights, of which few are used."""
    weights = nn.Parameter(torch.randn(1 << 20, device=device))
    update = torch.optim.AdamW([weights], foreach=False)

    def call():
        update.zero_grad()
        loss = weights[:8].sum()
        loss.backward()
        update.step()
        return loss.detach()

    return Work(call=call, items=1)


@workload(tags=("training",))
def layered(device: torch.device, *, file: str = "") -> Work:
    """Train two layers, one of them large, and note each call in a file, and whether a profiler watches it."""
    network = nn.Sequential(nn.Linear(N, N), nn.ReLU(), nn.Sequential(nn.Linear(N, 4)))
    x = torch.randn(N, N, device=device)

    def note(text):
        if file:
            with Path(file).open("a") as lines:
                lines.write(f"{text}\n")

    def call():
        note("profiled" if torch.autograd._profiler_enabled() else "called")
        network.zero_grad()  # without an optimizer, whose first step imports a compiler for a second
        network(x).sum().backward()

    note("set up")
    return Work(call=call, report=lambda clock: note("reported") or {}, items=1)
