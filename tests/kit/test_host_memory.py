"""Memory of the host: page-locked or fresh, and never more than it has."""

import errno
import mmap

import pytest
import torch

from dlbench.core.model import Status
from dlbench.harness.probe import linux
from dlbench.harness.worker.failures import failure_of
from dlbench.kit import memory

VALUES = torch.zeros(2, 3)


def refusing(monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    def refuse(*_: object, **__: object) -> torch.Tensor:
        raise RuntimeError(reason)

    monkeypatch.setattr(torch, "empty_like", refuse)


def test_memory_that_can_not_be_locked_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    refusing(monkeypatch, "Cannot pin memory here\nstack")
    with pytest.raises(NotImplementedError) as raised:
        memory.page_locked(VALUES)
    ended = (Status.UNSUPPORTED, "no page-locked memory: Cannot pin memory here (torch 2.6.0)")
    assert failure_of(raised.value, "2.6.0") == ended


def test_want_of_memory_to_lock_stays_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    refusing(monkeypatch, "CUDA error: out of memory")
    with pytest.raises(RuntimeError, match=r"^CUDA error: out of memory$") as raised:
        memory.page_locked(VALUES)
    assert not isinstance(raised.value, NotImplementedError)


@pytest.mark.skipif(torch.accelerator.is_available(), reason="this torch can lock pages")
def test_a_torch_without_page_locked_memory_says_so() -> None:
    with pytest.raises(NotImplementedError, match="no page-locked memory: "):
        memory.page_locked(VALUES)


def test_more_than_a_part_of_what_is_left_is_not_locked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linux, "available_memory", lambda: 95)
    with pytest.raises(MemoryError, match=r"^24 bytes of page-locked memory would be too much of the 95 that the host has left$"):
        memory.page_locked(VALUES)


def test_more_than_is_left_is_refused_with_both_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linux, "available_memory", lambda: 2**30)
    memory.refuse_more_than_left(2**30, "they take")
    with pytest.raises(MemoryError, match=r"^they take 1\.50 GiB, and the host has 1\.00 GiB left$"):
        memory.refuse_more_than_left(3 * 2**29, "they take")
    monkeypatch.setattr(linux, "available_memory", lambda: None)
    memory.refuse_more_than_left(2**60, "they take")


@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="huge pages are advised on Linux")
@pytest.mark.parametrize("refused", [False, True])
def test_fresh_pages_are_private_and_a_kernel_without_huge_ones_is_fine(monkeypatch: pytest.MonkeyPatch, refused: bool) -> None:
    class Pages(mmap.mmap):
        def __new__(cls, *given: int, flags: int) -> "Pages":
            made.append(flags)
            return super().__new__(cls, *given, flags=flags)

        def madvise(self, advice: int) -> None:  # type: ignore[override]  # as it is called here
            made.append(advice)
            if refused:
                raise OSError(errno.EINVAL, "Invalid argument")

    made: list[int] = []
    monkeypatch.setattr(mmap, "mmap", Pages)
    values = memory.fresh_pages(10_000)
    assert made == [mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.MADV_HUGEPAGE]
    assert (values.shape, values.dtype, values.any().item()) == ((10_000,), torch.uint8, False)


def test_without_huge_pages_to_advise_torch_has_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(mmap, "MADV_HUGEPAGE", raising=False)
    assert memory.fresh_pages(10).shape == (10,)
