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


@workload(tags=("inference",))
def products(device: torch.device) -> Work:
    """Multiply."""
    a = torch.randn(N, N, device=device)
    return Work(call=sixteen_times(lambda: a @ a), items=1, flops=16 * 2 * N**3)


@workload(tags=("inference",))
def by_number(device: torch.device) -> Work:
    """Add, and take the sine."""
    a = torch.randn(N, N, device=device)
    return Work(call=sixteen_times(lambda: (a + 1).sin()), items=1)


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


@workload(tags=("inference",))
def captured_step(device: torch.device) -> Work:
    """Say that its operations can't be told apart."""
    return Work(call=lambda: None, countable_operations=False)


@workload(tags=("inference",))
def tried(device: torch.device, *, batch: Searched[Size] = None) -> Work:
    """Stand for a try of a search."""
    return Work(call=lambda: None, items=batch)


@workload(tags=("inference",))
def refuses(device: torch.device) -> Work:
    """Raise where it is watched."""

    def call():
        if torch.autograd._profiler_enabled():
            raise RuntimeError("not while you watch")

    return Work(call=call)


@workload(tags=("compute",))
def no_step(device: torch.device) -> Work:
    """Do what is no step."""
    a = torch.randn(N, N, device=device)
    return Work(call=lambda: a @ a, flops=2 * N**3)
