"""Precisions that a kind of device lacks, with made-up parts of torch where this machine has no such device."""

from types import SimpleNamespace

import pytest
import torch

from dlbench.core.precision import PRECISIONS
from dlbench.harness.worker.backends.base import Backend
from dlbench.harness.worker.backends.builtin import CpuBackend, CudaBackend, MpsBackend, XpuBackend

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
        (
            MpsBackend(),
            {"fp64": "Metal has no fp64", "tf32": "Metal has no tf32", **dict.fromkeys(("fp8_e4m3", "fp8_e5m2"), "Metal has no fp8")},
        ),
    ],
)
def test_what_no_device_of_a_kind_has_is_refused(backend, reasons):
    assert refused(backend) == reasons


def test_what_needs_a_later_compute_capability_says_which(monkeypatch):
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    needs = "needs compute capability 8.0; this device has 7.5"
    fp8 = dict.fromkeys(("fp8_e4m3", "fp8_e5m2"), "fp8 needs compute capability 8.9; this device has {}")
    assert refused(CudaBackend()) == {
        "tf32": f"tf32 {needs}",
        "bf16": f"bf16 {needs}",
        "amp_bf16": f"bf16 {needs}",
        **{name: text.format("7.5") for name, text in fp8.items()},
    }
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    assert refused(CudaBackend()) == {name: text.format("8.0") for name, text in fp8.items()}
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 9))
    assert refused(CudaBackend()) == {}
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (6, 1))
    assert refused(CudaBackend())["int8"] == "int8 needs compute capability 7.5; this device has 6.1"
    assert CudaBackend().unsupported(DEVICE, "a precision of somebody's own") is None


@pytest.mark.parametrize(
    ("arch", "lacks"),
    [
        ("gfx942:sramecc+:xnack-", ("fp8_e4m3", "fp8_e5m2")),
        ("gfx90a:sramecc+:xnack-", ("tf32", "fp8_e4m3", "fp8_e5m2")),
        ("gfx950:sramecc+:xnack-", ("tf32",)),
        ("gfx1100", ("tf32", "fp8_e4m3", "fp8_e5m2")),
        ("gfx1201", ("tf32",)),
    ],
)
def test_of_amd_cdna_3_alone_has_tf32_and_cdna_4_and_rdna_4_the_fp8_of_others(monkeypatch, arch, lacks):
    monkeypatch.setattr(torch.version, "hip", "6.2")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(gcnArchName=arch))
    assert refused(CudaBackend()) == {name: f"{arch} has no {name.upper()}" for name in lacks}
