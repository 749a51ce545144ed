"""Batches that users bring: taken one epoch after the other, checked for what a step takes, and copied to its device."""

import math
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from dlbench import Clock, Data, Dtype, note_stage
from dlbench.kit.batches import BatchSource
from dlbench.kit.user_networks import on_device
from dlbench.models.shapes import tensors_of

Given = tuple[Any, Any]
"""Inputs of a network and targets, None where it takes none."""
SLOW_S = 0.1
"""A loader whose last batch took longer says that it is waited for: a note in each call would cost one that is fast."""
ALONE_S, ALONE_CALLS = 0.5, 256
"""Time for which the loader, and then the step, runs alone, and how often at most."""
BLOCK_S = 0.02
"""Length of a block of the step alone: a device that is given as much at once does not wait for launches."""


class OwnBatches(BatchSource):
    """Batches of a user's loader. Where an epoch ends the next begins; of its last batch only a whole one is taken."""

    def __init__(self, data: Data, example: Given, targets: bool, device: torch.device, dtype: Dtype, batch: int, workers: int) -> None:
        self.copies = device.type != "cpu"
        self._name, self._batch, self._targets = data.name, batch, targets
        self._takes_batch = "batch" in data.parameters
        given = {"batch": batch, "workers": workers}
        self._make = partial(data.build, **{name: given[name] for name in data.parameters})
        self._example = tree_map_only(Tensor, lambda each: each.to("meta"), example)
        # Of recurrent networks it may be the second.
        dimensions = [(at, each.shape[:2].index(batch)) for at, each in enumerate(tensors_of(example[0])) if batch in each.shape[:2]]
        self._tensor, self._dimension = dimensions[0]
        self._device, self._dtype = device, dtype
        self._loader: Any = None
        self._epoch: Iterator[Any] | None = None
        self.whole = 0
        """Batches of this epoch so far."""
        self._short, self._took_s = 0, 0.0

    def fetch(self) -> Given:
        """Return the next whole batch, or wait for it. Raises ValueError for what no step can take, and for what the loader raises."""
        while True:
            if (drawn := self._next()) is None:
                if not self.whole:
                    raise self._wrong("has ended without a batch; it is gone through once an epoch, so each time has to begin anew")
                self._epoch = None
                continue
            inputs, targets = self._taken(*drawn)
            first = tensors_of(inputs)[self._tensor]
            size = first.shape[self._dimension] if first.dim() > self._dimension else 0
            if self._short:
                raise self._wrong(f"gives a batch of {self._short} before the last of an epoch, and batch={self._batch}")
            if size == self._batch:
                self.whole += 1
                return inputs, targets
            if size > self._batch or not self.whole:
                other = "its function takes batch and has to keep to it" if self._takes_batch else f"give batch={size}"
                raise self._wrong(f"gives a batch of {size}, and batch={self._batch}; {other}")
            self._short = size  # the last of an epoch has what is left

    def copy(self, batch: Given) -> Given:
        """Start the copy of a batch to the device, floating-point numbers in what the precision stores."""
        inputs, targets = (on_device(part, self._device, self._dtype, non_blocking=True) for part in batch)
        return inputs, targets

    def pause(self) -> None:
        """End the epoch and its workers; the next fetch begins another."""
        # Workers that outlive an epoch end with their loader, and an iterator can't begin anew.
        if getattr(self._loader, "persistent_workers", False) or self._loader is self._epoch:
            self._loader = None
        self._epoch = None

    def _next(self) -> tuple[Any] | None:
        """Return the next of the loader; None where an epoch ends."""
        begun = time.perf_counter()
        if waits := self._epoch is None or self._took_s > SLOW_S:
            note_stage(f"it was waiting for {self._name}")
        try:
            if self._epoch is None:
                with warnings.catch_warnings():
                    warnings.filterwarnings("ignore", "This DataLoader will create")  # more workers than cores are a case like others
                    self._begin()
            return (next(self._epoch),)  # type: ignore[arg-type]  # begun above
        except StopIteration:
            return None
        except (MemoryError, NotImplementedError):
            raise
        except Exception as error:
            raise self._wrong(f"raises {type(error).__name__}: {_reason(error)}") from error
        finally:
            self._took_s = time.perf_counter() - begun
            if waits:
                note_stage("")

    def _begin(self) -> None:
        """Begin an epoch."""
        self.whole = self._short = 0
        if self._loader is None or isinstance(self._loader, Iterator):
            self._loader = self._make()
        if not hasattr(self._loader, "__iter__") and not hasattr(self._loader, "__getitem__"):
            raise TypeError(f"its function returns {_kind(self._loader)}, and no DataLoader or other iterable of batches")
        self._epoch = iter(self._loader)

    def _taken(self, drawn: Any) -> Given:
        """Return inputs and targets as the network takes them."""
        wanted, goal = self._example
        inputs, targets = drawn, None
        if self._targets:
            if not isinstance(drawn, list | tuple) or len(drawn) != 2:  # inputs and targets
                raise self._wrong(f"gives {_kind(drawn)}, and a step takes (inputs, targets)")
            inputs, targets = drawn
        elif isinstance(wanted, Tensor) and isinstance(drawn, list | tuple) and len(drawn) == 1:  # as a TensorDataset of inputs alone
            (inputs,) = drawn
        if isinstance(wanted, tuple) and isinstance(inputs, list):  # torch collates a tuple so
            inputs = tuple(inputs)
        if isinstance(wanted, Mapping) and isinstance(inputs, Mapping):
            inputs = dict(inputs)  # of other kinds of mappings torch does not know the tensors
        for what, example, found in (("inputs", wanted, inputs), ("targets", goal, targets)):
            if not _alike(example, found):
                raise self._wrong(f"gives {what} as {_kind(found)}, and the network takes {_kind(example)}")
        return inputs, targets

    def _wrong(self, what: str) -> ValueError:
        return ValueError(f"data '{self._name}' {what}")


