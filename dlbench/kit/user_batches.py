"""Batches of users' loaders: fetched one epoch after the other, checked against what the network takes, and copied to its device."""

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
"""Inputs of a network and targets, which are None where it takes none."""
SLOW_S = 0.1
"""Where the last batch took longer, the stage says that the run waits for the loader; a note in each call would slow down a fast loader."""
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
        self._takes_batch = "batch" in data.parameters
        arguments = {"batch": batch, "workers": workers}
        self._make_loader = partial(data.build, **{name: arguments[name] for name in data.parameters})
        self._example = tree_map_only(Tensor, lambda each: each.to("meta"), example)
        # The batch may be the second dimension, as in recurrent networks.
        self._sized_tensor, self._batch_dimension = next(
            (at, tensor.shape[:2].index(batch)) for at, tensor in enumerate(tensors_of(example[0])) if batch in tensor.shape[:2]
        )
        self._device, self._dtype = device, dtype
        self._loader: Any = None
        self._epoch: Iterator[Any] | None = None
        self.whole = 0
        """Whole batches of this epoch so far."""
        self._short_batch = 0
        """Size of a batch of this epoch that was smaller: it has to be the last."""
        self._last_took_s = 0.0

    def fetch(self) -> Given:
        """Return the next whole batch, or wait for it. Raises ValueError for one that the step can't take, and where the loader fails."""
        while True:
            drawn = self._draw()
            if drawn is None:
                if not self.whole:
                    raise self._error("has ended without a batch; it is gone through once an epoch, so each time has to begin anew")
                self._epoch = None
                continue
            inputs, targets = self._as_network_takes(*drawn)
            tensor = tensors_of(inputs)[self._sized_tensor]
            size = tensor.shape[self._batch_dimension] if tensor.dim() > self._batch_dimension else 0
            if self._short_batch:
                raise self._error(f"gives a batch of {self._short_batch} before the last of an epoch, and batch={self._batch}")
            if size == self._batch:
                self.whole += 1
                return inputs, targets
            if size > self._batch or not self.whole:
                advice = "its function takes batch and has to keep to it" if self._takes_batch else f"give batch={size}"
                raise self._error(f"gives a batch of {size}, and batch={self._batch}; {advice}")
            self._short_batch = size

    def copy(self, batch: Given) -> Given:
        """Start the copy of a batch to the device, with floating-point numbers in the storage type of the precision."""
        inputs, targets = (on_device(part, self._device, self._dtype, non_blocking=True) for part in batch)
        return inputs, targets

    def pause(self) -> None:
        """End the epoch and its workers; the next fetch begins another."""
        # Persistent workers end only with their loader; a loader that is its own iterator can't begin anew.
        if getattr(self._loader, "persistent_workers", False) or self._loader is self._epoch:
            self._loader = None
        self._epoch = None

    def _draw(self) -> tuple[Any] | None:
        """Return what the loader gives next, in a tuple, as it may be None; None at the end of an epoch."""
        begun_s = time.perf_counter()
        may_wait = self._epoch is None or self._last_took_s > SLOW_S
        if may_wait:
            note_stage(f"it was waiting for {self._name}")
        try:
            if self._epoch is None:
                with warnings.catch_warnings():
                    warnings.filterwarnings("ignore", "This DataLoader will create")  # more workers than cores are a case like others
                    self._begin_epoch()
            return (next(self._epoch),)  # type: ignore[arg-type]  # begun above
        except StopIteration:
            return None
        except (MemoryError, NotImplementedError):
            raise
        except Exception as error:
            raise self._error(f"raises {type(error).__name__}: {_first_reason(error)}") from error
        finally:
            self._last_took_s = time.perf_counter() - begun_s
            if may_wait:
                note_stage("")

    def _begin_epoch(self) -> None:
        self.whole = self._short_batch = 0
        if self._loader is None or isinstance(self._loader, Iterator):
            self._loader = self._make_loader()
        if not hasattr(self._loader, "__iter__") and not hasattr(self._loader, "__getitem__"):
            raise TypeError(f"its function returns {_describe(self._loader)}, and no DataLoader or other iterable of batches")
        self._epoch = iter(self._loader)

    def _as_network_takes(self, drawn: Any) -> Given:
        """Return what the loader gave as inputs and targets in the containers of the example. Raises ValueError for other containers."""
        example_inputs, example_targets = self._example
        inputs, targets = drawn, None
        if self._targets:
            if not isinstance(drawn, list | tuple) or len(drawn) != 2:  # inputs and targets
                raise self._error(f"gives {_describe(drawn)}, and a step takes (inputs, targets)")
            inputs, targets = drawn
        elif isinstance(example_inputs, Tensor) and isinstance(drawn, list | tuple) and len(drawn) == 1:
            (inputs,) = drawn  # a TensorDataset of inputs alone gives them so
        if isinstance(example_inputs, tuple) and isinstance(inputs, list):  # torch collates tuples into lists
            inputs = tuple(inputs)
        if isinstance(example_inputs, Mapping) and isinstance(inputs, Mapping):
            inputs = dict(inputs)  # torch finds no tensors in other kinds of mappings
        for name, example, given in (("inputs", example_inputs, inputs), ("targets", example_targets, targets)):
            if not _has_structure(given, example):
                raise self._error(f"gives {name} as {_describe(given)}, and the network takes {_describe(example)}")
        return inputs, targets

    def _error(self, text: str) -> ValueError:
        return ValueError(f"data '{self._name}' {text}")


