"""Single operations on tensors: arithmetic, sums, Fourier transforms, inversion, convolution, and a product written in several ways."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  # what everybody calls it

from dlbench import Cache, Copies, Dtype, Layout, Least, Role, Size, Sweep, Work, operands, with_copies, workload
from dlbench.kit.memory import before_call
from dlbench.kit.modes import Kernels, take_kernels
from dlbench.kit.precision import autocast, output, refuse_autocast, storage
from dlbench.models.operations import FASTER_CONVOLUTION


@workload(tags=("memory",))
def elementwise(device: torch.device, *, n: Sweep[Size], dtype: Dtype = "fp32", copies: Copies = "none") -> Work:
    """Compute a + 2 b of two vectors of n numbers."""
    refuse_autocast(dtype)
    a, b = operands(device, (n,), (n,), dtype=dtype)
    out = torch.empty_like(a)
    work = Work(
        call=lambda: torch.add(a, b, alpha=2, out=out),
        inputs=(a, b),
        flops=2 * n,  # a multiply and an add each
        bytes=3 * a.nbytes,  # read both, write the sum
    )
    return with_copies(device, work, copies)


@workload(tags=("memory",))
def reduction(device: torch.device, *, n: Sweep[Size], dtype: Dtype = "fp32", copies: Copies = "none") -> Work:
    """Sum a vector of n numbers."""
    refuse_autocast(dtype)
    (a,) = operands(device, (n,), dtype=dtype)
    work = Work(
        call=a.sum,
        inputs=(a,),
        flops=n,  # n - 1 adds
        bytes=a.nbytes,
    )
    return with_copies(device, work, copies)


@workload(tags=("compute",))
def fft(device: torch.device, *, n: Sweep[Size], batch: Size = 1, copies: Copies = "none") -> Work:
    """Transform `batch` rows of n complex numbers of twice 32 bits."""
    (pairs,) = operands(device, (batch, n, 2), dtype="fp32")
    rows = torch.view_as_complex(pairs)
    work = Work(
        call=lambda: torch.fft.fft(rows),
        inputs=(rows,),
        items=batch,
        flops=5 * batch * n * math.log2(n) or None,  # of radix 2, by which FFTs are compared (https://www.fftw.org/speed/method.html)
        bytes=2 * rows.nbytes,  # read the rows, write their transforms
    )
    return with_copies(device, work, copies)


@workload(tags=("compute",))
def inverse(device: torch.device, *, n: Sweep[Size], dtype: Dtype = "fp32", copies: Copies = "none") -> Work:
    """Invert an n x n matrix."""
    refuse_autocast(dtype)  # the narrow types themselves torch refuses
    (a,) = operands(device, (n, n), dtype=dtype)
    # The other entries of a row sum to 0.8 n in magnitude, so that the diagonal dominates and few digits are lost.
    a.diagonal().add_(2 * n)
    work = Work(
        call=lambda: torch.linalg.inv(a),
        inputs=(a,),
        items=1,
        flops=2 * n**3,  # 2/3 n^3 for L and U, 4/3 n^3 for the inverse of them (LAPACK Working Note 41, appendix on getrf and getri)
        bytes=2 * a.nbytes,  # read the matrix, write its inverse
    )
    return with_copies(device, work, copies)


Padding = Annotated[int, Least(0)]


@workload(tags=("compute",))
def conv2d(
    device: torch.device,
    *,
    batch: Size,
    channels: Size,
    size: Sweep[Size],
    filters: Size,
    kernel: Size,
    stride: Size = 1,
    padding: Padding | None = None,
    direction: Literal["forward", "forward_backward"] = "forward",
    layout: Layout = "nchw",
    dtype: Dtype = "fp32",
    cache: Cache = "hot",
    copies: Copies = "none",
    kernels: Kernels = "vendor",
) -> Work:
    """Convolve `size` x `size` images with `kernel` x `kernel` filters; padding is kernel // 2 by default."""
    take_kernels(kernels, device, dtype)
    if padding is None:
        padding = kernel // 2
    out = (size + 2 * padding - kernel) // stride + 1  # height and width of the output
    if out < 1:
        raise ValueError(f"a kernel of {kernel} is larger than an image of {size} with {padding} padding at each side")

    order = torch.channels_last if layout == "channels_last" else torch.contiguous_format
    shapes = (batch, channels, size, size), (filters, channels, kernel, kernel)
    x, weight = (each.contiguous(memory_format=order) for each in operands(device, *shapes, dtype=dtype))
    outputs = batch * filters * out * out
    flops = 2 * outputs * channels * kernel**2  # each output of channels kernel^2 multiplies and adds
    fewest = flops / FASTER_CONVOLUTION if kernel > 1 else flops
    least = x.nbytes + weight.nbytes + outputs * output(dtype).itemsize  # read x and weight, write the output
    convolve = autocast(device, dtype, lambda: F.conv2d(x, weight, stride=stride, padding=padding))
    work = Work(
        call=convolve,
        before=before_call(device, cache),
        inputs=(x.detach(), weight.detach()),
        items=batch,
        flops=flops,
        least_flops=fewest,
        bytes=least,
    )
    if direction == "forward_backward":
        # Of the loss by the output: what the next layer's backward would hand over.
        (gradient,) = operands(device, (batch, filters, out, out), dtype=dtype)
        gradient = gradient.to(output(dtype), memory_format=order)
        x.requires_grad_()
        weight.requires_grad_()

        def forward_backward() -> tuple[Tensor, ...]:
            return torch.autograd.grad(convolve(), (x, weight), gradient)

        # The gradients of x and of weight are two more convolutions of the same size, over the same three tensors.
        work = replace(work, call=forward_backward, flops=3 * flops, least_flops=3 * fewest, bytes=3 * least)
    return with_copies(device, work, copies)


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
        if library != "torch":  # the default
            raise NotImplementedError("loops over lists take no library; leave it out")
        if storage(dtype) is not torch.float64:
            raise NotImplementedError("Python's own numbers are fp64")
        multiply = partial(_multiply_by_loops, a.tolist(), b.T.tolist())
        inputs = ()  # a check can't fill lists with other numbers, as it does tensors
    else:
        multiply = {"torch": _product_in_torch, "numpy": _product_in_numpy}[library](a, b, by_rows=form == "rows")
    return Work(call=multiply, inputs=inputs, items=1, flops=2 * n**3, bytes=3 * a.nbytes)


def _multiply_by_loops(rows: Matrix, columns: Matrix) -> list[list[float]]:
    """Return the n x n products of rows and columns, written as plain loops on purpose."""
    product = []
    for row in rows:
        products = []
        for column in columns:
            total = 0.0
            for x, y in zip(row, column, strict=True):
                total += x * y
            products.append(total)
        product.append(products)
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
