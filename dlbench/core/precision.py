"""Table of the precisions that cases compute in. torch's dtypes are named as text, for whoever has torch to resolve.

A new precision is a name in `Dtype`, or in `ProductDtype` where networks do not compute in it, and a row of `PRECISIONS`; nothing else in
the package lists them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Dtype = Literal["fp64", "fp32", "tf32", "bf16", "fp16", "amp_bf16", "amp_fp16"]
"""A precision: pure, except ``amp_*``, which are autocast (and gradient scaling where training in fp16 needs it)."""
ProductDtype = Literal[Dtype, "fp8_e4m3", "fp8_e5m2", "int8", "binary"]
"""A precision of single matrix products: any `Dtype`, or a type whose operands are rounded with a scale, down to one bit."""

TrainingDtype = Literal["fp32", "amp_bf16", "tf32", "amp_fp16"]
"""Precisions that keep weights in fp32, so that no small update gets lost in training; the plain one first."""
InferenceDtype = Literal["fp32", "amp_bf16", "bf16", "tf32", "amp_fp16", "fp16"]
"""Precisions no wider than the plain one, which comes first."""


@dataclass(frozen=True, slots=True)
class Precision:
    """Storage, arithmetic and rounding of a precision, and what it needs of a device."""

    name: ProductDtype
    storage: str
    """Name of torch's dtype of operands and weights."""
    bytes: int
    """Bytes of one stored number; for ``binary``, of eight numbers."""
    arithmetic: str
    """Type in which products are computed: the name of its column in `peaks.toml`."""
    roundoff: float
    """Unit roundoff of operands and results: half the distance from 1 to the next number. Of integers, as a share of the largest."""
    sum_roundoff: float = 2.0**-24
    """Unit roundoff of sums: fp32, in which matrix units, and libraries on CPUs, add up the products of every narrower type; 0 is exact."""
    scaled: bool = False
    """Whether operands are rounded with a scale of their own, which single products know to take and no network does."""
    autocast: str | None = None
    """Name of torch's dtype that autocast computes products in; None without autocast."""
    narrow_range: bool = False
    """Whether its exponents have a smaller range than those of fp32, so that numbers overflow and gradients underflow."""
    compute_capability: tuple[int, int] = (0, 0)
    """Least one of NVIDIA's devices that have it (CUDA C++ programming guide, table of compute capabilities)."""
    amd_families: tuple[str, ...] = ("",)
    """Beginnings of the names of AMD's architectures that have it."""
    instructions: tuple[str, ...] | None = None
    """Names in /proc/cpuinfo of the instructions that make a CPU's arithmetic native, if it has one of them; None: every CPU's is."""
    missing_on: Mapping[str, str] = field(default_factory=dict)
    """Kinds of device that never have it, each with the reason."""

    @property
    def scales_gradients(self) -> bool:
        """Whether training scales its loss, so that gradients do not underflow."""
        return self.autocast is not None and self.narrow_range

    @property
    def rounds_within(self) -> bool:
        """Whether matrix units round the operands themselves, which are stored in fp32."""
        return self.arithmetic == "tf32"

    def is_native(self, device: Mapping[str, Any], *, on_cpu: bool) -> bool | None:
        """Return whether a device has instructions for its products; None where the device's record does not say."""
        has, capability = device.get("instructions"), re.fullmatch(r"(\d{1,3})\.(\d{1,3})", str(device.get("compute_capability")))
        if on_cpu and isinstance(has, list):
            return self.instructions is None or not set(self.instructions).isdisjoint(map(str, has))
        if device.get("vendor") == "nvidia" and capability:
            return (int(capability[1]), int(capability[2])) >= self.compute_capability
        return None


_NO_TF32 = {
    "cpu": "TF32 is a format of GPU matrix units; on a CPU torch would compute in fp32",
    "xpu": "torch has no TF32 switch for XPU devices",
    "mps": "Metal has no tf32",
}
_NO_FP8 = {"mps": "Metal has no fp8"}

# Instructions: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2 (VDPBF16PS, VFMADD132PH, VPDPBUSD, POPCNT), and
# Architecture Instruction Set Extensions Programming Reference, on AMX (TDPBF16PS, TDPFP16PS, TDPBSSD); Arm Architecture Reference Manual
# for A-profile, features FEAT_BF16, FEAT_FP16, FEAT_DotProd, FEAT_I8MM and Advanced SIMD (CNT), by the names of docs.kernel.org,
# arch/arm64/elf_hwcaps. No CPU that torch has kernels for multiplies in fp8.
_BF16 = ("avx512_bf16", "amx_bf16", "bf16", "svebf16")
_FP16 = ("avx512_fp16", "amx_fp16", "asimdhp")
_INT8 = ("avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm")
_BITS = ("popcnt", "avx512_vpopcntdq", "asimd")

# Sums in fp8: NVIDIA's matrix units keep some 14 bits of them on Hopper (DeepSeek-V3 Technical Report, arXiv 2412.19437, section 3.3.2).
# Of AMD gfx94 has fp8 of another bias (e4m3fnuz), gfx95 and gfx12 the one that is meant here: hipBLASLt documentation, data type support.
_FP8: dict[str, Any] = {
    "bytes": 1, "arithmetic": "fp8", "sum_roundoff": 2.0**-14, "scaled": True, "narrow_range": True, "compute_capability": (8, 9),
    "amd_families": ("gfx95", "gfx12"), "instructions": (), "missing_on": _NO_FP8,
}  # fmt: skip
_TABLE = (
    #          name        storage     bytes  arithmetic  roundoff  and what differs from the defaults above
    Precision("fp64",     "float64",  8,     "fp64",     2.0**-53, sum_roundoff=2.0**-53, missing_on={"mps": "Metal has no fp64"}),
    Precision("fp32",     "float32",  4,     "fp32",     2.0**-24),
    Precision("tf32",     "float32",  4,     "tf32",     2.0**-11, compute_capability=(8, 0), amd_families=("gfx94",), missing_on=_NO_TF32),
    Precision("bf16",     "bfloat16", 2,     "bf16",     2.0**-8,  compute_capability=(8, 0), instructions=_BF16),
    Precision("fp16",     "float16",  2,     "fp16",     2.0**-11, narrow_range=True, instructions=_FP16),
    Precision("amp_bf16", "float32",  4,     "bf16",     2.0**-8,  autocast="bfloat16", compute_capability=(8, 0), instructions=_BF16),
    Precision("amp_fp16", "float32",  4,     "fp16",     2.0**-11, autocast="float16", narrow_range=True, instructions=_FP16),
    Precision("fp8_e4m3", "float8_e4m3fn", roundoff=2.0**-4, **_FP8),
    Precision("fp8_e5m2", "float8_e5m2", roundoff=2.0**-3, **_FP8),
    Precision("int8",     "int8",     1,     "int8",     1 / 254,  0.0, scaled=True, compute_capability=(7, 5), instructions=_INT8),
    Precision("binary",   "bool",     1,     "binary",   1.0,      0.0, scaled=True, instructions=_BITS),
)  # fmt: skip

PRECISIONS: Mapping[str, Precision] = {each.name: each for each in _TABLE}
"""Precisions by name, the widest first."""
SCALED = tuple(each.name for each in _TABLE if each.scaled)
"""The names of those whose operands have a scale."""

ARITHMETIC: Mapping[str, str] = {each.name: each.arithmetic for each in _TABLE}
"""Type in which products are computed, a column of `peaks.toml`, by the ``dtype`` of a case."""
