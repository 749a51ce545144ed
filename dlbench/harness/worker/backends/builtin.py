"""dlbench's own kinds of device: the CPU; NVIDIA by CUDA and AMD by ROCm; Apple silicon; Intel GPUs."""

from typing import Any

import torch

from dlbench.core.precision import PRECISIONS
from dlbench.harness.worker.backends.base import Backend, CachingBackend, EventTimer


class CpuBackend(Backend):
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


class CudaBackend(CachingBackend):
    """NVIDIA through CUDA, and AMD through ROCm, which torch calls cuda too."""

    kind = "cuda"
    collectives = "nccl"

    def count(self) -> int:
        """Return how many are visible, by the driver's count until CUDA has started. Raises RuntimeError if CUDA itself is broken."""
        count = super().count()
        if not count and (torch.version.cuda or torch.version.hip):
            try:
                self._torch.init()
            except RuntimeError as error:
                # A machine without such a device is no fault.
                if "Found no NVIDIA driver" not in str(error) and "GPUs are available" not in str(error):
                    raise
        return count

    def describe(self, index: int) -> dict[str, Any]:
        """Return name, memory, multiprocessors, and the ids by which the driver knows the card; None for what an older torch lacks."""
        card = self._torch.get_device_properties(index)
        uuid = getattr(card, "uuid", None)
        domain, bus, slot = (getattr(card, f"pci_{part}_id", None) for part in ("domain", "bus", "device"))
        return {
            "name": card.name,
            "vendor": "amd" if torch.version.hip else "nvidia",
            "uuid": str(uuid) if uuid is not None else None,
            "pci_bus_id": f"{domain:04x}:{bus:02x}:{slot:02x}.0" if None not in (domain, bus, slot) else None,
            "memory_bytes": card.total_memory,
            "compute_capability": card.gcnArchName if torch.version.hip else f"{card.major}.{card.minor}",
            "multiprocessors": card.multi_processor_count,
            "l2_bytes": getattr(card, "L2_cache_size", None),
        }

    def activate(self, device: torch.device) -> None:
        """Make it the current device and build its context, so that the first case does not count the context's host memory."""
        super().activate(device)
        torch.empty(1, device=device)

    def unsupported(self, device: torch.device, dtype: str) -> str | None:
        """Return why the compute capability, or AMD's architecture, is not enough for the precision; None if it is."""
        precision = PRECISIONS.get(dtype)
        if precision is None:
            return None
        if torch.version.hip:
            arch = self._torch.get_device_properties(device).gcnArchName
            return None if arch.startswith(precision.amd_families) else f"{arch} has no {precision.name.upper()}"
        least, own = precision.compute_capability, torch.cuda.get_device_capability(device)
        if own >= least:
            return None
        return f"{precision.arithmetic} needs compute capability {least[0]}.{least[1]}; this device has {own[0]}.{own[1]}"

    def reset_peak(self, device: torch.device) -> None:
        """Empty all caches and reset the peak: cuBLAS would keep a workspace (32 MiB on Hopper) from case to case."""
        for name in ("_cuda_clearCublasWorkspaces", "_host_emptyCache"):  # private, and not in every torch
            getattr(torch._C, name, lambda: None)()
        super().reset_peak(device)

    def failed_allocations(self, device: torch.device) -> int:
        """Return the allocator's count."""
        return int(torch.cuda.memory_stats(device).get("num_ooms", 0))

    def event_timer(self, device: torch.device) -> EventTimer | None:
        """Return a timer of CUDA's events, whose delay is a spinning kernel."""
        return _CudaEvents()


class _CudaEvents:
    """An `EventTimer` on the current stream. The spinning kernel counts cycles, so its pace is measured first."""

    _CYCLES = 1_000_000

    def __init__(self) -> None:
        self._cuda: Any = torch.cuda
        self._spin = self._cuda._sleep  # private, but the one delay that always ends and moves no memory
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


class MpsBackend(Backend):
    """The GPU of Apple silicon."""

    kind = "mps"

    def count(self) -> int:
        """Return 1 where there is one."""
        return int(torch.backends.mps.is_available())

    def describe(self, index: int) -> dict[str, Any]:
        """Return its vendor, its cores if torch knows them, and the machine's memory that it shares; torch has no name for it."""
        cores = getattr(torch.backends.mps, "get_core_count", lambda: 0)()  # torch 2.6 has no such function
        return {
            "vendor": "apple",
            "multiprocessors": cores if cores > 0 else None,
            "memory_bytes": torch.mps.recommended_max_memory(),
        }

    def synchronize(self, device: torch.device) -> None:
        """Wait for it."""
        torch.mps.synchronize()


class XpuBackend(CachingBackend):
    """Intel GPUs."""

    kind = "xpu"
    collectives = "xccl"

    def describe(self, index: int) -> dict[str, Any]:
        """Return name, memory and multiprocessors (Intel's execution units)."""
        card = self._torch.get_device_properties(index)
        return {
            "name": card.name,
            "vendor": "intel",
            "memory_bytes": card.total_memory,
            "multiprocessors": getattr(card, "max_compute_units", None),
        }