def alone(batches: BatchSource, step: Callable[..., Any], workers: int, clock: Clock) -> dict[str, float]:
    """Return the time of a batch without steps, and of a step on a batch that is there; the workers of the loader end in between."""
    begun = clock.now()
    fetched = batches.fetch()
    input_s = clock.now() - begun
    given = batches.copy(fetched)
    if workers or input_s < ALONE_S:  # one that is so slow has shown its pace, unless its workers have worked on
        batches.pause()
        input_s = fetching_s(batches, max(1, workers), clock)
    batches.pause()
    return {"input_alone_s": input_s, "step_alone_s": stepping_s(lambda: step(*given), clock)}


def fetching_s(batches: BatchSource, at_once: int, clock: Clock) -> float:
    """Return the seconds of a batch of a loader that has nothing ready when it begins, and whose workers give so many at once."""
    batches.fetch()
    begun, taken = clock.now(), 0
    while taken < at_once or (taken < ALONE_CALLS and clock.now() < begun + ALONE_S):
        for _ in range(at_once):
            batches.fetch()
        taken += at_once
    return (clock.now() - begun) / taken


def stepping_s(step: Callable[[], object], clock: Clock) -> float:
    """Return the seconds of a step among others like it: the median of blocks, or of one that is slow its own."""
    begun = clock.now()
    step()
    once_s = clock.now() - begun
    if once_s >= ALONE_S:
        return once_s
    calls = min(ALONE_CALLS, math.ceil(BLOCK_S / once_s)) if once_s > 0 else 1
    blocks: list[float] = []
    while not blocks or (len(blocks) * calls < ALONE_CALLS and clock.now() < begun + ALONE_S):
        started = clock.now()
        for _ in range(calls):
            step()
        blocks.append((clock.now() - started) / calls)
    return statistics.median(blocks)


def _alike(example: Any, found: Any) -> bool:
    """Return whether something is of the kind of the example: a tensor, as many of them, or tensors of the same names."""
    if isinstance(example, Tensor):
        return isinstance(found, Tensor)
    if isinstance(example, tuple):
        return isinstance(found, tuple) and len(found) == len(example) and all(map(_alike, example, found))
    if isinstance(example, Mapping):
        return isinstance(found, Mapping) and all(name in found and _alike(each, found[name]) for name, each in example.items())
    return True


def _kind(value: Any) -> str:
    """Return what something is, in a sentence: ``a tensor``, ``a list of Tensor, str``."""
    if isinstance(value, Tensor):
        return "a tensor"
    kind = type(value).__name__
    if isinstance(value, list | tuple):
        held = list(dict.fromkeys(type(each).__name__ for each in value))
        return f"a {kind} of {len(value)} ({', '.join(held[:4])})" if value else f"an empty {kind}"
    if isinstance(value, Mapping):
        return f"a {kind} of {', '.join(map(str, list(value)[:8]))}"
    return kind


def _reason(error: Exception) -> str:
    """Return what an error says: of one in a worker, whose traceback torch passes on as text, its last line."""
    text = str(error).strip()
    *_, last = text.splitlines() or [""]
    return last.partition(": ")[2] or last if "Traceback (most recent call last)" in text else text.partition("\n")[0]
