"""Batches of dlbench's data and of users' loaders: drawn in epochs, checked against what a network takes, and copied to its device."""

import math
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import cycle
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler, TensorDataset

from dlbench import Clock, Data, Dtype, median_time, note_stage
from dlbench.kit.memory import page_locked
from dlbench.kit.user_networks import kinds, on_device, split
from dlbench.models.operations import tensors_of

Batch = tuple[Tensor, ...]
"""Tensors such as images (batch, …) and labels (batch,); of a whole data set (samples, …) and (samples,)."""
Source = Literal["resident", "pageable", "pinned", "prefetch", "loader"]
"""How batches get to the device; those of torch's DataLoader come as a user's do, as `LoadedBatches`."""


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


class IndexedBatches(BatchSource):
    """Batches of a data set in the memory of the host or the device, gathered there by indices, and copied as plain code does."""

    def __init__(self, data: Batch, order: EpochSampler, device: torch.device) -> None:
        self.data, self._device = data, device
        self.copies = data[0].device.type != device.type
        self.indices = order.batches()

    def fetch(self) -> Batch:
        """Return the next batch, in the memory that holds the data set."""
        indices = next(self.indices)
        return tuple(part[indices] for part in self.data)

    def copy(self, batch: Batch) -> Batch:
        """Copy a batch, blocking."""
        return tuple(part.to(self._device) for part in batch)


class PageLocked(IndexedBatches):
    """Batches gathered into two page-locked buffers alternately, and copied without waiting on the stream of the step.

    A buffer is filled again only when its copy has ended; otherwise the device could get a batch that is half overwritten.
    """

    def __init__(self, data: Batch, order: EpochSampler, device: torch.device) -> None:
        super().__init__(data, order, device)
        self.streams: Any = torch.get_device_module(device)
        buffers = [tuple(page_locked(part[: order.batch]) for part in data) for _ in range(2)]
        self._turns = cycle([(buffer, self.streams.Event()) for buffer in buffers])
        self._buffer, self._copied = next(self._turns)
        """The buffer whose turn it is, and an event after the last copy from it."""

    def make_room(self) -> None:
        """Wait until the copy from the buffer whose turn it is has ended."""
        self._copied.synchronize()

    def fetch(self) -> Batch:
        """Gather the next batch into the buffer whose turn it is."""
        indices = next(self.indices)
        for part, target in zip(self.data, self._buffer, strict=True):
            torch.index_select(part, 0, indices, out=target)
        return self._buffer

    def copy(self, batch: Batch) -> Batch:
        """Start the copy of a batch."""
        return tuple(part.to(self._device, non_blocking=True) for part in batch)

    def send(self, batch: Batch) -> Batch:
        """Start the copy of a batch, record an event after it, and turn to the other buffer."""
        sent = self.copy(batch)
        self._copied.record()
        self._buffer, self._copied = next(self._turns)
        return sent


class Prefetched(PageLocked):
    """Batches copied on a stream of their own, one ahead of the step: the next batch is copied during the step on this one."""

    def __init__(self, data: Batch, order: EpochSampler, device: torch.device) -> None:
        super().__init__(data, order, device)
        self._stream = self.streams.Stream()
        self._ahead = self._start(self.fetch())

    def _start(self, batch: Batch) -> tuple[Batch, Any]:
        """Start the copy of a batch on the other stream, and return the copy with the event after it."""
        with self.streams.stream(self._stream):
            copied = self._copied
            return super().send(batch), copied

    def send(self, batch: Batch) -> Batch:
        """Start the copy of this batch and return the one before, which the step's stream waits for."""
        sent, event = self._ahead
        self._ahead = self._start(batch)
        step = self.streams.current_stream()
        step.wait_event(event)
        for part in sent:
            part.record_stream(step)  # so that the other stream, which owns the memory, does not reuse it before the step has ended
        return sent


def batch_source(source: Source, data: Batch, order: EpochSampler, device: torch.device) -> IndexedBatches:
    """Return the batches of a data set from a source. Raises NotImplementedError where it needs page-locked memory and there is none."""
    return {"pinned": PageLocked, "prefetch": Prefetched}.get(source, IndexedBatches)(data, order, device)


