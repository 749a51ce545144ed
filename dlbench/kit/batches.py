"""Batches of a data set, in epochs of random order, and their ways to a device."""

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
"""Tensors such as images (batch, …) and labels (batch,); of a whole data set (samples, …) and (samples,)."""
Source = Literal["resident", "pageable", "pinned", "prefetch", "loader"]
"""How batches get to the device, each by a class below in this order."""


class BatchSource:
    """A source of batches for steps on a device; by default they are on it already."""

    copies = False
    """Whether batches have to be copied to the device."""

    def make_room(self) -> None:
        """Wait until the memory for the next batch is free."""

    def fetch(self) -> Any:
        """Return the next batch, or wait for it."""
        raise NotImplementedError

    def copy(self, batch: Any) -> Any:
        """Start the copy of a batch to the device, and return the copy."""
        return batch

    def send(self, batch: Any) -> Any:
        """Take a fetched batch, and return one on the device for the step."""
        return self.copy(batch)

    def pause(self) -> None:
        """End the processes that load batches; the next fetch starts new ones."""


class EpochSampler(Sampler[int]):
    """Indices of a data set in epochs, each in another random order and without the rest that fills no batch.

    As a sampler it yields the indices of one epoch one by one.
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
        """Yield the indices of one batch after the other, without end."""
        while True:
            yield from torch.split(self._draw(), self.batch)


class ResidentBatches(BatchSource):
    """Batches of a data set on the device, indexed there."""

    def __init__(self, data: Batch, order: EpochSampler, device: torch.device) -> None:
        self.data, self._device = data, device
        self.indices = order.batches()

    def fetch(self) -> Batch:
        """Return the next batch, in the memory that holds the data set."""
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

    A buffer is filled again only when its copy has ended; otherwise the device could get a batch that is half overwritten.
    """

    copies = True

    def __init__(self, data: Batch, order: EpochSampler, device: torch.device) -> None:
        super().__init__(data, order, device)
        self.streams: Any = torch.get_device_module(device)
        self.buffers = [tuple(page_locked(part[: order.batch]) for part in data) for _ in range(2)]
        self.copied: list[Any] = [None, None]
        """An event after the last copy from each buffer."""
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
        return tuple(copy_to(part, self._device) for part in batch)

    def send(self, batch: Batch) -> Batch:
        """Start the copy of a batch, record an event after it, and turn to the other buffer."""
        sent = self.copy(batch)
        event = self.copied[self._turn] = self.streams.Event()
        event.record()
        self._turn = 1 - self._turn
        return sent


class Prefetched(PageLocked):
    """Batches copied on a stream of their own, one ahead of the step: the next batch is copied during the step on this one."""

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
            part.record_stream(step)  # so that the other stream, which owns the memory, does not reuse it before the step has ended
        return sent


class Loaded(ResidentBatches):
    """Batches of torch's DataLoader, gathered by so many worker processes, or without any by the process of the step."""

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
        """Start the copy of a batch; torch does not reuse its page-locked memory before the copy has ended."""
        return tuple(copy_to(part, self._device) for part in batch) if self.copies else batch

    def pause(self) -> None:
        """End the workers: the loader joins them when nothing refers to it any more."""
        self._batches.close()
        self._batches = epochs(self._loader)


def epochs(make_loader: Callable[[], DataLoader[Batch]]) -> Generator[Batch]:
    """Make a loader and yield its batches without end; when this generator is closed, the loader ends its workers.

    A function and no method, to avoid a cycle of references: in one the loader's queues would be gone before it could stop its workers,
    which then notice only after five seconds.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns, here and below, of more workers than cores, which cases may ask for
        loader = make_loader()
    while True:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            batches = iter(loader)
        yield from batches


def copy_to(part: Tensor, device: torch.device) -> Tensor:
    """Start a copy of a tensor to the device on the current stream, and return the copy."""
    return part.to(device, non_blocking=True)


def batch_source(source: Source, data: Batch, order: EpochSampler, device: torch.device, workers: int) -> ResidentBatches:
    """Return the batches of a data set from a source. Raises NotImplementedError where it needs page-locked memory and there is none."""
    if source == "loader":
        return Loaded(data, order, device, workers)
    kinds = {"resident": ResidentBatches, "pageable": Pageable, "pinned": PageLocked, "prefetch": Prefetched}
    return kinds[source](data, order, device)
