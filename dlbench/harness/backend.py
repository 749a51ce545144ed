"""torch's view of each kind of device: what is there, how to wait for it, its memory, its copies, its precisions."""

import platform
import re
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, ClassVar, cast

import torch

from dlbench.core.errors import DeviceAbsent, UsageError
from dlbench.core.model import Memory, ParamValue
from dlbench.harness.device_time import EventTimer
from dlbench.harness.failures import why_not_started


class Backend(ABC):
    """One kind of device. Subclasses override what differs; a plugin may `register` a kind of its own."""

    kind: ClassVar[str]
    is_host: ClassVar[bool] = False
    """Whether its memory is the host's, so that there is nothing to copy."""
    block_s: ClassVar[float] = 0.02
    """Least length of a timed block: a synchronisation of 10 to 40 µs is then below 0.2 %."""
    warmup_s: ClassVar[float] = 0.5
    warmup_calls: ClassVar[int] = 10

    collectives: ClassVar[str | None] = None
    """What several of them, each in a process of its own, talk through: a backend of torch.distributed; None where there is none."""

    @abstractmethod
    def count(self) -> int:
        """Return how many there are."""

    @abstractmethod
    def describe(self, index: int) -> dict[str, Any]:
        """Return what torch knows of one of them, as plain data."""

    def start(self, index: int) -> None:
        """Compute a little there. Raises what torch raises where that can't be, or DeviceAbsent with the sentence for the user."""
        torch.zeros(1, device=self.device(index)).add_(1)
        self.synchronize(self.device(index))

    def device(self, index: int) -> torch.device:
        """Return the torch device to put tensors on."""
        return torch.device(self.kind, index)

    def activate(self, device: torch.device) -> None:  # noqa: B027  # not every kind has a current device
        """Make it the current device."""

    def synchronize(self, device: torch.device) -> None:  # noqa: B027  # a CPU has nothing to wait for
        """Wait until it has done what it was given."""

    def unsupported(self, device: torch.device, dtype: str) -> str | None:
        """Return why it can't compute in this precision; None if it can, or if only trying will tell."""
        return None

    def reset_peak(self, device: torch.device) -> None:  # noqa: B027  # not every kind counts
        """Start counting the memory peak afresh, with nothing cached."""

    def peak(self, device: torch.device) -> Memory:
        """Return the device's peaks since the reset; None where torch does not count them."""
        return Memory()

    def event_timer(self, device: torch.device) -> EventTimer | None:
        """Return the device's own clock; None where there is none, or dlbench can't read it."""
        return None

    def to_device(self, tensors: Sequence[torch.Tensor], device: torch.device) -> list[torch.Tensor]:
        """Copy there as plain user code does: from pageable memory, blocking."""
        return [tensor.to(device) for tensor in tensors]

    def to_host(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Copy to pageable host memory, blocking: fresh memory each time, as in plain user code."""
        return [tensor.cpu() for tensor in tensors]

    def pin(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor] | None:
        """Return copies of host tensors in page-locked memory; None where dlbench can't lock any for this kind.

        Raises RuntimeError where the system does not grant as much.
        """
        return None

    def pinned_to_device(self, pinned: Sequence[torch.Tensor], device: torch.device) -> list[torch.Tensor]:
        """Start copying there from page-locked memory."""
        return [tensor.to(device, non_blocking=True) for tensor in pinned]

    def to_pinned(self, tensors: Sequence[torch.Tensor], pinned: Sequence[torch.Tensor]) -> None:
        """Start copying into page-locked memory."""
        for tensor, target in zip(tensors, pinned, strict=True):
            target.copy_(tensor.detach(), non_blocking=True)


class Cpu(Backend):
    """The host processor."""

    kind = "cpu"
    is_host = True
    block_s = 0.002
    warmup_s = 0.2
    warmup_calls = 2
    collectives = "gloo"

    def count(self) -> int:
        """Return 1: all cores together are one device."""
        return 1

    def describe(self, index: int) -> dict[str, Any]:
        """Return the bare entry; the parent process knows more of the CPU than torch does."""
        return {"name": None}

    def start(self, index: int) -> None:
        """Do nothing: it runs already, and a process that will fork must not compute."""

    def device(self, index: int) -> torch.device:
        """Return the device without an index, as torch writes it."""
        return torch.device("cpu")

    def unsupported(self, device: torch.device, dtype: str) -> str | None:
        """TF32 belongs to accelerators' matrix units."""
        return "TF32 is a format of GPU matrix units; on a CPU torch would compute in fp32" if dtype == "tf32" else None


class Cuda(Backend):
    """NVIDIA through CUDA, and AMD through ROCm, which torch calls cuda too."""

    kind = "cuda"
    collectives = "nccl"

    def count(self) -> int:
        """Return how many are visible, before CUDA has started by its driver's count. Raises RuntimeError where CUDA itself is broken."""
        cuda: Any = torch.cuda
        count = int(cuda.device_count())
        if not count and (torch.version.cuda or torch.version.hip):
            try:
                cuda.init()
            except RuntimeError as error:
                if not any(word in str(error) for word in self._ABSENT):
                    raise
        return count

    _ABSENT = ("Found no NVIDIA driver", "GPUs are available")
    """In the errors of a machine without such a device, which is nothing to tell of."""

    def describe(self, index: int) -> dict[str, Any]:
        """Return name, memory, multiprocessors and what identifies the card to its driver."""
        known: Any = torch.cuda.get_device_properties(index)
        uuid = getattr(known, "uuid", None)
        domain, bus, slot = (getattr(known, f"pci_{part}_id", None) for part in ("domain", "bus", "device"))
        return {
            "name": known.name,
            "vendor": "amd" if torch.version.hip else "nvidia",
            "uuid": str(uuid) if uuid is not None else None,
            "pci_bus_id": f"{domain:04x}:{bus:02x}:{slot:02x}.0" if None not in (domain, bus, slot) else None,
            "memory_bytes": known.total_memory,
            "compute_capability": getattr(known, "gcnArchName", "") if torch.version.hip else f"{known.major}.{known.minor}",
            "multiprocessors": known.multi_processor_count,
            "l2_bytes": getattr(known, "L2_cache_size", None),
        }

    def start(self, index: int) -> None:
        """Compare what torch was built for first: that an operation finds no kernel tells less."""
        known: Any = torch.cuda.get_device_properties(index)
        arch = str(known.gcnArchName) if torch.version.hip else f"sm_{known.major}{known.minor}"
        built_for = torch.cuda.get_arch_list()
        if not has_kernels(arch, built_for):
            raise DeviceAbsent(f"this torch has no kernels for {arch}, only for {', '.join(built_for)}; install one that was built for it")
        super().start(index)

    def activate(self, device: torch.device) -> None:
        """Make it the current device and build its context, whose host memory is not the first case's."""
        torch.cuda.set_device(device)
        torch.empty(1, device=device)

    def synchronize(self, device: torch.device) -> None:
        """Wait for all its streams."""
        torch.cuda.synchronize(device)

    def unsupported(self, device: torch.device, dtype: str) -> str | None:
        """Answer for TF32 and bf16, which older cards lack (CUDA C++ programming guide, table of compute capabilities)."""
        if torch.version.hip:
            arch = str(getattr(torch.cuda.get_device_properties(device), "gcnArchName", ""))
            return f"{arch} has no TF32" if dtype == "tf32" and not arch.startswith("gfx94") else None
        major, minor = torch.cuda.get_device_capability(device)
        if dtype in ("tf32", "bf16", "amp_bf16") and major < 8:
            return f"{dtype.removeprefix('amp_')} needs compute capability 8.0; this device has {major}.{minor}"
        return None

    def reset_peak(self, device: torch.device) -> None:
        """Empty the caches first, so that all of it is this case's alone: cuBLAS keeps a workspace for good (32 MiB on Hopper)."""
        for name in ("_cuda_clearCublasWorkspaces", "_host_emptyCache"):  # private, and not in every torch
            getattr(torch._C, name, lambda: None)()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)

    def peak(self, device: torch.device) -> Memory:
        """Return the allocator's peaks."""
        return Memory(torch.cuda.max_memory_allocated(device), torch.cuda.max_memory_reserved(device))

    def event_timer(self, device: torch.device) -> EventTimer | None:
        """Return CUDA's events, with a kernel that spins as the delay; None in a torch that lacks that kernel."""
        return _CudaEvents() if hasattr(torch.cuda, "_sleep") else None

    def pin(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor] | None:
        """Return page-locked copies."""
        return [tensor.detach().pin_memory() for tensor in tensors]


