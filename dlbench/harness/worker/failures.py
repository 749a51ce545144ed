"""Errors of torch and the libraries below it in plain words: of a case, and of a device that does not start. Standard library only."""

import re

from dlbench.core.errors import DlbenchError
from dlbench.core.model import Status
from dlbench.harness.worker.user import place_of

NO_ENGINE = "unable to find an engine"
"""In torch's error where none of cuDNN's plans for a convolution ran, be it for want of support or of memory."""
_MEANINGS = {
    Status.OOM: (
        "out of memory",
        "not enough memory",
        "allocate memory",
        "std::bad_alloc",
        "alloc_failed",  # CUBLAS_STATUS_ALLOC_FAILED, CUDNN_STATUS_…, CUFFT_… and those of ROCm
        "rocblas_status_memory_error",
        # What torch says once every algorithm has failed, which is nearly always for want of memory.
        "valid cudnn algorithm",
        "no valid convolution algorithms",
    ),
    Status.UNSUPPORTED: (
        "not implemented for",
        "not supported",
        "unsupported",
        "does not support",
        "doesn't support",
        "of supported devices",  # of fused and foreach optimizers
        "_not_supported",  # CUBLAS_STATUS_NOT_SUPPORTED, CUDNN_STATUS_…, and so on
        "arch_mismatch",
        NO_ENGINE,
        "no kernel image",
    ),
    Status.FAILED: ("_status_invalid_value",),  # a library refuses its arguments, before it asks anything of the device
    Status.CRASHED: (
        "cuda error:",  # not NCCL's "unhandled cuda error", which most often is a matter of set-up
        "hip error:",
        "xpu error",
        "device-side assert",
        "cudnn_status_execution_failed",
        "cudnn_status_mapping_error",
        # A device that was there is gone for a new process.
        "no cuda gpus are available",
        "no hip gpus are available",
        "cuda driver initialization failed",
        "cuda unknown error",
        "unexpected error from cudagetdevicecount",
    ),
}
"""How a case ends whose error contains one of these words, in lower case: the first that holds.

Memory and what is not supported stand above the faults, because most of them also say "CUDA error": the libraries' own errors do, and an
error of the runtime that leaves the context as it was.
"""


class Unmeasurable(Exception):
    """A case whose device, limit of memory or deadline keeps it from being measured; the text says why."""

    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def failure_of(error: Exception, torch_version: str) -> tuple[Status, str]:
    """Return how a case ended, out of memory, unsupported, crashed by a fault of the device or failed, and why in one line.

    Of what failed that ends with the place in the user's own code.
    """
    if isinstance(error, Unmeasurable):
        return error.status, str(error)
    text, whole = first_line(error), str(error).lower()
    status = next((status for status, words in _MEANINGS.items() if any(word in whole for word in words)), Status.FAILED)
    if isinstance(error, MemoryError) or status is Status.OOM:
        return Status.OOM, f"out of memory: {text}"
    if isinstance(error, NotImplementedError) or status is Status.UNSUPPORTED:
        return Status.UNSUPPORTED, f"{text} (torch {torch_version})"
    place = place_of(error) if status is Status.FAILED else ""
    return status, f"{type(error).__name__}: {text}{f' ({place})' if place else ''}"


_STARTS = (
    (
        "invalid device id",  # torch counts by NVML until it has started CUDA
        "no cuda gpus are available",
        "its driver counts it and CUDA does not: in MIG mode without an instance, lost, or kept from this container; see nvidia-smi",
    ),
    ("busy or unavailable", "another process has it to itself, or its compute mode prohibits computing; see nvidia-smi -q -d COMPUTE"),
    (
        "driver / cuda driver combination",
        "the NVIDIA libraries and the loaded driver are of different versions: reboot, or match them",
    ),
    ("out of memory", "other processes have taken all of its memory; see nvidia-smi"),
    ("no kernel image", "this torch has no kernels for it; install one that was built for it"),
)
"""Words of an error, in lower case, and last what they mean for a device that was to start."""
_OLD_DRIVER = re.compile(r"driver on your system is too old \(found version (\d+)\)")


def why_not_started(error: Exception) -> str:
    """Say in one sentence why a device can't be computed on."""
    if isinstance(error, DlbenchError):
        return str(error)
    if found := _OLD_DRIVER.search(str(error)):
        major, minor = divmod(int(found[1]), 1000)  # CUDA's way to write 12.4: 12040
        return f"its driver is too old for this torch, as it goes up to CUDA {major}.{minor // 10}; update it, or install a torch for that"
    known = (sentence for *words, sentence in _STARTS if any(word in str(error).lower() for word in words))
    return next(known, f"it does not start ({type(error).__name__}: {first_line(error)}); see what its driver says")


def first_line(error: Exception) -> str:
    """Return the first line of what an error says, or else its type."""
    return str(error).strip().partition("\n")[0][:300] or type(error).__name__
