"""The rule of what is right: an error so many times that of plain execution, and a tolerance, both against fp64: docs/checks.md."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from dlbench.core.errors import Unavailable, Unknown
from dlbench.core.precision import PRECISIONS

FACTOR = 3.0
"""How many times the error of plain execution, or the rounding to be expected, is still rounding: measured, see docs/checks.md."""
MOST_TOLERANCE = 0.9
"""An output of zeros has an error of 1, one of other numbers about 1.4; a tolerance beyond that would let anything pass."""
Furthest = tuple[str, float, float]
"""What of a call is furthest from fp64 for what rounding explains of it, its error, and what is still explained."""


def furthest(
    kind: str, case: Mapping[str, Any], exact: Mapping[str, Any], usual: Mapping[str, float], tolerance: float = 0.0
) -> Furthest | None:
    """Return what of a kind is furthest from fp64; None where rounding alone explains as much as another computation.

    The rule: the error is at most `FACTOR` times that of plain execution, ``usual``, and a tolerance. That is of all names together, as
    a single one's may be small by chance (torch's own gate has a factor of 2 to 10 there: torch/_dynamo/utils.py, `same`).
    """
    held = [name for name in exact if FACTOR * usual[name] <= MOST_TOLERANCE]
    if not held:
        return None
    error, name = max((distance(case.get(name), exact[name]), name) for name in held)
    return f"{kind} of {name}" if name else kind, error, FACTOR * max(usual[name] for name in held) + tolerance


def distance(value: Tensor | None, exact: Tensor) -> float:
    """Return the relative distance in the 2-norm; of single numbers the logarithm of the ratio, as one that is missing is far from any."""
    if value is None or value.shape != exact.shape:
        return math.inf
    value, exact = (each.detach().cpu().double() for each in (value, exact))
    off = (value / exact).log().abs() if exact.numel() == 1 else (value - exact).norm() / exact.norm()
    return found if math.isfinite(found := off.item()) else math.inf


def worst(found: Sequence[Furthest | None]) -> Furthest:
    """Return what is furthest for what is explained of it. Raises Unavailable where nothing could be held."""
    held = [each for each in found if each]
    if not held:
        raise Unavailable(Unknown.TOO_ROUGH)
    return max(held, key=lambda each: each[1] / each[2])


def rounding(dtype: str, results: int, numbers: int, size: int, flops: float) -> float:
    """Return how far an output of ``size`` numbers is from the exact one by rounding, in the 2-norm and relative.

    ``results``: tensors computed on the way, ``numbers``: their elements, ``flops``: operations that took. So an element of these is a
    sum of k = flops / (2 numbers) products, and one of the output of k_out = flops / (2 results size): it may take more, as the
    gradient of a filter takes all pixels. Sums are rounded in u_sum, and stored in the roundoff u of the precision. Rounding errors are
    independent and of mean zero, more or less, so n of them come to sqrt(n) u and not to n u (Higham and Mary, A New Approach to
    Probabilistic Rounding Error Analysis, SIAM J. Sci. Comput. 41(5), 2019, section 2):

        sqrt(results (sqrt(k) u_sum + u)^2 + k_out u_sum^2)
    """
    precision = PRECISIONS[dtype]
    on_the_way = math.sqrt(max(1.0, flops / (2 * numbers))) * precision.sum_roundoff + precision.roundoff
    at_the_end = math.sqrt(flops / (2 * results * size)) * precision.sum_roundoff
    return math.hypot(math.sqrt(results) * on_the_way, at_the_end)
