"""Precisions that a kind of device lacks, with made-up parts of torch where this machine has no such device."""

from types import SimpleNamespace

import pytest
import torch

from dlbench.core.precision import PRECISIONS
from dlbench.harness.worker.backends.base import Backend
from dlbench.harness.worker.backends.cpu import CpuBackend
from dlbench.harness.worker.backends.cuda import CudaBackend
from dlbench.harness.worker.backends.mps import MpsBackend
from dlbench.harness.worker.backends.xpu import XpuBackend

DEVICE = torch.device("cuda", 0)


def refused(backend: Backend) -> dict[str, str]:
    """What each precision is refused for, of those that are."""
    reasons = {name: backend.unsupported(DEVICE, name) for name in PRECISIONS}
    return {name: reason for name, reason in reasons.items() if reason is not None}


@pytest.mark.parametrize(
    ("backend", "reasons"),
    [
        (CpuBackend(), {"tf32": "TF32 is a format of GPU matrix units; on a CPU torch would compute in fp32"}),
        (XpuBackend(), {"tf32": "torch has no TF32 switch for XPU devices"}),
        (MpsBackend(), {"fp64": "Metal has no fp64", "tf32": "Metal has no tf32"}),
    ],
)
def test_what_no_device_of_a_kind_has_is_refused(backend, reasons):
    assert refused(backend) == reasons


def test_tf32_and_bf16_need_compute_capability_8(monkeypatch):
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    needs = "needs compute capability 8.0; this device has 7.5"
    assert refused(CudaBackend()) == {"tf32": f"tf32 {needs}", "bf16": f"bf16 {needs}", "amp_bf16": f"bf16 {needs}"}
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    assert refused(CudaBackend()) == {}
    assert CudaBackend().unsupported(DEVICE, "a precision of somebody's own") is None


@pytest.mark.parametrize(
    ("arch", "reasons"),
    [("gfx942:sramecc+:xnack-", {}), ("gfx90a:sramecc+:xnack-", {"tf32": "gfx90a:sramecc+:xnack- has no TF32"})],
)
def test_of_amd_only_cdna_3_has_tf32(monkeypatch, arch, reasons):
    monkeypatch.setattr(torch.version, "hip", "6.2")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(gcnArchName=arch))
    assert refused(CudaBackend()) == reasons
