"""Elementwise arithmetic: one pass over memory, with next to nothing to compute."""

import torch

from dlbench import Copies, Dtype, Size, Sweep, Work, operands, with_copies, workload
from dlbench.kit.precision import refuse_autocast


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
