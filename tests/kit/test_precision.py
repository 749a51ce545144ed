"""Every precision is what its name says, on the same numbers."""

from typing import get_args

import pytest
import torch

from dlbench import Dtype
from dlbench.kit.precision import autocast, operands, output, storage
from dlbench.models import BLOCK

CPU = torch.device("cpu")
OUTPUTS = {"fp64": torch.float64, "fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
OUTPUTS |= {"amp_bf16": torch.bfloat16, "amp_fp16": torch.float16}


def test_storage_and_output_of_every_precision():
    assert {dtype: output(dtype) for dtype in get_args(Dtype)} == OUTPUTS
    assert {dtype: storage(dtype) for dtype in get_args(Dtype)} == OUTPUTS | dict.fromkeys(("amp_bf16", "amp_fp16"), torch.float32)


@pytest.mark.parametrize("dtype", get_args(Dtype))
def test_operands_are_the_same_numbers_in_every_precision_and_large_ones_repeat_them_with_no_two_rows_alike(dtype):
    torch.manual_seed(3)
    small, a, b = operands(CPU, (4, 5), (512, 256), (131, 1009), dtype=dtype)
    torch.manual_seed(3)
    few, drawn, other = (torch.randn(numbers).to(storage(dtype)) for numbers in (20, BLOCK, BLOCK))
    assert torch.equal(small.view(-1), few)
    assert torch.equal(a.view(-1), drawn.repeat(2)[: 512 * 256])
    assert torch.equal(b.view(-1), other.repeat(3)[: 131 * 1009])
    for matrix in (a, b, a.T, b.T):
        assert len({tuple(row.tolist()) for row in matrix}) == len(matrix)


def test_autocast_is_on_inside_the_function_only_and_only_for_amp():
    def in_force():
        return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None

    assert {dtype: autocast(CPU, dtype, in_force)() for dtype in get_args(Dtype)} == {
        **dict.fromkeys(("fp64", "fp32", "tf32", "bf16", "fp16")),
        "amp_bf16": torch.bfloat16,
        "amp_fp16": torch.float16,
    }
    assert in_force() is None
    assert autocast(CPU, "fp32", in_force) is in_force  # without a wrapper
