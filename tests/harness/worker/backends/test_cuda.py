"""Calls of torch for a CUDA device, with made-up parts of torch where this machine has none."""

import pytest
import torch

from dlbench.core.measurement import Memory
from dlbench.harness.worker.backends.builtin import CudaBackend
from dlbench.harness.worker.measuring.limits import DeviceMemory

DEVICE = torch.device("cuda", 0)
MIB = 1 << 20


class Allocator:
    """torch's allocator of device memory as far as its peaks go, and a cuBLAS that keeps a workspace from its first product on."""

    WORKSPACE = 32 * MIB

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
            self.workspace = self.WORKSPACE
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
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: made.peak)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda device: made.reserved_peak)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: made.allocated)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: made.reserved)
    return made


def test_a_case_does_not_hold_the_workspace_that_an_earlier_one_left(allocator):
    backend = CudaBackend()
    allocator.product(100 * MIB)
    backend.reset_peak(DEVICE)
    allocator.convolution(5 * MIB)
    peak = backend.peak(DEVICE)
    assert (peak.peak_bytes, peak.reserved_bytes) == (5 * MIB, 5 * MIB)
    backend.reset_peak(DEVICE)
    allocator.product(5 * MIB)
    assert backend.peak(DEVICE).peak_bytes == 37 * MIB  # its own counts


def test_peaks_of_a_case_are_without_what_an_earlier_one_left_allocated(allocator):
    allocator.take(100 * MIB)  # and something refers to it
    allocator.convolution(300 * MIB)
    memory = DeviceMemory(CudaBackend(), DEVICE)
    allocator.convolution(5 * MIB)
    assert memory.peaks() == Memory(5 * MIB, 5 * MIB)


def test_workspaces_that_cudnn_only_tried_are_held_and_not_live(allocator):
    memory = DeviceMemory(CudaBackend(), DEVICE)
    allocator.take(2 * MIB)
    allocator.convolution(1000 * MIB)
    memory.forget_set_up()
    allocator.convolution(5 * MIB)
    assert memory.peaks() == Memory(7 * MIB, 1002 * MIB)


def test_a_torch_that_cannot_clear_workspaces_still_empties_its_cache(allocator, monkeypatch):
    monkeypatch.delattr(torch._C, "_cuda_clearCublasWorkspaces")
    monkeypatch.delattr(torch._C, "_host_emptyCache")
    allocator.convolution(100 * MIB)
    CudaBackend().reset_peak(DEVICE)
    assert CudaBackend().peak(DEVICE).reserved_bytes == 0


def test_page_locked_memory_of_a_case_is_given_back(allocator):
    CudaBackend().reset_peak(DEVICE)
    assert allocator.locked == 0


def test_page_locked_copies_keep_numbers_and_layout_and_do_not_block(monkeypatch):
    locked, blocked = [], []
    pin_memory, copy, to = lambda tensor: locked.append(tensor) or tensor.clone(), torch.Tensor.copy_, torch.Tensor.to
    monkeypatch.setattr(torch.Tensor, "pin_memory", pin_memory)
    image = torch.rand(2, 3, 4, 5, requires_grad=True).contiguous(memory_format=torch.channels_last)
    (pinned,) = CudaBackend().pin([image])
    assert len(locked) == 1
    assert torch.equal(pinned, image)
    assert pinned.is_contiguous(memory_format=torch.channels_last)
    monkeypatch.setattr(torch.Tensor, "to", lambda *args, non_blocking=False: blocked.append(not non_blocking) or to(*args))
    monkeypatch.setattr(torch.Tensor, "copy_", lambda *args, non_blocking=False: blocked.append(not non_blocking) or copy(*args))
    (there,) = CudaBackend().pinned_to_device([pinned], torch.device("cpu"))
    assert torch.equal(there, image)
    CudaBackend().to_pinned([image * 2], [pinned])
    assert torch.equal(pinned, image * 2)
    assert not pinned.requires_grad
    assert blocked == [False, False]


def test_an_allocator_counts_what_it_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda device: {"num_ooms": 3, "num_alloc_retries": 5}, raising=True)
    assert CudaBackend().failed_allocations(DEVICE) == 3
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda device: {})  # CUDA has not started
    assert CudaBackend().failed_allocations(DEVICE) == 0
