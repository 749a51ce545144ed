"""Formats of numbers that trainings are emulated in: how numbers are rounded, and which tensors of a layer are rounded.

Operands are rounded, products are summed in fp32, and results are rounded. All of it is computed and returned in fp32, as hardware may lack
a format; so it shows numerics alone, and no speed. A number that the format has stays as it is, and so does NaN. Random numbers come from
the caller's generator, on the device of the values, or else from torch's own.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

Rounding = Callable[[Tensor], Tensor]
"""Rounds a tensor whose first dimension is the training it belongs to: formats with a scale have one for each."""

_FP16_NORMAL, _FP16_STEP = 2.0**-14, 2.0**-24
"""Least normal number of fp16, and the distance of its subnormals."""
_LEAST_SCALE = torch.finfo(torch.float32).tiny
"""Scale of numbers that are all zero, which avoids a division by zero."""


def nearest(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Round to the nearest number of a floating-point type, or to infinity beyond its largest one, as hardware does."""
    return values.to(dtype).float()


def stochastic_bf16(values: Tensor, chance: torch.Generator | None = None) -> Tensor:
    """Round to one of the two neighbours in bf16, with probabilities by which the mean is the value itself.

    bf16 is the upper half of fp32, so a random lower half is added and then cut off. Finite numbers beyond the largest of bf16 become that
    one; infinity stays.
    """
    return _cut_at_random(values, 16, torch.finfo(torch.bfloat16).max, chance)


def stochastic_fp16(values: Tensor, chance: torch.Generator | None = None) -> Tensor:
    """Round to one of the two neighbours in fp16 as `stochastic_bf16` does; subnormals of fp16 are whole multiples of 2^-24."""
    subnormal = _round_at_random(values / _FP16_STEP, chance) * _FP16_STEP
    normal = _cut_at_random(values, 13, torch.finfo(torch.float16).max, chance)
    return torch.where(values.abs() < _FP16_NORMAL, subnormal, normal)


def fixed_point(
    values: Tensor, integer_bits: int, fraction_bits: int, stochastic: bool = False, chance: torch.Generator | None = None
) -> Tensor:
    """Round to fixed point <IL, FL>, the sign being one of the IL bits: multiples of 2^-FL from -2^(IL-1) to 2^(IL-1) - 2^-FL.

    Nearest rounds halves up; beyond the range it saturates. Gupta et al. 2015, https://arxiv.org/abs/1502.02551, section 3.
    """
    step, most = 2.0**-fraction_bits, 2.0 ** (integer_bits - 1)
    scaled = values.clamp(-most, most - step) / step
    whole = _round_at_random(scaled, chance) if stochastic else torch.floor(scaled + 0.5)
    return whole * step


