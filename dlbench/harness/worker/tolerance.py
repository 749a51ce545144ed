"""Rounding error that explains a result, by precision and by how it is summed."""

import math

from dlbench.core.precision import PRECISIONS

SPREAD = 10.0
"""How many times the rounding error to be expected is still taken for one: networks amplify it, and so does Winograd's algorithm."""


def tolerance_of(dtype: str, results: int, numbers: int, size: int, flops: float) -> float:
    """Return how far an output of ``size`` numbers may be from the exact one by rounding, in the 2-norm and relative.

    ``results``: tensors computed on the way, ``numbers``: their elements, ``flops``: operations that took. So an element of these is a
    sum of k = flops / (2 numbers) products, and one of the output of k_out = flops / (2 results size): it may take more, as the
    gradient of a filter takes all pixels. Sums are rounded in u_sum, and stored in the roundoff u of the precision. Rounding errors are
    independent and of mean zero, more or less, so n of them come to sqrt(n) u and not to n u, with a factor that makes exceptions rare
    (Higham and Mary, A New Approach to Probabilistic Rounding Error Analysis, SIAM J. Sci. Comput. 41(5), 2019, section 2):

        SPREAD sqrt(results (sqrt(k) u_sum + u)^2 + k_out u_sum^2)
    """
    precision = PRECISIONS[dtype]
    on_the_way = math.sqrt(max(1.0, flops / (2 * numbers))) * precision.sum_roundoff + precision.roundoff
    at_the_end = math.sqrt(flops / (2 * results * size)) * precision.sum_roundoff
    return SPREAD * math.hypot(math.sqrt(results) * on_the_way, at_the_end)
