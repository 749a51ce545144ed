"""Matrix products: most of the arithmetic in deep learning."""

import torch

from dlbench import Cache, Copies, Dtype, Probed, Size, Sweep, Work, with_copies, workload
from dlbench.kit.cache import before_call
from dlbench.kit.precision import autocast, operands, output


@workload(tags=("compute",), ceiling="arithmetic")
def matmul(
    device: torch.device,
    *,
    n: Sweep[Probed[Size]],
    m: Probed[Size] | None = None,
    k: Probed[Size] | None = None,
    batch: Size = 1,
    dtype: Dtype = "fp32",
    cache: Cache = "hot",
    copies: Copies = "none",
) -> Work:
    """Multiply m x k by k x n matrices, `batch` of them in one call; m and k are n by default."""
    m, k = m or n, k or n
    stack = (batch,) if batch > 1 else ()
    a, b = operands(device, (*stack, m, k), (*stack, k, n), dtype=dtype)
    product = Work(
        call=autocast(device, dtype, lambda: a @ b),
        before=before_call(device, cache),
        inputs=(a, b),
        items=batch,
        flops=2 * batch * m * n * k,  # m n outputs, each of k multiplies and k adds
        bytes=a.nbytes + b.nbytes + batch * m * n * output(dtype).itemsize,  # read both, write the product
    )
    return with_copies(device, product, copies)
