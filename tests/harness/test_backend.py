"""What dlbench asks of torch for each kind of device, with made-up parts of torch where this machine has no such device."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from dlbench.core.precision import PRECISIONS
from dlbench.harness.backend import Backend, Cpu, Cuda, Mps, Xpu

DEVICE = torch.device("cuda", 0)
MIB = 1 << 20


class Allocator:
    """torch's allocator of device memory as far as its peaks go, and a cuBLAS that keeps a workspace from its first product on."""

    WORKSPACE = 32 * MIB

    def __init__(self):
        self.allocated = self.reserved = self.peak = self.workspace = 0
        self.locked = 5 * MIB

    def take(self, size):
        self.allocated += size
        self.reserved = max(self.reserved, self.allocated)
        self.peak = max(self.peak, self.allocated)

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
        self.peak = self.allocated


@pytest.fixture
def allocator(monkeypatch):
    made = Allocator()
    monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", made.clear_workspaces, raising=False)
    monkeypatch.setattr(torch._C, "_host_emptyCache", made.unlock, raising=False)
    monkeypatch.setattr(torch.cuda, "empty_cache", made.empty_cache)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", made.reset_peak_memory_stats)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: made.peak)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda device: made.reserved)
    return made


def test_a_case_does_not_hold_the_workspace_that_an_earlier_one_left(allocator):
    backend = Cuda()
    allocator.product(100 * MIB)
    backend.reset_peak(DEVICE)
    allocator.convolution(5 * MIB)
    peak = backend.peak(DEVICE)
    assert (peak.peak_bytes, peak.reserved_bytes) == (5 * MIB, 5 * MIB)
    backend.reset_peak(DEVICE)
    allocator.product(5 * MIB)
    assert backend.peak(DEVICE).peak_bytes == 37 * MIB  # its own counts


def test_a_torch_that_cannot_clear_workspaces_still_empties_its_cache(allocator, monkeypatch):
    monkeypatch.delattr(torch._C, "_cuda_clearCublasWorkspaces")
    monkeypatch.delattr(torch._C, "_host_emptyCache")
    allocator.convolution(100 * MIB)
    Cuda().reset_peak(DEVICE)
    assert Cuda().peak(DEVICE).reserved_bytes == 0


def test_page_locked_memory_of_a_case_is_given_back(allocator):
    Cuda().reset_peak(DEVICE)
    assert allocator.locked == 0


def test_page_locked_copies_keep_numbers_and_layout_and_do_not_block(monkeypatch):
    locked, blocked = [], []
    pin_memory, copy, to = lambda tensor: locked.append(tensor) or tensor.clone(), torch.Tensor.copy_, torch.Tensor.to
    monkeypatch.setattr(torch.Tensor, "pin_memory", pin_memory)
    image = torch.rand(2, 3, 4, 5, requires_grad=True).contiguous(memory_format=torch.channels_last)
    (pinned,) = Cuda().pin([image])
    assert len(locked) == 1
    assert torch.equal(pinned, image)
    assert pinned.is_contiguous(memory_format=torch.channels_last)
    monkeypatch.setattr(torch.Tensor, "to", lambda *args, non_blocking=False: blocked.append(not non_blocking) or to(*args))
    monkeypatch.setattr(torch.Tensor, "copy_", lambda *args, non_blocking=False: blocked.append(not non_blocking) or copy(*args))
    (there,) = Cuda().pinned_to_device([pinned], torch.device("cpu"))
    assert torch.equal(there, image)
    Cuda().to_pinned([image * 2], [pinned])
    assert torch.equal(pinned, image * 2)
    assert not pinned.requires_grad
    assert blocked == [False, False]


def test_old_and_new_switches_of_tf32_agree_whatever_was_set_before():
    code = """
import torch
from dlbench.harness.backend import math_flags, set_math
backends = torch.backends
for dtype in ("fp32", "tf32", "bf16", "tf32", "fp32"):
    set_math(dtype)
    flags = math_flags()
    old = backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32, torch.get_float32_matmul_precision() == "high"
    print(dtype, flags["fp32_matmul"], flags["fp32_conv"], *old)
"""
    # In a process of its own, because the switches are of the whole process.
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    ieee, tf32 = "ieee ieee False False False", "tf32 tf32 True True True"
    assert done.stdout.splitlines() == [f"fp32 {ieee}", f"tf32 {tf32}", f"bf16 {ieee}", f"tf32 {tf32}", f"fp32 {ieee}"], done.stderr
    assert done.stderr == ""


def refused(backend: Backend) -> dict[str, str]:
    """What each precision is refused for, of those that are."""
    reasons = {name: backend.unsupported(DEVICE, name) for name in PRECISIONS}
    return {name: reason for name, reason in reasons.items() if reason is not None}


@pytest.mark.parametrize(
    ("backend", "reasons"),
    [
        (Cpu(), {"tf32": "TF32 is a format of GPU matrix units; on a CPU torch would compute in fp32"}),
        (Xpu(), {"tf32": "torch has no TF32 switch for XPU devices"}),
        (Mps(), {"fp64": "Metal has no fp64", "tf32": "Metal has no tf32"}),
    ],
)
def test_what_no_device_of_a_kind_has_is_refused(backend, reasons):
    assert refused(backend) == reasons


def test_tf32_and_bf16_need_compute_capability_8(monkeypatch):
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    needs = "needs compute capability 8.0; this device has 7.5"
    assert refused(Cuda()) == {"tf32": f"tf32 {needs}", "bf16": f"bf16 {needs}", "amp_bf16": f"bf16 {needs}"}
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    assert refused(Cuda()) == {}
    assert Cuda().unsupported(DEVICE, "a precision of somebody's own") is None


@pytest.mark.parametrize(
    ("arch", "reasons"),
    [("gfx942:sramecc+:xnack-", {}), ("gfx90a:sramecc+:xnack-", {"tf32": "gfx90a:sramecc+:xnack- has no TF32"})],
)
def test_of_amd_only_cdna_3_has_tf32(monkeypatch, arch, reasons):
    monkeypatch.setattr(torch.version, "hip", "6.2")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(gcnArchName=arch))
    assert refused(Cuda()) == reasons