def has_kernels(arch: str, built_for: Sequence[str]) -> bool:
    """Whether code built for these architectures runs on a device: ``sm_86``, or ``gfx90a:sramecc+:xnack-`` of AMD. True if in doubt.

    CUDA C++ programming guide, binary and PTX compatibility: ``sm_80`` runs on 8.0 and later minor versions, ``compute_80`` is compiled
    for any later device; with an ``a`` both are for that version alone, with an ``f`` for later minor versions.
    """
    if not arch.startswith("sm_"):
        wanted = arch.partition(":")[0]
        return not built_for or any(each.partition(":")[0] == wanted or "generic" in each for each in built_for)
    device = int(arch.removeprefix("sm_"))
    parts = [re.fullmatch(r"(sm|compute)_(\d+)([af]?)", each) for each in built_for]
    return not parts or any(part is None or _runs(part[1], int(part[2]), part[3], device) for part in parts)


def _runs(code: str, version: int, only: str, device: int) -> bool:
    if only == "a":
        return version == device
    same_major = version // 10 == device // 10
    return version <= device and (same_major or (code == "compute" and not only))


class _CudaEvents:
    """An `EventTimer` on the current stream. The spinning kernel counts cycles, so its pace is measured first."""

    _CYCLES = 1_000_000

    def __init__(self) -> None:
        self._cuda: Any = torch.cuda
        self._spin = self._cuda._sleep  # private, but the one delay that ends by itself and moves no memory
        self._spin(self._CYCLES)  # the first launch loads the kernel
        start = self.mark()
        self._spin(self._CYCLES)
        end = self.mark()
        self._cuda.synchronize()
        self._cycles_per_s = self._CYCLES / self.seconds(start, end)

    def delay(self, seconds: float) -> None:
        self._spin(round(seconds * self._cycles_per_s))

    def mark(self) -> Any:
        event = self._cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, start: Any, end: Any) -> float:
        return float(start.elapsed_time(end)) / 1e3


