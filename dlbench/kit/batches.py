"""Batches of a data set, in epochs of random order, and how they get to a device."""

import sys
import warnings
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler, TensorDataset

from dlbench.kit.memory import page_locked

Batch = tuple[Tensor, ...]
"""Images (batch, …) and labels (batch,), say; of a data set (samples, …) and (samples,)."""
Source = Literal["resident", "pageable", "pinned", "prefetch", "loader"]
"""How batches get to the device: see the classes in that order."""


class BatchSource:
    """Batches and how they get to the device; here they lie there."""

    copies = False
    """Whether batches have to be copied to the device."""

    def make_room(self) -> None:
        """Wait until there is a place to put a batch."""

    def fetch(self) -> Any:
        """Return the next batch, or wait for it."""
        raise NotImplementedError

    def copy(self, batch: Any) -> Any:
        """Start the copy of a batch to the device, and return that."""
        return batch

    def send(self, batch: Any) -> Any:
        """Take a batch and return one on the device for the step."""
        return self.copy(batch)

    def pause(self) -> None:
        """End the processes that get batches; the next fetch starts others."""


class EpochSampler(Sampler[int]):
    """Indices of the data set in epochs, each in another random order, of whole batches only.

    As a sampler it gives those of one epoch one by one.
    """

    def __init__(self, samples: int, batch: int, device: torch.device) -> None:
        self.batch = batch
        self._samples, self._device = samples, device
        self._whole = samples // batch * batch

    def __iter__(self) -> Iterator[int]:
        """Return the indices of one epoch, as torch's RandomSampler does."""
        return iter(self._draw().tolist())

    def _draw(self) -> Tensor:
        return torch.randperm(self._samples, device=self._device)[: self._whole]

    def batches(self) -> Iterator[Tensor]:
        """Return the indices of one batch after the other, without end."""
        while True:
            yield from torch.split(self._draw(), self.batch)


class ResidentBatches(BatchSource):
    """Batches indexed where the data set lies, and used there."""

    def __init__(self, data: Batch, order: EpochSampler, device: torch.device) -> None:
        self.data, self._device = data, device
        self.indices = order.batches()

    def fetch(self) -> Batch:
        """Return the next batch, where the data set lies."""
        indices = next(self.indices)
        return tuple(part[indices] for part in self.data)


class Pageable(ResidentBatches):
    """Batches gathered into fresh host memory and copied from there, as plain code does."""

    copies = True

    def copy(self, batch: Batch) -> Batch:
        """Copy a batch, blocking."""
        return tuple(part.to(self._device) for part in batch)


class PageLocked(ResidentBatches):
    """Batches gathered into two page-locked buffers alternately, and copied without waiting on the stream of the step.

    A buffer is filled again only when its copy has ended: it would otherwise be sent half overwritten.
    """

    copies = True

    def __init__(self, data: Batch, order: EpochSampler, device: torch.device) -> None:
        super().__init__(data, order, device)
        self.streams: Any = torch.get_device_module(device)
        self.buffers = [tuple(page_locked(part[: order.batch]) for part in data) for _ in range(2)]
        self.copied: list[Any] = [None, None]
        """An event behind the last copy from each buffer."""
        self._turn = 0

    def make_room(self) -> None:
        """Wait until the copy from the buffer whose turn it is has ended."""
        if self.copied[self._turn] is not None:
            self.copied[self._turn].synchronize()

    def fetch(self) -> Batch:
        """Gather the next batch into the buffer whose turn it is."""
        indices, buffer = next(self.indices), self.buffers[self._turn]
        for part, target in zip(self.data, buffer, strict=True):
            torch.index_select(part, 0, indices, out=target)
        return buffer

    def copy(self, batch: Batch) -> Batch:
        """Start the copy of a batch."""
        return tuple(copied(part, self._device) for part in batch)

    def send(self, batch: Batch) -> Batch:
        """Start the copy of a batch and note where it ends; the next comes from the other buffer."""
        sent = self.copy(batch)
        event = self.copied[self._turn] = self.streams.Event()
        event.record()
        self._turn = 1 - self._turn
        return sent


class Prefetched(PageLocked):
    """Batches copied on a stream of their own, one ahead of the step: the next one's copy runs during the step on this one."""

    def __init__(self, data: Batch, order: EpochSampler, device: torch.device) -> None:
        super().__init__(data, order, device)
        self._stream = self.streams.Stream()
        self._ahead = self._start(self.fetch())

    def _start(self, batch: Batch) -> tuple[Batch, Any]:
        with self.streams.stream(self._stream):
            turn = self._turn
            return super().send(batch), self.copied[turn]

    def send(self, batch: Batch) -> Batch:
        """Start the copy of this batch and return the one before, which the step's stream waits for."""
        (sent, event), self._ahead = self._ahead, self._start(batch)
        step = self.streams.current_stream()
        step.wait_event(event)
        for part in sent:
            part.record_stream(step)  # its memory belongs to the other stream, which may not reuse it before the step has ended
        return sent


class Loaded(ResidentBatches):
    """Batches of torch's DataLoader, gathered by so many workers, or in the step's own process by none."""

    def __init__(self, data: Batch, order: EpochSampler, device: torch.device, workers: int) -> None:
        super().__init__(data, order, device)
        self._loader = partial(
            DataLoader,
            TensorDataset(*data),
            batch_size=order.batch,
            sampler=order,
            num_workers=workers,
            pin_memory=device.type != "cpu",
            drop_last=True,
            # Forked, the workers share the data set with this process; started otherwise they would copy it.
            multiprocessing_context="fork" if workers and sys.platform == "linux" else None,
            persistent_workers=workers > 0,
        )
        self._batches = epochs(self._loader)
        self.copies = device.type != "cpu"

    def fetch(self) -> Batch:
        """Return the next batch, or wait for it."""
        return tuple(next(self._batches))

    def copy(self, batch: Batch) -> Batch:
        """Start the copy of a batch; torch keeps its page-locked memory from being reused before that has ended."""
        return tuple(copied(part, self._device) for part in batch) if self.copies else batch

    def pause(self) -> None:
        """End the workers: with the last that refers to it the loader joins them."""
        self._batches.close()
        self._batches = epochs(self._loader)


def epochs(make_loader: Callable[[], DataLoader[Batch]]) -> Generator[Batch]:
    """Yield batches without end; once nobody refers to it any more, the loader that it has made ends its workers.

    A function and no method: in a cycle of references its queues would be gone before the loader could tell the workers, which notice
    themselves after five seconds only.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # here and below it warns of more workers than cores, which is a case like others
        loader = make_loader()
    while True:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            batches = iter(loader)
        yield from batches


def copied(part: Tensor, device: torch.device) -> Tensor:
    """Start a copy to the device on the current stream."""
    return part.to(device, non_blocking=True)


def batch_source(source: Source, data: Batch, order: EpochSampler, device: torch.device, workers: int) -> ResidentBatches:
    """Return the batches of a source. Raises NotImplementedError where there is no page-locked memory."""
    if source == "loader":
        return Loaded(data, order, device, workers)
    kinds = {"resident": ResidentBatches, "pageable": Pageable, "pinned": PageLocked, "prefetch": Prefetched}
    return kinds[source](data, order, device)