Given = tuple[Any, Any]
"""Inputs of a network and targets, which are None where it takes none."""
ALONE_S, ALONE_CALLS = 0.5, 256
"""Time for which the loader, and then the step, runs alone, and how often at most."""
BLOCK_S = 0.02
"""Length of a block of the step alone: with so much work at once a device does not wait for launches."""


class OwnBatches(BatchSource):
    """Whole batches of a user's loader, without end: after an epoch the next begins, and the rest of the last batch is left out."""

    def __init__(self, data: Data, example: Given, targets: bool, device: torch.device, dtype: Dtype, batch: int, workers: int) -> None:
        """Prepare to build the loader; ``example``: a batch as the network takes it, and ``targets``: whether its loss takes targets."""
        self.copies = device.type != "cpu"
        self._name, self._batch, self._targets = data.name, batch, targets
        arguments = {"batch": batch, "workers": workers}
        self._make_loader = partial(data.build, **{name: arguments[name] for name in data.parameters})
        self._wanted_inputs, self._wanted_targets = kinds(example)
        self._device, self._dtype = device, dtype
        self._loader: Any = None
        self._epoch: Iterator[Any] | None = None
        self.whole = 0
        """Whole batches of this epoch so far."""
        self._short_batch = 0
        """Size of a batch of this epoch that was smaller: it has to be the last."""

    def fetch(self) -> Any:
        """Return the next whole batch of the loader: inputs and targets on the host. When an epoch has ended, begin the next one.

        Only the last batch of an epoch may be smaller, and is then left out. Raises ValueError for any other batch that the step can't
        take, and where the loader fails.
        """
        while True:
            wrapped_item = self._next_of_epoch()
            if wrapped_item is None:  # the epoch has ended
                if not self.whole:
                    raise self._error("has ended without a batch; it is gone through once an epoch, so each time has to begin anew")
                self._epoch = None
                continue
            inputs, targets = self._as_network_takes(*wrapped_item)
            size = len(tensors_of(inputs)[0])
            if self._short_batch:  # another batch has followed it, so it was not the last
                raise self._error(f"gives a batch of {self._short_batch} before the last of an epoch, and batch={self._batch}")
            if size == self._batch:
                self.whole += 1
                return inputs, targets
            if size > self._batch or not self.whole:  # a smaller batch ends the epoch, so whole ones have to come before it
                raise self._error(f"gives a batch of {size}, and batch={self._batch}; both have to be the same")
            self._short_batch = size  # fine if the epoch ends now

    def copy(self, batch: Given) -> Given:
        """Start the copy of a batch to the device, with floating-point numbers in the storage type of the precision."""
        sent: Given = on_device(batch, self._device, self._dtype, non_blocking=True)
        return sent

    def pause(self) -> None:
        """End the epoch and its workers; the next fetch begins another."""
        # Persistent workers end only with their loader; a loader that is its own iterator can't begin anew.
        if getattr(self._loader, "persistent_workers", False) or self._loader is self._epoch:
            self._loader = None
        self._epoch = None

    def _next_of_epoch(self) -> tuple[Any] | None:
        """Return the loader's next item in a tuple of one, as the item itself may be None; at the end of an epoch return None.

        Without an epoch in ``self._epoch`` it begins one. Raises ValueError where the loader fails.
        """
        try:
            if self._epoch is not None:
                return (next(self._epoch),)
            # For the message of a case that is killed meanwhile. The first item of an epoch may have to wait until workers have started.
            note_stage(f"it was waiting for {self._name}")
            self._epoch = self._begin_epoch()
            first = (next(self._epoch),)
            note_stage("")
            return first
        except StopIteration:
            return None
        except (MemoryError, NotImplementedError):  # the harness reports such cases as out of memory and as not available here
            raise
        except Exception as error:
            raise self._error(f"raises {type(error).__name__}: {_reason(error)}") from error

    def _begin_epoch(self) -> Iterator[Any]:
        self.whole = self._short_batch = 0
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "This DataLoader will create")  # more workers than cores are a case like others
            if self._loader is None or isinstance(self._loader, Iterator):
                self._loader = self._make_loader()
            return iter(self._loader)

    def _as_network_takes(self, drawn: Any) -> Given:
        """Return what the loader gave as inputs and targets in the containers of the example. Raises ValueError for other containers."""
        inputs, targets = split(drawn, self._targets, f"data '{self._name}'")
        wanted = self._wanted_inputs
        if wanted == "Tensor" and isinstance(inputs, list | tuple) and len(inputs) == 1:
            (inputs,) = inputs  # a TensorDataset of inputs alone gives them so
        if isinstance(wanted, tuple) and isinstance(inputs, list):  # torch collates tuples into lists
            inputs = tuple(inputs)
        if isinstance(wanted, Mapping) and isinstance(inputs, Mapping):
            inputs = {name: inputs[name] for name in wanted if name in inputs}
        found, all_wanted = kinds((inputs, targets)), (wanted, self._wanted_targets)
        if found != all_wanted:
            raise self._error(f"gives {found!s:.80}, and the network takes {all_wanted!s:.80}")
        return inputs, targets

    def _error(self, text: str) -> ValueError:
        return ValueError(f"data '{self._name}' {text}")


