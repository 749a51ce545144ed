"""Real steps of networks: training and inference of image classifiers at 224 x 224, as ImageNet has it, and of what users bring.

The last three search for settings: for the most throughput, or the largest batch within some memory.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  # what everybody calls it

from dlbench import (
    PRECISIONS,
    Dtype,
    InferenceDtype,
    Layout,
    Least,
    Limit,
    Network,
    Searched,
    SearchedCores,
    SearchedLast,
    Size,
    Switch,
    TrainingDtype,
    Unit,
    UserDefined,
    Value,
    Work,
    find_network,
    workload,
)
from dlbench.kit import user_networks
from dlbench.kit.modes import INFERENCE_VALUES, VALUES, Execution, InferenceMode, Kernels, Mode, take_kernels
from dlbench.kit.precision import autocast, storage
from dlbench.kit.steps import Counts, MakeOptimizer, StepParts, forward_counts, train_counts
from dlbench.kit.user_networks import Inputs, Loss, forward_of
from dlbench.models import MODELS, SIZES, Model, build, for_inference
from dlbench.models.convnets import Inception
from dlbench.models.operations import tensors_of

TRAINING = "training of a classifier"
"""The step of all forms of parallelism on one device."""
IMAGE = (3, 224, 224)
CLASSES = 1000
AUXILIARY_WEIGHT = 0.4
"""Weight of the loss of Inception's auxiliary head, as torchvision's references/classification/train.py has it."""
ORDER = {"nchw": torch.contiguous_format, "channels_last": torch.channels_last}

LEARNING_RATE = 1e-9
"""Too small to learn anything: at a usual rate a network memorises its single batch within 10 to 100 steps, and then every gradient is
zero, which takes a GPU less power and less time."""

OPTIMIZERS: dict[str, MakeOptimizer] = {
    "sgd": partial(torch.optim.SGD, lr=LEARNING_RATE, momentum=0.9, weight_decay=1e-4),
    # The usual eps of 1e-8 is zero in fp16, and 0 / 0 would turn the weights into NaN.
    "adamw": partial(torch.optim.AdamW, lr=LEARNING_RATE, weight_decay=1e-4, eps=1e-4),
}
"""As torch implements them by default: on a GPU mostly foreach, else tensor by tensor."""
OWN = "own"
Optimizer = Literal["sgd", "adamw"]
"""Optimizers that a case can name; a user's network may bring one of its own, `OWN`."""
Implementation = Literal["default", "foreach", "fused"]
ReadLoss = Literal["never", "each"]

UPDATE_PASSES: dict[str, int] = {"sgd": 5, "adamw": 7}
"""How often an update reads or writes as many numbers as there are weights, at least: it reads weights, gradients and its one or two
averages, and writes all but the gradients."""


@workload(tags=("cnn", "training", "imagenet"), values=VALUES, writes_files=True)
def train_step(
    device: torch.device,
    *,
    model: Model,
    batch: Size,
    dtype: Switch[Dtype] = "fp32",
    layout: Switch[Layout] = "nchw",
    optimizer: Annotated[Optimizer, UserDefined("optimizer")] = "sgd",
    implementation: Switch[Implementation] = "default",
    mode: Switch[Mode] = "eager",
    kernels: Kernels = "vendor",
    read_loss: ReadLoss = "never",
) -> Work:
    """Train a network by one step: forward, the loss (of a classifier cross-entropy), backward and the optimizer's update."""
    if read_loss == "each" and device.type == "cpu":
        raise NotImplementedError("read_loss=each is what waiting for an accelerator costs, and a CPU has the loss as the step returns")
    take_kernels(kernels, device, dtype)
    case = f"{device} {model} {batch} {dtype} {layout} {optimizer} {implementation} {kernels}"  # names the compiler's cache
    execution = training_execution(mode, device, dtype, case)
    network = build_on(device, model, dtype, layout)
    inputs, targets = draw_batch(device, model, batch, dtype, layout)
    torch_optimizer = optimizer_of(network, model, optimizer, implementation, in_graph=mode == "graph")
    # A name outside `OPTIMIZERS` means the network's own optimizer, whose passes are unknown, or sgd where the network brings none.
    optimizer_name = optimizer if optimizer in OPTIMIZERS else usual_optimizer(model)
    work = training_work(
        execution,
        network,
        partial(loss_of, model=model, inputs=inputs),
        (inputs, targets),
        dtype,
        torch_optimizer,
        items=batch,
        passes=UPDATE_PASSES.get(optimizer_name),
        labels=targets if is_classifier(model) else None,
    )
    if read_loss == "each" and work.call:  # a step always has a call, but its type allows None
        return replace(work, call=and_read_loss(work.call))
    return work


