"""Networks that are fed: their training step, and data sets of their inputs and targets as batches are taken from them."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from dlbench import Dtype, operands
from dlbench.kit.batches import Batch
from dlbench.kit.host_memory import gibibytes
from dlbench.kit.precision import storage
from dlbench.kit.step_counts import Counts, train_counts
from dlbench.kit.user_batches import Given
from dlbench.kit.user_networks import Loss
from dlbench.models import initialise
from dlbench.models.shapes import tensors_of
from dlbench.workloads.cnn import OPTIMIZERS, UPDATE_PASSES, build_on, cross_entropy, loss_of, optimizer_of, training_step, usual_optimizer

IMAGE = (3, 32, 32)
"""As those of CIFAR-10 (Krizhevsky 2009, https://www.cs.toronto.edu/~kriz/cifar.html), which has as many classes."""
CLASSES = 10
LABEL_BYTES = 8
"""As torch wants its classes: int64."""
MOST_BYTES = 4 << 30
"""Of a data set for a network by name: so much is there in a few seconds."""


def perceptron(width: int) -> nn.Sequential:
    """Return a perceptron of two hidden layers: (batch, 3, 32, 32) images to (batch, 10) logits."""
    network = nn.Sequential(
        nn.Flatten(), nn.Linear(math.prod(IMAGE), width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, CLASSES)
    )
    initialise(network)
    return network


def perceptron_step(device: torch.device, width: int, batch: int, dtype: Dtype) -> tuple[Loss, Counts]:
    """Return the training step of the perceptron, and what it states of itself."""
    network = perceptron(width).to(device=device, dtype=storage(dtype))
    step = training_step(device, OPTIMIZERS["sgd"](network.parameters()), dtype, cross_entropy(network))
    with torch.device("meta"):
        example = torch.empty(batch, *IMAGE, dtype=storage(dtype)), torch.empty(batch, dtype=torch.int64)
    return step, train_counts(network, "perceptron", cross_entropy, example, dtype, UPDATE_PASSES["sgd"])


def network_step(device: torch.device, model: str, example: Given, dtype: Dtype) -> tuple[Loss, Counts]:
    """Return the training step of a network by name on batches such as the example, and what it states of itself."""
    network = build_on(device, model, dtype, "nchw")
    network.train()
    inputs, _ = example
    optimizer = usual_optimizer(model)
    update = optimizer_of(network, model, optimizer)
    step = training_step(device, update, dtype, loss_of(network, model, inputs))
    return step, train_counts(network, model, partial(loss_of, model=model, inputs=inputs), example, dtype, UPDATE_PASSES.get(optimizer))


def draw_samples(device: torch.device, samples: int, dtype: Dtype) -> tuple[Tensor, Tensor]:
    """Return images and labels for the perceptron."""
    (images,) = operands(device, (samples, *IMAGE), dtype=dtype)
    return images, torch.randint(CLASSES, (samples,)).to(device)


def bytes_a_sample(model: str, example: Given, batch: int, samples: int) -> int:
    """Return the bytes of a sample. Raises ValueError where so many are no data set that batches can be taken from."""
    for each in tensors_of(example):
        if each.shape[:1] != (batch,):
            found = f"example({batch}) of network '{model}' returns {tuple(each.shape)}"
            raise ValueError(f"{found}, and batches are taken along the first dimension; feed it by data of your own, source=NAME")
    sample_bytes = sum(each.nbytes for each in tensors_of(example)) // batch
    if samples * sample_bytes > MOST_BYTES:
        taken = f"{samples} samples for {model} take {gibibytes(samples * sample_bytes)}"
        raise ValueError(f"{taken}, and a data set {gibibytes(MOST_BYTES)} at most; give samples={MOST_BYTES // sample_bytes} or fewer")
    return sample_bytes


def apart(drawn: Given) -> tuple[Batch, Callable[[Batch], Any]]:
    """Return the tensors of inputs and targets, and a function that puts such tensors together again."""
    parts, tree = tree_flatten(drawn)
    places = [at for at, part in enumerate(parts) if isinstance(part, Tensor)]
    others = [None if isinstance(part, Tensor) else part for part in parts]

    def together(tensors: Batch) -> Any:
        whole = list(others)
        for at, tensor in zip(places, tensors, strict=True):
            whole[at] = tensor
        return tree_unflatten(whole, tree)

    return tuple(parts[at] for at in places), together
