"""Networks as users bring them, published ones alike: built, with a batch of their inputs and targets, and what a step on them computes."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  # what everybody calls it
from torch.utils._pytree import tree_map_only

from dlbench import Dtype, Network, Tokens
from dlbench.kit.precision import operands, storage
from dlbench.models.shapes import tensors_of

Inputs = Any
"""Inputs of a network: a tensor, a tuple of its arguments, or a dictionary of them by name."""
Loss = Callable[[Inputs, Any], Tensor]
"""From inputs and targets to a scalar."""


def built(network: Network) -> nn.Module:
    """Build it on the CPU. Raises ValueError where that fails, and TypeError where it gives no module."""
    try:
        module = network.build()
    except (MemoryError, NotImplementedError):
        raise
    except Exception as error:
        raise ValueError(f"network '{network.name}' does not build: {type(error).__name__}: {error}") from error
    if not isinstance(module, nn.Module):
        raise TypeError(f"network '{network.name}' returns {type(module).__name__}; it has to return a torch.nn.Module")
    return module


def draw_batch(network: Network, device: torch.device, batch: int, dtype: Dtype) -> tuple[Inputs, Any]:
    """Return inputs on the device, floating-point numbers in the precision, and targets; None where a loss takes none.

    Raises ValueError for an example of another batch, or without the targets that the loss takes.
    """
    targets = None
    if network.example:
        inputs, targets = _example(network, network.example, batch)
        inputs, targets = (on_device(each, device, dtype) for each in (inputs, targets))
    elif isinstance(network.inputs, Tokens):
        inputs = torch.randint(network.inputs.vocabulary, (batch, network.inputs.seq)).to(device)
    else:
        (inputs,) = operands(device, (batch, *(network.inputs or ())), dtype=dtype)
    if network.takes_targets and targets is None:
        targets = torch.randint(network.classes or 0, (batch,)).to(device)
    return inputs, targets


def _example(network: Network, example: Callable[[int], Any], batch: int) -> tuple[Inputs, Any]:
    drawn = example(batch)
    inputs, targets = drawn, None
    if network.loss and network.takes_targets:
        if not isinstance(drawn, tuple) or len(drawn) != 2:  # inputs and targets
            kind = type(drawn).__name__
            raise ValueError(f"network '{network.name}': its loss takes targets, so example has to return (inputs, targets), not {kind}")
        inputs, targets = drawn
    tensors = tensors_of(inputs)
    # Of recurrent networks the batch may be the second dimension.
    if not any(batch in each.shape[:2] for each in tensors):
        found = ", ".join(str(tuple(each.shape)) for each in tensors) or "no tensor"
        raise ValueError(f"network '{network.name}': example({batch}) has to return a batch of {batch}, and returned {found}")
    return inputs, targets


def on_device(tree: Any, device: torch.device, dtype: Dtype, *, non_blocking: bool = False) -> Any:
    """Return nested tensors on the device, floating-point ones in what the precision stores; ``non_blocking``: copies are only started."""

    def moved(tensor: Tensor) -> Tensor:
        return tensor.to(device, storage(dtype) if tensor.is_floating_point() else None, non_blocking=non_blocking)

    return tree_map_only(Tensor, moved, tree)


def in_order(network: Network, inputs: Inputs, order: torch.memory_format) -> Inputs:
    """Return inputs with image batches in this order in memory. Raises NotImplementedError where there is none."""

    def is_image_batch(tensor: Tensor) -> bool:
        return tensor.dim() == 4  # N, C, H, W

    if not any(map(is_image_batch, tensors_of(inputs))):
        raise NotImplementedError(f"no input of network '{network.name}' has four dimensions, so none has a layout; leave layout out")
    return tree_map_only(Tensor, lambda each: each.contiguous(memory_format=order) if is_image_batch(each) else each, inputs)


def forward_of(module: Callable[..., Any], inputs: Inputs) -> Callable[[Inputs], Any]:
    """Return the network as a function of inputs of this kind."""
    if isinstance(inputs, Mapping):
        return lambda each: module(**each)
    if isinstance(inputs, tuple):
        return lambda each: module(*each)
    return module


@torch.no_grad()
def refuse_unfit(module: nn.Module, model: str, inputs: Inputs) -> None:
    """Raise ValueError where the network does not take its inputs."""
    try:
        forward_of(module, inputs)(inputs)
    except Exception as error:
        shapes = ", ".join(str(tuple(each.shape)) for each in tensors_of(inputs))
        raise ValueError(f"network '{model}' does not take its input, {shapes}: {error}") from error


def main_output(output: Any) -> Any:
    """Return the logits of an output, or else the first tensor of floating-point numbers in it; the output itself where there is none."""
    if isinstance(output, Tensor):
        return output
    if isinstance(output, Mapping) and "logits" in output:
        return output["logits"]
    return next((each for each in tensors_of(output) if each.is_floating_point()), output)


def loss_of(network: Network, module: Callable[..., Any], inputs: Inputs) -> Loss:
    """Return what a step on such inputs minimises: the network's own loss, the one in its output, or cross-entropy.

    Raises ValueError where there is none.
    """
    forward, own = forward_of(module, inputs), network.loss

    def cross_entropy(inputs: Inputs, targets: Tensor) -> Tensor:
        return F.cross_entropy(main_output(forward(inputs)), targets)

    def of_output(inputs: Inputs, targets: Any) -> Tensor:
        output = forward(inputs)
        loss = output.get("loss") if isinstance(output, Mapping) else None
        if loss is None:
            raise ValueError(f"network '{network.name}' has neither classes nor a loss to be trained by; give @dlbench.network one")
        return _scalar(network, loss)

    def of_targets(inputs: Inputs, targets: Any) -> Tensor:
        return _scalar(network, own(forward(inputs), targets))  # type: ignore[misc]  # it is there

    def of_own(inputs: Inputs, targets: Any) -> Tensor:
        return _scalar(network, own(forward(inputs)))  # type: ignore[misc]  # it is there

    if own:
        return of_targets if network.takes_targets else of_own
    return cross_entropy if network.classes else of_output


def _scalar(network: Network, loss: Any) -> Tensor:
    if not isinstance(loss, Tensor) or loss.dim():
        found = tuple(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
        raise ValueError(f"network '{network.name}': its loss has to be one number, a tensor without dimensions, not {found}")
    return loss


def optimizer_of(network: Network, module: nn.Module, rate: float | None) -> torch.optim.Optimizer:
    """Return the network's own optimizer, with this learning rate or else its own. Raises TypeError where it is none."""
    optimizer = network.optimizer and network.optimizer(trained(network, module))
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"network '{network.name}': optimizer returns {type(optimizer).__name__}, not a torch.optim.Optimizer")
    if rate is None:
        return optimizer
    for group in optimizer.param_groups:
        group["lr"] = torch.full_like(group["lr"], rate) if isinstance(group["lr"], Tensor) else rate
    return optimizer


def trained(network: Network, module: nn.Module) -> list[nn.Parameter]:
    """Return the weights that are trained. Raises ValueError where there are none."""
    weights = [each for each in module.parameters() if each.requires_grad]
    if not weights:
        raise ValueError(f"network '{network.name}' has no weights to train; infer_step measures it")
    return weights
