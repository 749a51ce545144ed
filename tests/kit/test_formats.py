"""Roundings to narrow formats, and what each format rounds in a layer, against formulas of their own."""

import math
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dlbench.kit.formats import FORMATS, DynamicFixedPoint, Layer, fixed_point, scaled_fp8, scaled_int8, stochastic_bf16, stochastic_fp16
from dlbench.workloads.convergence import Perceptron, SeededTraining

DRAWS = 100_000
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
    """Within three standard errors, from subnormals to the largest binade, with no number but the two neighbours (10^6 draws: docs)."""
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
@settings(max_examples=50)
@given(value=FP32, seed=st.integers(0, 1000))
def test_stochastic_rounding_gives_a_neighbour_and_leaves_what_the_type_holds(dtype, value, seed):
    rounding, most = FLOATS[dtype][0], torch.finfo(dtype).max
    within = max(-most, min(most, value))  # it saturates at the largest finite number
    rounded = rounding(torch.tensor([value, most * 1.001, -most * 1.001, math.inf, -math.inf, math.nan]), seeded(seed))
    assert rounded[0].item() in neighbours(within, dtype)
    assert rounded[1:5].tolist() == [most, -most, math.inf, -math.inf]
    assert rounded[5].isnan()
    assert torch.equal(rounding(rounded, seeded(seed + 1))[:5], rounded[:5])


@given(value=FP32, stochastic=st.booleans(), seed=st.integers(0, 1000))
def test_fixed_point_gives_a_neighbour_within_its_range(value, stochastic, seed):
    rounded = fixed_point(torch.tensor([value]), 8, 8, stochastic, seeded(seed))
    scaled = max(-(2.0**15), min(2.0**15 - 1, value * 256))
    assert rounded.item() * 256 in (math.floor(scaled), math.ceil(scaled))
    assert torch.equal(fixed_point(rounded, 8, 8, stochastic, seeded(seed + 1)), rounded)


def test_fixed_point_of_eight_and_eight_bits():
    values = torch.tensor([0.5 / 256, 0.49 / 256, -0.51 / 256, 127.999, 128.0, 1e9, -128.0, -1e9])
    expected = torch.tensor([1 / 256, 0.0, -1 / 256, 127.99609375, 127.99609375, 127.99609375, -128.0, -128.0])
    assert torch.equal(fixed_point(values, 8, 8), expected)
    drawn = fixed_point(torch.full((DRAWS,), 0.3 / 256), 8, 8, True, seeded())
    assert (drawn * 256).mean().item() == pytest.approx(0.3, abs=3 * math.sqrt(0.21 / DRAWS))


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_number_far_below_a_step_goes_up_or_down_whatever_its_sign(monkeypatch, sign):
    draws = torch.tensor([0.0, 2.0**-24])  # the least that torch draws, and the next
    monkeypatch.setattr(torch, "rand", lambda *size, **options: draws)
    assert fixed_point(sign * torch.full((2,), 2.0**-38), 8, 8, stochastic=True).tolist() == [sign / 256, 0.0]


def test_scales_are_those_of_each_training():
    values = torch.tensor([[[127.0, 63.4]], [[-1.27, 0.004]], [[0.0, 0.0]]])
    torch.testing.assert_close(scaled_int8(values), torch.tensor([[[127.0, 63.0]], [[-1.27, 0.0]], [[0.0, 0.0]]]))
    eighths = scaled_fp8(values, torch.float8_e4m3fn)
    torch.testing.assert_close(eighths, torch.tensor([[[127.0, 127 * 224 / 448]], [[-1.27, 1.27 * 1.375 / 448]], [[0.0, 0.0]]]))


def test_the_range_of_dynamic_fixed_point_follows_its_numbers_and_doubles_where_one_in_a_hundred_overflows():
    rounding, every = DynamicFixedPoint(10), DynamicFixedPoint.LOOK_EVERY
    small, large = torch.full((1, 100), 0.7), torch.full((1, 100), 3.1)
    few = torch.cat((small[:, 1:], torch.full((1, 1), 1.7)), 1)
    assert rounding(small).unique().item() == round(0.7 * 512) / 512
    assert [rounding(few)[0, -1].item() for _ in range(every)] == [*[511 / 512] * (every - 1), round(1.7 * 256) / 256]
    clamped = [rounding(large)[0, 0].item() for _ in range(every)]
    assert clamped == [*[2 * 511 / 512] * (every - 1), round(3.1 * 128) / 128]
    assert [rounding(small)[0, 0].item() for _ in range(5 * every)][-1] == round(0.7 * 512) / 512


def test_a_training_that_meets_zeros_has_its_range_from_the_first_numbers_that_it_looks_at_and_keeps_it():
    rounding = DynamicFixedPoint(10)
    zeros, one, both = torch.zeros(2, 8), torch.tensor([[0.0] * 8, [0.7] * 8]), torch.tensor([[3.1] * 8, [0.7] * 8])
    held = [[round(3.1 * 128) / 128] * 8, [round(0.7 * 512) / 512] * 8]
    assert [rounding(one).tolist() for _ in range(16)] == [[[0.0] * 8, held[1]]] * 16
    assert rounding(both).tolist() == held
    assert not any(rounding(zeros).any() for _ in range(40))
    assert rounding(both).tolist() == held


def drawn(seed, *shape):
    return torch.randn(shape, generator=seeded(seed))


def scaled(values, most, rounded):
    scale = values.abs().max() / most
    return rounded(values / scale) * scale


def fixed(values, bits):
    step = 2.0 ** (torch.ceil(torch.log2(values.abs().max())) - (bits - 1))
    return torch.round(values / step) * step


