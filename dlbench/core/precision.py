"""Table of the precisions that cases compute in. torch's dtypes are named as text, for whoever has torch to resolve.

A new precision is a name in `Dtype` and a row of `PRECISIONS`; nothing else in the package lists them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

Dtype = Literal["fp64", "fp32", "tf32", "bf16", "fp16", "amp_bf16", "amp_fp16"]
"""A precision: pure, except ``amp_*``, which are autocast (and gradient scaling where training in fp16 needs it)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """What numbers are stored in, computed in and rounded by, and what that needs of a device."""

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
    amd_architecture: str = ""
    """What the names of those AMD architectures begin with that have it."""
    missing_on: Mapping[str, str] = field(default_factory=dict)
    """Kinds of device that never have it, each with the reason."""

    @property
    def scales_gradients(self) -> bool:
        """Whether training scales its loss, so that gradients do not underflow."""
        return self.autocast is not None and self.narrow_range


_TABLE = (
    Precision(
        name="fp64", storage="float64", bytes=8, arithmetic="fp64", roundoff=2.0**-53, sum_roundoff=2.0**-53,
        missing_on={"mps": "Metal has no fp64"},
    ),
    Precision(name="fp32", storage="float32", bytes=4, arithmetic="fp32", roundoff=2.0**-24),
    Precision(
        name="tf32", storage="float32", bytes=4, arithmetic="tf32", roundoff=2.0**-11,
        compute_capability=(8, 0),
        amd_architecture="gfx94",
        missing_on={
            "cpu": "TF32 is a format of GPU matrix units; on a CPU torch would compute in fp32",
            "xpu": "torch has no TF32 switch for XPU devices",
            "mps": "Metal has no tf32",
        },
    ),
    Precision(name="bf16", storage="bfloat16", bytes=2, arithmetic="bf16", roundoff=2.0**-8, compute_capability=(8, 0)),
    Precision(name="fp16", storage="float16", bytes=2, arithmetic="fp16", roundoff=2.0**-11, narrow_range=True),
    Precision(
        name="amp_bf16", storage="float32", bytes=4, arithmetic="bf16", roundoff=2.0**-8, autocast="bfloat16", compute_capability=(8, 0)
    ),
    Precision(
        name="amp_fp16", storage="float32", bytes=4, arithmetic="fp16", roundoff=2.0**-11, autocast="float16", narrow_range=True
    ),
)  # fmt: skip
PRECISIONS: Mapping[str, Precision] = MappingProxyType({each.name: each for each in _TABLE})
"""By name, the widest first."""
