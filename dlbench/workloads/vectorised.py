"""One matrix product written in several ways: by loops, by rows, in one call; in NumPy and in torch."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from dlbench import Dtype, Role, Size, Sweep, Work, operands, workload
from dlbench.kit.precision import refuse_autocast, storage

Matrix = Sequence[Sequence[float]]


@workload(tags=("compute",))
def vectorised(
    device: torch.device,
    *,
    n: Sweep[Size],
    form: Annotated[Literal["loops", "rows", "whole"], Role("way", "loops")] = "whole",
    library: Annotated[Literal["torch", "numpy"], Role("way", "numpy")] = "torch",
    dtype: Annotated[Dtype, Role("way", "fp64")] = "fp64",
) -> Work:
    """Multiply n x n matrices: by loops over lists, row by row, or in one call of a library; on a CPU."""
    if device.type != "cpu":
        raise NotImplementedError("it compares ways to program a CPU")
    refuse_autocast(dtype)
    a, b = operands(device, (n, n), (n, n), dtype=dtype)
    multiply: Callable[[], Any]
    inputs: tuple[Tensor, ...] = (a, b)
    if form == "loops":
        if library != "torch":  # another than the default was asked for
            raise NotImplementedError("loops over lists take no library; leave it out")
        if storage(dtype) is not torch.float64:
            raise NotImplementedError("Python's own numbers are fp64")
        multiply = partial(_multiply_by_loops, a.tolist(), b.T.tolist())
        inputs = ()  # a check can't fill lists with other numbers, as it does tensors
    elif library == "numpy":
        multiply = _product_in_numpy(a, b, by_rows=form == "rows")
    else:
        multiply = _product_in_torch(a, b, by_rows=form == "rows")
    return Work(
        call=multiply,
        inputs=inputs,
        items=1,
        flops=2 * n**3,  # n^2 outputs, each of n multiplies and n adds
        bytes=3 * a.nbytes,  # read both, write the product
    )


def _multiply_by_loops(rows: Matrix, columns: Matrix) -> list[list[float]]:
    """Return the product of a matrix given by its rows and one given by its columns, written as plain loops on purpose."""
    product = []
    for row in rows:
        row_of_product = []
        for column in columns:
            total = 0.0
            for x, y in zip(row, column, strict=True):
                total += x * y
            row_of_product.append(total)
        product.append(row_of_product)
    return product


def _product_in_torch(a: Tensor, b: Tensor, *, by_rows: bool) -> Callable[[], Tensor]:
    """Return a call that multiplies two matrices in torch, at once or row by row."""
    if by_rows:
        return lambda: torch.stack([row @ b for row in a])
    return lambda: a @ b


def _product_in_numpy(a: Tensor, b: Tensor, *, by_rows: bool) -> Callable[[], Any]:
    """Return a call that multiplies NumPy's views of two matrices, in as many threads as NumPy's library chooses.

    Raises NotImplementedError where NumPy is not installed.
    """
    try:
        import numpy as np  # here and not at the top: nothing else that measures needs it
    except ImportError as error:
        raise NotImplementedError("NumPy is not installed") from error
    x, y = a.numpy(), b.numpy()
    if by_rows:
        return lambda: torch.from_numpy(np.stack([row @ y for row in x]))
    return lambda: torch.from_numpy(x @ y)
