"""A step of a network: its operations and bytes, and what of it is compared with the same step in fp64 (docs/checks.md)."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dlbench import Dtype, Observed
from dlbench.kit.precision import autocast, storage
from dlbench.kit.user_networks import Inputs, Loss, forward_of, main_output, refuse_inputs_that_fail
from dlbench.models.operations import FASTER_CONVOLUTION, count_step, tensors_of

Counts = dict[str, Any]
"""Those fields of a `Work` that are counts of operations and bytes, and the reasons for those that are unknown."""


def train_counts(
    network: nn.Module, loss_of: Callable[[Any], Loss], batch: tuple[Inputs, Any], dtype: Dtype, update_passes: int | None
) -> Counts:
    """Count a training step on a batch of inputs and targets; ``loss_of`` returns the loss of a network.

    ``update_passes``: how often the optimizer's update reads or writes the weights' size in bytes; None where that is unknown.
    """
    device = next(network.parameters()).device

    def step(network: nn.Module, inputs: Inputs, targets: Any) -> None:
        autocast(device, dtype, loss_of(network))(inputs, targets).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped

    update_bytes = None if update_passes is None else update_passes * _weight_bytes(network)
    return _count(step, network, batch, update_bytes)


def forward_counts(network: nn.Module, inputs: Inputs, dtype: Dtype) -> Counts:
    """Count a forward pass."""

    @torch.no_grad()
    def step(network: nn.Module, inputs: Inputs) -> None:
        autocast(tensors_of(inputs)[0].device, dtype, forward_of(network, inputs))(inputs)

    return _count(step, network, (inputs,), 0)


def _count(step: Callable[..., None], network: nn.Module, batch: tuple[Any, ...], update_bytes: int | None) -> Counts:
    """Count a step, and add the bytes of its update: 0 without one, None where they are unknown."""
    counted = count_step(step, network, *batch)
    if counted.bytes is None:
        refuse_inputs_that_fail(network, batch[0])  # counting on shapes fails for wrong inputs as for a network that needs numbers
    flops, moved, unknown = counted.flops, counted.bytes, dict(counted.unknown)
    least_moved = None
    if update_bytes is not None:
        moved = None if moved is None else moved + update_bytes
        # As if caches held all but the inputs and the weights.
        least_moved = sum(each.nbytes for each in tensors_of(batch[0])) + (update_bytes or _weight_bytes(network))
    elif moved is not None:
        unknown["bytes"], moved = "nobody knows what its optimizer moves", None
    has_convolutions = any(isinstance(each, nn.Conv2d) for each in network.modules())
    least_flops = flops / FASTER_CONVOLUTION if flops and has_convolutions else None
    return {"flops": flops, "least_flops": least_flops, "bytes": moved, "least_bytes": least_moved, "unknown": unknown}


def _weight_bytes(network: nn.Module) -> int:
    return sum(each.nbytes for each in network.parameters())


TOLERANCE = 0.01
"""Relative tolerance: activations that change their sign make a gradient jump, perhaps only in eager execution or only in the case."""
DRAWN_TOLERANCE = 1.0
"""Tolerance of norms with dropout: those of small tensors differ by half and more each time, and a missing one is infinitely far."""
OUTPUT_TOLERANCE = 1e-4
"""Tolerance of an output, which is continuous; TF32 instead of fp32 has a larger error."""
SAMPLE = 1 << 12
"""Numbers of each weight whose update is compared: copies of all would take more memory than the step."""

Step = Callable[[], Any]
"""A step as it is called: in training it gives the loss, in inference the network's output."""
MakeOptimizer = Callable[..., torch.optim.Optimizer]
"""Gets the weights, and optionally a learning rate."""


@dataclass(frozen=True)
class StepParts:
    """Network, data and optimizer of a step; without an ``update`` it is inference."""

    network: nn.Module
    inputs: tuple[Tensor, ...]
    dtype: Dtype
    labels: Tensor | None = None
    """Labels of a classifier that is trained by cross-entropy; the loss of other networks is compared as it is."""
    update: torch.optim.Optimizer | None = None
    scaler: torch.amp.GradScaler | None = None


def observe_step(call: Step, parts: StepParts, exact: Mapping[str, Observed]) -> dict[str, Observed]:
    """Take a step, two in training, on the negative of its inputs, and return what is compared with ``exact``, the same in fp64.

    ``exact`` is empty if this is the step in fp64. Outputs and gradients are overwritten first, as a graph writes where it wrote before.
    """
    with _negate(parts.inputs):
        if parts.update is not None:
            return _observe_training(call, parts, parts.update, exact)
        with torch.inference_mode():
            main_output(call()).zero_()
            return {"output": Observed({"": main_output(call()).clone()}, OUTPUT_TOLERANCE)}


