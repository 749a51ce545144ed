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
    """Count a step on a batch with its optimizer's update, which moves ``update_bytes``: 0 without an update, None where unknown."""
    counted = count_step(step, network, *batch)
    if counted.bytes is None:
        # Counting runs the step on shapes alone. That fails for wrong inputs, which are refused, and for a network that needs numbers.
        refuse_inputs_that_fail(network, batch[0])
    moved_bytes, flops, unknown = counted.bytes, counted.flops, dict(counted.unknown)
    if update_bytes is None:
        moved_bytes = least_bytes = None
        unknown.setdefault("bytes", "nobody knows what its optimizer moves")
    else:
        if moved_bytes is not None:
            moved_bytes += update_bytes
        # The least: caches hold all but the inputs and the weights. An update reads the weights, so its bytes include them. Without an
        # update the weights are read once.
        least_bytes = sum(each.nbytes for each in tensors_of(batch[0])) + (update_bytes or _weight_bytes(network))
    has_convolutions = any(isinstance(each, nn.Conv2d) for each in network.modules())
    # Fast algorithms, such as Winograd's, need that many times fewer operations for a convolution. With None, `flops` count as the least.
    least_flops = flops / FASTER_CONVOLUTION if flops and has_convolutions else None
    return {"flops": flops, "least_flops": least_flops, "bytes": moved_bytes, "least_bytes": least_bytes, "unknown": unknown}


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


def _observe_training(call: Step, parts: StepParts, optimizer: torch.optim.Optimizer, exact: Mapping[str, Observed]) -> dict[str, Observed]:
    """Take two training steps, and return what is compared with the same in fp64: the loss, updates, gradients and momenta, by name.

    ``exact`` is what the step in fp64 returned, and empty in fp64 itself. Momenta are those after the first step. Before the second step
    they are made so large that its update is visible; updates and gradients are those of the second step.

    A classifier's labels are the likeliest class of each image in the first step, and the unlikeliest class in the second. With that class
    the gradient hardly depends on the logits. The loss of a classifier is the difference of the losses of both steps: a single loss of an
    untrained network is about the logarithm of the number of classes, right or wrong, and so shows no error. The labels are returned as
    well: other precisions find them in ``exact`` and take the same. Another network's loss is that of its first step.
    """
    if parts.scaler:  # at its first factor a gradient may overflow, and a skipped step shows no update
        parts.scaler.load_state_dict({**parts.scaler.state_dict(), "scale": 1.0})
    weights = {name: each for name, each in parts.network.named_parameters() if each.requires_grad}
    device = parts.inputs[0].device

    # The first step, without momenta before it.
    generator_before = _generator_state(device)
    _reset(optimizer)
    first_loss, labels = _take_first_step(call, parts, exact.get("labels"))
    has_drawn = not torch.equal(generator_before, _generator_state(device))  # such as for dropout
    tolerance = DRAWN_TOLERANCE if has_drawn else TOLERANCE
    momenta: dict[str, Tensor] = {}
    for name, weight in weights.items():
        if weight.grad is not None:
            momenta |= {f"{momentum} of {name}": size for momentum, size in _momentum_sizes(optimizer.state.get(weight, {}), weight.grad)}

    # The second step, on the unlikeliest labels and with large momenta before it.
    _reset(optimizer)
    _make_visible(optimizer)
    parts.network.zero_grad(set_to_none=False)  # in place: a graph writes there
    samples_before = {name: _sample_of(weight).clone() for name, weight in weights.items()}
    loss = first_loss
    loss_rounding = 0.0
    if parts.labels is None or labels is None:  # no classifier: both are None
        call()
    else:
        parts.labels.copy_(labels.values["unlikely"])
        unlikely_loss = _on_host(call())
        loss = unlikely_loss - first_loss
        # The rounding error of both losses, relative to their difference.
        loss_rounding = (torch.finfo(storage(parts.dtype)).eps * (first_loss + unlikely_loss) / loss.abs()).item()
    gradients = {name: _norm_of(weight.grad) for name, weight in weights.items() if weight.grad is not None}
    updates = {name: _on_host(_sample_of(weight)) - _on_host(samples_before[name]) for name, weight in weights.items()}

    # Undo the large update, as the step is used again.
    for name, weight in weights.items():
        _sample_of(weight).copy_(samples_before[name])
    _reset(optimizer)
    observed = {
        "loss": Observed({"": loss}, tolerance + loss_rounding),
        "update": Observed(updates, TOLERANCE),  # the same whatever was drawn, as the large momenta make it
        "gradient": Observed(gradients, tolerance),
        "momentum": Observed(momenta, tolerance),
    }
    return {"labels": labels, **observed} if labels else observed


