"""What a `Dtype` means for tensors. Backend flags, such as those that tell tf32 from fp32, are the harness's."""

import math
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

from dlbench.harness.registry import Dtype
from dlbench.models import BLOCK, repeat_block

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

STORAGE: dict[Dtype, torch.dtype] = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "amp_bf16": torch.float32,
    "amp_fp16": torch.float32,
}

AUTOCAST: dict[Dtype, torch.dtype] = {"amp_bf16": torch.bfloat16, "amp_fp16": torch.float16}


def storage(dtype: Dtype) -> torch.dtype:
    """Return what operands and weights are stored in."""
    return STORAGE[dtype]


def output(dtype: Dtype) -> torch.dtype:
    """Return what a matrix product or convolution comes out in: under autocast the narrow type."""
    return AUTOCAST.get(dtype, STORAGE[dtype])


def autocast(device: torch.device, dtype: Dtype, function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Return the function under torch's autocast for ``amp_*``, and the function itself for every other precision.

    A wrapper and not a context: one that does nothing costs a call 0.24 µs, a sixth of a small matrix product.
    """
    if dtype not in AUTOCAST:
        return function
    wrapped: Callable[Arguments, Result] = torch.autocast(device.type, dtype=AUTOCAST[dtype])(function)
    return wrapped


def operands(device: torch.device, *shapes: tuple[int, ...], dtype: Dtype) -> tuple[Tensor, ...]:
    """Return one tensor of standard normal numbers for each shape, drawn from torch's default generator; beyond BLOCK values they repeat.

    Drawn on the CPU in fp32, then cast, then moved, so that every device and precision computes on the same numbers. Repeated on the
    device: drawing all of two operands of 8192 x 8192 takes more than a second of each case, and moving them another part of one.
    """
    return tuple(_normal(device, shape, storage(dtype)) for shape in shapes)


def _normal(device: torch.device, shape: tuple[int, ...], stored: torch.dtype) -> Tensor:
    values = torch.empty(math.prod(shape), dtype=stored, device=device)
    drawn = values[:BLOCK]
    drawn.copy_(torch.randn(drawn.shape).to(stored))
    repeat_block(values)
    return values.view(shape)
