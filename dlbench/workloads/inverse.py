"""Matrix inversion: arithmetic with dependent steps, only a part of them for matrix units."""

import torch

from dlbench import Copies, Dtype, Size, Sweep, Work, operands, with_copies, workload
from dlbench.kit.precision import refuse_autocast


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
