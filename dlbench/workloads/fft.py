"""Fourier transforms: few operations a byte, by a library of its own on each device (MKL or pocketfft, cuFFT)."""

import math

import torch

from dlbench import Copies, Size, Sweep, Work, operands, with_copies, workload


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
