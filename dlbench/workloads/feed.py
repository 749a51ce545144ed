"""Feeding of a training step: batches of one data set, and how they get to the device. docs/feeding.md says how to read it."""

import math
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from dlbench import Clock, Dtype, Feeding, Least, Role, Size, Unit, UserDefined, Value, Work, find_data, median_time, operands, workload
from dlbench.kit.batches import Batch, BatchSource, EpochSampler, Given, LoadedBatches, OwnBatches, Source, batch_source, time_alone
from dlbench.kit.memory import gibibytes, refuse_more_than_left
from dlbench.kit.precision import storage
from dlbench.kit.steps import Counts, train_counts
from dlbench.kit.user_networks import Loss
from dlbench.models import Model, initialise
from dlbench.models.operations import tensors_of
from dlbench.workloads.cnn import (
    OPTIMIZERS,
    UPDATE_PASSES,
    build_on,
    cross_entropy,
    draw_batch,
    loss_of,
    network_of,
    optimizer_of,
    training_step,
    usual_optimizer,
)
from dlbench.workloads.transfer import streams_of

IMAGE = (3, 32, 32)
"""As those of CIFAR-10 (Krizhevsky 2009, https://www.cs.toronto.edu/~kriz/cifar.html), which has as many classes."""
CLASSES = 10
LABEL_BYTES = 8
"""As torch wants its classes: int64."""
MOST_BYTES = 4 << 30
"""Size of a data set of a network's drawn inputs at most: so much is drawn in a few seconds."""


def perceptron(width: int) -> nn.Sequential:
    """Return a perceptron of two hidden layers: (batch, 3, 32, 32) images to (batch, 10) logits."""
    network = nn.Sequential(
        nn.Flatten(), nn.Linear(math.prod(IMAGE), width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, CLASSES)
    )
    initialise(network)
    return network


def perceptron_step(device: torch.device, width: int, batch: int, dtype: Dtype) -> tuple[Loss, Counts]:
    """Return the training step of the perceptron, and its operations and bytes."""
    network = perceptron(width).to(device=device, dtype=storage(dtype))
    step = training_step(device, OPTIMIZERS["sgd"](network.parameters()), dtype, cross_entropy(network))
    with torch.device("meta"):
        example = torch.empty(batch, *IMAGE, dtype=storage(dtype)), torch.empty(batch, dtype=torch.int64)
    return step, train_counts(network, cross_entropy, example, dtype, UPDATE_PASSES["sgd"])


def network_step(device: torch.device, model: str, example: Given, dtype: Dtype) -> tuple[Loss, Counts]:
    """Return the training step of a network by name on batches such as the example, and its operations and bytes."""
    network = build_on(device, model, dtype, "nchw")
    network.train()
    inputs, _ = example
    optimizer = usual_optimizer(model)
    update = optimizer_of(network, model, optimizer)
    step = training_step(device, update, dtype, loss_of(network, model, inputs))
    return step, train_counts(network, partial(loss_of, model=model, inputs=inputs), example, dtype, UPDATE_PASSES.get(optimizer))


def bytes_of_sample(model: str, example: Given, batch: int, samples: int) -> int:
    """Return the bytes of a sample. Raises ValueError where so many samples are no data set that batches can be taken from."""
    tensors = tensors_of(example)
    for each in tensors:
        if each.shape[:1] != (batch,):
            found = f"example({batch}) of network '{model}' returns {tuple(each.shape)}"
            raise ValueError(f"{found}, and batches are taken along the first dimension; feed it by data of your own, source=NAME")
    sample_bytes = mean_bytes(example, batch)
    if samples * sample_bytes > MOST_BYTES:
        taken = f"{samples} samples for {model} take {gibibytes(samples * sample_bytes)}"
        raise ValueError(f"{taken}, and a data set {gibibytes(MOST_BYTES)} at most; give samples={MOST_BYTES // sample_bytes} or fewer")
    return sample_bytes


def mean_bytes(example: Given, batch: int) -> int:
    """Return the bytes of one sample of an example of ``batch`` samples, inputs and targets together."""
    return sum(each.nbytes for each in tensors_of(example)) // batch


