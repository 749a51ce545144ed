"""Copies within a call: its inputs from host memory to the device and its output back."""

from dataclasses import replace
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from dlbench import Role, Work
from dlbench.kit.host_memory import page_locked

Copies = Annotated[Literal["none", "pageable", "pinned"], Role("copies")]
"""How operands get to an accelerator: they are there, or each call copies them from pageable or from page-locked host memory."""


def with_copies(device: torch.device, work: Work, copies: Copies) -> Work:
    """Return the work with calls that copy its inputs to the device ahead, into the same tensors, and its output back behind.

    The output is a tensor or a tuple of them. ``pageable`` copies as plain code does: blocking, the output into fresh memory.
    ``pinned`` only starts the copies, in the order of the current stream, from and to page-locked memory that the first call, which is
    never timed, leaves there. The inputs of the new work are those in host memory; it returns the output on the device, and its counts
    are those of the operation.

    Raises NotImplementedError on a CPU and where torch locks no memory for such a device, MemoryError where that would be too much.
    """
    if copies == "none":
        return work
    if device.type == "cpu":
        raise NotImplementedError("a CPU computes on host memory, so there is nothing to copy to it")
    compute = work.call
    assert compute is not None, "an observe has no call to copy for"  # noqa: S101  # Work's own rule
    there = [tensor.detach() for tensor in work.inputs]
    on_host = tuple(tensor.cpu() for tensor in there)
    if copies == "pinned":
        on_host = tuple(map(_pinned, on_host))
    buffers: list[Tensor] = []

    def call() -> Any:
        for tensor, source in zip(there, on_host, strict=True):
            tensor.copy_(source, non_blocking=copies == "pinned")
        output = compute()
        outputs = [each.detach() for each in (output if isinstance(output, tuple) else (output,))]
        if copies == "pageable":
            _ = [each.cpu() for each in outputs]  # all there together, as they are where somebody uses them
            return output
        if not buffers:
            buffers.extend(_pinned(each.cpu()) for each in outputs)
        for buffer, each in zip(buffers, outputs, strict=True):
            buffer.copy_(each, non_blocking=True)
        return output

    return replace(work, call=call, inputs=on_host)


def _pinned(tensor: Tensor) -> Tensor:
    """Return a page-locked copy in the same memory layout."""
    return page_locked(tensor).copy_(tensor)
