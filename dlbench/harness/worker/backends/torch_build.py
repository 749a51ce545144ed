"""torch's build: the libraries that it was made with, and how it computes on the host."""

import platform
from contextlib import suppress
from typing import Any

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