def draw_data_set(
    device: torch.device, model: str | None, example: Given, batch: int, samples: int, workers: int, dtype: Dtype
) -> tuple[Batch, Callable[[Batch], Any]]:
    """Return the tensors of a data set, (samples, …) each, and a function that makes inputs and targets of a batch of these tensors.

    Its samples are drawn as the network ``model`` takes them; without a ``model`` they are random images with labels.
    ``device``: where the tensors are. ``example``: one batch of the network, unused without a ``model``. Raises ValueError and MemoryError
    where the data set is too large.
    """
    image_bytes = math.prod(IMAGE) * storage(dtype).itemsize + LABEL_BYTES
    sample_bytes = bytes_of_sample(model, example, batch, samples) if model else image_bytes
    if device.type == "cpu":  # the data set takes memory of the host, and so do workers and the batches that these hand over
        refuse_too_large(workers, samples, batch, sample_bytes)
    if model:
        return take_apart(draw_batch(device, model, samples, dtype, "nchw"))  # one batch of all samples
    (images,) = operands(device, (samples, *IMAGE), dtype=dtype)
    labels = torch.randint(CLASSES, (samples,)).to(device)
    return (images, labels), tuple  # a batch is (images, labels): inputs and targets already


def take_apart(drawn: Given) -> tuple[Batch, Callable[[Batch], Any]]:
    """Return the tensors in nested inputs and targets, and a function that puts other tensors in their places."""
    leaves, tree = tree_flatten(drawn)

    def put_together(tensors: Batch) -> Any:
        following = iter(tensors)
        return tree_unflatten([next(following) if isinstance(leaf, Tensor) else leaf for leaf in leaves], tree)

    return tuple(leaf for leaf in leaves if isinstance(leaf, Tensor)), put_together


SAMPLES, WIDTH = 25_700, 256
"""Size of the data set and of the perceptron's hidden layers by default."""
WORKER_BYTES = 8 << 20
"""Memory that a forked worker does not share with the process of the step, as measured."""
IN_A_ROW = 16
"""Calls in a row whose fetch times are averaged: a multiple of every usual number of workers."""
LOADED_AHEAD = 2
"""Batches that each worker of a DataLoader has ready, by torch's default."""
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  # where Linux keeps the memory through which workers hand over their batches

Count = Annotated[int, Least(0)]

VALUES = (
    Value(
        "input_s",
        Unit.SECONDS,
        None,
        "time of a call in which the host gets its batch together or waits for it, copies apart",
        role="input",
    ),
    Value(
        "transfer_s",
        Unit.SECONDS,
        None,
        "copy of a batch to the device, timed alone",
        optional=True,
        role="transfer",
    ),
    # No part of a call: it runs during the step.
    Value("hidden_copy_s", Unit.SECONDS, None, "the same, of a copy that runs during the step", when={"source": ("prefetch",)}),
    # Of data that the user brings, or that is prepared.
    Value(
        "input_alone_s",
        Unit.SECONDS,
        None,
        "time to get what a call takes where nothing else is done: the pace of the loader",
        optional=True,
        role="input_alone",
    ),
    Value(
        "step_alone_s", Unit.SECONDS, None, "the steps of a call on one batch that stays on the device", optional=True, role="step_alone"
    ),
)


