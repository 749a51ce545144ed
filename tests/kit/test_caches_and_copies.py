"""Caches, memory of the host, and copies within a call: tensors of the CPU stand for those of a device."""

import errno
import mmap
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from dlbench import Work, with_copies
from dlbench.harness.probe import linux
from dlbench.kit import memory
from dlbench.workloads.primitives import conv2d

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
UNKNOWN = 256 << 20


@pytest.fixture
def cpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Four CPUs, each with a cache of 4 MiB to itself and half of one of 2 MiB; this process may use all but the last."""
    for cpu in range(4):
        pair = f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}"
        for index, (level, size, sharing) in enumerate([(1, "32K", f"{cpu}"), (2, "4096K", f"{cpu}"), (3, "2048K", pair)]):
            folder = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/cache/index{index}"
            folder.mkdir(parents=True)
            for name, text in (("level", level), ("size", size), ("shared_cpu_list", sharing)):
                (folder / name).write_text(f"{text}\n")
    monkeypatch.setattr(linux, "ROOT", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2}, raising=False)
    return tmp_path


def test_last_caches_of_the_cpus_of_this_process_add_up_and_each_counts_once(cpus, monkeypatch):
    assert memory.last_cache_bytes(CPU) == 4 << 20
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {1})
    assert memory.last_cache_bytes(CPU) == 2 << 20
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    for cpu in range(3):
        (cpus / f"sys/devices/system/cpu/cpu{cpu}/cache/index2/size").write_text("\n")
    assert memory.last_cache_bytes(CPU) == 3 * (4 << 20)
    monkeypatch.setattr(linux, "ROOT", cpus / "elsewhere")
    assert memory.last_cache_bytes(CPU) == memory.last_cache_bytes(torch.device("meta")) == UNKNOWN


@pytest.mark.parametrize(
    ("name", "by_torch", "expected"),
    [
        ("AMD Instinct MI300X", 4 << 20, 256 << 20),  # there is a larger one behind that
        ("NVIDIA H100 80GB HBM3", 60 << 20, 60 << 20),
        ("NVIDIA Made-up", 8 << 20, 8 << 20),
        ("NVIDIA Made-up", 0, UNKNOWN),
    ],
)
def test_of_a_card_the_larger_of_what_torch_and_the_publisher_say(name, by_torch, expected, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(name=name, L2_cache_size=by_torch))
    assert memory.last_cache_bytes(torch.device("cuda", 0)) == expected


VALUES = torch.zeros(2, 3)


@pytest.mark.parametrize(
    ("refusal", "left", "error", "said"),
    [
        ("Cannot pin memory here", None, NotImplementedError, "^no page-locked memory: Cannot pin memory here$"),
        ("CUDA error: out of memory", None, RuntimeError, "^CUDA error: out of memory$"),
        ("", 95, MemoryError, "^24 bytes of page-locked memory would be too much of the 95 that the host has left$"),
    ],
)
def test_memory_that_can_not_be_locked(monkeypatch, refusal, left, error, said):
    def refuse(*_: object, **__: object) -> torch.Tensor:
        raise RuntimeError(refusal)

    monkeypatch.setattr(linux, "available_memory", lambda: left)
    monkeypatch.setattr(torch, "empty_like", refuse)
    with pytest.raises(error, match=said) as raised:
        memory.page_locked(VALUES)
    assert type(raised.value) is error


def test_more_than_is_left_is_refused_with_both_numbers(monkeypatch):
    monkeypatch.setattr(linux, "available_memory", lambda: 2**30)
    memory.refuse_more_than_left(2**30, "they take")
    with pytest.raises(MemoryError, match=r"^they take 1\.50 GiB, and the host has 1\.00 GiB left$"):
        memory.refuse_more_than_left(3 * 2**29, "they take")
    monkeypatch.setattr(linux, "available_memory", lambda: None)
    memory.refuse_more_than_left(2**60, "they take")


@pytest.mark.skipif(torch.accelerator.is_available(), reason="this torch can lock pages")
def test_a_torch_without_page_locked_memory_says_so():
    with pytest.raises(NotImplementedError, match="no page-locked memory: "):
        memory.page_locked(VALUES)


@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="huge pages are advised on Linux")
@pytest.mark.parametrize("refused", [False, True])
def test_fresh_pages_are_private_and_a_kernel_without_huge_ones_is_fine(monkeypatch, refused):
    class Pages(mmap.mmap):
        def __new__(cls, *given: int, flags: int) -> "Pages":
            made.append(flags)
            return super().__new__(cls, *given, flags=flags)

        def madvise(self, advice: int) -> None:
            made.append(advice)
            if refused:
                raise OSError(errno.EINVAL, "Invalid argument")

    made = []
    monkeypatch.setattr(mmap, "mmap", Pages)
    values = memory.fresh_pages(10_000)
    assert made == [mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.MADV_HUGEPAGE]
    assert (values.shape, values.dtype, values.any().item()) == ((10_000,), torch.uint8, False)
    monkeypatch.delattr(mmap, "MADV_HUGEPAGE")
    assert memory.fresh_pages(10).shape == (10,)


@pytest.fixture
def locked(monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """Every tensor that was page-locked, which takes no CUDA here."""
    found: list[torch.Tensor] = []

    def lock(like: torch.Tensor) -> torch.Tensor:
        found.append(torch.empty_like(like))
        return found[-1]

    monkeypatch.setattr(memory, "page_locked", lock)
    return found


@pytest.fixture(autouse=True)
def device_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory of a device is apart from the host's."""
    monkeypatch.setattr(torch.Tensor, "cpu", torch.Tensor.clone)