def _take_first_step(call: Step, parts: StepParts, exact_labels: Observed | None) -> tuple[Tensor, Observed | None]:
    """Take a step on the likeliest labels; return its loss, and the likeliest and the unlikeliest labels (batch,) of a classifier.

    ``exact_labels`` are those that the step in fp64 has chosen; this step then takes the same. The step in fp64 itself gets None, and
    chooses by its own logits. A network with a loss of its own has no such labels: it takes the step as it is.
    """
    targets = parts.labels
    if targets is None:
        return _on_host(call()), None
    if exact_labels is not None:
        targets.copy_(exact_labels.values["likely"])
        return _on_host(call()), exact_labels
    labels: dict[str, Tensor] = {}

    def label_likely(network: nn.Module, inputs: object, output: Any) -> None:
        """Label each image by its likeliest class, in the same step: after the network's forward pass and before the loss."""
        logits = main_output(output).detach()
        labels.update(likely=logits.argmax(1), unlikely=logits.argmin(1))
        targets.copy_(labels["likely"])

    hook = parts.network.register_forward_hook(label_likely)
    loss = _on_host(call())
    hook.remove()
    return loss, Observed(labels, math.inf)  # passed on, and not compared


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


def _momentum_sizes(state: Mapping[str, Any], gradient: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield the name and size of each momentum of a weight, from the weight's state in the optimizer.

    The size is the length along the gradient, which shows the sign; of averaged squares it is the root of their norm.
    """
    for name, each in state.items():
        if isinstance(each, Tensor) and each.shape == gradient.shape and each.is_floating_point():
            momentum = _on_host(_sample_of(each))
            along = _on_host(_sample_of(gradient))
            yield name, momentum.norm().sqrt() if (momentum >= 0).all() else (momentum * along).sum() / along.norm()


def _reset(optimizer: torch.optim.Optimizer) -> None:
    """Reset an optimizer to before its first step: in place, as a graph uses the same momenta."""
    for state in optimizer.state.values():
        for each in state.values():
            if isinstance(each, Tensor):
                each.zero_()


def _make_visible(optimizer: torch.optim.Optimizer) -> None:
    """Make some momenta so large that their weights move by 0.3 to 0.9 at the optimizer's rate, whatever the gradient.

    At the usual rate weights hardly move, and the rate is a constant of a captured graph, so the momenta are changed. fp16 can't hold
    such large numbers, so few of its weights move.
    """
    for group in optimizer.param_groups:
        for weight in group["params"]:
            state = optimizer.state[weight]
            for name, value in (("momentum_buffer", 1 / group["lr"]), ("exp_avg", 1e6 / group["lr"]), ("exp_avg_sq", 1e12)):
                if isinstance(state.get(name), Tensor):
                    _sample_of(state[name]).fill_(min(value, torch.finfo(state[name].dtype).max / 4))


def _sample_of(tensor: Tensor) -> Tensor:
    """Return a view of a tensor's first rows: at most `SAMPLE` numbers, or else a single row."""
    tensor = tensor.detach()
    return tensor[: max(1, SAMPLE // max(1, tensor[0].numel()))] if tensor.dim() else tensor


def _norm_of(tensor: Tensor) -> Tensor:
    """Return the 2-norm, summed in fp32 or wider: not every device has fp64."""
    norm: Tensor = torch.linalg.vector_norm(tensor, dtype=torch.promote_types(tensor.dtype, torch.float32))
    return norm


def _on_host(tensor: Tensor) -> Tensor:
    """Return numbers in fp64 on the host."""
    return tensor.detach().cpu().double()