def _observe_training(call: Step, parts: StepParts, update: torch.optim.Optimizer, exact: Mapping[str, Observed]) -> dict[str, Observed]:
    """Take two training steps, and return the labels and momenta of the first, the updates and gradients of the second, and the loss.

    A classifier's labels are the likeliest class of each image in the first step, and the unlikeliest in the second; its loss is the
    difference of both. A single loss is near the logarithm of the number of classes, whatever an untrained network computes, and the
    gradient of an unlikely class hardly depends on the logits. The loss of another network is that of its first step.

    Before the first step there are no momenta. Before the second they are so large that the update is visible.
    """
    if parts.scaler:  # at its first factor a gradient may overflow, and a skipped step shows no update
        parts.scaler.load_state_dict({**parts.scaler.state_dict(), "scale": 1.0})
    weights = {name: each for name, each in parts.network.named_parameters() if each.requires_grad}
    device = parts.inputs[0].device
    generator = _generator_state(device)
    _forget(update)
    loss, labels = _take_first_step(call, parts, exact.get("labels"))
    tolerance = TOLERANCE if torch.equal(generator, _generator_state(device)) else DRAWN_TOLERANCE
    momenta: dict[str, Tensor] = {}
    for name, each in weights.items():
        if each.grad is not None:
            momenta |= {f"{key} of {name}": along for key, along in _momenta(update.state.get(each, {}), each.grad)}
    _forget(update)
    _make_visible(update)
    parts.network.zero_grad(set_to_none=False)  # in place: a graph writes there
    before = {name: _some(each).clone() for name, each in weights.items()}
    rounding = 0.0
    if parts.labels is None or labels is None:
        call()
    else:
        parts.labels.copy_(labels.values["unlikely"])
        unlikely_loss = _host(call())
        difference = unlikely_loss - loss
        rounding = (torch.finfo(storage(parts.dtype)).eps * (loss + unlikely_loss) / difference.abs()).item()
        loss = difference
    gradients = {name: _norm(each.grad) for name, each in weights.items() if each.grad is not None}
    updates = {name: _host(_some(each)) - _host(before[name]) for name, each in weights.items()}
    for name, each in weights.items():
        _some(each).copy_(before[name])
    _forget(update)
    observed = {
        "loss": Observed({"": loss}, tolerance + rounding),
        "update": Observed(updates, TOLERANCE),
        "gradient": Observed(gradients, tolerance),
        "momentum": Observed(momenta, tolerance),
    }
    return {"labels": labels, **observed} if labels else observed


def _take_first_step(call: Step, parts: StepParts, labels: Observed | None) -> tuple[Tensor, Observed | None]:
    """Take a step on the likeliest labels, and return its loss, and the likeliest and unlikeliest labels.

    ``labels`` are those of the step in fp64; without them the step's own logits choose. A network with a loss of its own has none.
    """
    targets = parts.labels
    if targets is None:
        return _host(call()), None
    if labels is not None:
        targets.copy_(labels.values["likely"])
        return _host(call()), labels
    found: dict[str, Tensor] = {}

    def label_likely(network: nn.Module, inputs: object, output: Any) -> None:
        """Label each image by its likeliest class, before the loss is computed."""
        logits = main_output(output).detach()
        found.update(likely=logits.argmax(1), unlikely=logits.argmin(1))
        targets.copy_(found["likely"])

    hook = parts.network.register_forward_hook(label_likely)
    loss = _host(call())
    hook.remove()
    return loss, Observed(found, math.inf)


def _generator_state(device: torch.device) -> Tensor:
    """Return the state of torch's random generator of a device."""
    state: Tensor = (torch.random if device.type == "cpu" else torch.get_device_module(device)).get_rng_state()
    return state


@contextmanager
def _negate(inputs: tuple[Tensor, ...]) -> Iterator[None]:
    """Change the inputs in place while entered: negate floating-point numbers, and reverse integers, such as token ids."""

    def change() -> None:
        for each in inputs:
            if each.is_floating_point():
                each.neg_()
            elif each.dim():
                each.copy_(each.flip(-1))

    change()
    yield
    change()


def _momenta(state: Mapping[str, Any], gradient: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield name and size of each momentum: its length along the gradient, which shows the sign; of squares the root of their norm."""
    for name, each in state.items():
        if isinstance(each, Tensor) and each.shape == gradient.shape and each.is_floating_point():
            momentum, along = _host(_some(each)), _host(_some(gradient))
            yield name, momentum.norm().sqrt() if (momentum >= 0).all() else (momentum * along).sum() / along.norm()


def _forget(update: torch.optim.Optimizer) -> None:
    """Reset an optimizer to before its first step: in place, as a graph uses the same momenta."""
    for state in update.state.values():
        for each in state.values():
            if isinstance(each, Tensor):
                each.zero_()


def _make_visible(update: torch.optim.Optimizer) -> None:
    """Make some momenta so large that their weights move by 0.3 to 0.9 at the optimizer's rate, whatever the gradient.

    At the usual rate weights hardly move, and the rate is a constant of a captured graph, so the momenta are changed. fp16 can't hold
    such large numbers, so few of its weights move.
    """
    for group in update.param_groups:
        for weight in group["params"]:
            state = update.state[weight]
            for name, value in (("momentum_buffer", 1 / group["lr"]), ("exp_avg", 1e6 / group["lr"]), ("exp_avg_sq", 1e12)):
                if isinstance(state.get(name), Tensor):
                    _some(state[name]).fill_(min(value, torch.finfo(state[name].dtype).max / 4))


def _some(tensor: Tensor) -> Tensor:
    """Return a view of a tensor's first rows: at least one row, otherwise at most `SAMPLE` numbers."""
    return tensor.detach()[: max(1, SAMPLE // max(1, tensor[0].numel()))] if tensor.dim() else tensor.detach()


def _norm(tensor: Tensor) -> Tensor:
    """Return the 2-norm, summed in fp32 or wider: not every device has fp64."""
    norm: Tensor = torch.linalg.vector_norm(tensor, dtype=torch.promote_types(tensor.dtype, torch.float32))
    return norm


def _host(tensor: Tensor) -> Tensor:
    """Return numbers in fp64 on the host."""
    return tensor.detach().cpu().double()
