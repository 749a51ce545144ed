"""Formats of numbers that trainings are emulated in: how numbers are rounded, and which tensors of a layer are.

"Store narrow, compute in fp32, round": operands are rounded, products are summed in fp32, and what comes out is rounded. Hardware may lack
a format: all is computed, and returned, in fp32, so it tells of numerics alone, as rounding takes longer than a narrow product would save.
Numbers that a format holds come back as they are, NaN stays NaN, and random numbers come from a generator of the caller's, on the device
of the values; without one from torch's own.
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
"""Scale of numbers that are all zero, as nothing is divided by zero."""


def nearest(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Round to the nearest number of a floating-point type, or to infinity beyond its largest one, as hardware does."""
    return values.to(dtype).float()


def stochastic_bf16(values: Tensor, chance: torch.Generator | None = None) -> Tensor:
    """Round to one of the two neighbours in bf16, to the nearer one the more often: the mean is the value itself.

    bf16 is the upper half of fp32, so a random lower half is added and cut off, for subnormals, too. Beyond the largest finite number it
    saturates; infinity stays.
    """
    return _cut(values, 16, torch.finfo(torch.bfloat16).max, chance)


def stochastic_fp16(values: Tensor, chance: torch.Generator | None = None) -> Tensor:
    """Round to one of the two neighbours in fp16 as `stochastic_bf16` does; its subnormals are whole multiples of 2^-24."""
    subnormal = _whole(values / _FP16_STEP, chance) * _FP16_STEP
    return torch.where(values.abs() < _FP16_NORMAL, subnormal, _cut(values, 13, torch.finfo(torch.float16).max, chance))


def fixed_point(
    values: Tensor, integer_bits: int, fraction_bits: int, stochastic: bool = False, chance: torch.Generator | None = None
) -> Tensor:
    """Round to fixed point <IL, FL>, the sign being one of the IL bits: multiples of 2^-FL from -2^(IL-1) to 2^(IL-1) - 2^-FL.

    Nearest rounds halves up; beyond the range it saturates. Gupta et al. 2015, https://arxiv.org/abs/1502.02551, section 3.
    """
    step, most = 2.0**-fraction_bits, 2.0 ** (integer_bits - 1)
    scaled = values.clamp(-most, most - step) / step
    return (_whole(scaled, chance) if stochastic else torch.floor(scaled + 0.5)) * step


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
    """Nearest fixed point of so many bits, the sign among them, whose range follows the numbers of one tensor over a training.

    Where more than 0.01 % of the numbers overflow, the range is doubled; where of half the range no more would, it is halved. The first
    is the smallest that holds the first numbers, zeros not among them. Courbariaux et al. 2014, https://arxiv.org/abs/1412.7024, section 5,
    who look every 10,000 samples; here it is every 16 calls.
    """

    MOST_OVERFLOW = 1e-4
    LOOK_EVERY = 16

    def __init__(self, bits: int) -> None:
        self._steps = 2.0 ** (bits - 1)
        self._calls = 0
        self._range: Tensor | None = None
        """Range of each training, 0 until it has had a number."""
        self._all_set = False

    def __call__(self, values: Tensor) -> Tensor:
        """Round, and look at the range where it is time to."""
        if self._range is not None and self._calls % self.LOOK_EVERY == 0:
            self._range = self._adapted(values.abs(), self._range)
        if self._range is None or not self._all_set:
            first = torch.exp2(torch.ceil(torch.log2(_largest(values))))
            self._range = first if self._range is None else torch.where(self._range == 0, first, self._range)
            self._all_set = bool(self._range.all())
        self._calls += 1
        step = self._range.clamp_min(_LEAST_SCALE) / self._steps
        return torch.round(values / step).clamp(-self._steps, self._steps - 1) * step

    def _adapted(self, sizes: Tensor, reach: Tensor) -> Tensor:
        over, half_over = ((sizes > bound).flatten(1).float().mean(1).view_as(reach) for bound in (reach, reach / 2))
        fits_half = (half_over <= self.MOST_OVERFLOW) & (_largest(sizes) > 0)  # zeros tell of no range
        return torch.where(over > self.MOST_OVERFLOW, 2 * reach, torch.where(fits_half, reach / 2, reach))


