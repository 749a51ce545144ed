"""Training of small networks: one step, and what small batches cost, how well they learn and whether they diverge.

Batch normalisation takes mean and variance over the batch and the positions of a feature map (Ioffe and Szegedy 2015,
https://arxiv.org/abs/1502.03167, section 3.2), so they are the less certain the smaller the batch is. With a batch of 1 they are those
of the one image; torch refuses it only where a map has a single position, and these have 16 at least. Group normalisation does not
look at the batch (Wu and He 2018, https://arxiv.org/abs/1803.08494).
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  # what everybody calls it

from dlbench import Clock, Copies, Dtype, Least, Reported, Size, Sweep, Unit, Value, Work, operands, with_copies, workload
from dlbench.kit.precision import storage
from dlbench.kit.steps import train_counts
from dlbench.models import initialise
from dlbench.models.splitting import block
from dlbench.workloads.cnn import OPTIMIZERS, UPDATE_PASSES, cross_entropy, training_step


@workload(tags=("training",))
def mlp_step(device: torch.device, *, batch: Sweep[Size], width: Size = 256, dtype: Dtype = "fp32", copies: Copies = "none") -> Work:
    """Train two linear layers, width to 4 width to width, by one step of SGD: forward, cross-entropy, backward and update."""
    network = block(width)
    initialise(network)
    network.to(device=device, dtype=storage(dtype))
    (x,) = operands(device, (batch, width), dtype=dtype)
    labels = torch.randint(width, (batch,)).to(device)
    work = Work(
        call=partial(training_step(device, OPTIMIZERS["sgd"](network.parameters()), dtype, cross_entropy(network)), x, labels),
        inputs=(x, labels),
        items=batch,
        **train_counts(network, cross_entropy, (x, labels), dtype, UPDATE_PASSES["sgd"]),
    )
    return with_copies(device, work, copies)


Norm = Literal["batch_norm", "group_norm", "no_norm"]
IMAGE, CLASSES, CHANNELS = (3, 16, 16), 10, (16, 32)
CHECKED = 1024
"""Images that accuracy and loss are measured on; none of them is trained on."""
NOISE = 2.0
"""Standard deviation of noise around the image of a class, whose own is 1: a trained network classifies most images correctly, not all."""
WINDOW = 64
"""Samples over which the mean loss is checked for divergence, whatever the batch."""
DIVERGED = 10.0
"""A training has diverged where that mean exceeds this multiple of the loss of guessing, ln 10; one that can recover stays below."""

_NORMS: Mapping[Norm, Callable[[int], nn.Module]] = {
    "batch_norm": nn.BatchNorm2d,
    "group_norm": partial(nn.GroupNorm, 4),
    "no_norm": nn.Identity,
}


@workload(
    tags=("training",),
    values=(
        Value("sample_s", Unit.SECONDS, "lower", "time of a step over its batch", role="sample"),
        Value(
            "accuracy",
            Unit.FRACTION,
            "higher",
            "part of other images that it classifies correctly when it has ended; guessing gives 0.1",
            role="accuracy",
            margin=0.01,
        ),
        Value("loss", Unit.NUMBER, "lower", "their mean loss, where it is finite", optional=True),
        Value("diverged_at", Unit.COUNT, "higher", "samples after which it had diverged, where it did", optional=True, role="diverged"),
    ),
)
def small_batch(device: torch.device, *, batch: Size, norm: Norm, learning_rate: Annotated[float, Least(0)], samples: Size = 1024) -> Work:
    """Train two convolutions on so many samples by plain SGD: the same ones in the same order, whatever the batch."""
    images, labels = (drawn.to(device) for drawn in draw(samples + CHECKED))
    warmup_network, network = build(norm).to(device), build(norm).to(device)
    warmup_samples = min(max(WINDOW, batch), samples)  # a step and a check for divergence at least

    def observe(clock: Clock) -> Mapping[str, Reported]:
        train(warmup_network, images[:warmup_samples], labels, batch, learning_rate)
        begun_s = clock.now()
        trained_samples, has_diverged = train(network, images[:samples], labels, batch, learning_rate)
        seconds = clock.now() - begun_s
        loss, accuracy = check(network, images[samples:], labels[samples:])
        values: dict[str, Reported] = {"sample_s": seconds / trained_samples, "accuracy": accuracy}
        if math.isfinite(loss):
            values["loss"] = loss
        # A step computes its loss before its update. So only the loss on other images shows that the last update made it diverge.
        if has_diverged or not math.isfinite(loss):
            values["diverged_at"] = trained_samples
        return values

    return Work(observe=observe)


def draw(samples: int) -> tuple[Tensor, Tensor]:
    """Return images (samples, 3, 16, 16), each the image of its class plus noise, and labels (samples,); the same in each call."""
    generator = torch.Generator().manual_seed(0)
    class_images = torch.randn(CLASSES, *IMAGE, generator=generator)
    labels = torch.randint(CLASSES, (samples,), generator=generator)
    return class_images[labels] + NOISE * torch.randn(samples, *IMAGE, generator=generator), labels


def build(norm: Norm) -> nn.Module:
    """Return a network of two convolutions, each of which halves height and width and is normalised, and a linear layer."""
    channels, height, width = IMAGE
    first, second = CHANNELS
    positions = (height // 4) * (width // 4)  # halved twice
    network = nn.Sequential(
        nn.Conv2d(channels, first, 3, stride=2, padding=1),
        _NORMS[norm](first),
        nn.ReLU(),
        nn.Conv2d(first, second, 3, stride=2, padding=1),
        _NORMS[norm](second),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(second * positions, CLASSES),
    )
    initialise(network)
    return network


def train(network: nn.Module, images: Tensor, labels: Tensor, batch: int, learning_rate: float) -> tuple[int, bool]:
    """Train on each image once, batch by batch, and stop early if the training diverges.

    Returns the number of images trained on, and whether the training diverged. The mean loss is checked each time when `WINDOW` or more
    images have been trained on since the last check, and at the end. The training has diverged if that mean is NaN or more than `DIVERGED`
    times the loss of guessing.

    ``labels``: those of the images, and perhaps more behind them, which are not used.
    """
    optimizer = torch.optim.SGD(network.parameters(), lr=learning_rate)
    network.train()
    losses: list[Tensor] = []  # since the last check; they stay on the device, as reading each would make the host wait
    images_trained = images_at_check = 0
    batches = zip(torch.split(images, batch), torch.split(labels[: len(images)], batch), strict=True)
    for batch_images, batch_labels in batches:
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(network(batch_images), batch_labels)
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        optimizer.step()
        losses.append(loss.detach())
        images_trained += len(batch_images)
        if images_trained - images_at_check >= WINDOW or images_trained == len(images):
            mean_loss = torch.stack(losses).mean().item()
            if math.isnan(mean_loss) or mean_loss > DIVERGED * math.log(CLASSES):
                return images_trained, True
            losses.clear()
            images_at_check = images_trained
    return images_trained, False


@torch.no_grad()
def check(network: nn.Module, images: Tensor, labels: Tensor) -> tuple[float, float]:
    """Return loss and accuracy in inference, where batch normalisation uses its running mean and variance."""
    network.eval()
    logits = network(images)
    return F.cross_entropy(logits, labels).item(), (logits.argmax(1) == labels).float().mean().item()
