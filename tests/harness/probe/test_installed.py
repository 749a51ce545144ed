"""What the files of torch and the driver tell, without either."""

from types import SimpleNamespace

import nvml_fake
import pytest
from nvml_fake import Card, FakeNvml

from dlbench.harness.probe import devices
from dlbench.harness.probe.devices import Gpus, versions, why_gpu_unusable

CPU, CUDA = {"torch": "2.13.0+cpu"}, {"torch": "2.13.0+cu130", "cuda": "13.0"}
ROCM, XPU = {"torch": "2.13.0+rocm7", "hip": "7.0"}, {"torch": "2.13.0+xpu"}

ANSWERS = {"nvmlDeviceGetName": "NVIDIA H200", "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=141 << 30)}
H200, DRIVER = ("NVIDIA H200", 141 << 30), "580.65.06"
OLD = "the NVIDIA driver 580.65.06 goes up to CUDA 13.0, and torch 2.20 needs 14.1"


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """A machine on which only these files and programs are."""
    there = set()
    monkeypatch.setattr(devices.Path, "exists", lambda path: str(path) in there)
    monkeypatch.setattr(devices.shutil, "which", lambda program: program if program in there else None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return there


@pytest.mark.parametrize(
    ("torch", "there", "hidden", "why"),
    [
        ({}, (), None, "torch is not installed"),
        (CPU, (), None, "torch 2.13.0+cpu is built for CPUs alone, and there is no NVIDIA driver"),
        (CPU, ("nvidia-smi",), None, "torch 2.13.0+cpu is built for CPUs alone; install one for CUDA"),
        (CUDA, (), None, "there is no NVIDIA driver for torch 2.13.0+cu130"),
        (CUDA, ("/proc/driver/nvidia/version",), None, None),
        (CUDA, ("nvidia-smi",), "", "CUDA_VISIBLE_DEVICES hides them all"),
        (CUDA, ("nvidia-smi",), "-1", "CUDA_VISIBLE_DEVICES hides them all"),
        (CUDA, ("nvidia-smi",), "0,1", None),
        (ROCM, (), None, "there is no AMD driver for torch 2.13.0+rocm7"),
        (ROCM, ("/dev/kfd",), None, None),
        (XPU, (), None, None),
        (CPU, ("/System/Library",), None, None),
    ],
)
def test_why_torch_uses_no_gpu(machine, monkeypatch, torch, there, hidden, why):
    machine.update(there)
    if hidden is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    assert why_gpu_unusable(torch) == why


@pytest.mark.parametrize(
    ("needs", "hidden", "found"),
    [("13.0", None, Gpus((H200,) * 2, DRIVER)), ("13.0", "1", Gpus((H200,), DRIVER)), ("14.1", None, Gpus((), DRIVER, OLD))],
)
def test_the_cards_are_those_of_the_driver_that_are_visible(machine, monkeypatch, needs, hidden, found):
    machine.add("nvidia-smi")
    if hidden:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    with FakeNvml(*(Card(f"GPU-{number}", f"{number}", ANSWERS) for number in range(2))).imported():
        gpus = Gpus.find({"torch": "2.20", "cuda": needs})
    assert (gpus, gpus.ids) == (found, ["cpu", "cuda:0", "cuda:1"][: 1 + len(found.visible)])


def test_a_driver_that_does_not_answer_leaves_it_to_torch(machine):
    machine.add("nvidia-smi")
    with FakeNvml(init_error=nvml_fake.real.NVML_ERROR_DRIVER_NOT_LOADED).imported():
        assert Gpus.find(CUDA) == Gpus()


def test_versions_are_those_of_torch_itself():
    import torch

    assert versions() == {"torch": torch.__version__, "cuda": torch.version.cuda, "hip": torch.version.hip, "xpu": torch.version.xpu}