def _cut(values: Tensor, bits: int, most: float, chance: torch.Generator | None) -> Tensor:
    """Cut so many of the lower bits off, after a random number below what they can hold has been added."""
    below = torch.randint(1 << bits, values.shape, dtype=torch.int32, device=values.device, generator=chance)
    cut = ((values.contiguous().view(torch.int32) + below) & -(1 << bits)).view(torch.float32)
    return torch.where(values.isfinite(), cut.clamp(-most, most), values)


def _whole(values: Tensor, chance: torch.Generator | None) -> Tensor:
    """Round to one of the two whole numbers next to each, at random to within 2^-24, the step of torch's random numbers.

    Of magnitudes, whose floor and rest are exact: of small negative numbers the rest would be rounded to 1, as a sum with a random number.
    """
    sizes = values.abs()
    floor = torch.floor(sizes)
    return torch.copysign(floor + (torch.rand(values.shape, device=values.device, generator=chance) < sizes - floor), values)


def _largest(values: Tensor) -> Tensor:
    """Return the largest magnitude in each training, (trainings, 1, …)."""
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
"""Makes a rounding of a generator that stochastic ones draw from; one for each tensor that is rounded, as some remember a range."""


@dataclass(frozen=True, slots=True)
class Format:
    """Roundings of the tensors of a layer; None leaves it in fp32."""

    operands: MakeRounding | None = None
    """Weights and activations where they enter a product."""
    gradients: MakeRounding | None = None
    """Gradients where they enter the products of the backward pass."""
    narrow_products: bool = False
    """Whether products come out rounded as well: forward like operands, backward like gradients."""
    kept: MakeRounding | None = None
    """Weights and momenta behind each update."""
    kept_bits: int = 32
    loss: Literal["mean", "sum", "scaled"] = "mean"
    """The loss that is differentiated: a batch's mean loss, its sum, or the mean times a scale that follows overflows."""
    binary_weights: bool = False
    """In all layers but the first and the last."""
    binary_activations: bool = False
    """Those that enter these layers."""


def _to(dtype: torch.dtype) -> MakeRounding:
    return lambda chance: partial(nearest, dtype=dtype)


def _to_fp8(dtype: torch.dtype) -> MakeRounding:
    return lambda chance: partial(scaled_fp8, dtype=dtype)


def _to_fixed(stochastic: bool) -> MakeRounding:
    return lambda chance: partial(fixed_point, integer_bits=8, fraction_bits=8, stochastic=stochastic, chance=chance)


def _throughout(rounding: MakeRounding, kept: MakeRounding | None = None, loss: Literal["mean", "sum"] = "mean", bits: int = 16) -> Format:
    """Return a format whose numbers are all narrow, weights and momenta too."""
    return Format(rounding, rounding, narrow_products=True, kept=kept or rounding, kept_bits=bits, loss=loss)


_BF16, _FP16, _E5M2 = _to(torch.bfloat16), _to(torch.float16), _to_fp8(torch.float8_e5m2)
FORMATS: Mapping[FormatName, Format] = {
    "fp32": Format(),
    "bf16": _throughout(_BF16),
    "bf16_stochastic": _throughout(_BF16, kept=lambda chance: partial(stochastic_bf16, chance=chance)),
    "fp16": _throughout(_FP16),
    "fp16_stochastic": _throughout(_FP16, kept=lambda chance: partial(stochastic_fp16, chance=chance)),
    "amp_bf16": Format(_BF16, _BF16, narrow_products=True),
    "amp_fp16": Format(_FP16, _FP16, narrow_products=True, loss="scaled"),
    # Gradients need the range of e5m2: Micikevicius et al. 2022, https://arxiv.org/abs/2209.05433.
    "fp8_e4m3": Format(_to_fp8(torch.float8_e4m3fn), _E5M2),
    "fp8_e5m2": Format(_E5M2, _E5M2),
    # Trained for inference in int8, with gradients in fp32: Jacob et al. 2018, https://arxiv.org/abs/1712.05877.
    "int8": Format(lambda chance: scaled_int8),
    # The sum, as nearly all gradients of a mean would be less than half of 2^-8.
    "fixed_8_8": _throughout(_to_fixed(stochastic=False), loss="sum"),
    "fixed_8_8_stochastic": _throughout(_to_fixed(stochastic=True), loss="sum"),
    "dynamic_10_12": _throughout(lambda chance: DynamicFixedPoint(10), kept=lambda chance: DynamicFixedPoint(12), bits=12),
    "binary_weights": Format(binary_weights=True),
    "binary": Format(binary_weights=True, binary_activations=True),
}


