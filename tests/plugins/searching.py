"""Workloads whose cases search: one takes memory by its batch, one takes a time that depends on its choices."""

from typing import Annotated, Literal

import torch

import dlbench
from dlbench import Least, Limit, Searched, SearchedCores, Size, Work, scratch_folder, workload

MIB = 1 << 20
LARGEST = dlbench.Value("largest_batch", dlbench.Unit.COUNT, "higher", "the largest batch that fits", optional=True, role="largest")
Memory = Limit[Annotated[float, Least(0)]]


@workload(values=(LARGEST,))
def fill(device: torch.device, *, batch: Searched[Size] = None, memory_gib: Memory = None, mib: Size = 2) -> Work:
    """Write to so many MiB for each sample of a batch."""
    assert batch is not None
    # Not of torch, whose threads would take memory as well: as much as there are CPUs.
    return Work(call=lambda: b"x" * (batch * mib * MIB), items=batch)


@workload
def choose(device: torch.device, *, n: Size, dtype: Searched[Literal["fp32", "bf16"]] = None, batch: Searched[Size] = None) -> Work:
    """Take a time that is least for bf16, for a sample at batch=32."""
    assert batch is not None
    spins = n * (batch if batch <= 32 else batch * batch // 32) * (1 if dtype == "bf16" else 2) + 20 * n

    def call() -> None:
        for _ in range(spins):
            pass

    return Work(call=call, items=batch)


@workload
def spread(device: torch.device, *, dtype: Searched[Literal["fp32", "bf16"]] = None, threads: SearchedCores[Size] = None) -> Work:
    """Add numbers, in as many threads as there are."""
    a = torch.ones(100_000)
    return Work(call=lambda: a + a, items=1)


@workload
def write(device: torch.device, *, path: dlbench.Scratch[str] = ".", mib: Size = 1) -> Work:
    """Write a file of so many MiB."""
    file = scratch_folder() / "file"
    return Work(call=lambda: file.write_bytes(bytes(mib * MIB)))


class Card(dlbench.Backend):
    """A card with a limit of memory, whose allocator counts what it refuses."""

    kind = "card"
    refused = 0
    limit_bytes: int | None = None

    def count(self) -> int:
        return 1

    def describe(self, index: int) -> dict[str, object]:
        return {"name": "Made-up card"}

    def device(self, index: int) -> torch.device:
        return torch.device("cpu")

    def limit_memory(self, device: torch.device, limit_bytes: int | None) -> None:
        self.limit_bytes = limit_bytes

    def failed_allocations(self, device: torch.device) -> int:
        return self.refused


CARD = Card()
dlbench.register_backend(CARD)


@workload(values=(LARGEST,))
def convolve(device: torch.device, *, batch: Searched[Size] = None, memory_gib: Memory = None) -> Work:
    """Take 2 MiB a sample of a card's memory, and fail beyond its limit as torch does with cuDNN."""
    assert batch is not None

    def call() -> None:
        if CARD.limit_bytes is not None and 2 * MIB * batch > CARD.limit_bytes:
            CARD.refused += 3  # once a plan
            find_no_engine("FIND")

    return Work(call=call, items=batch)


@workload()
def convolve_nothing(device: torch.device) -> Work:
    """Fail as torch does where cuDNN has no plan, with all memory free."""
    return Work(call=lambda: find_no_engine("GET"))


def find_no_engine(what: str) -> None:
    raise RuntimeError(f"{what} was unable to find an engine to execute this computation")