@workload(tags=("training",), values=VALUES)
def feed(
    device: torch.device,
    *,
    model: Model | None = None,
    batch: Size,
    source: Annotated[Source, UserDefined("data"), Role("feeding", "resident")],
    workers: Feeding[Count] = 0,
    samples: Size = SAMPLES,
    width: Size = WIDTH,
    dtype: Dtype = "fp32",
) -> Work:
    """Fetch the next batch of a data set and train by one step on it: a small perceptron, or the network `model`."""
    own_data = find_data(source)  # None where the source is one of dlbench's own
    refuse_parameters(device, model, source, workers, samples, width, batch)
    example: Given = draw_batch(device, model, batch, dtype, "nchw") if model else (None, None)  # the perceptron needs none
    # Makes inputs and targets of a fetched batch. A batch of the user's data is a pair of them already.
    put_together: Callable[[Any], Any] = tuple
    if own_data and model:  # own data without a model has been refused above
        # The samples are in the memory of the user's loader, so 0 of them are counted: only workers and their batches need room.
        refuse_too_large(workers, 0, batch, mean_bytes(example, batch))
        batches: BatchSource = OwnBatches(own_data, example, network_of(model).takes_targets, device, dtype, batch, workers)
    else:
        # A resident data set is on the device. Any other one is on the host, and its batches are copied.
        data_device = device if source == "resident" else torch.device("cpu")
        data, put_together = draw_data_set(data_device, model, example, batch, samples, workers, dtype)
        order = EpochSampler(samples, batch, data_device)
        batches = LoadedBatches(data, order, device, dtype, workers) if source == "loader" else batch_source(source, data, order, device)
    step, counts = network_step(device, model, example, dtype) if model else perceptron_step(device, width, batch, dtype)
    fetches = FetchTimer()

    def call() -> Tensor:
        batches.make_room()  # waits until an earlier copy has ended; input_s leaves out the time of copies
        with fetches:
            fetched = batches.fetch()
        inputs, targets = put_together(batches.send(fetched))
        return step(inputs, targets)

    def report(clock: Clock) -> dict[str, float]:
        values = {"input_s": fetches.usual_s()}
        if batches.copies:
            batches.make_room()
            copy = partial(batches.copy, batches.fetch())
            name = "hidden_copy_s" if source == "prefetch" else "transfer_s"
            values[name] = median_time(copy, clock)
        if own_data:
            values |= time_alone(batches, step, workers, clock)  # it also ends the processes that load batches, as pause does
        else:
            batches.pause()
        return values

    return Work(call=call, report=report, items=batch, **counts)


def refuse_parameters(device: torch.device, model: str | None, source: Source, workers: int, samples: int, width: int, batch: int) -> None:
    """Raise ValueError for parameters that contradict each other, and NotImplementedError for what the device or the source lacks."""
    own_data = find_data(source)
    if own_data and model is None:
        raise ValueError(f"source={source} needs a network that takes its batches; give model=…")
    if model and width != WIDTH:
        raise ValueError(f"width={width} is that of the perceptron; leave it out with model={model}")
    if own_data and workers and "workers" not in own_data.parameters:
        raise NotImplementedError(f"data '{source}' takes no workers; give its function that parameter")
    if not own_data and samples < batch:
        raise ValueError(f"a data set of {samples} samples has no batch of {batch}; give samples={batch} at least")
    if not own_data and workers and source != "loader":
        raise NotImplementedError(f"workers are those of source=loader; {source} has none")
    if device.type == "cpu" and source in ("pageable", "pinned", "prefetch"):
        raise NotImplementedError("a CPU copies no batch; source=resident is the same without")
    if source in ("pinned", "prefetch"):
        streams_of(device)  # which raises for a device without streams


def refuse_too_large(workers: int, samples: int, batch: int, sample_bytes: int) -> None:
    """Raise MemoryError, before anything is allocated, where the host has too little memory for a data set and its workers.

    Its message has both numbers.
    """
    with_workers = f" with {workers} workers" if workers else ""
    refuse_more_than_left(samples * sample_bytes + workers * WORKER_BYTES, f"the data set{with_workers} takes")
    if workers and SHARED_MEMORY.is_dir():
        shared = (LOADED_AHEAD + 1) * workers * batch * sample_bytes
        disk = os.statvfs(SHARED_MEMORY)
        free = disk.f_bavail * disk.f_frsize
        if shared > free:
            raise MemoryError(f"{workers} workers hand over {gibibytes(shared)} in {SHARED_MEMORY}, which has {gibibytes(free)} left")


class FetchTimer:
    """Times on the host of each ``with``, in order.

    Its clock does not wait for the device, unlike the harness's: waiting within a call would end the overlap of copies and steps.
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now, self._begun_s = now, 0.0
        self._seconds: list[float] = []

    def __enter__(self) -> None:
        self._begun_s = self._now()

    def __exit__(self, *error: object) -> None:
        self._seconds.append(self._now() - self._begun_s)

    def usual_s(self) -> float:
        """Return the usual seconds in the later half, which is free of warm-up: the median over means of several in a row.

        Means, as one step may wait for several batches and the next ones for none; the median, as other processes disturb some.
        """
        later = self._seconds[len(self._seconds) // 2 :]
        rows = [later[at : at + IN_A_ROW] for at in range(0, max(1, len(later) - IN_A_ROW + 1), IN_A_ROW)]
        return statistics.median(statistics.fmean(row) for row in rows) if later else 0.0
