"""The table of precisions, held against torch's own figures and the published devices."""

from typing import get_args

import pytest
import torch

from dlbench.core.precision import PRECISIONS, Dtype, Precision

EVERY = pytest.mark.parametrize("precision", PRECISIONS.values(), ids=PRECISIONS)


def test_every_name_has_one_row_in_the_same_order() -> None:
    assert tuple(PRECISIONS) == get_args(Dtype)
    assert [each.name for each in PRECISIONS.values()] == [*PRECISIONS]


@EVERY
def test_bytes_and_range_are_those_of_torch(precision: Precision) -> None:
    computed_in = getattr(torch, precision.autocast or precision.storage)
    assert precision.bytes == getattr(torch, precision.storage).itemsize
    assert precision.narrow_range is (torch.finfo(computed_in).max < 1e38)


@EVERY
def test_roundoff_is_half_of_what_torch_calls_eps(precision: Precision) -> None:
    # TF32, which torch has no dtype for, keeps as many digits as fp16.
    computed_in = torch.float16 if precision.name == "tf32" else getattr(torch, precision.autocast or precision.storage)
    assert precision.roundoff == torch.finfo(computed_in).eps / 2
    assert precision.sum_roundoff == min(precision.roundoff, torch.finfo(torch.float32).eps / 2)


def test_only_autocast_to_a_narrow_range_scales_gradients() -> None:
    assert [name for name, each in PRECISIONS.items() if each.scales_gradients] == ["amp_fp16"]
