"""Formats of numbers that trainings are emulated in: which tensors of a layer are rounded to what, in arithmetic of fp32.

"Store narrow, compute in fp32, round": operands are rounded, products are summed in fp32, and what comes out is rounded. It tells of
numerics alone, as rounding takes longer than a narrow product would save.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from dlbench.kit.rounding import (
    DynamicFixedPoint,
    Rounding,
    fixed_point,
    nearest,
    scaled_fp8,
    scaled_int8,
    stochastic_bf16,
    stochastic_fp16,
)

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
"""Of a generator that stochastic roundings draw from; one for each tensor that is rounded, as some remember a range."""


@dataclass(frozen=True, slots=True)
class Format:
    """What is rounded to what; None leaves it in fp32."""

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
    """What is differentiated: a batch's mean loss, its sum, or the mean times a scale that follows overflows."""
    binary_weights: bool = False
    """Of all layers but the first and the last."""
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


class LostGradients:
    """How many gradients were not zero before they were rounded, and how many of these were behind it."""

    def __init__(self) -> None:
        self.counts = False
        """Whether to look: it takes a pass over every gradient."""
        self._nonzero: list[Tensor] = []
        self._lost: list[Tensor] = []

    def look(self, before: Tensor, after: Tensor) -> None:
        """Count the gradients of one tensor."""
        if self.counts:
            nonzero = before != 0
            self._nonzero.append(nonzero.sum())
            self._lost.append((nonzero & (after == 0)).sum())

    def share(self) -> float:
        """Return the lost ones as a share of all; 0 where none was rounded."""
        if not self._nonzero:
            return 0.0
        return (torch.stack(self._lost).sum() / torch.stack(self._nonzero).sum().clamp_min(1)).item()


class Layer:
    """The arithmetic of one layer in a format, of all trainings at once; ``inner`` is one that is neither the first nor the last."""

    def __init__(self, numbers: Format, inner: bool, chance: torch.Generator, lost: LostGradients) -> None:
        def made(rounding: MakeRounding | None, wanted: bool = True) -> Rounding | None:
            return rounding(chance) if rounding and wanted else None

        # What is kept in the same format needs no second rounding.
        self._weights = made(numbers.operands, numbers.kept is not numbers.operands)
        self._activations, self._products = made(numbers.operands), made(numbers.operands, numbers.narrow_products)
        self._of_products = _counted(made(numbers.gradients), lost)
        self._of_weights, self._of_activations = (_counted(made(numbers.gradients, numbers.narrow_products), lost) for _ in range(2))
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


def _counted(rounding: Rounding | None, lost: LostGradients) -> Rounding | None:
    if rounding is None:
        return None

    def rounded(gradients: Tensor) -> Tensor:
        after = rounding(gradients)
        lost.look(gradients, after)
        return after

    return rounded


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