class Xpu(Backend):
    """Intel GPUs."""

    kind = "xpu"
    collectives = "xccl"

    def count(self) -> int:
        """Return how many are visible."""
        return torch.xpu.device_count() if torch.xpu.is_available() else 0

    def describe(self, index: int) -> dict[str, Any]:
        """Return name, memory and multiprocessors (Intel's execution units)."""
        known: Any = torch.xpu.get_device_properties(index)
        return {
            "name": known.name,
            "vendor": "intel",
            "memory_bytes": known.total_memory,
            "multiprocessors": getattr(known, "max_compute_units", None),
        }

    def activate(self, device: torch.device) -> None:
        """Make it the current device."""
        torch.xpu.set_device(device)

    def synchronize(self, device: torch.device) -> None:
        """Wait for it."""
        torch.xpu.synchronize(device)

    def unsupported(self, device: torch.device, dtype: str) -> str | None:
        """Say that torch has no switch for TF32 here, so that it could not be told from fp32."""
        return "torch has no TF32 switch for XPU devices" if dtype == "tf32" else None

    def reset_peak(self, device: torch.device) -> None:
        """Empty the cache first, so that reserved memory is this case's alone."""
        torch.xpu.empty_cache()
        torch.xpu.reset_peak_memory_stats(device)

    def peak(self, device: torch.device) -> Memory:
        """Return the allocator's peaks."""
        return Memory(torch.xpu.max_memory_allocated(device), torch.xpu.max_memory_reserved(device))


class Mps(Backend):
    """The GPU of Apple silicon."""

    kind = "mps"

    def count(self) -> int:
        """Return 1 where there is one."""
        return int(torch.backends.mps.is_available())

    def describe(self, index: int) -> dict[str, Any]:
        """Return the processor's name; it shares the machine's memory."""
        return {
            "name": f"{platform.processor() or platform.machine()} GPU",
            "vendor": "apple",
            "memory_bytes": torch.mps.recommended_max_memory(),
        }

    def synchronize(self, device: torch.device) -> None:
        """Wait for it."""
        torch.mps.synchronize()

    def unsupported(self, device: torch.device, dtype: str) -> str | None:
        """Metal has neither."""
        return f"Metal has no {dtype}" if dtype in ("fp64", "tf32") else None


BACKENDS: dict[str, Backend] = {backend.kind: backend for backend in (Cpu(), Cuda(), Xpu(), Mps())}


def register(backend: Backend) -> None:
    """Add a kind of device; for plugins."""
    BACKENDS[backend.kind] = backend


def find(device_id: str) -> tuple[Backend, torch.device]:
    """Return the backend and the torch device of an id such as ``cpu`` or ``cuda:1``. Raises UsageError if it is absent."""
    kind, _, index = device_id.partition(":")
    backend = BACKENDS.get(kind)
    if backend is None or int(index or 0) >= backend.count():
        raise UsageError(f"there is no device '{device_id}' here")
    return backend, backend.device(int(index or 0))


def describe_devices() -> Iterator[dict[str, Any]]:
    """Yield every device of this machine, the CPU first; one that can't be computed on with the sentence why as ``unusable``.

    Starts the accelerators, so call it in a process of its own.
    """
    for kind, backend in BACKENDS.items():
        count, broken = 1, None
        try:
            count = backend.count()
        except Exception as error:  # noqa: BLE001  # whatever a driver raises: the other devices are there all the same
            broken = error
        for index in range(count):
            about: dict[str, Any] = {"id": kind if backend.is_host else f"{kind}:{index}", "kind": kind}
            try:
                if broken:
                    raise broken
                about |= backend.describe(index)
                backend.start(index)
            except Exception as error:  # noqa: BLE001  # likewise
                about["unusable"] = why_not_started(error)
            yield about


def tensors_in(value: object) -> list[torch.Tensor]:
    """Return the tensors in what a call returned: a tensor, or tuples, lists and dicts of them."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (tuple, list)):
        return [tensor for part in value for tensor in tensors_in(part)]
    return []


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
