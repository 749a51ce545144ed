"""Errors of torch and its libraries in plain words. Standard library only."""

from types import MappingProxyType

from dlbench.core.model import Params, Status
from dlbench.harness.worker.user import place_of

NO_ENGINE = "unable to find an engine"
"""Part of torch's error if none of cuDNN's plans for a convolution ran, for lack of either support or memory."""
_MEANINGS = {
    Status.OOM: (
        "out of memory",
        "not enough memory",
        "allocate memory",
        "std::bad_alloc",
        "alloc_failed",  # CUBLAS_STATUS_ALLOC_FAILED, CUDNN_STATUS_…, CUFFT_… and those of ROCm
        "rocblas_status_memory_error",
        # torch's error once every algorithm has failed, nearly always for lack of memory.
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
        "needs to be greater than",  # sizes that products in int8 can't have on an accelerator, and those in fp8
        "divisible by 16",
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
"""Words of errors, in lower case, by the status of the case; the first status with a word in the error counts.

Lack of memory and of support come before the faults, because most of these errors also say "CUDA error": those of the libraries do, and so
do errors of the runtime that leave the context intact.
"""


class Unmeasurable(Exception):
    """Raised for a case that can't be measured because of its device, memory limit or deadline; the text says why."""

    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def failure_of(error: Exception, torch_version: str, params: Params = MappingProxyType({})) -> tuple[Status, str]:
    """Return the status of a case that raised an error (out of memory, unsupported, crashed or failed), and the reason in one line.

    The words of the error decide, see `_MEANINGS`. The reason of a failed case ends with the place in the user's own code, or with the
    place where the network or data in its ``params`` is defined.
    """
    if isinstance(error, Unmeasurable):
        return error.status, str(error)
    text = str(error).lower()
    statuses = (status for status, words in _MEANINGS.items() if any(word in text for word in words))
    status = next(statuses, Status.FAILED)
    if isinstance(error, MemoryError) or status is Status.OOM:
        return Status.OOM, f"out of memory: {first_line(error)}"
    if isinstance(error, NotImplementedError) or status is Status.UNSUPPORTED:
        return Status.UNSUPPORTED, f"{first_line(error)} (torch {torch_version})"
    reason = error_text(error)
    place = place_of(error, params) if status is Status.FAILED else ""
    return status, f"{reason} ({place})" if place else reason


def error_text(error: Exception) -> str:
    """Return an error's type and the first line of its text."""
    return f"{type(error).__name__}: {first_line(error)}"


def first_line(error: Exception) -> str:
    """Return the first line of an error's text, at most 300 characters; its type if it has none."""
    return str(error).strip().partition("\n")[0][:300] or type(error).__name__
