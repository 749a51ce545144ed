"""Copies within a call: what is copied, from and to where, and what stays as it was. Tensors of the CPU stand for those of a device."""

import pytest
import torch

from dlbench import Copies, Work, with_copies
from dlbench.kit import memory as module
from dlbench.workloads.matmul import matmul
from dlbench.workloads.primitives import conv2d

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def locked(monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """Every tensor that was page-locked, which takes no CUDA here."""
    found: list[torch.Tensor] = []

    def lock(like: torch.Tensor) -> torch.Tensor:
        found.append(torch.empty_like(like))
        return found[-1]

    monkeypatch.setattr(module, "page_locked", lock)
    return found


@pytest.fixture(autouse=True)
def device_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory of a device is apart from the host's."""
    monkeypatch.setattr(torch.Tensor, "cpu", torch.Tensor.clone)


def doubled() -> tuple[Work, torch.Tensor]:
    there = torch.arange(6.0).reshape(2, 3)
    return Work(call=lambda: there * 2, inputs=(there,), items=2, flops=6, bytes=48), there


@pytest.mark.parametrize("copies", ["pageable", "pinned"])
def test_each_call_computes_on_what_is_in_host_memory(copies: Copies, locked: list[torch.Tensor]) -> None:
    work, there = doubled()
    copied = with_copies(CUDA, work, copies)
    (on_host,) = copied.inputs
    on_host.fill_(5.0)
    there.zero_()
    assert copied.call is not None
    assert torch.equal(copied.call(), torch.full((2, 3), 10.0))
    assert torch.equal(there, on_host)
    assert (copied.items, copied.flops, copied.bytes) == (2, 6, 48)


def test_pinned_copies_go_through_buffers_that_the_first_call_leaves(locked: list[torch.Tensor]) -> None:
    copied = with_copies(CUDA, doubled()[0], "pinned")
    assert copied.call is not None
    assert [each.shape for each in locked] == [(2, 3)]
    copied.call()
    assert len(locked) == 2
    copied.inputs[0].fill_(1.0)
    copied.call()
    assert len(locked) == 2
    assert torch.equal(locked[1], torch.full((2, 3), 2.0))


def test_none_leaves_the_work_as_it_is() -> None:
    work, _ = doubled()
    assert with_copies(CPU, work, "none") is with_copies(CUDA, work, "none") is work


def test_on_a_cpu_there_is_nothing_to_copy() -> None:
    with pytest.raises(NotImplementedError, match="nothing to copy to it"):
        matmul(CPU, n=4, copies="pageable")


@pytest.mark.parametrize("copies", ["pageable", "pinned"])
def test_gradients_of_copied_inputs_are_those_of_resident_ones(
    copies: Copies, locked: list[torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = {"batch": 1, "channels": 2, "size": 5, "filters": 2, "kernel": 3}
    torch.manual_seed(3)
    resident = conv2d(CPU, **shape, direction="forward_backward", layout="channels_last")
    monkeypatch.setattr("dlbench.workloads.primitives.with_copies", lambda device, work, wanted: module.with_copies(CUDA, work, wanted))
    torch.manual_seed(3)
    copied = conv2d(CPU, **shape, direction="forward_backward", layout="channels_last", copies=copies)
    assert all(each.is_contiguous(memory_format=torch.channels_last) for each in copied.inputs)
    for _ in range(2):
        assert all(map(torch.equal, copied.call(), resident.call()))
