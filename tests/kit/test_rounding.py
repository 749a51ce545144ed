"""Rounding to narrower formats: exact neighbours, no bias, saturation."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dlbench.kit.formats import (
    DynamicFixedPoint,
    fixed_point,
    nearest,
    scaled_fp8,
    scaled_int8,
    stochastic_bf16,
    stochastic_fp16,
)

DRAWS = 1_000_000
FLOATS = {
    torch.bfloat16: (stochastic_bf16, (-140, -133, -130, -127, -126, -100, -60, -24, -8, 0, 8, 24, 60, 100, 127)),
    torch.float16: (stochastic_fp16, (-26, -25, -24, -20, -17, -15, -14, -12, -8, -4, 0, 4, 8, 12, 15)),
}
"""Of each type 15 powers of two, from its subnormals to its largest binade."""
FP32 = st.floats(width=32, allow_nan=False, allow_infinity=False)


def neighbours(value, dtype):
    """The largest number of a type up to a value, and the smallest from it on, in fp64; infinite beyond the largest finite one."""
    near = torch.tensor(value, dtype=torch.float32).to(dtype)
    found = {near.double().item()}
    for side in (math.inf, -math.inf):
        found.add(torch.nextafter(near, torch.tensor(side, dtype=dtype)).double().item())
    return max(each for each in found if each <= value), min(each for each in found if each >= value)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_mean_error_of_stochastic_rounding_is_zero(dtype):
    """Within three standard errors, from subnormals to the largest binade, and with no number but the two neighbours."""
    rounding, exponents = FLOATS[dtype]
    for exponent in exponents:
        value = torch.tensor(-1.2345678 * 2.0**exponent)
        low, high = neighbours(value.item(), dtype)
        rounded = rounding(value.expand(DRAWS), seeded(exponent + 1000))
        ups = (rounded == high).sum().item()
        assert ups + (rounded == low).sum().item() == DRAWS
        share = (value.item() - low) / (high - low)
        assert abs(ups / DRAWS - share) <= 3 * math.sqrt(share * (1 - share) / DRAWS)


@pytest.mark.parametrize("dtype", FLOATS)
def test_stochastic_rounding_saturates_at_the_largest_finite_number(dtype):
    most = torch.finfo(dtype).max
    beyond = torch.tensor([most * 1.001, -most * 1.001, most, math.inf, -math.inf, math.nan]).expand(100, 6)
    rounded = FLOATS[dtype][0](beyond, seeded())
    expected = torch.tensor([most, -most, most, math.inf, -math.inf, math.nan]).expand(100, 6)
    torch.testing.assert_close(rounded, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", FLOATS)
@given(value=FP32, seed=st.integers(0, 1000))
def test_stochastic_rounding_gives_a_neighbour_and_leaves_what_the_type_holds(dtype, value, seed):
    rounding, most = FLOATS[dtype][0], torch.finfo(dtype).max
    within = max(-most, min(most, value))
    rounded = rounding(torch.tensor([value]), seeded(seed))
    assert rounded.item() in neighbours(within, dtype)
    assert torch.equal(rounding(rounded, seeded(seed + 1)), rounded)


@given(value=FP32, stochastic=st.booleans(), seed=st.integers(0, 1000))
def test_fixed_point_gives_a_neighbour_within_its_range(value, stochastic, seed):
    rounded = fixed_point(torch.tensor([value]), 8, 8, stochastic, seeded(seed))
    scaled = max(-(2.0**15), min(2.0**15 - 1, value * 256))
    assert rounded.item() * 256 in (math.floor(scaled), math.ceil(scaled))
    assert torch.equal(fixed_point(rounded, 8, 8, stochastic, seeded(seed + 1)), rounded)


@given(one=FP32, other=FP32)
def test_fixed_point_keeps_the_order_of_numbers(one, other):
    small, large = fixed_point(torch.tensor(sorted((one, other))), 8, 8)
    assert small <= large


def test_fixed_point_of_eight_and_eight_bits():
    values = torch.tensor([0.5 / 256, 0.49 / 256, -0.51 / 256, 127.999, 128.0, 1e9, -128.0, -1e9])
    expected = torch.tensor([1 / 256, 0.0, -1 / 256, 127.99609375, 127.99609375, 127.99609375, -128.0, -128.0])
    assert torch.equal(fixed_point(values, 8, 8), expected)
    drawn = fixed_point(torch.full((DRAWS // 10,), 0.3 / 256), 8, 8, True, seeded())
    assert (drawn * 256).mean().item() == pytest.approx(0.3, abs=3 * math.sqrt(0.21 / (DRAWS // 10)))


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_number_far_below_a_step_goes_up_or_down_whatever_its_sign(monkeypatch, sign):
    draws = torch.tensor([0.0, 2.0**-24])  # the least that torch draws, and the next
    monkeypatch.setattr(torch, "rand", lambda *size, **options: draws)
    assert fixed_point(sign * torch.full((2,), 2.0**-38), 8, 8, stochastic=True).tolist() == [sign / 256, 0.0]


def test_fp16_loses_what_is_at_most_half_of_its_least_number():
    assert nearest(torch.tensor([2.0**-25, 1.01 * 2.0**-25]), torch.float16).tolist() == [0.0, 2.0**-24]


def test_scales_are_those_of_each_training():
    values = torch.tensor([[[127.0, 63.4]], [[-1.27, 0.004]], [[0.0, 0.0]]])
    torch.testing.assert_close(scaled_int8(values), torch.tensor([[[127.0, 63.0]], [[-1.27, 0.0]], [[0.0, 0.0]]]))
    eighths = scaled_fp8(values, torch.float8_e4m3fn)
    torch.testing.assert_close(eighths, torch.tensor([[[127.0, 127 * 224 / 448]], [[-1.27, 1.27 * 1.375 / 448]], [[0.0, 0.0]]]))


def test_the_range_of_dynamic_fixed_point_follows_its_numbers():
    rounding = DynamicFixedPoint(10)
    small, large = torch.full((1, 100), 0.7), torch.full((1, 100), 3.1)
    assert rounding(small).unique().item() == round(0.7 * 512) / 512
    clamped = [rounding(large)[0, 0].item() for _ in range(DynamicFixedPoint.LOOK_EVERY)]
    assert clamped == [*[511 / 512] * (DynamicFixedPoint.LOOK_EVERY - 1), 2 * 511 / 512]
    for _ in range(DynamicFixedPoint.LOOK_EVERY):
        held = rounding(large)[0, 0].item()
    assert held == round(3.1 * 128) / 128
    for _ in range(5 * DynamicFixedPoint.LOOK_EVERY):
        kept = rounding(small)[0, 0].item()
    assert kept == round(0.7 * 512) / 512


def test_the_range_doubles_where_one_number_in_a_hundred_overflows():
    rounding = DynamicFixedPoint(10)
    few = torch.cat((torch.full((1, 99), 0.7), torch.full((1, 1), 1.7)), 1)
    assert rounding(few.clamp(max=0.7))[0, -1].item() == round(0.7 * 512) / 512
    assert [rounding(few)[0, -1].item() for _ in range(16)] == [*[511 / 512] * 15, round(1.7 * 256) / 256]


def test_a_training_that_meets_zeros_has_its_range_from_the_first_number_and_keeps_it():
    rounding = DynamicFixedPoint(10)
    zeros, both = torch.zeros(2, 8), torch.tensor([[0.0] * 8, [0.7] * 8])
    assert rounding(both).tolist() == [[0.0] * 8, [round(0.7 * 512) / 512] * 8]
    for values in (both, zeros):
        assert all(torch.equal(rounding(values)[0], zeros[0]) for _ in range(40))
    held = rounding(torch.tensor([[3.1] * 8, [0.7] * 8]))
    assert held.tolist() == [[round(3.1 * 128) / 128] * 8, [round(0.7 * 512) / 512] * 8]