def scaled_fp8(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Round to the nearest number of an fp8 type times a scale that takes the largest of each training's numbers to the type's largest."""
    most = torch.finfo(dtype).max
    scale = _largest(values).clamp_min(_LEAST_SCALE) / most
    return nearest((values / scale).clamp(-most, most), dtype) * scale


def scaled_int8(values: Tensor) -> Tensor:
    """Round to whole multiples, 127 at most, of a scale: the largest magnitude of each training's numbers over 127."""
    scale = _largest(values).clamp_min(_LEAST_SCALE) / 127
    return torch.round(values / scale) * scale


class DynamicFixedPoint:
    """Rounding to fixed point of so many bits, the sign among them, with a range that follows the numbers of one tensor over a training.

    If more than 0.01 % of the numbers overflow, the range doubles; if no more would overflow half the range, it halves. It begins as the
    smallest power of two that holds the first numbers that are not all zero. Courbariaux et al. 2014, https://arxiv.org/abs/1412.7024,
    section 5, who adapt the range every 10,000 samples; here it is every 16 calls.
    """

    MOST_OVERFLOW = 1e-4
    LOOK_EVERY = 16

    def __init__(self, bits: int) -> None:
        self._steps = 2.0 ** (bits - 1)
        self._calls = 0
        self._range = torch.empty(0)
        """Range of each training, 0 while all of the numbers that it was adapted to have been zero."""

    def __call__(self, values: Tensor) -> Tensor:
        """Round values, and adapt the range in the first and then in every 16th call."""
        if self._calls % self.LOOK_EVERY == 0:
            self._range = self._adapt(values.abs())
        self._calls += 1
        step = self._range.clamp_min(_LEAST_SCALE) / self._steps
        return torch.round(values / step).clamp(-self._steps, self._steps - 1) * step

    def _adapt(self, sizes: Tensor) -> Tensor:
        """Return the range of each training for numbers of these magnitudes, from its current range."""
        largest = _largest(sizes)
        current = self._range if self._calls else torch.zeros_like(largest)

        def share_above(bound: Tensor) -> Tensor:
            return (sizes > bound).flatten(1).float().mean(1).view_as(bound)

        overflows = share_above(current) > self.MOST_OVERFLOW
        # Magnitudes that are all zero say nothing of the range.
        fits_half = (share_above(current / 2) <= self.MOST_OVERFLOW) & (largest > 0)
        adapted = torch.where(overflows, 2 * current, torch.where(fits_half, current / 2, current))
        return torch.where(current == 0, torch.exp2(torch.ceil(torch.log2(largest))), adapted)


def _cut_at_random(values: Tensor, bits: int, most: float, chance: torch.Generator | None) -> Tensor:
    """Add a random number in the lowest ``bits`` bits of each value, and clear these; limit finite results to ``most``."""
    below = torch.randint(1 << bits, values.shape, dtype=torch.int32, device=values.device, generator=chance)
    cut = ((values.contiguous().view(torch.int32) + below) & -(1 << bits)).view(torch.float32)
    return torch.where(values.isfinite(), cut.clamp(-most, most), values)


def _round_at_random(values: Tensor, chance: torch.Generator | None) -> Tensor:
    """Round each value to one of its two neighbouring whole numbers, with a mean that is the value itself to within 2^-24.

    It takes magnitudes, whose floor and rest are exact; the rest of a small negative number would be rounded to 1.
    """
    sizes = values.abs()
    floor = torch.floor(sizes)
    return torch.copysign(floor + (torch.rand(values.shape, device=values.device, generator=chance) < sizes - floor), values)


def _largest(values: Tensor) -> Tensor:
    """Return the largest magnitude of each training's values, (trainings, 1, …)."""
    return values.abs().amax(tuple(range(1, values.dim())), keepdim=True)


FormatName = Literal[
    "fp32",
    "bf16",
    "bf16_stochastic",
    "fp16",
    "fp16_stochastic",
    "amp_bf16",
    "amp_fp16",
    "fp8_e4m3",
    "fp8_e5m2",
    "int8",
    "fixed_8_8",
    "fixed_8_8_stochastic",
    "dynamic_10_12",
    "binary_weights",
    "binary",
]
MakeRounding = Callable[[torch.Generator], Rounding]
"""Makes a rounding, which draws from a generator if it is stochastic; each tensor has one of its own, as some remember a range."""


@dataclass(frozen=True, slots=True)
class Format:
    """Roundings of the tensors of a layer; None leaves them in fp32."""

    operands: MakeRounding | None = None
    """For weights and activations that enter a product."""
    gradients: MakeRounding | None = None
    """For gradients that enter the products of the backward pass."""
    narrow_products: bool = False
    """Whether products come out rounded as well: forward like operands, backward like gradients."""
    kept: MakeRounding | None = None
    """For weights and momenta after each update."""
    kept_bits: int = 32
    loss: Literal["mean", "sum", "scaled"] = "mean"
    """The loss that is differentiated: a batch's mean loss, its sum, or the mean times a scale that adapts to overflows."""
    binary_weights: bool = False
    """Whether weights are binary in all layers but the first and the last."""
    binary_activations: bool = False
    """Whether activations that enter these layers are binary."""


def _exact(rounding: Callable[..., Tensor], **options: Any) -> MakeRounding:
    return lambda chance: partial(rounding, **options)


def _at_random(rounding: Callable[..., Tensor], **options: Any) -> MakeRounding:
    return lambda chance: partial(rounding, chance=chance, **options)


def _throughout(rounding: MakeRounding, kept: MakeRounding | None = None, loss: Literal["mean", "sum"] = "mean", bits: int = 16) -> Format:
    """Return a format whose numbers are all narrow, weights and momenta too."""
    return Format(rounding, rounding, narrow_products=True, kept=kept or rounding, kept_bits=bits, loss=loss)


_BF16, _FP16 = _exact(nearest, dtype=torch.bfloat16), _exact(nearest, dtype=torch.float16)
_E4M3, _E5M2 = _exact(scaled_fp8, dtype=torch.float8_e4m3fn), _exact(scaled_fp8, dtype=torch.float8_e5m2)
_8_8 = {"integer_bits": 8, "fraction_bits": 8}
FORMATS: Mapping[FormatName, Format] = {
    "fp32": Format(),
    "bf16": _throughout(_BF16),
    "bf16_stochastic": _throughout(_BF16, kept=_at_random(stochastic_bf16)),
    "fp16": _throughout(_FP16),
    "fp16_stochastic": _throughout(_FP16, kept=_at_random(stochastic_fp16)),
    "amp_bf16": Format(_BF16, _BF16, narrow_products=True),
    "amp_fp16": Format(_FP16, _FP16, narrow_products=True, loss="scaled"),
    # Gradients need the range of e5m2: Micikevicius et al. 2022, https://arxiv.org/abs/2209.05433.
    "fp8_e4m3": Format(_E4M3, _E5M2),
    "fp8_e5m2": Format(_E5M2, _E5M2),
    # Trained for inference in int8, with gradients in fp32: Jacob et al. 2018, https://arxiv.org/abs/1712.05877.
    "int8": Format(_exact(scaled_int8)),
    # The sum, as nearly all gradients of a mean would be less than half of 2^-8.
    "fixed_8_8": _throughout(_exact(fixed_point, **_8_8), loss="sum"),
    "fixed_8_8_stochastic": _throughout(_at_random(fixed_point, stochastic=True, **_8_8), loss="sum"),
    "dynamic_10_12": _throughout(lambda chance: DynamicFixedPoint(10), kept=lambda chance: DynamicFixedPoint(12), bits=12),
    "binary_weights": Format(binary_weights=True),
    "binary": Format(binary_weights=True, binary_activations=True),
}


class Layer:
    """The arithmetic of one layer in a format, for all trainings at once.

    A layer is ``inner`` if it is neither the first nor the last; only such are binary. Stochastic roundings draw from ``chance``.
    """

    def __init__(self, number_format: Format, inner: bool, chance: torch.Generator) -> None:
        def new_rounding(make: MakeRounding | None, applies: bool = True) -> Rounding:
            return make(chance) if make and applies else _leave

        # Each tensor has a rounding of its own, as some remember a range. Weights kept in the format of operands need no second rounding.
        self._round_weights = new_rounding(number_format.operands, number_format.kept is not number_format.operands)
        self._round_activations = new_rounding(number_format.operands)
        self._round_products = new_rounding(number_format.operands, number_format.narrow_products)
        # The gradient of a product is an operand of the backward pass, so it is rounded even where products are not.
        self._round_product_gradients = new_rounding(number_format.gradients)
        # The gradients of both operands are products of the backward pass, so they are rounded only where products are.
        self._round_weight_gradients = new_rounding(number_format.gradients, number_format.narrow_products)
        self._round_activation_gradients = new_rounding(number_format.gradients, number_format.narrow_products)
        self.round_kept_weights = new_rounding(number_format.kept)
        self.round_kept_momentum = new_rounding(number_format.kept)
        self._binary_weights = inner and number_format.binary_weights
        self._binary_activations = inner and number_format.binary_activations

    def enter(self, activations: Tensor) -> Tensor:
        """Round activations (trainings, …) that enter the layer, and their gradients in the backward pass."""
        return _round_both_ways(activations, self._round_activations, self._round_activation_gradients)

    def multiply(self, rows: Tensor, weights: Tensor) -> Tensor:
        """Multiply activations that `enter` has rounded, (trainings, rows, in), by weights (trainings, in, out)."""
        if self._binary_activations:
            rows = binary(rows, 2)
        if self._binary_weights:
            weights = binary(weights, 1)
        else:
            weights = _round_both_ways(weights, self._round_weights, self._round_weight_gradients)
        return _round_both_ways(torch.bmm(rows, weights), self._round_products, self._round_product_gradients)


def binary(values: Tensor, dimension: int) -> Tensor:
    """Replace each number by its sign times the mean magnitude of its row (dimension 2) of activations, or column (1) of weights.

    Gradients pass straight through where a magnitude is at most 1. XNOR-Net: Rastegari et al. 2016, https://arxiv.org/abs/1603.05279,
    sections 3.1 and 3.2, but without multiplying gradients of weights by the mean: its Adam makes up for that, and SGD would not.
    """
    return _Binary.apply(values, dimension)  # type: ignore[no-any-return, no-untyped-call]  # torch leaves it untyped


def _leave(values: Tensor) -> Tensor:
    """Leave values in fp32."""
    return values


def _round_both_ways(values: Tensor, forward: Rounding, backward: Rounding) -> Tensor:
    """Round values in the forward pass, and their gradients in the backward pass."""
    if forward is backward is _leave:
        return values
    return _Rounded.apply(values, forward, backward)  # type: ignore[no-any-return, no-untyped-call]  # torch leaves it untyped


class _Rounded(torch.autograd.Function):
    """Rounds values in the forward pass, and gradients in the backward pass as if that had changed nothing."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, forward: Rounding, backward: Rounding) -> Tensor:
        ctx.rounding = backward
        return forward(values)

    @staticmethod
    def backward(ctx: Any, gradients: Tensor) -> tuple[Tensor, None, None]:
        return ctx.rounding(gradients), None, None


class _Binary(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, dimension: int) -> Tensor:
        sizes = values.abs()
        ctx.save_for_backward(sizes <= 1)
        return torch.copysign(sizes.mean(dimension, keepdim=True), values)

    @staticmethod
    def backward(ctx: Any, gradients: Tensor) -> tuple[Tensor, None]:
        (passed,) = ctx.saved_tensors
        return gradients * passed, None
