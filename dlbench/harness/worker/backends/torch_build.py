"""torch: the libraries of its build, how it computes on the host, and its switches for TF32, autotuning and determinism."""

import platform
import sys
import warnings
from contextlib import suppress
from typing import Any, cast

import torch

from dlbench.core.model import ParamValue


def versions() -> dict[str, str | None]:
    """Return the software that the numbers depend on."""
    found: dict[str, str | None] = {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "torch_git": torch.version.git_version,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "cudnn": None,
        "nccl": None,
    }
    backends: Any = torch.backends
    nccl: Any = torch.cuda.nccl
    # Each of these raises where the build lacks the library: that is the answer None.
    with suppress(RuntimeError, AttributeError):
        found["cudnn"] = str(backends.cudnn.version() or "") or None
    with suppress(RuntimeError, AttributeError, ValueError):
        found["nccl"] = ".".join(map(str, nccl.version())) if torch.cuda.is_available() else None
    return found


def parallelism() -> dict[str, ParamValue]:
    """Return how torch computes on the host: threads, BLAS, instruction set."""
    backends: Any = torch.backends
    return {
        "threads": torch.get_num_threads(),
        "blas": "mkl" if backends.mkl.is_available() else "other",
        "isa": torch.backends.cpu.get_cpu_capability(),
    }


def set_math(dtype: str) -> None:
    """Make fp32 mean IEEE fp32 and tf32 mean TF32, in products and convolutions alike; autotuning off, denormals kept.

    torch's defaults differ between the two (convolutions use TF32, products do not), so neither is left to them. Where there are old
    switches and new ones (from torch 2.9 on) both are set: reading an old one that does not agree with the new raises RuntimeError,
    and what `torch.compile` generates reads the old (https://github.com/pytorch/pytorch/issues/166387).
    """
    precision = "tf32" if dtype == "tf32" else "ieee"
    backends: Any = torch.backends
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Please use the new API")  # torch 2.9 says so of the old ones
        # First, because it moves some of the new ones too.
        backends.cuda.matmul.allow_tf32 = backends.cudnn.allow_tf32 = precision == "tf32"
    if hasattr(backends.cuda.matmul, "fp32_precision"):
        for operation in (backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn, backends.mkldnn.matmul, backends.mkldnn.conv):
            operation.fp32_precision = precision
    backends.cudnn.benchmark = False
    torch.set_flush_denormal(False)


def math_flags() -> dict[str, ParamValue]:
    """Return the backend flags in force, as the result file records them."""
    backends: Any = torch.backends
    if hasattr(backends.cuda.matmul, "fp32_precision"):
        matmul, conv = backends.cuda.matmul.fp32_precision, backends.cudnn.conv.fp32_precision
    else:
        matmul, conv = ("tf32" if allowed else "ieee" for allowed in (backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32))
    return {
        "fp32_matmul": cast(str, matmul),
        "fp32_conv": cast(str, conv),
        "fp16_reduced_sum": bool(backends.cuda.matmul.allow_fp16_reduced_precision_reduction),
        "bf16_reduced_sum": bool(backends.cuda.matmul.allow_bf16_reduced_precision_reduction),
        "cudnn_benchmark": bool(backends.cudnn.benchmark),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "flush_denormal": sys.float_info.min / 2 == 0.0,  # torch tells only by what the processor then does
    }
