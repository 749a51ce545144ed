"""Errors of torch and its libraries in plain words."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import dlbench
from dlbench.core.errors import DeviceAbsent
from dlbench.core.model import Case, Policy, Status
from dlbench.harness.process.wire import MeasureRequest
from dlbench.harness.worker import user
from dlbench.harness.worker.backends.base import why_not_started
from dlbench.harness.worker.failures import failure_of
from dlbench.harness.worker.serving import main

PACKAGE = Path(dlbench.__file__).parent
BOILERPLATE = """
CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.
For debugging consider passing CUDA_LAUNCH_BLOCKING=1
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions."""


class OutOfMemoryError(RuntimeError):
    """As torch calls its own."""


# Messages as torch 2.6 to 2.13 and the libraries below it write them, those of a RuntimeError as text.
MESSAGES = {
    "oom": (
        OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB."),
        MemoryError(),
        f"CUDA error: out of memory{BOILERPLATE}",
        "MPS backend out of memory (MPS allocated: 17.66 GB)",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "CUDA error: HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`",
        "cuFFT error: CUFFT_ALLOC_FAILED",
        "Unable to find a valid cuDNN algorithm to run convolution",
        "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried …",
        "std::bad_alloc",
    ),
    "unsupported": (
        "GET was unable to find an engine to execute this computation",
        "CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasLtMatmulAlgoGetHeuristic(…)`",
        "CUDA error: CUBLAS_STATUS_ARCH_MISMATCH when calling `cublasGemmEx(…)`",
        "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if you passed in a non-contiguous input.",
        f"CUDA error: no kernel image is available for execution on the device{BOILERPLATE}",
        f"CUDA error: operation not supported{BOILERPLATE}",
        "\"addmm_impl_cpu_\" not implemented for 'Half'",
        NotImplementedError("Could not run 'aten::_foo' with arguments from the 'MPS' backend."),
    ),
    "failed": (
        "CUDA error: CUBLAS_STATUS_INVALID_VALUE when calling `cublasSgemm(…)`",
        "NCCL error in: …, unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        ValueError("the numbers do not add up"),
    ),
    "crashed": (
        f"CUDA error: an illegal memory access was encountered{BOILERPLATE}",
        f"CUDA error: device-side assert triggered{BOILERPLATE}",
        "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm(…)`",
        "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
        "HIP error: invalid device function",
        "No CUDA GPUs are available",
    ),
}


def raised(message):
    return RuntimeError(message) if isinstance(message, str) else message


@pytest.mark.parametrize("status", MESSAGES)
def test_a_message_shows_the_status_of_a_case_and_a_crash_alone_leaves_the_process_unfit(monkeypatch, status):
    case = Case("matmul[]@cuda:0", "s", "matmul", {}, "cuda:0")
    request = MeasureRequest(
        threads=1, case=case, round=0, policy=Policy(), seed=1, device_name=None, devices=("cuda:0",), memory_bytes=None
    )
    for error in map(raised, MESSAGES[status]):
        monkeypatch.setattr(main, "_measure_case", lambda *_, error=error: (_ for _ in ()).throw(error))
        reply = main.measure(request)
        assert (reply.status, reply.fault) == (status, status == "crashed"), error
        assert "\n" not in str(reply.reason)
        assert (str(error).partition("\n")[0] or "MemoryError") in str(reply.reason)


STARTS = (
    "The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver by downloading …",
    "No CUDA GPUs are available",
    f"CUDA error: CUDA-capable device(s) is/are busy or unavailable{BOILERPLATE}",
    "Unexpected error from cudaGetDeviceCount(). … Error 803: system has unsupported display driver / cuda driver combination",
    f"CUDA error: out of memory{BOILERPLATE}",
    f"CUDA error: no kernel image is available for execution on the device{BOILERPLATE}",
    "HIP error: invalid device function",
    f"CUDA error: uncorrectable ECC error encountered{BOILERPLATE}",
    AssertionError(),
    DeviceAbsent("as I say"),
)


def test_why_a_device_does_not_start_and_which_torch_lacks_something(snapshot, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_80", "gfx942"])
    assert failure_of(NotImplementedError("no such thing"), "2.11.0") == (Status.UNSUPPORTED, "no such thing (torch 2.11.0)")
    errors = [raised(each) for each in STARTS]
    snapshot("starts-of-devices", "".join(f"{str(each).partition(chr(10))[0]}\n    {why_not_started(each)}\n" for each in errors))


@pytest.mark.parametrize(
    ("file", "place"),
    [
        (PACKAGE / "kit" / "modes.py", ""),
        (PACKAGE.with_name("dlbench_mine.py"), "dlbench_mine.py, line 1"),  # next to a checkout's package, and none of its files
        (Path(json.__file__), ""),
    ],
)
def test_a_failure_ends_with_its_place_in_the_users_own_code_alone(monkeypatch, file, place):
    monkeypatch.setattr(user, "_networks", {"mine": SimpleNamespace(name="mine")})
    with pytest.raises(ZeroDivisionError) as error:
        exec(compile("1 / 0", str(file), "exec"))  # noqa: S102  # a file that need not be there
    error.value.__traceback__ = error.value.__traceback__.tb_next  # without this file
    assert failure_of(error.value, "2.11.0")[1] == f"ZeroDivisionError: division by zero{f' ({place})' if place else ''}"
