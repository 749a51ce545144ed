"""Calls of torch for an Intel GPU, with made-up parts of torch where this machine has none."""

from types import SimpleNamespace

import pytest
import torch

from dlbench.harness.worker.backends.builtin import XpuBackend

DEVICE = torch.device("xpu", 0)
GIB = 1 << 30


@pytest.fixture
def card(monkeypatch):
    """What was limited to which share, on a card of 16 GiB."""
    shares = []
    monkeypatch.setattr(torch.xpu, "get_device_properties", lambda device: SimpleNamespace(total_memory=16 * GIB))
    monkeypatch.setattr(torch.xpu, "set_per_process_memory_fraction", lambda share, device: shares.append(share), raising=False)
    monkeypatch.setattr(torch.xpu, "empty_cache", lambda: None)
    return shares


def test_its_memory_is_limited_and_the_limit_lifted(card):
    XpuBackend().limit_memory(DEVICE, 4 * GIB)
    XpuBackend().limit_memory(DEVICE, None)
    assert card == [0.25, 1.0]
    with pytest.raises(NotImplementedError, match="which is less than 17"):
        XpuBackend().limit_memory(DEVICE, 17 * GIB)


def test_a_torch_without_such_a_limit_says_so(card, monkeypatch):
    monkeypatch.delattr(torch.xpu, "set_per_process_memory_fraction")
    XpuBackend().limit_memory(DEVICE, None)
    with pytest.raises(NotImplementedError, match="can't limit the memory of xpu devices"):
        XpuBackend().limit_memory(DEVICE, GIB)


def test_free_memory_is_what_the_driver_tells_if_it_does(card, monkeypatch):
    def refuse(device):
        raise RuntimeError("The device does not support querying its free memory")

    monkeypatch.setattr(torch.xpu, "mem_get_info", lambda device: (3 * GIB, 16 * GIB), raising=False)
    assert XpuBackend().free_memory(DEVICE) == 3 * GIB
    monkeypatch.setattr(torch.xpu, "mem_get_info", refuse)
    assert XpuBackend().free_memory(DEVICE) is None


def test_pages_are_locked_for_its_copies(monkeypatch):
    locked = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: locked.append(tensor) or tensor.clone())
    assert torch.equal(XpuBackend().pin([torch.ones(3)])[0], torch.ones(3))
    assert len(locked) == 1
