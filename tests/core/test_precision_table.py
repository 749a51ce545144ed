"""The table of precisions, held against torch's own figures and the published devices."""

from typing import get_args

import pytest
import torch

from dlbench.core.precision import PRECISIONS, SCALED, Dtype, Precision, ProductDtype

EVERY = pytest.mark.parametrize("precision", PRECISIONS.values(), ids=PRECISIONS)
FLOATS = [name for name in PRECISIONS if name not in ("int8", "binary")]
EVERY_FLOAT = pytest.mark.parametrize("precision", [PRECISIONS[name] for name in FLOATS], ids=FLOATS)


def test_every_name_has_one_row_in_the_same_order() -> None:
    assert tuple(PRECISIONS) == get_args(ProductDtype) == (*get_args(Dtype), *SCALED)
    assert [each.name for each in PRECISIONS.values()] == [*PRECISIONS]


@EVERY
def test_bytes_are_those_of_torch(precision: Precision) -> None:
    assert precision.bytes == getattr(torch, precision.storage).itemsize


@EVERY_FLOAT
def test_range_is_that_of_torch(precision: Precision) -> None:
    computed_in = getattr(torch, precision.autocast or precision.storage)
    assert precision.narrow_range is (torch.finfo(computed_in).max < 1e38)


@EVERY_FLOAT
def test_roundoff_is_half_of_what_torch_calls_eps(precision: Precision) -> None:
    # TF32, which torch has no dtype for, keeps as many digits as fp16.
    computed_in = torch.float16 if precision.name == "tf32" else getattr(torch, precision.autocast or precision.storage)
    assert precision.roundoff == torch.finfo(computed_in).eps / 2
    sums = 2.0**-14 if precision.arithmetic == "fp8" else torch.finfo(torch.float32).eps / 2
    assert precision.sum_roundoff == min(precision.roundoff, sums)


def test_of_integers_the_largest_is_rounded_by_half_a_step_and_sums_are_exact() -> None:
    steps = torch.linspace(-1, 1, 100_001) * 127
    assert (steps.round() - steps).abs().max() / 127 == pytest.approx(PRECISIONS["int8"].roundoff, rel=1e-3)
    assert [PRECISIONS[name].sum_roundoff for name in ("int8", "binary")] == [0, 0]


def test_only_autocast_to_a_narrow_range_scales_gradients() -> None:
    assert [name for name, each in PRECISIONS.items() if each.scales_gradients] == ["amp_fp16"]
