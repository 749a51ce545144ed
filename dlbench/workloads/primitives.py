"""Single operations on tensors: arithmetic, sums, Fourier transforms, inversion and convolution."""

import math
from dataclasses import replace
from typing import Annotated, Literal

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  # what everybody calls it

from dlbench import Cache, Copies, Dtype, Layout, Least, Size, Sweep, Work, operands, with_copies, workload
from dlbench.kit.memory import before_call
from dlbench.kit.modes import Kernels, take_kernels
from dlbench.kit.precision import autocast, output, refuse_autocast
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
    take_kernels(kernels, device, dtype)  # torch uses these until the next case
    if padding is None:
        padding = kernel // 2
    output_size = (size + 2 * padding - kernel) // stride + 1  # height and width
    if output_size < 1:
        raise ValueError(f"a kernel of {kernel} is larger than an image of {size} with {padding} padding at each side")

    memory_format = torch.channels_last if layout == "channels_last" else torch.contiguous_format
    shapes = (batch, channels, size, size), (filters, channels, kernel, kernel)
    x, weight = (drawn.contiguous(memory_format=memory_format) for drawn in operands(device, *shapes, dtype=dtype))
    output_shape = (batch, filters, output_size, output_size)
    outputs = math.prod(output_shape)
    flops = 2 * outputs * channels * kernel**2  # an output takes channels x kernel^2 multiplies, and as many adds
    # Winograd's algorithm divides the operations by this factor. It saves none in a 1 x 1 convolution, which is a matrix product.
    least_flops = flops / FASTER_CONVOLUTION if kernel > 1 else flops
    least_bytes = x.nbytes + weight.nbytes + outputs * output(dtype).itemsize  # read x and weight, write the output
    convolve = autocast(device, dtype, lambda: F.conv2d(x, weight, stride=stride, padding=padding))
    work = Work(
        call=convolve,
        before=before_call(device, cache),  # for a cold cache it overwrites what the last call left there
        inputs=(x.detach(), weight.detach()),  # the same memory; what is done to them is not recorded for gradients
        items=batch,
        flops=flops,
        least_flops=least_flops,
        bytes=least_bytes,
    )
    if direction == "forward_backward":
        # The gradient of the loss by the output, as the backward pass of the next layer would hand it over.
        (gradient,) = operands(device, output_shape, dtype=dtype)
        gradient = gradient.to(output(dtype), memory_format=memory_format)
        x.requires_grad_()
        weight.requires_grad_()

        def forward_backward() -> tuple[Tensor, ...]:
            return torch.autograd.grad(convolve(), (x, weight), gradient)

        # The gradients of x and of weight are two more convolutions of the same size, over the same three tensors.
        work = replace(work, call=forward_backward, flops=3 * flops, least_flops=3 * least_flops, bytes=3 * least_bytes)
    return with_copies(device, work, copies)
