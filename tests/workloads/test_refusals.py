"""What no workload can do is a sentence before anything is built: tests/snapshots/refusals.txt holds them all."""

import os
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import dlbench
from dlbench.harness.probe import linux
from dlbench.harness.worker import registry, user
from dlbench.harness.worker.backends.torch_build import set_math
from dlbench.workloads import ceilings, concurrency, feed, preprocess, transformer


@pytest.fixture
def small_machine(monkeypatch, tmp_path):
    """A host with two CPUs, 16 GiB of memory and a disk of 4 MiB with three files left, whose last cache has 64 KiB."""
    monkeypatch.setattr(linux, "available_memory", lambda: 2**34)
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=1024, f_frsize=4096, f_files=10, f_favail=3))
    monkeypatch.setattr(ceilings, "last_cache_bytes", lambda device: 64 << 10)
    monkeypatch.setattr(feed, "SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(concurrency, "usable_cpus", lambda: [0, 1])
    monkeypatch.setattr("dlbench.harness.worker.parent._folder", tmp_path)
    for module, name in ((preprocess, "draw_files"), (transformer, "with_random_weights")):
        monkeypatch.setattr(module, name, pytest.fail)


@pytest.fixture
def own_networks(monkeypatch):
    for kind in ("_networks", "_data"):
        monkeypatch.setattr(user, kind, {})
    for name, shape in (("flat", (6,)), ("oblong", (3, 6, 8)), ("signs", (2,))):
        dlbench.network(inputs=shape, classes=3)(named(name, lambda shape=shape: nn.Sequential(nn.Flatten(), nn.LazyLinear(3))))
    second = named("recurrent", lambda: nn.RNN(6, 3))  # its batch is the second dimension
    dlbench.network(example=lambda batch: torch.zeros(7, batch, 6), loss=lambda output: output.sum())(second)
    dlbench.data(named("mine", lambda: [(torch.zeros(4, 2), torch.zeros(4, dtype=torch.long))]))


def named(name, function):
    function.__name__ = name
    return function


@pytest.mark.skipif(not hasattr(os, "O_DIRECT"), reason="storage is read as Linux does")
def test_each_refusal(transcript, small_machine, own_networks, tmp_path):
    registry.load_builtins()

    def refused(call):
        name, *words = call.split()
        given = {key: value_of(text) for key, _, text in (word.partition("=") for word in words)}
        with pytest.raises((NotImplementedError, ValueError, MemoryError)) as raised:
            registry.get(name).function(torch.device(given.pop("device", "cpu")), **given)
        return f"{type(raised.value).__name__}: {raised.value}".replace(str(tmp_path), "FOLDER")

    transcript("refusals", 100, refused)
    set_math("fp32")  # transformers chose their kernels of attention


def value_of(text):
    return {"True": True, "False": False}.get(text, int(text) if text.isdigit() else text)
