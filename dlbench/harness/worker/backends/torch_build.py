"""torch: the libraries of its build, its threads, and its switches for TF32, autotuning and determinism."""

import os
import platform
import sys
import warnings
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from dlbench.core.model import ParamValue

# torch leaves much of these untyped.
_matmul: Any = torch.backends.cuda.matmul
_cudnn: Any = torch.backends.cudnn
_mkldnn: Any = torch.backends.mkldnn


def versions() -> dict[str, str | None]:
    """Return the versions of the software that the numbers depend on; None for a library that this build of torch lacks."""
    software: dict[str, str | None] = {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "torch_git": torch.version.git_version,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "cudnn": None,
        "nccl": None,
    }
    # torch raises where the build lacks the library, or returns None.
    with suppress(RuntimeError, AttributeError):
        if number := _cudnn.version():
            software["cudnn"] = str(number)
    with suppress(RuntimeError, AttributeError, ValueError):
        if torch.cuda.is_available():
            software["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return software


def parallelism() -> dict[str, ParamValue]:
    """Return how torch computes on the host: threads, BLAS, instruction set."""
    return {
        "threads": torch.get_num_threads(),
        "blas": "mkl" if torch.backends.mkl.is_available() else "other",  # type: ignore[no-untyped-call]  # torch leaves it untyped
        "isa": torch.backends.cpu.get_cpu_capability(),
    }


_began_on = set[int]()
"""The logical CPUs that this process had before a case first asked for others; empty until then."""


def set_threads(threads: int, cpus: Collection[int] | None) -> None:
    """Set how many threads compute on the host, and their logical CPUs; with None those that the process began with."""
    if cpus is not None and not _began_on:
        _began_on.update(os.sched_getaffinity(0))
    if wanted := cpus or _began_on:
        # Threads of earlier cases still have the CPUs of those; new threads inherit the CPUs of this one, which 0 stands for.
        threads_so_far = [int(each.name) for each in Path("/proc/self/task").glob("*")]
        for thread in (0, *threads_so_far):
            with suppress(ProcessLookupError):  # it has ended meanwhile
                os.sched_setaffinity(thread, wanted)
    torch.set_num_threads(threads)


def set_math(dtype: str) -> None:
    """Turn TF32 on for the dtype tf32 and off for all others, and reset torch's other switches that change how it computes.

    torch's own defaults differ: convolutions use TF32, products do not. From torch 2.9 on there are old and new switches, and both are
    set: reading an old one that does not agree with the new raises RuntimeError, and code of `torch.compile` reads the old one
    (https://github.com/pytorch/pytorch/issues/166387).
    """
    is_tf32 = dtype == "tf32"
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Please use the new API")  # torch 2.9 warns of the old ones
        # The old switches first, because they change some of the new ones, too.
        _matmul.allow_tf32 = _cudnn.allow_tf32 = is_tf32
    if hasattr(_matmul, "fp32_precision"):  # torch 2.9
        for operation in (_matmul, _cudnn.conv, _cudnn.rnn, _mkldnn.matmul, _mkldnn.conv):
            operation.fp32_precision = "tf32" if is_tf32 else "ieee"
    # An earlier case of this process may have changed these: no autotuning, every library and kernel allowed, and denormals kept.
    _cudnn.benchmark = False
    _cudnn.enabled = True
    torch._C._set_mkldnn_enabled(True)
    for kind in ("flash", "mem_efficient", "cudnn", "math"):  # kernels of attention
        getattr(torch.backends.cuda, f"enable_{kind}_sdp")(True)
    torch.set_flush_denormal(False)


def math_flags() -> dict[str, ParamValue]:
    """Return torch's switches in force, by their names in result files."""
    if hasattr(_matmul, "fp32_precision"):
        matmul, conv = _matmul.fp32_precision, _cudnn.conv.fp32_precision
    else:
        matmul, conv = ("tf32" if allowed else "ieee" for allowed in (_matmul.allow_tf32, _cudnn.allow_tf32))
    # A case with kernels=native turns oneDNN and cuDNN off. Then MKL and cuBLAS still compute their part, and torch's native kernels all
    # else. One more flag says so.
    native_flag: dict[str, ParamValue] = {} if _mkldnn.enabled and _cudnn.enabled else {"native_kernels": "all but MKL and cuBLAS"}
    return native_flag | {
        "fp32_matmul": matmul,
        "fp32_conv": conv,
        "fp16_reduced_sum": bool(_matmul.allow_fp16_reduced_precision_reduction),
        "bf16_reduced_sum": bool(_matmul.allow_bf16_reduced_precision_reduction),
        "cudnn_benchmark": bool(_cudnn.benchmark),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "flush_denormal": sys.float_info.min / 2 == 0.0,  # torch has no getter, but the processor then turns a denormal into 0
    }
