"""What each format rounds in a layer, and to which numbers, against formulas of their own."""

from dataclasses import dataclass

import pytest
import torch

from dlbench.kit.formats import FORMATS, Layer
from dlbench.workloads.convergence import Perceptron, SeededTraining


def drawn(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


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


@dataclass
class Expected:
    """Where the numbers of a format lie; "at random" on one of both sides of the exact ones."""

    operands: str = "fp32"
    gradients: str = "fp32"
    """Where they enter a product."""
    products: str = "fp32"
    passed: str = "fp32"
    """Gradients as they come out of a product."""
    kept: str = "fp32"
    """Weights and momenta."""
    signs: tuple[str, ...] = ()
    """Operands that are their signs times a mean."""


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
    return Layer(FORMATS[name], inner, torch.Generator().manual_seed(seed))


def rounded_alone(name, seed):
    """What a layer rounds without a product, by name: the numbers, exactly, and where they should lie."""
    layer, expected = layer_of(name, False, seed), EXPECTED[name]
    inputs, weights, momentum, gradient = (drawn(at, 1, 8, 8) for at in range(4))
    through = torch.zeros(1, 8, 8, requires_grad=True)
    layer.multiply(torch.eye(8)[None], through).backward(gradient)  # by rows of which each picks one
    return {
        "activations": (layer.enter(inputs), inputs, expected.operands),
        "weights": (layer.keep(weights), weights, expected.kept),
        "momenta": (layer.keep_momentum(momentum), momentum, expected.kept),
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
    weights = layer.keep(drawn(1, 1, 8, 8)).clone().requires_grad_()
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
