"""Real steps of image classifiers: training and inference at 224 x 224, as ImageNet has it."""

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  # what everybody calls it

from dlbench import Dtype, Layout, Size, Switch, Work, workload
from dlbench.kit.eager_check import StepParts
from dlbench.kit.modes import VALUES, Execution, Mode
from dlbench.kit.precision import autocast, operands, output, scales_gradients, storage
from dlbench.kit.updates import MakeOptimizer, refuse_other_update
from dlbench.models import ModelName, build
from dlbench.models.flops import FASTER_CONVOLUTION, forward_flops, train_flops
from dlbench.models.traffic import forward_bytes, layer_traffic, train_bytes, weight_bytes

TRAINING = "training of a classifier"
"""What the forms of parallelism do on one device, all of them alike."""
IMAGE = (3, 224, 224)
CLASSES = 1000
ORDER = {"nchw": torch.contiguous_format, "channels_last": torch.channels_last}

LEARNING_RATE = 1e-9
"""It does not show in the time, but a usual one does: with it a single batch is learnt by heart within 10 to 100 steps, and then
every gradient is zero, on which a GPU takes less power and less time."""

OPTIMIZERS: dict[str, MakeOptimizer] = {
    "sgd": partial(torch.optim.SGD, lr=LEARNING_RATE, momentum=0.9, weight_decay=1e-4),
    # The usual eps of 1e-8 is zero in fp16, and 0 / 0 would turn the weights into NaN.
    "adamw": partial(torch.optim.AdamW, lr=LEARNING_RATE, weight_decay=1e-4, eps=1e-4),
}
"""As torch implements them by default: on a GPU mostly foreach, else tensor by tensor."""
Optimizer = Literal["sgd", "adamw"]
Implementation = Literal["default", "foreach", "fused"]

UPDATE_PASSES = {"sgd": 5, "adamw": 7}
"""How often an update goes over numbers as many as the weights at least: it reads weights, gradients and its one or two averages, and
writes all but the gradients."""


@workload(tags=("cnn", "training", "imagenet"), values=VALUES, writes_files=True)
def train_step(
    device: torch.device,
    *,
    model: ModelName,
    batch: Size,
    dtype: Switch[Dtype] = "fp32",
    layout: Switch[Layout] = "nchw",
    optimizer: Optimizer = "sgd",
    implementation: Switch[Implementation] = "default",
    mode: Switch[Mode] = "eager",
) -> Work:
    """Train an image classifier by one step: forward, cross-entropy, backward and the optimizer's update."""
    if mode == "graph" and scales_gradients(dtype):
        raise NotImplementedError("scaled gradients are looked at on the host in each step, which no CUDA graph can do; take amp_bf16")
    execution = Execution(mode, device, f"{device} {model} {batch} {dtype} {layout} {optimizer} {implementation}")
    network, images = build_on(device, model, dtype, layout), draw_images(device, batch, dtype, layout)
    labels = draw_labels(device, batch)
    network.train()
    update = optimizer_of(network, optimizer, implementation, in_graph=mode == "graph")
    scaler = scaler_of(device, dtype)
    step = training_step(device, network, update, dtype, execution.forward, scaler)
    eager = training_step(device, network, update, dtype, scaler=scaler)
    flops, updated = batch * train_flops(network, IMAGE), UPDATE_PASSES[optimizer] * weight_bytes(network)
    work = Work(
        call=partial(step, images, labels),
        inputs=(images, labels),
        items=batch,
        flops=flops,
        least_flops=flops / FASTER_CONVOLUTION,
        bytes=train_bytes(layer_traffic(network, IMAGE), batch, output(dtype).itemsize, updated),
        least_bytes=images.nbytes + updated,  # were all else in caches
    )
    return execution.begin(work, partial(eager, images, labels), StepParts(network, images, dtype, labels, update, scaler))


