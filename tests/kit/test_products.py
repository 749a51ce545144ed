"""Precisions are what their names say, products in types with scales exact, and errors of products what rounding explains."""

import math
from dataclasses import replace
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dlbench import Dtype
from dlbench.core.model import Status
from dlbench.core.precision import PRECISIONS
from dlbench.harness.worker.failures import failure_of
from dlbench.kit import products
from dlbench.kit.precision import autocast, operands, output, storage
from dlbench.kit.products import INPUTS, product_errors, refuse_wrong, scaled_product
from dlbench.models import BLOCK

CPU = torch.device("cpu")


OUTPUTS = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "amp_bf16": torch.bfloat16,
    "amp_fp16": torch.float16,
}


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
    def in_force() -> torch.dtype | None:
        return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None

    assert {dtype: autocast(CPU, dtype, in_force)() for dtype in get_args(Dtype)} == {
        **dict.fromkeys(("fp64", "fp32", "tf32", "bf16", "fp16")),
        "amp_bf16": torch.bfloat16,
        "amp_fp16": torch.float16,
    }
    assert in_force() is None
    assert autocast(CPU, "fp32", in_force) is in_force  # without a wrapper


pytestmark = pytest.mark.usefixtures("scratch")
SIZES = st.integers(1, 40)


@settings(max_examples=25, deadline=None)
@given(m=SIZES, k=st.integers(1, 200) | st.just(products.LONGEST + 1), n=SIZES, dtype=st.sampled_from(["int8", "binary"]))
def test_products_of_integers_are_exact_for_every_shape_and_refused_where_one_number_is_off(m, k, n, dtype):
    product = scaled_product(CPU, (m, k, n), dtype)
    refuse_wrong(product, dtype, k)
    found, exact = product.sample()
    assert torch.equal(found, exact)
    assert found.shape == (min(m, products.ROWS), n)
    wrong = replace(product, call=lambda: product.call() + torch.eye(m, n, dtype=torch.int32))
    with pytest.raises(ValueError, match="away from that of its operands as rounded, where 0 is explained"):
        refuse_wrong(wrong, dtype, k)


def in_fp8_or_skip(dtype):
    try:
        return scaled_product(CPU, (16, 64, 16), dtype)
    except NotImplementedError as error:
        pytest.skip(str(error))


def test_a_product_in_fp8_that_is_off_by_more_than_its_sums_explain_is_refused():
    product = in_fp8_or_skip("fp8_e4m3")
    refuse_wrong(replace(product, call=lambda: product.call() * 1.004), "fp8_e4m3", 64)
    with pytest.raises(ValueError, match=r"is 0\.01 away from that of its operands as rounded, where 0\.0049 is explained"):
        refuse_wrong(replace(product, call=lambda: product.call() * 1.01), "fp8_e4m3", 64)


def test_e5m2_is_multiplied_by_e4m3():
    assert [each.dtype for each in in_fp8_or_skip("fp8_e5m2").inputs] == [torch.float8_e5m2, torch.float8_e4m3fn]


def test_sums_of_any_length_take_the_memory_of_the_longest_that_is_looked_at():
    errors = []
    for inner in (products.LONGEST, 10 * products.LONGEST):
        torch.manual_seed(0)
        errors.append(product_errors(CPU, "bf16", inner))
    assert errors[0] == errors[1]


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16", "amp_bf16", "int8"])
def test_errors_of_random_numbers_are_those_of_rounding(dtype):
    torch.manual_seed(0)
    (random, *_), (of_product, *_) = product_errors(CPU, dtype, 512)
    precision = PRECISIONS[dtype]
    roundoff = precision.roundoff * (4 if dtype == "int8" else 1)  # some four standard deviations are the largest of the operands
    most = math.hypot(math.sqrt(3) * roundoff, math.sqrt(512) * precision.sum_roundoff)  # both operands, and the product
    assert 0.1 * roundoff < random < most
    assert of_product == random if dtype == "fp32" else of_product < random  # fp32 alone has no rounding of its operands
    assert (of_product == 0) is (dtype == "int8")


def test_signs_keep_what_xnor_net_says_of_normal_numbers():
    # The signs of normal numbers correlate with them by sqrt(2 / pi), and the product of both operands' by 2 / pi.
    torch.manual_seed(0)
    (random, *_), _ = product_errors(CPU, "binary", 1024)
    assert random == pytest.approx(math.sqrt(1 - (2 / math.pi) ** 2), abs=0.03)


def test_what_overflows_and_what_is_lost_counts_as_wrong_altogether():
    torch.manual_seed(0)
    found = {dtype: dict(zip(INPUTS, product_errors(CPU, dtype, 64)[0], strict=True)) for dtype in ("fp32", "bf16", "fp16", "int8")}
    assert found["fp32"]["columns"] < 1e-6
    assert found["bf16"]["columns"] < 1e-2
    assert 0.46 < found["fp16"]["columns"] < 0.51  # of 12 orders of magnitude the largest two and a half overflow
    assert 0.8 < found["int8"]["columns"] < 1  # one scale leaves nothing of all but the largest
    assert found["fp32"]["cancelling"] < 1e-3
    assert found["fp16"]["cancelling"] < 0.1 < found["bf16"]["cancelling"] < 0.6
    assert found["int8"]["cancelling"] > 0.9


@pytest.mark.parametrize(
    ("found", "off"),
    [
        ([[1.0, 2.0], [0.0, 0.0]], 0.0),  # columns of zeros would be right, too
        ([[1.0, math.inf], [0.0, 0.0]], math.sqrt(1 / 2)),
        ([[math.nan, 200.0], [0.0, 0.0]], 1.0),
        ([[1.5, 2.0], [0.0, 0.0]], math.sqrt(0.25 / 2)),
    ],
)
def test_each_column_counts_by_its_own_norm_and_as_one_at_most(found, off):
    right = torch.tensor([[1.0, 2.0], [0.0, 0.0]], dtype=torch.float64)
    assert products._distance(torch.tensor(found, dtype=torch.float64), right, right) == pytest.approx(off)
    assert products._distance(0 * right, 0 * right, 0 * right) == 0


@pytest.mark.parametrize(
    "refusal",
    [
        "self.size(0) needs to be greater than 16, but got 16",
        "Trailing dimension of mat1 must be divisible by 16 but got mat1 shape: (24x24).",
    ],
)
def test_sizes_that_kernels_of_accelerators_do_not_take_are_unsupported_in_torchs_words(monkeypatch, refusal):
    def refuse(*_):
        raise RuntimeError(refusal)

    monkeypatch.setattr(torch, "_int_mm", refuse)
    with pytest.raises(RuntimeError) as raised:
        scaled_product(CPU, (16, 16, 16), "int8")
    assert failure_of(raised.value, "2.6.0") == (Status.UNSUPPORTED, f"{refusal} (torch 2.6.0)")