def doubled() -> tuple[Work, torch.Tensor]:
    there = torch.arange(6.0).reshape(2, 3)
    return Work(call=lambda: there * 2, inputs=(there,), items=2, flops=6, bytes=48), there


def test_pinned_copies_go_through_buffers_that_the_first_call_leaves(locked):
    copied = with_copies(CUDA, doubled()[0], "pinned")
    assert copied.call is not None
    assert [each.shape for each in locked] == [(2, 3)]
    copied.call()
    assert len(locked) == 2
    copied.inputs[0].fill_(1.0)
    copied.call()
    assert len(locked) == 2
    assert torch.equal(locked[1], torch.full((2, 3), 2.0))


def test_each_call_computes_on_what_is_in_host_memory(locked):
    work, there = doubled()
    assert with_copies(CPU, work, "none") is with_copies(CUDA, work, "none") is work
    for copies in ("pageable", "pinned"):
        copied = with_copies(CUDA, work, copies)
        (on_host,) = copied.inputs
        on_host.fill_(5.0)
        there.zero_()
        assert copied.call is not None
        assert torch.equal(copied.call(), torch.full((2, 3), 10.0))
        assert torch.equal(there, on_host)
        assert (copied.items, copied.flops, copied.bytes) == (2, 6, 48)


@pytest.mark.parametrize("copies", ["pageable", "pinned"])
def test_gradients_of_copied_inputs_are_those_of_resident_ones(copies, locked, monkeypatch):
    shape = {"batch": 1, "channels": 2, "size": 5, "filters": 2, "kernel": 3}
    torch.manual_seed(3)
    resident = conv2d(CPU, **shape, direction="forward_backward", layout="channels_last")
    monkeypatch.setattr("dlbench.workloads.primitives.with_copies", lambda device, work, wanted: memory.with_copies(CUDA, work, wanted))
    torch.manual_seed(3)
    copied = conv2d(CPU, **shape, direction="forward_backward", layout="channels_last", copies=copies)
    assert all(each.is_contiguous(memory_format=torch.channels_last) for each in copied.inputs)
    for _ in range(2):
        assert all(map(torch.equal, copied.call(), resident.call()))