@workload(tags=("cnn", "inference", "imagenet"), values=VALUES, writes_files=True)
def infer_step(
    device: torch.device,
    *,
    model: ModelName,
    batch: Size,
    dtype: Switch[Dtype] = "fp32",
    layout: Switch[Layout] = "nchw",
    mode: Switch[Mode] = "eager",
) -> Work:
    """Classify a batch of images: forward only, without a gradient."""
    execution = Execution(mode, device, f"{device} {model} {batch} {dtype} {layout}")
    network, images = build_on(device, model, dtype, layout), draw_images(device, batch, dtype, layout)
    network.eval()
    forward = autocast(device, dtype, execution.forward(network))

    def step() -> Tensor:
        with torch.inference_mode():
            return forward(images)

    eager = autocast(device, dtype, lambda: network(images))
    flops = batch * forward_flops(network, IMAGE)
    work = Work(
        call=step,
        inputs=(images,),
        items=batch,
        flops=flops,
        least_flops=flops / FASTER_CONVOLUTION,
        bytes=forward_bytes(layer_traffic(network, IMAGE), batch, output(dtype).itemsize),
        least_bytes=images.nbytes + weight_bytes(network),  # were all else in caches
    )
    return execution.begin(work, eager, StepParts(network, images, dtype))


Loss = Callable[[Tensor, Tensor], Tensor]
"""From images and labels to a scalar."""


def training_step(
    device: torch.device,
    network: nn.Module,
    update: torch.optim.Optimizer,
    dtype: Dtype,
    compiled: Callable[[Loss], Loss] = lambda loss: loss,
    scaler: torch.amp.GradScaler | None = None,
) -> Loss:
    """Return one step on the images and labels that it is given: forward, cross-entropy, backward and the update.

    It gives the loss, a scalar without a gradient. ``compiled`` is what becomes of forward and loss before they are called; ``scaler``:
    that of another step, else one of its own.
    """
    scaler = scaler or scaler_of(device, dtype)
    forward = autocast(device, dtype, compiled(lambda images, labels: F.cross_entropy(network(images), labels)))

    def step(images: Tensor, labels: Tensor) -> Tensor:
        update.zero_grad(set_to_none=True)
        loss = forward(images, labels)
        scaler.scale(loss).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        scaler.step(update)
        scaler.update()
        return loss.detach()

    return step


def scaler_of(device: torch.device, dtype: Dtype) -> torch.amp.GradScaler:
    """Return what scales the loss where gradients would underflow, and elsewhere passes everything on as it is."""
    return torch.amp.GradScaler(device.type, enabled=scales_gradients(dtype))


def optimizer_of(network: nn.Module, name: Optimizer, implementation: Implementation, *, in_graph: bool) -> torch.optim.Optimizer:
    """Return the optimizer of the network's weights; ``in_graph``: one whose updates a CUDA graph can hold."""
    optimizer = OPTIMIZERS[name]
    if implementation != "default":
        optimizer = partial(optimizer, **{implementation: True})
        refuse_other_update(network, optimizer, partial(OPTIMIZERS[name], foreach=False))
    # AdamW counts its steps, in a tensor on the device where a graph is to hold the count; SGD keeps none.
    return optimizer(network.parameters(), **({"capturable": True} if in_graph and name == "adamw" else {}))


def build_on(device: torch.device, model: ModelName, dtype: Dtype, layout: Layout) -> nn.Module:
    """Return the network on the device, in the precision and in the layout."""
    network = build(model).to(device=device, dtype=storage(dtype))
    return network.to(memory_format=ORDER[layout])  # type: ignore[call-overload, no-any-return]  # unknown to its types


def draw_images(device: torch.device, batch: int, dtype: Dtype, layout: Layout) -> Tensor:
    """Return a (batch, 3, 224, 224) image batch on the device, in the precision and in the layout."""
    (images,) = operands(device, (batch, *IMAGE), dtype=dtype)
    return images.contiguous(memory_format=ORDER[layout])


def draw_labels(device: torch.device, batch: int) -> Tensor:
    """Return a (batch,) of random classes on the device."""
    return torch.randint(CLASSES, (batch,)).to(device)
