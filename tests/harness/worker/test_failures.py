"""Errors of torch and its libraries in plain words."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

import dlbench
from dlbench.core.errors import DeviceAbsent
from dlbench.core.model import Case, Policy, Status
from dlbench.harness.process.wire import MeasureRequest
from dlbench.harness.worker import user
from dlbench.harness.worker.failures import failure_of, why_not_started
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


def raised(message: str | Exception) -> Exception:
    return RuntimeError(message) if isinstance(message, str) else message


@pytest.mark.parametrize("status", MESSAGES)
def test_a_message_tells_what_became_of_a_case_and_a_crash_alone_leaves_the_process_unfit(
    monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
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


def test_what_a_torch_lacks_names_that_torch() -> None:
    assert failure_of(NotImplementedError("no such thing"), "2.11.0") == (Status.UNSUPPORTED, "no such thing (torch 2.11.0)")


STARTS = {
    "The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver by downloading …": (
        "its driver is too old for this torch, as it goes up to CUDA 11.4; update it, or install a torch for that"
    ),
    "No CUDA GPUs are available": (
        "its driver counts it and CUDA does not: in MIG mode without an instance, lost, or kept from this container; see nvidia-smi"
    ),
    f"CUDA error: CUDA-capable device(s) is/are busy or unavailable{BOILERPLATE}": (
        "another process has it to itself, or its compute mode prohibits computing; see nvidia-smi -q -d COMPUTE"
    ),
    "Unexpected error from cudaGetDeviceCount(). … Error 803: system has unsupported display driver / cuda driver combination": (
        "the NVIDIA libraries and the loaded driver are of different versions: reboot, or match them"
    ),
    f"CUDA error: out of memory{BOILERPLATE}": "other processes have taken all of its memory; see nvidia-smi",
    f"CUDA error: no kernel image is available for execution on the device{BOILERPLATE}": (
        "this torch has no kernels for it; install one that was built for it"
    ),
    "HIP error: invalid device function": "this torch has no kernels for it; install one that was built for it",
    f"CUDA error: uncorrectable ECC error encountered{BOILERPLATE}": (
        "it does not start (RuntimeError: CUDA error: uncorrectable ECC error encountered); see what its driver says"
    ),
    AssertionError(): "it does not start (AssertionError: AssertionError); see what its driver says",
    DeviceAbsent("as I say"): "as I say",
}


@pytest.mark.parametrize(("error", "sentence"), STARTS.items())
def test_why_a_device_does_not_start(error: str | Exception, sentence: str) -> None:
    assert why_not_started(raised(error)) == sentence


@pytest.mark.parametrize(
    ("file", "place"),
    [
        (PACKAGE / "kit" / "modes.py", ""),
        (PACKAGE.with_name("dlbench_mine.py"), "dlbench_mine.py, line 1"),  # next to a checkout's package, and none of its files
        (Path(json.__file__), ""),
    ],
)
def test_a_failure_ends_with_its_place_in_the_users_own_code_alone(monkeypatch: pytest.MonkeyPatch, file: Path, place: str) -> None:
    monkeypatch.setattr(user, "_networks", {"mine": SimpleNamespace(name="mine")})
    with pytest.raises(ZeroDivisionError) as error:
        exec(compile("1 / 0", str(file), "exec"))  # noqa: S102  # a file that need not be there
    error.value.__traceback__ = error.value.__traceback__.tb_next  # without this file
    assert failure_of(error.value, "2.11.0")[1] == f"ZeroDivisionError: division by zero{f' ({place})' if place else ''}"