def time_alone(batches: BatchSource, step: Callable[..., Any], workers: int, clock: Clock) -> dict[str, float]:
    """Return the seconds of a batch without steps, and of a step without loading; the loader's workers end before the steps."""
    begun = clock.now()
    fetched = batches.fetch()
    input_s = clock.now() - begun
    on_device = batches.copy(fetched)
    # A slow loader has shown its pace by now; but workers may have prepared this batch earlier.
    if workers or input_s < ALONE_S:
        batches.pause()
        input_s = seconds_to_fetch(batches, max(1, workers), clock)
    batches.pause()
    return {"input_alone_s": input_s, "step_alone_s": seconds_to_step(lambda: step(*on_device), clock)}


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
    calls = min(ALONE_CALLS, math.ceil(BLOCK_S / once_s)) if once_s > 0 else 1
    blocks: list[float] = []
    while not blocks or (len(blocks) * calls < ALONE_CALLS and clock.now() < begun + ALONE_S):
        block_begun = clock.now()
        for _ in range(calls):
            step()
        blocks.append((clock.now() - block_begun) / calls)
    return statistics.median(blocks)


def _has_structure(given: Any, example: Any) -> bool:
    """Return whether a value is built as the example: a tensor, a tuple of as many values, or a mapping with the same names."""
    if isinstance(example, Tensor):
        return isinstance(given, Tensor)
    if isinstance(example, tuple):
        return isinstance(given, tuple) and len(given) == len(example) and all(map(_has_structure, given, example))
    if isinstance(example, Mapping):
        return isinstance(given, Mapping) and all(name in given and _has_structure(given[name], each) for name, each in example.items())
    return True


def _describe(value: Any) -> str:
    """Return the kind of a value for a sentence: ``a tensor``, ``a list of 2 (Tensor, str)``."""
    if isinstance(value, Tensor):
        return "a tensor"
    kind = type(value).__name__
    if isinstance(value, list | tuple):
        kinds = list(dict.fromkeys(type(each).__name__ for each in value))
        return f"a {kind} of {len(value)} ({', '.join(kinds[:4])})" if value else f"an empty {kind}"
    if isinstance(value, Mapping):
        return f"a {kind} of {', '.join(map(str, list(value)[:8]))}"
    return kind


def _first_reason(error: Exception) -> str:
    """Return the first line of an error's message; of an error in a loader's worker the message in the traceback that torch passes on."""
    text = str(error).strip()
    if "Traceback (most recent call last)" not in text:
        return text.partition("\n")[0]
    last_line = text.splitlines()[-1]
    return last_line.partition(": ")[2] or last_line
