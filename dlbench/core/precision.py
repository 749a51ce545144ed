"""Table of the precisions that cases compute in. torch's dtypes are named as text, for whoever has torch to resolve.

A new precision is a name in `Dtype` and a row of `PRECISIONS`; nothing else in the package lists them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

Dtype = Literal["fp64", "fp32", "tf32", "bf16", "fp16", "amp_bf16", "amp_fp16"]
"""A precision: pure, except ``amp_*``, which are autocast (and gradient scaling where training in fp16 needs it)."""

TrainingDtype = Literal["fp32", "amp_bf16", "tf32", "amp_fp16"]
"""Those that keep weights in fp32, so that no small update gets lost in training; the plain one first."""
InferenceDtype = Literal["fp32", "amp_bf16", "bf16", "tf32", "amp_fp16", "fp16"]
"""Those no wider than the plain one, which comes first."""


@dataclass(frozen=True, slots=True)
class Precision:
    """Storage, arithmetic and rounding of a precision, and what it needs of a device."""

    name: Dtype
    storage: str
    """Name of torch's dtype of operands and weights."""
    bytes: int
    """Of one stored number."""
    arithmetic: str
    """What products are computed in: the name of its column in `peaks.toml`."""
    roundoff: float
    """Unit roundoff of operands and results: half the distance from 1 to the next number."""
    sum_roundoff: float = 2.0**-24
    """Unit roundoff of sums: fp32, in which matrix units, and libraries on CPUs, add up the products of every narrower type."""
    autocast: str | None = None
    """Name of torch's dtype that autocast computes products in; None without autocast."""
    narrow_range: bool = False
    """Whether its exponents have a smaller range than those of fp32, so that numbers overflow and gradients underflow."""
    compute_capability: tuple[int, int] = (0, 0)
    """Least one of NVIDIA's devices that have it (CUDA C++ programming guide, table of compute capabilities)."""
    amd_family: str = ""
    """What the names of AMD's architectures that have it begin with."""
    missing_on: Mapping[str, str] = field(default_factory=dict)
    """Kinds of device that never have it, each with the reason."""

    @property
    def scales_gradients(self) -> bool:
        """Whether training scales its loss, so that gradients do not underflow."""
        return self.autocast is not None and self.narrow_range


_NO_TF32 = {
    "cpu": "TF32 is a format of GPU matrix units; on a CPU torch would compute in fp32",
    "xpu": "torch has no TF32 switch for XPU devices",
    "mps": "Metal has no tf32",
}
_TABLE = (
    #          name        storage     bytes  arithmetic  roundoff  and what differs from the defaults above
    Precision("fp64",     "float64",  8,     "fp64",     2.0**-53, sum_roundoff=2.0**-53, missing_on={"mps": "Metal has no fp64"}),
    Precision("fp32",     "float32",  4,     "fp32",     2.0**-24),
    Precision("tf32",     "float32",  4,     "tf32",     2.0**-11, compute_capability=(8, 0), amd_family="gfx94", missing_on=_NO_TF32),
    Precision("bf16",     "bfloat16", 2,     "bf16",     2.0**-8,  compute_capability=(8, 0)),
    Precision("fp16",     "float16",  2,     "fp16",     2.0**-11, narrow_range=True),
    Precision("amp_bf16", "float32",  4,     "bf16",     2.0**-8,  autocast="bfloat16", compute_capability=(8, 0)),
    Precision("amp_fp16", "float32",  4,     "fp16",     2.0**-11, autocast="float16", narrow_range=True),
)  # fmt: skip

PRECISIONS: Mapping[str, Precision] = MappingProxyType({each.name: each for each in _TABLE})
"""By name, the widest first."""

_EIGHT_BITS = {"fp8": "fp8", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "int8": "int8"}
"""Precisions that only workloads of users compute in, each with what its products are computed in."""

ARITHMETIC: Mapping[str, str] = MappingProxyType({each.name: each.arithmetic for each in _TABLE} | _EIGHT_BITS)
"""What products are computed in, a column of `peaks.toml`, by the ``dtype`` of a case."""
