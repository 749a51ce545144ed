"""The table of precisions, held against torch's own figures and the published devices."""

from typing import get_args

import pytest
import torch

from dlbench.core.precision import PRECISIONS, SCALED, Dtype, ProductDtype


def test_every_name_has_one_row_in_the_same_order():
    assert [each.name for each in PRECISIONS.values()] == [*PRECISIONS] == [*get_args(ProductDtype)] == [*get_args(Dtype), *SCALED]
    assert [name for name, each in PRECISIONS.items() if each.scales_gradients] == ["amp_fp16"]  # autocast to a narrow range alone


@pytest.mark.parametrize("precision", PRECISIONS.values(), ids=PRECISIONS)
def test_bytes_range_and_roundoff_are_those_of_torch(precision):
    assert precision.bytes == getattr(torch, precision.storage).itemsize
    if precision.name in ("int8", "binary"):
        return
    computed_in = getattr(torch, precision.autocast or precision.storage)
    assert precision.narrow_range is (torch.finfo(computed_in).max < 1e38)
    # TF32, which torch has no dtype for, keeps as many digits as fp16. Half of what torch calls eps is the roundoff.
    assert precision.roundoff == torch.finfo(torch.float16 if precision.name == "tf32" else computed_in).eps / 2
    sums = 2.0**-14 if precision.arithmetic == "fp8" else torch.finfo(torch.float32).eps / 2
    assert precision.sum_roundoff == min(precision.roundoff, sums)


def test_of_integers_the_largest_is_rounded_by_half_a_step_and_sums_are_exact():
    steps = torch.linspace(-1, 1, 100_001) * 127
    assert (steps.round() - steps).abs().max() / 127 == pytest.approx(PRECISIONS["int8"].roundoff, rel=1e-3)
    assert [PRECISIONS[name].sum_roundoff for name in ("int8", "binary")] == [0, 0]