def and_read_loss(step: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """Return a step whose loss the host reads each time, as loops do that print it; so the host waits until the device is done."""

    def step_and_read() -> Tensor:
        loss = step()
        loss.item()
        return loss

    return step_and_read


def training_execution(mode: Mode, device: torch.device, dtype: Dtype, case: str) -> Execution:
    """Return the execution of a training step in a mode. Raises NotImplementedError for a CUDA graph with scaled gradients."""
    if mode == "graph" and PRECISIONS[dtype].scales_gradients:
        raise NotImplementedError("scaled gradients are looked at on the host in each step, which no CUDA graph can do; take amp_bf16")
    return Execution(mode, device, case)


def training_work(
    execution: Execution,
    network: nn.Module,
    loss_of: Callable[[Any], Loss],
    batch: tuple[Inputs, Any],
    dtype: Dtype,
    optimizer: torch.optim.Optimizer,
    *,
    items: int,
    passes: int | None,
    labels: Tensor | None = None,
) -> Work:
    """Return the work of a training step on a batch of inputs and targets.

    ``loss_of`` takes a network and returns its loss, which is a function of inputs and targets. It also gets a copy of the network, on
    which operations are counted. ``items``: samples of the batch. ``passes``: how often the optimizer reads or writes all weights in a
    step, as in `UPDATE_PASSES`; None where that is unknown. ``labels``: the targets, if the loss is the cross-entropy of logits
    (batch, classes), else None.
    """
    network.train()
    device = execution.device
    compute_loss = execution.forward(loss_of(network))  # compiled, if the mode compiles
    scaler = scaler_of(device, dtype)
    step = training_step(device, optimizer, dtype, compute_loss, scaler)
    counts = train_counts(network, loss_of, batch, dtype, passes)
    work = Work(call=partial(step, *batch), inputs=tensors_of(batch), items=items, **counts)
    inputs, _ = batch
    parts = StepParts(network, tensors_of(inputs), dtype, labels, optimizer, scaler)  # for the check of the step against fp64
    return execution.begin(work, parts)


@workload(tags=("cnn", "inference", "imagenet"), values=INFERENCE_VALUES, writes_files=True)
def infer_step(
    device: torch.device,
    *,
    model: Model,
    batch: Size,
    dtype: Switch[Dtype] = "fp32",
    layout: Switch[Layout] = "nchw",
    mode: Switch[InferenceMode] = "eager",
    kernels: Kernels = "vendor",
    until: Literal["logits", "pooling"] = "logits",
) -> Work:
    """Run a network forward on a batch, without a gradient; a classifier then classifies images."""
    if until == "pooling" and find_network(model):
        raise NotImplementedError(f"until=pooling is for networks of dlbench's own, and {model} is yours; leave it out")
    take_kernels(kernels, device, dtype)
    execution = Execution(mode, device, f"{device} {model} {batch} {dtype} {layout} {kernels} {until}")  # names the compiler's cache
    network = for_inference(build_on(device, model, dtype, layout))
    if until == "pooling":
        child_names = [name for name, _ in network.named_children()]
        setattr(network, child_names[-1], nn.Identity())  # the last child is the classifier; without it the network ends with pooling
    inputs, _ = draw_batch(device, model, batch, dtype, layout)
    counts = forward_counts(network, inputs, dtype)
    return inference_work(execution, network, forward_of(network, inputs), inputs, dtype, counts, items=batch)


def inference_work(
    execution: Execution, network: nn.Module, forward: Callable[[Any], Any], inputs: Inputs, dtype: Dtype, counts: Counts, *, items: int
) -> Work:
    """Return the work of a forward pass on inputs, without a gradient."""
    executed = autocast(execution.device, dtype, execution.forward(forward))

    def step() -> Any:
        with torch.inference_mode():
            return executed(inputs)

    work = Work(call=step, inputs=tensors_of(inputs), items=items, **counts)
    return execution.begin(work, StepParts(network, tensors_of(inputs), dtype))


def training_step(
    device: torch.device,
    optimizer: torch.optim.Optimizer,
    dtype: Dtype,
    compute_loss: Loss,
    scaler: torch.amp.GradScaler | None = None,
) -> Loss:
    """Return a function that trains by one step on inputs and targets, and returns the loss as a detached scalar.

    A step computes the loss by ``compute_loss``, then the gradients, and updates the weights by the optimizer. ``scaler`` multiplies the
    loss by a factor, so that small gradients do not underflow to zero. By default it is a new scaler, which is disabled for precisions
    that need no factor.
    """
    scaler = scaler or scaler_of(device, dtype)
    compute_loss = autocast(device, dtype, compute_loss)

    def step(inputs: Inputs, targets: Any) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = compute_loss(inputs, targets)
        scaler.scale(loss).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return step


def cross_entropy(network: Callable[[Tensor], Tensor]) -> Loss:
    """Return the loss of a classifier on images and labels."""
    return lambda images, labels: F.cross_entropy(network(images), labels)


def with_auxiliary(output: tuple[Tensor, Tensor], labels: Tensor) -> Tensor:
    """Return the loss of a classifier with an auxiliary head."""
    logits, auxiliary = output
    return F.cross_entropy(logits, labels) + AUXILIARY_WEIGHT * F.cross_entropy(auxiliary, labels)


def scaler_of(device: torch.device, dtype: Dtype) -> torch.amp.GradScaler:
    """Return a gradient scaler, which is disabled for precisions whose gradients do not underflow."""
    return torch.amp.GradScaler(device.type, enabled=PRECISIONS[dtype].scales_gradients)


def optimizer_of(
    network: nn.Module, model: str, name: str, implementation: Implementation = "default", *, in_graph: bool = False
) -> torch.optim.Optimizer:
    """Return the optimizer that a name selects for a network's weights.

    A name in `OPTIMIZERS` selects that optimizer; any other name selects the network's own one, or SGD where the network brings none.
    ``in_graph``: whether a CUDA graph will hold the updates. Raises NotImplementedError for the network's own optimizer with an
    ``implementation`` other than the default.
    """
    definition = network_of(model)
    if definition.optimizer and name not in OPTIMIZERS:
        if implementation != "default":
            raise NotImplementedError(f"implementation={implementation} belongs to sgd and adamw, not to an optimizer of your own")
        return user_networks.optimizer_of(definition, network, LEARNING_RATE)
    options: dict[str, bool] = {}
    if implementation != "default":
        options[implementation] = True  # foreach=True or fused=True
    if in_graph and name == "adamw":
        options["capturable"] = True  # AdamW counts its steps, and a graph needs the count on the device; SGD counts none
    weights = user_networks.trained_weights(definition, network)
    make_optimizer = OPTIMIZERS.get(name, OPTIMIZERS["sgd"])
    return make_optimizer(weights, **options)


def usual_optimizer(model: str) -> str:
    """Return the name of a network's default optimizer: `OWN`, or else sgd."""
    return OWN if network_of(model).optimizer else "sgd"


def network_of(model: str) -> Network:
    """Return a network by name: the user's, or a published classifier of images in the same form."""
    own = find_network(model)
    if own:
        return own
    size = SIZES.get(model, IMAGE[1])
    loss = with_auxiliary if MODELS.get(model) is Inception else None
    return Network(model, partial(build, model), (IMAGE[0], size, size), CLASSES, loss=loss)  # type: ignore[arg-type]  # checked as a choice


def build_on(device: torch.device, model: str, dtype: Dtype, layout: Layout) -> nn.Module:
    """Build a network by name on the device, in the precision and in the layout."""
    network = user_networks.build(network_of(model)).to(device=device, dtype=storage(dtype))
    return network.to(memory_format=ORDER[layout])  # type: ignore[call-overload, no-any-return]  # unknown to its types


def draw_batch(device: torch.device, model: str, batch: int, dtype: Dtype, layout: Layout) -> tuple[Inputs, Any]:
    """Return inputs of the network and its targets on the device, in the precision and in the layout.

    Raises NotImplementedError for a layout other than nchw where no input has four dimensions.
    """
    network = network_of(model)
    inputs, targets = user_networks.draw_batch(network, device, batch, dtype)
    if layout != "nchw":
        inputs = user_networks.with_memory_format(network, inputs, ORDER[layout])
    return inputs, targets


def loss_of(network: nn.Module, model: str, inputs: Inputs) -> Loss:
    """Return the loss that a training step on such inputs minimises."""
    return user_networks.loss_of(network_of(model), network, inputs)


def is_classifier(model: str) -> bool:
    """Return whether a network's loss is the cross-entropy of its logits with a class for each sample, and nothing else."""
    network = network_of(model)
    return network.loss is None and network.classes is not None


@workload(tags=("cnn", "training", "imagenet"), values=VALUES, writes_files=True)
def fastest_train_step(
    device: torch.device,
    *,
    model: Model,
    batch: Searched[Size] = None,
    dtype: Searched[Switch[TrainingDtype]] = None,
    layout: Searched[Switch[Layout]] = None,
    implementation: Searched[Switch[Implementation]] = None,
    mode: SearchedLast[Switch[Mode]] = None,  # a compilation takes as long as ten other tries
    threads: SearchedCores[Size] = None,  # the harness sees to them
) -> Work:
    """Train an image classifier by one step, in the fastest way there is for all that the case leaves open."""
    chosen = _chosen(device, batch=batch, dtype=dtype, layout=layout, implementation=implementation, mode=mode)
    return train_step(device, model=model, optimizer=usual_optimizer(model), **chosen)


@workload(tags=("cnn", "inference", "imagenet"), values=INFERENCE_VALUES, writes_files=True)
def fastest_infer_step(
    device: torch.device,
    *,
    model: Model,
    batch: Searched[Size] = None,
    dtype: Searched[Switch[InferenceDtype]] = None,
    layout: Searched[Switch[Layout]] = None,
    mode: SearchedLast[Switch[InferenceMode]] = None,  # a compilation takes as long as ten other tries
    instances: SearchedCores[Size] = None,  # the harness sees to them, and to threads
    threads: SearchedCores[Size] = None,
) -> Work:
    """Classify a batch of images, in the fastest way there is for all that the case leaves open."""
    return infer_step(device, model=model, **_chosen(device, batch=batch, dtype=dtype, layout=layout, mode=mode))


def _chosen(device: torch.device, *, dtype: Dtype | None, **others: int | str | None) -> dict[str, Any]:
    """Return the settings of a step by name. Raises NotImplementedError for a precision that would take too long on a CPU."""
    if dtype is not None and device.type == "cpu" and PRECISIONS[dtype].narrow_range:
        raise NotImplementedError("some CPUs take 250 times longer in fp16, too long for a search; a suite can plan it alone")
    return {"dtype": dtype, **others}


@workload(
    tags=("cnn", "training"),
    values=(
        Value("largest_batch", Unit.COUNT, "higher", "the largest batch found that fits into the memory", optional=True, role="largest"),
    ),
)
def largest_batch(
    device: torch.device,
    *,
    model: Model,
    batch: Searched[Size] = None,
    memory_gib: Limit[Annotated[float, Least(0)]] = None,
    step: Literal["train", "infer"] = "train",
    dtype: Dtype = "fp32",
    layout: Layout = "nchw",
) -> Work:
    """Find the largest batch whose step fits into `memory_gib`; with `batch`, take the step at that batch within this memory."""
    # The harness searches: it plans one case for each batch that it tries, and reports the largest one that fits.
    # It also limits the memory of these cases to `memory_gib`, so this function does not read the parameter.
    if batch is None:
        raise ValueError("a batch is found by a search; give batch=8 to take a step without one")
    if step == "train":
        return train_step(device, model=model, batch=batch, dtype=dtype, layout=layout, optimizer=usual_optimizer(model))
    return infer_step(device, model=model, batch=batch, dtype=dtype, layout=layout)
