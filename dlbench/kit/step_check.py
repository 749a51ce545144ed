"""Quantities of a network's step that are held against the same step in fp64. docs/checks.md says why these."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from dlbench import Dtype, Observed
from dlbench.kit.precision import storage
from dlbench.kit.user_networks import main_output

TOLERANCE = 0.01
"""Relative: activations that change their sign make a gradient jump, in eager execution or in the case alone."""
DRAWN_TOLERANCE = 1.0
"""Of norms where other activations drop out each time: small tensors' differ by half and more, and one that is missing by infinity."""
OUTPUT_TOLERANCE = 1e-4
"""Of an output, which jumps nowhere: TF32 in place of fp32 makes more."""
SAMPLE = 1 << 12
"""Numbers of each weight whose update is compared: copies of more would take memory that the step itself does not."""

Step = Callable[[], Any]
"""A step as it is called: in training it gives the loss, in inference the network's output."""
MakeOptimizer = Callable[..., torch.optim.Optimizer]
"""Of weights, and of a learning rate where it is to be another one."""


@dataclass(frozen=True)
class StepParts:
    """What a step works on; without an update it is inference."""

    network: nn.Module
    inputs: tuple[Tensor, ...]
    dtype: Dtype
    labels: Tensor | None = None
    """Of a classifier that is trained by cross-entropy; of others the loss is compared as it is."""
    update: torch.optim.Optimizer | None = None
    scaler: torch.amp.GradScaler | None = None

    @property
    def weights(self) -> dict[str, Tensor]:
        """Those that are trained, by name."""
        return {name: each for name, each in self.network.named_parameters() if each.requires_grad}


def observe_step(call: Step, parts: StepParts, exact: Mapping[str, Observed]) -> dict[str, Observed]:
    """Take a step, two in training, on the negative of its inputs, and return what is compared with ``exact``, the same in fp64.

    That is empty where this is the step in fp64. Gradients and outputs are overwritten first, as a graph writes where it wrote before.
    """
    with _negate(parts.inputs):
        if parts.update is not None:
            return _observe_training(call, parts, parts.update, exact)
        with torch.inference_mode():
            main_output(call()).zero_()
            return {"output": Observed({"": main_output(call()).clone()}, OUTPUT_TOLERANCE)}


def _observe_training(call: Step, parts: StepParts, update: torch.optim.Optimizer, exact: Mapping[str, Observed]) -> dict[str, Observed]:
    """Take a step from no momenta on whose labels are the likeliest, and one whose update shows and whose labels are the unlikeliest.

    Two losses of the same logits differ by these, which tells more than a loss: that is near the logarithm of the number of classes
    whatever an untrained network computes. And the gradient of an unlikely class hardly depends on the logits.
    """
    if parts.scaler:  # at its first factor a gradient may overflow, and a skipped step shows no update
        parts.scaler.load_state_dict({**parts.scaler.state_dict(), "scale": 1.0})
    weights, labels, chosen, drawn = parts.weights, parts.labels, exact.get("labels"), _drawn(parts.inputs[0].device)
    _forget(update)
    if labels is None:
        loss = _host(call())
    elif chosen is None:
        logits: list[Tensor] = []
        hook = parts.network.register_forward_hook(partial(_label_likely, labels, logits))
        loss = _host(call())
        hook.remove()
        chosen = Observed({"likely": labels.clone(), "unlikely": logits[0].argmin(1)}, math.inf)
    else:
        labels.copy_(chosen.values["likely"])
        loss = _host(call())
    tolerance = TOLERANCE if torch.equal(drawn, _drawn(parts.inputs[0].device)) else DRAWN_TOLERANCE
    momenta = {
        f"{key} of {name}": along
        for name, each in weights.items()
        if each.grad is not None
        for key, along in _momenta(update.state.get(each, {}), each.grad)
    }
    _forget(update)
    _make_visible(update)
    before = {name: _some(each).clone() for name, each in weights.items()}
    for each in weights.values():
        if each.grad is not None:
            each.grad.zero_()  # in place: a graph writes there
    found, rounding = {}, 0.0
    if labels is not None and chosen is not None:
        labels.copy_(chosen.values["unlikely"])
        unlikely = _host(call())
        rounding = (torch.finfo(storage(parts.dtype)).eps * (loss + unlikely) / (unlikely - loss).abs()).item()
        loss, found["labels"] = unlikely - loss, chosen
    else:
        call()
    gradients = {name: _norm(each.grad) for name, each in weights.items() if each.grad is not None}
    updates = {name: _host(_some(each)) - _host(before[name]) for name, each in weights.items()}
    for name, each in weights.items():
        _some(each).copy_(before[name])
    _forget(update)
    found["loss"] = Observed({"": loss}, tolerance + rounding)
    found["update"] = Observed(updates, TOLERANCE)
    for kind, values in (("gradient", gradients), ("momentum", momenta)):
        found[kind] = Observed(values, tolerance)
    return found