class Layer:
    """The arithmetic of one layer in a format, of all trainings at once; ``inner`` is one that is neither the first nor the last."""

    def __init__(self, numbers: Format, inner: bool, chance: torch.Generator) -> None:
        def made(rounding: MakeRounding | None, wanted: bool = True) -> Rounding | None:
            return rounding(chance) if rounding and wanted else None

        # What is kept in the same format needs no second rounding.
        self._weights = made(numbers.operands, numbers.kept is not numbers.operands)
        self._activations, self._products = made(numbers.operands), made(numbers.operands, numbers.narrow_products)
        self._of_products = made(numbers.gradients)
        self._of_weights, self._of_activations = (made(numbers.gradients, numbers.narrow_products) for _ in range(2))
        self._kept, self._kept_momentum = made(numbers.kept), made(numbers.kept)
        self._binary_weights, self._binary_activations = inner and numbers.binary_weights, inner and numbers.binary_activations

    def enter(self, activations: Tensor) -> Tensor:
        """Round activations (trainings, …) that enter the layer."""
        return _rounded(activations, self._activations, self._of_activations)

    def multiply(self, rows: Tensor, weights: Tensor) -> Tensor:
        """Return rows (trainings, rows, in) of what has entered times weights (trainings, in, out)."""
        rows = binary_rows(rows) if self._binary_activations else rows
        weights = binary_weights(weights) if self._binary_weights else _rounded(weights, self._weights, self._of_weights)
        return _rounded(torch.bmm(rows, weights), self._products, self._of_products)

    def keep(self, weights: Tensor) -> Tensor:
        """Round weights to be stored."""
        return self._kept(weights) if self._kept else weights

    def keep_momentum(self, momentum: Tensor) -> Tensor:
        """Round a momentum to be stored."""
        return self._kept_momentum(momentum) if self._kept_momentum else momentum


def binary_rows(rows: Tensor) -> Tensor:
    """Replace each number by its sign times the mean magnitude of its row, (trainings, rows, in).

    Gradients pass straight through where a magnitude is at most 1. XNOR-Net's binary activations: Rastegari et al. 2016,
    https://arxiv.org/abs/1603.05279, section 3.2.
    """
    return _Binary.apply(rows, 2)  # type: ignore[no-any-return, no-untyped-call]  # torch leaves it untyped


def binary_weights(weights: Tensor) -> Tensor:
    """Replace each weight by its sign times the mean magnitude of its column, (trainings, in, out), with gradients as above.

    Section 3.1 there; it multiplies gradients by the mean as well, which its Adam makes up for and SGD would not.
    """
    return _Binary.apply(weights, 1)  # type: ignore[no-any-return, no-untyped-call]  # torch leaves it untyped


def _rounded(values: Tensor, forward: Rounding | None, backward: Rounding | None) -> Tensor:
    if forward is None and backward is None:
        return values
    return _Rounded.apply(values, forward, backward)  # type: ignore[no-any-return, no-untyped-call]  # torch leaves it untyped


class _Rounded(torch.autograd.Function):
    """Rounds values on the way forward, and gradients on the way back as if that had changed nothing."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, forward: Rounding | None, backward: Rounding | None) -> Tensor:
        ctx.rounding = backward
        return forward(values) if forward else values.view_as(values)

    @staticmethod
    def backward(ctx: Any, gradients: Tensor) -> tuple[Tensor, None, None]:
        return ctx.rounding(gradients) if ctx.rounding else gradients, None, None


class _Binary(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, dimension: int) -> Tensor:
        sizes = values.abs()
        ctx.save_for_backward(sizes <= 1)
        scale = sizes.mean(dimension, keepdim=True)
        return torch.copysign(scale, values)

    @staticmethod
    def backward(ctx: Any, gradients: Tensor) -> tuple[Tensor, None]:
        (passed,) = ctx.saved_tensors
        return gradients * passed, None