GRIDS = {
    "fp32": lambda values: values,
    "bf16": lambda values: values.bfloat16().float(),
    "fp16": lambda values: values.half().float(),
    "e4m3": lambda values: scaled(values, 448, lambda each: each.to(torch.float8_e4m3fn).float()),
    "e5m2": lambda values: scaled(values, 57344, lambda each: each.to(torch.float8_e5m2).float()),
    "int8": lambda values: scaled(values, 127, torch.round),
    "8.8": lambda values: torch.floor(values * 256 + 0.5) / 256,
    "10 bits": lambda values: fixed(values, 10),
    "12 bits": lambda values: fixed(values, 12),
}
"""The nearest numbers of each; those of dynamic fixed point as they are at first."""


class Expected(NamedTuple):
    """Where the numbers of a format lie; "at random" on one of both sides of the exact ones."""

    operands: str = "fp32"
    gradients: str = "fp32"  # as they enter a product
    products: str = "fp32"
    passed: str = "fp32"  # gradients as they come out of a product
    kept: str = "fp32"  # weights and momenta
    signs: tuple[str, ...] = ()  # operands that are their signs times a mean


EXPECTED = {
    "fp32": Expected(),
    "bf16": Expected(*["bf16"] * 5),
    "bf16_stochastic": Expected(*["bf16"] * 4, kept="bf16 at random"),
    "fp16": Expected(*["fp16"] * 5),
    "fp16_stochastic": Expected(*["fp16"] * 4, kept="fp16 at random"),
    "amp_bf16": Expected(*["bf16"] * 4),
    "amp_fp16": Expected(*["fp16"] * 4),
    "fp8_e4m3": Expected("e4m3", "e5m2"),
    "fp8_e5m2": Expected("e5m2", "e5m2"),
    "int8": Expected("int8"),
    "fixed_8_8": Expected(*["8.8"] * 5),
    "fixed_8_8_stochastic": Expected(*["8.8 at random"] * 5),
    "dynamic_10_12": Expected(*["10 bits"] * 4, kept="12 bits"),
    "binary_weights": Expected(signs=("weights",)),
    "binary": Expected(signs=("weights", "rows")),
}


def layer_of(name, inner, seed=1):
    return Layer(FORMATS[name], inner, seeded(seed))


def rounded_alone(name, seed):
    """What a layer rounds without a product, by name: the numbers, exactly, and where they should lie."""
    layer, expected = layer_of(name, False, seed), EXPECTED[name]
    inputs, weights, momentum, gradient = (drawn(at, 1, 8, 8) for at in range(4))
    through = torch.zeros(1, 8, 8, requires_grad=True)
    layer.multiply(torch.eye(8)[None], through).backward(gradient)  # by rows of which each picks one
    return {
        "activations": (layer.enter(inputs), inputs, expected.operands),
        "weights": (layer.round_kept_weights(weights), weights, expected.kept),
        "momenta": (layer.round_kept_momentum(momentum), momentum, expected.kept),
        "gradients": (through.grad, gradient, expected.gradients),
    }


def operand(values, name, which):
    """An operand as it is multiplied, with the mask of gradients that pass; both sizes are means over what a sum goes over."""
    if which in EXPECTED[name].signs:
        scale = values.abs().mean(2 if which == "rows" else 1, keepdim=True)
        return torch.where(values >= 0, scale, -scale), values.abs() <= 1
    return GRIDS[EXPECTED[name].operands.partition(" at ")[0]](values), 1


def assert_lies(found, exact, where):
    """Numbers are the nearest ones to the exact on a grid; or at random next to them, and some are not the nearest."""
    name, _, at_random = where.partition(" at ")
    nearest = GRIDS[name](exact)
    if not at_random:
        torch.testing.assert_close(found, nearest, rtol=1e-6, atol=1e-6)
        return
    assert torch.equal(GRIDS[name](found), found)
    assert 0.1 < (found != nearest).float().mean() < 0.5
    ulp = 2.0**-8 if name == "8.8" else exact.abs() * torch.finfo(getattr(torch, {"bf16": "bfloat16", "fp16": "float16"}[name])).eps
    assert ((found - exact).abs() < ulp).all()


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_stored_and_what_enters_lies_on_the_grid_of_the_format(name):
    first, second = (rounded_alone(name, seed) for seed in (1, 2))
    for what, (found, exact, where) in first.items():
        assert_lies(found, exact, where)
        assert torch.equal(found, second[what][0]) is not where.endswith("random")


@pytest.mark.parametrize("name", FORMATS)
def test_products_and_their_gradients_lie_on_the_grid_of_the_format(name):
    layer, expected = layer_of(name, True), EXPECTED[name]
    inputs = drawn(0, 1, 8, 8).requires_grad_()
    weights = layer.round_kept_weights(drawn(1, 1, 8, 8)).clone().requires_grad_()
    gradient = GRIDS[expected.gradients.partition(" at ")[0]](drawn(2, 1, 8, 8))
    rows = layer.enter(inputs)
    product = layer.multiply(rows, weights)
    product.backward(gradient)
    with torch.no_grad():
        (x, passes), (y, passes_too) = operand(rows, name, "rows"), operand(weights, name, "weights")
        assert_lies(product, x @ y, expected.products)
        assert_lies(inputs.grad, gradient @ y.mT * passes, expected.passed)
        assert_lies(weights.grad, x.mT @ gradient * passes_too, expected.passed)


@pytest.mark.parametrize("name", ["binary_weights", "binary"])
def test_the_first_and_the_last_layer_are_not_binary(name):
    rows, weights = drawn(0, 1, 8, 8), drawn(1, 1, 8, 8)
    layers = SeededTraining(Perceptron(), FORMATS[name], torch.device("cpu"))._layers
    assert [torch.equal(layer.multiply(rows, weights), rows @ weights) for layer in layers] == [True, False, False, True]
