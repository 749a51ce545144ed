"""The rule that says whether a result is right: its distance from fp64 against that of plain execution. docs/checks.md explains it."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from dlbench.core.errors import Unavailable, Unknown
from dlbench.core.precision import PRECISIONS

FACTOR = 3.0
"""How many times the error of plain execution, or the rounding to be expected, is still rounding: measured, see docs/checks.md."""
MOST_TOLERANCE = 0.9
"""An output of zeros has an error of 1, one of other numbers about 1.4; a tolerance beyond that would let anything pass."""
RETURNED = ("output", "loss")
"""Kinds of what a call returns, inference or training; `SpotCheck.error` is of these alone."""


class Deviation(NamedTuple):
    """The tensor of one kind that is furthest from fp64."""

    what: str
    """Such as ``output`` or ``gradient of head.weight``."""
    error: float
    explained: float
    """Error that rounding explains."""

    @property
    def is_right(self) -> bool:
        """Whether rounding explains it."""
        return self.error <= self.explained


def largest_deviation(
    kind: str, case: Mapping[str, Any], exact: Mapping[str, Any], usual: Mapping[str, float], tolerance: float = 0.0
) -> Deviation | None:
    """Return the largest deviation among the tensors of a kind, by name; None where so much rounding would hide another computation.

    The rule: the error is at most `FACTOR` times ``usual``, that of plain execution, plus a tolerance. It takes the largest usual error of
    all names, as a single one's may be small by chance (torch's own gate has a factor of 2 to 10 there: torch/_dynamo/utils.py, `same`).
    """
    compared = [name for name in exact if FACTOR * usual[name] <= MOST_TOLERANCE]
    if not compared:
        return None
    error, name = max((distance(case.get(name), exact[name]), name) for name in compared)
    explained = FACTOR * max(usual[name] for name in compared) + tolerance
    return Deviation(f"{kind} of {name}" if name else kind, error, explained)


def distance(value: Tensor | None, exact: Tensor) -> float:
    """Return the relative distance in the 2-norm, infinite for a value that is missing, of another shape or not finite.

    Of single numbers return the logarithm of their ratio: a zero, or another sign, is then infinitely far.
    """
    if value is None or value.shape != exact.shape:
        return math.inf
    value, exact = value.detach().cpu().double(), exact.detach().cpu().double()
    apart = (value / exact).log().abs() if exact.numel() == 1 else (value - exact).norm() / exact.norm()
    error = apart.item()
    return error if math.isfinite(error) else math.inf


def comparable(deviations: Sequence[Deviation | None]) -> list[Deviation]:
    """Return the deviations without None, which `largest_deviation` gives for too much rounding. Raises Unavailable if all are None."""
    kept = [each for each in deviations if each]
    if not kept:
        raise Unavailable(Unknown.TOO_ROUGH)
    return kept


def worst(deviations: Sequence[Deviation]) -> Deviation:
    """Return the deviation that is largest against what rounding explains of it."""
    return max(deviations, key=lambda each: each.error / each.explained)


def rounding(dtype: str, results: int, numbers: int, size: int, flops: float) -> float:
    """Return how far rounding may move an output from the exact one: the relative distance in the 2-norm.

    A call computes ``results`` tensors one after the other by ``flops`` operations. They have ``numbers`` elements in all, and the output
    among them has ``size``. On average an element is a sum of k = flops / (2 numbers) products. The output may have longer sums: each
    element of a filter's gradient sums over all pixels. So the output gets its share of the operations, flops / results, and an element of
    it is a sum of k_out = flops / (2 results size) products.

    Each sum is rounded with the roundoff u_sum, and each element is stored with the roundoff u. Rounding errors are nearly independent with
    mean zero, so n of them add up to sqrt(n) u and not to n u (Higham and Mary, A New Approach to Probabilistic Rounding Error Analysis,
    SIAM J. Sci. Comput. 41(5), 2019, section 2). A tensor of average sums has the error sqrt(k) u_sum + u. Each of the ``results`` tensors
    passes an error of that size on to the output. The sums of the output itself add sqrt(k_out) u_sum. All these errors are independent, so
    their squares add up:

        sqrt(results (sqrt(k) u_sum + u)^2 + k_out u_sum^2)
    """
    precision = PRECISIONS[dtype]
    # k is at least 1: an element of few operations is rounded once all the same.
    error_of_result = math.sqrt(max(1.0, flops / (2 * numbers))) * precision.sum_roundoff + precision.roundoff
    error_of_output_sums = math.sqrt(flops / (2 * results * size)) * precision.sum_roundoff
    return math.hypot(math.sqrt(results) * error_of_result, error_of_output_sums)
