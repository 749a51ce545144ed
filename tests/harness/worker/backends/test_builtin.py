"""Kinds of device that torch brings, with made-up parts of torch where this machine has no such device."""

from types import SimpleNamespace

import pytest
import torch

from dlbench.core.measurement import Memory
from dlbench.core.precision import PRECISIONS
from dlbench.harness.probe import processor
from dlbench.harness.probe.devices import describe
from dlbench.harness.worker.backends.builtin import CpuBackend, CudaBackend, MpsBackend, XpuBackend
from dlbench.harness.worker.measuring.measure import DeviceMemory

CUDA, XPU = torch.device("cuda", 0), torch.device("xpu", 0)
MIB, GIB = 1 << 20, 1 << 30


class Allocator:
    """torch's allocator of device memory as far as its peaks go, and a cuBLAS that keeps a workspace from its first product on."""

    def __init__(self):
        self.allocated = self.reserved = self.peak = self.reserved_peak = self.workspace = 0
        self.locked = 5 * MIB

    def take(self, size):
        self.allocated += size
        self.reserved = max(self.reserved, self.allocated)
        self.peak = max(self.peak, self.allocated)
        self.reserved_peak = max(self.reserved_peak, self.reserved)

    def product(self, size):
        if not self.workspace:
            self.workspace = 32 * MIB
            self.take(self.workspace)
        self.convolution(size)

    def convolution(self, size):
        self.take(size)
        self.allocated -= size

    def clear_workspaces(self):
        self.allocated -= self.workspace
        self.workspace = 0

    def unlock(self):
        self.locked = 0

    def empty_cache(self):
        self.reserved = self.allocated

    def reset_peak_memory_stats(self, device):
        self.peak, self.reserved_peak = self.allocated, self.reserved


@pytest.fixture
def allocator(monkeypatch):
    made = Allocator()
    monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", made.clear_workspaces, raising=False)
    monkeypatch.setattr(torch._C, "_host_emptyCache", made.unlock, raising=False)
    monkeypatch.setattr(torch.cuda, "empty_cache", made.empty_cache)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", made.reset_peak_memory_stats)
    counts = {"max_memory_allocated": "peak", "max_memory_reserved": "reserved_peak", "memory_allocated": "allocated"}
    for name, count in (*counts.items(), ("memory_reserved", "reserved")):
        monkeypatch.setattr(torch.cuda, name, lambda device, count=count: getattr(made, count))
    return made


def test_a_case_holds_neither_a_workspace_nor_page_locked_memory_of_an_earlier_one(allocator):
    backend = CudaBackend()
    allocator.product(100 * MIB)
    backend.reset_peak(CUDA)
    allocator.convolution(5 * MIB)
    assert (backend.peak(CUDA), allocator.locked) == (Memory(5 * MIB, 5 * MIB), 0)
    backend.reset_peak(CUDA)
    allocator.product(5 * MIB)
    assert backend.peak(CUDA).peak_bytes == 37 * MIB  # its own counts


def test_peaks_of_a_case_are_without_what_an_earlier_one_left_allocated(allocator):
    allocator.take(100 * MIB)  # and something refers to it
    allocator.convolution(300 * MIB)
    memory = DeviceMemory(CudaBackend(), CUDA)
    allocator.convolution(5 * MIB)
    assert memory.peaks() == Memory(5 * MIB, 5 * MIB)


def test_workspaces_that_cudnn_only_tried_are_held_and_not_live(allocator):
    memory = DeviceMemory(CudaBackend(), CUDA)
    allocator.take(2 * MIB)
    allocator.convolution(1000 * MIB)
    memory.forget_set_up()
    allocator.convolution(5 * MIB)
    assert memory.peaks() == Memory(7 * MIB, 1002 * MIB)


def test_a_torch_that_cannot_clear_workspaces_still_empties_its_cache(allocator, monkeypatch):
    monkeypatch.delattr(torch._C, "_cuda_clearCublasWorkspaces")
    monkeypatch.delattr(torch._C, "_host_emptyCache")
    allocator.convolution(100 * MIB)
    CudaBackend().reset_peak(CUDA)
    assert CudaBackend().peak(CUDA).reserved_bytes == 0


@pytest.mark.parametrize("backend", [CudaBackend, XpuBackend])
def test_page_locked_copies_keep_numbers_and_layout_and_do_not_block(monkeypatch, backend):
    locked, blocked = [], []
    pin_memory, copy, to = lambda tensor: locked.append(tensor) or tensor.clone(), torch.Tensor.copy_, torch.Tensor.to
    monkeypatch.setattr(torch.Tensor, "pin_memory", pin_memory)
    image = torch.rand(2, 3, 4, 5, requires_grad=True).contiguous(memory_format=torch.channels_last)
    (pinned,) = backend().pin([image])
    assert (len(locked), pinned.requires_grad, pinned.is_contiguous(memory_format=torch.channels_last)) == (1, False, True)
    assert torch.equal(pinned, image)
    monkeypatch.setattr(torch.Tensor, "to", lambda *args, non_blocking=False: blocked.append(not non_blocking) or to(*args))
    monkeypatch.setattr(torch.Tensor, "copy_", lambda *args, non_blocking=False: blocked.append(not non_blocking) or copy(*args))
    (there,) = backend().to_device([pinned], torch.device("cpu"), non_blocking=True)
    assert torch.equal(there, image)
    backend().to_pinned([image * 2], [pinned])
    assert torch.equal(pinned, image * 2)
    assert blocked == [False, False]


