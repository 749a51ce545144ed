"""Rounding of fp32 numbers to those of narrower formats, which hardware may lack: all of it is computed, and returned, in fp32.

Nothing here tells of speed. Numbers that a format holds come back as they are, NaN stays NaN, and random numbers come from a generator
of the caller's, on the device of the values; without one from torch's own.
"""

from collections.abc import Callable

import torch
from torch import Tensor

Rounding = Callable[[Tensor], Tensor]
"""Of a tensor whose first dimension is the training it belongs to: formats with a scale have one for each."""

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
        """Of each training, 0 until it has had a number."""
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
    """Round to one of the two whole numbers beside each, at random to within 2^-24, the step of torch's random numbers.

    Of magnitudes, whose floor and rest are exact: of small negative numbers the rest would be rounded to 1, as a sum with a random number.
    """
    sizes = values.abs()
    floor = torch.floor(sizes)
    return torch.copysign(floor + (torch.rand(values.shape, device=values.device, generator=chance) < sizes - floor), values)


def _largest(values: Tensor) -> Tensor:
    """Return the largest magnitude in each training, (trainings, 1, …)."""
    return values.abs().amax(tuple(range(1, values.dim())), keepdim=True)