def _drawn(device: torch.device) -> Tensor:
    """Return the state of torch's generator of random numbers there."""
    state: Tensor = (torch.random if device.type == "cpu" else torch.get_device_module(device)).get_rng_state()
    return state


@contextmanager
def _negate(inputs: tuple[Tensor, ...]) -> Iterator[None]:
    """Change the inputs for a while, in place: the signs of numbers, and the order of what counts or names something."""

    def change() -> None:
        for each in inputs:
            if each.is_floating_point():
                each.neg_()
            elif each.dim():
                each.copy_(each.flip(-1))

    change()
    yield
    change()


def _label_likely(labels: Tensor, noted: list[Tensor], network: nn.Module, inputs: object, output: Any) -> None:
    """Label each image as the class that the network finds likeliest, before its loss is taken."""
    noted.append(main_output(output).detach())
    labels.copy_(noted[-1].argmax(1))


def _momenta(state: Mapping[str, Any], gradient: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield the length of each momentum along its gradient, so that one of another sign differs, or the root of that of squares."""
    for name, each in state.items():
        if isinstance(each, Tensor) and each.shape == gradient.shape and each.is_floating_point():
            momentum, along = _host(_some(each)), _host(_some(gradient))
            yield name, momentum.norm().sqrt() if (momentum >= 0).all() else (momentum * along).sum() / along.norm()


def _forget(update: torch.optim.Optimizer) -> None:
    """Put an optimizer back to before its first step: in place, as a graph goes on with the same momenta."""
    for state in update.state.values():
        for each in state.values():
            if isinstance(each, Tensor):
                each.zero_()


def _make_visible(update: torch.optim.Optimizer) -> None:
    """Make some momenta so large that their weights move by 0.3 to 0.9 at the optimizer's rate, and that no gradient shows.

    The rate itself is a constant of a captured graph, and weights do not show it: so what it is multiplied by is made to fit. As fp16
    does not hold such numbers, few of its weights move.
    """
    for group in update.param_groups:
        for weight in group["params"]:
            state = update.state[weight]
            for name, value in (("momentum_buffer", 1 / group["lr"]), ("exp_avg", 1e6 / group["lr"]), ("exp_avg_sq", 1e12)):
                if isinstance(state.get(name), Tensor):
                    _some(state[name]).fill_(min(value, torch.finfo(state[name].dtype).max / 4))


def _some(tensor: Tensor) -> Tensor:
    """Return a view of the first of a tensor's rows: one at least, and otherwise no more than `SAMPLE` numbers."""
    return tensor.detach()[: max(1, SAMPLE // max(1, tensor[0].numel()))] if tensor.dim() else tensor.detach()


def _norm(tensor: Tensor) -> Tensor:
    """Return the 2-norm, summed in fp32 at least: not every device has fp64."""
    norm: Tensor = torch.linalg.vector_norm(tensor, dtype=torch.promote_types(tensor.dtype, torch.float32))
    return norm


def _host(tensor: Tensor) -> Tensor:
    """Return numbers in fp64 on the host."""
    return tensor.detach().cpu().double()
