"""Workloads whose cases search: one takes memory by its batch, one takes a time that depends on its choices."""

from typing import Annotated, Literal

import torch

from dlbench import Least, Search, Size, Unit, Value, Work, scratch_folder, workload

MIB = 1 << 20


@workload(
    values=(Value("largest_batch", Unit.COUNT, "higher", "the largest batch that fits", optional=True),),
    search=Search("largest", ("batch",), limit="memory_gib", value="largest_batch"),
)
def fill(device: torch.device, *, batch: Size | None = None, memory_gib: Annotated[float, Least(0)] | None = None, mib: Size = 2) -> Work:
    """Write to so many MiB for each sample of a batch."""
    assert batch is not None
    # Not of torch, whose threads would take memory as well: as much as there are CPUs.
    return Work(call=lambda: b"x" * (batch * mib * MIB), items=batch)


@workload(search=Search("fastest", ("dtype", "batch")))
def choose(device: torch.device, *, n: Size, dtype: Literal["fp32", "bf16"] | None = None, batch: Size | None = None) -> Work:
    """Take a time that is least for bf16, for a sample at batch=32."""
    assert batch is not None
    spins = n * (batch if batch <= 32 else batch * batch // 32) * (1 if dtype == "bf16" else 2) + 20 * n

    def call() -> None:
        for _ in range(spins):
            pass

    return Work(call=call, items=batch)


@workload(scratch="path")
def write(device: torch.device, *, path: str = ".", mib: Size = 1) -> Work:
    """Write a file of so many MiB."""
    file = scratch_folder() / "file"
    return Work(call=lambda: file.write_bytes(bytes(mib * MIB)))