@pytest.mark.parametrize(("stats", "refused"), [({"num_ooms": 3, "num_alloc_retries": 5}, 3), ({}, 0)])  # CUDA has not started
def test_an_allocator_counts_what_it_refused(monkeypatch, stats, refused):
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda device: stats)
    assert CudaBackend().failed_allocations(CUDA) == refused


def test_memory_of_an_accelerator_is_limited_and_the_limit_lifted_and_what_is_free_is_known(monkeypatch):
    shares = []
    monkeypatch.setattr(torch.xpu, "get_device_properties", lambda device: SimpleNamespace(total_memory=16 * GIB))
    monkeypatch.setattr(torch.xpu, "set_per_process_memory_fraction", lambda share, device: shares.append(share), raising=False)
    monkeypatch.setattr(torch.xpu, "mem_get_info", lambda device: (3 * GIB, 16 * GIB), raising=False)
    monkeypatch.setattr(torch.xpu, "empty_cache", lambda: None)
    XpuBackend().limit_memory(XPU, 4 * GIB)
    XpuBackend().limit_memory(XPU, None)
    assert (shares, XpuBackend().free_memory(XPU)) == ([0.25, 1.0], 3 * GIB)
    with pytest.raises(NotImplementedError, match="which is less than 17"):
        XpuBackend().limit_memory(XPU, 17 * GIB)
    with pytest.raises(NotImplementedError, match="can't limit the memory of mps devices"):
        MpsBackend().limit_memory(torch.device("mps"), GIB)


@pytest.mark.parametrize(
    ("chip", "cores", "name"),
    [
        ("Apple M2 Max", 38, "Apple M2 Max, 38 GPU cores"),
        ("Apple M2 Max", -1, "Apple M2 Max GPU"),  # as torch says it where it could not tell
        ("Apple M2 Max", None, "Apple M2 Max GPU"),  # a torch that tells none
        (None, 38, "Apple silicon, 38 GPU cores"),
    ],
)
def test_a_device_of_apple_is_named_by_its_chip(monkeypatch, chip, cores, name):
    monkeypatch.setattr(processor, "model_name", lambda: chip)
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: 24 * GIB)
    if cores is None:
        monkeypatch.delattr(torch.backends.mps, "get_core_count", raising=False)
    else:
        monkeypatch.setattr(torch.backends.mps, "get_core_count", lambda: cores, raising=False)
    (gpu,) = describe({"devices": [{"id": "mps:0", "kind": "mps", **MpsBackend().describe(0)}]})
    assert (gpu.name, gpu.vendor, gpu.memory_bytes) == (name, "apple", 24 * GIB)


FP8 = ("fp8_e4m3", "fp8_e5m2")


def refused(backend):
    """Why precisions are refused, by their names."""
    reasons = {name: backend.unsupported(CUDA, name) for name in PRECISIONS}
    return {name: reason for name, reason in reasons.items() if reason is not None}


@pytest.mark.parametrize(
    ("backend", "reasons"),
    [
        (CpuBackend(), {"tf32": "TF32 is a format of GPU matrix units; on a CPU torch would compute in fp32"}),
        (XpuBackend(), {"tf32": "torch has no TF32 switch for XPU devices"}),
        (MpsBackend(), {"fp64": "Metal has no fp64", "tf32": "Metal has no tf32", **dict.fromkeys(FP8, "Metal has no fp8")}),
    ],
)
def test_what_no_device_of_a_kind_has_is_refused(backend, reasons):
    assert refused(backend) == reasons


NEEDS = {"tf32": ("tf32", (8, 0)), "bf16": ("bf16", (8, 0)), "amp_bf16": ("bf16", (8, 0)), **dict.fromkeys(FP8, ("fp8", (8, 9)))}
NEEDS["int8"] = ("int8", (7, 5))


@pytest.mark.parametrize("own", [(7, 0), (7, 5), (8, 0), (8, 9), (9, 0)])
def test_what_needs_a_later_compute_capability_says_which(monkeypatch, own):
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: own)
    assert refused(CudaBackend()) == {
        name: f"{arithmetic} needs compute capability {least[0]}.{least[1]}; this device has {own[0]}.{own[1]}"
        for name, (arithmetic, least) in NEEDS.items()
        if own < least
    }
    assert CudaBackend().unsupported(CUDA, "a precision of somebody's own") is None


@pytest.mark.parametrize(
    ("arch", "lacks"),
    [
        ("gfx942:sramecc+:xnack-", FP8),
        ("gfx90a:sramecc+:xnack-", ("tf32", *FP8)),
        ("gfx950:sramecc+:xnack-", ("tf32",)),
        ("gfx1100", ("tf32", *FP8)),
        ("gfx1201", ("tf32",)),
    ],
)
def test_of_amd_cdna_3_alone_has_tf32_and_cdna_4_and_rdna_4_the_fp8_of_others(monkeypatch, arch, lacks):
    monkeypatch.setattr(torch.version, "hip", "6.2")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(gcnArchName=arch))
    assert refused(CudaBackend()) == {name: f"{arch} has no {name.upper()}" for name in lacks}
