"""Reductions: all of memory read, one number written."""

import torch

from dlbench import Copies, Dtype, Size, Sweep, Work, operands, with_copies, workload
from dlbench.kit.precision import refuse_autocast


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