class LoadedBatches(OwnBatches):
    """Batches of a data set from torch's DataLoader, gathered by its worker processes, or with ``workers`` = 0 by this process."""

    def __init__(self, data: Batch, order: EpochSampler, device: torch.device, dtype: Dtype, workers: int) -> None:
        def make_loader() -> DataLoader[Batch]:
            return DataLoader(
                TensorDataset(*data),
                batch_size=order.batch,
                sampler=order,
                num_workers=workers,
                pin_memory=device.type != "cpu",
                # Forked, the workers share the data set with this process; started otherwise they would copy it.
                multiprocessing_context="fork" if workers and sys.platform == "linux" else None,
                persistent_workers=workers > 0,
            )

        loader = Data("loader", make_loader)
        # All tensors of the data set, labels among them, come as inputs, so a batch has no targets: None and False. The data set itself is
        # the example of a batch, as only the kinds of its values count. `make_loader` takes no arguments, so ``workers`` is not used again.
        super().__init__(loader, (data, None), False, device, dtype, order.batch, workers)

    def fetch(self) -> Batch:
        """Return the next batch, or wait for it."""
        batch, _ = super().fetch()
        return tuple(batch)


def time_alone(batches: BatchSource, step: Callable[..., Any], workers: int, clock: Clock) -> dict[str, float]:
    """Return the seconds of a batch without steps, and of a step without loading; the loader's workers end before the steps."""
    begun = clock.now()
    fetched = batches.fetch()
    input_s = clock.now() - begun
    inputs_and_targets = batches.copy(fetched)
    # A slow loader has shown its pace by now; but workers may have prepared this batch earlier.
    if workers or input_s < ALONE_S:
        batches.pause()
        input_s = seconds_to_fetch(batches, max(1, workers), clock)
    batches.pause()
    return {"input_alone_s": input_s, "step_alone_s": seconds_to_step(lambda: step(*inputs_and_targets), clock)}


def seconds_to_fetch(batches: BatchSource, at_once: int, clock: Clock) -> float:
    """Return the mean seconds of a batch of a loader that begins with none ready; its workers give ``at_once`` batches together."""
    batches.fetch()
    begun, fetched = clock.now(), 0
    while fetched < at_once or (fetched < ALONE_CALLS and clock.now() < begun + ALONE_S):
        for _ in range(at_once):
            batches.fetch()
        fetched += at_once
    return (clock.now() - begun) / fetched


def seconds_to_step(step: Callable[[], object], clock: Clock) -> float:
    """Return the usual seconds of a step: the median over blocks of steps, or for a slow step the time of a single one."""
    begun = clock.now()
    step()
    once_s = clock.now() - begun
    if once_s >= ALONE_S:
        return once_s
    calls = math.ceil(BLOCK_S / max(once_s, BLOCK_S / ALONE_CALLS))

    def run_block() -> None:
        for _ in range(calls):
            step()

    return median_time(run_block, clock) / calls


def _reason(error: Exception) -> str:
    """Return the first line of an error's message; of an error in a loader's worker the last of the traceback that torch passes on."""
    lines = str(error).splitlines() or [""]
    return lines[-1].partition(": ")[2] if "in DataLoader worker" in lines[0] else lines[0]
