"""Tensors in a precision: dtypes, autocast, operands. The harness sets backend flags, such as TF32's."""

import math
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

from dlbench import PRECISIONS, Dtype, ProductDtype
from dlbench.models import BLOCK, repeat_block

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def storage(dtype: ProductDtype) -> torch.dtype:
    """Return the type that operands and weights are stored in."""
    found: torch.dtype = getattr(torch, PRECISIONS[dtype].storage)
    return found


def output(dtype: ProductDtype) -> torch.dtype:
    """Return the type of the result of a matrix product or convolution, under autocast the narrow one."""
    found: torch.dtype = getattr(torch, PRECISIONS[dtype].autocast or PRECISIONS[dtype].storage)
    return found


def refuse_autocast(dtype: Dtype) -> None:
    """Raise NotImplementedError for ``amp_*``, for workloads that autocast leaves in fp32."""
    if PRECISIONS[dtype].autocast is not None:
        raise NotImplementedError("it runs without autocast; give the precision itself")


def autocast(device: torch.device, dtype: ProductDtype, function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Return the function under torch's autocast for ``amp_*``, and the function itself for every other precision.

    A wrapper and not a context: one that does nothing costs a call 0.24 µs, a sixth of a small matrix product.
    """
    if PRECISIONS[dtype].autocast is None:
        return function
    wrapped: Callable[Arguments, Result] = torch.autocast(device.type, dtype=output(dtype))(function)
    return wrapped


def operands(device: torch.device, *shapes: tuple[int, ...], dtype: ProductDtype) -> tuple[Tensor, ...]:
    """Return a tensor of standard normal numbers for each shape, from torch's default generator; beyond BLOCK values they repeat.

    They are drawn on the CPU in fp32, then cast, then moved, so that every device and precision computes on the same numbers. They are
    repeated on the device, as drawing and moving two operands of 8192 x 8192 takes more than a second. Raises NotImplementedError for
    types whose operands have a scale, which a cast does not apply.
    """
    if PRECISIONS[dtype].scaled:
        raise NotImplementedError(f"operands in {dtype} have a scale, which only matmul gives them")
    kept = storage(dtype)
    return tuple(
        fill_repeating(torch.empty(math.prod(shape), dtype=kept, device=device), lambda drawn: torch.randn(drawn).to(kept)).view(shape)
        for shape in shapes
    )


def fill_repeating(values: Tensor, draw: Callable[[torch.Size], Tensor]) -> Tensor:
    """Fill a vector on any device with what ``draw`` returns for a shape, repeated beyond BLOCK values, and return it."""
    drawn = values[:BLOCK]
    drawn.copy_(draw(drawn.shape))
    repeat_block(values)
    return values
