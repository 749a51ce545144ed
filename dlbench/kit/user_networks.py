"""Networks that users register, and published ones in the same form: building, batches, losses and optimizers."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  # what everybody calls it
from torch.utils._pytree import tree_map, tree_map_only

from dlbench import Dtype, Network, Tokens
from dlbench.kit.precision import operands, storage
from dlbench.models.operations import tensors_of

Inputs = Any
"""Inputs of a network: a tensor, a tuple of its arguments, or a dictionary of them by name."""
Loss = Callable[[Inputs, Any], Tensor]
"""From inputs and targets to a scalar."""


def build(network: Network) -> nn.Module:
    """Build a network on the CPU. Raises TypeError where its function returns no module."""
    module = network.build()
    if not isinstance(module, nn.Module):
        raise TypeError(f"network '{network.name}' returns {type(module).__name__}; it has to return a torch.nn.Module")
    return module


def draw_batch(network: Network, device: torch.device, batch: int, dtype: Dtype) -> tuple[Inputs, Any]:
    """Return random inputs and targets of a network on the device, with floating-point numbers in the precision.

    They are the network's own example if it has one, or else token ids or images. Targets are None where the loss takes none. Raises
    ValueError where the example has another batch size, or lacks the targets that the loss takes.
    """
    targets = None
    if network.example:
        inputs, targets = on_device(_draw_example(network, network.example, batch), device, dtype)
    elif isinstance(network.inputs, Tokens):
        inputs = torch.randint(network.inputs.vocabulary, (batch, network.inputs.seq)).to(device)
    else:
        (inputs,) = operands(device, (batch, *(network.inputs or ())), dtype=dtype)
    if network.takes_targets and targets is None:  # no example gave them, so the network has classes to draw from
        targets = torch.randint(network.classes or 0, (batch,)).to(device)
    return inputs, targets


def _draw_example(network: Network, example: Callable[[int], Any], batch: int) -> tuple[Inputs, Any]:
    takes_targets = bool(network.loss) and network.takes_targets
    inputs, targets = split(example(batch), takes_targets, f"the example of network '{network.name}'")
    tensors = tensors_of(inputs)
    # The batch may be the second dimension, as in recurrent networks.
    if not any(batch in each.shape[:2] for each in tensors):
        found = ", ".join(str(tuple(each.shape)) for each in tensors) or "no tensor"
        raise ValueError(f"network '{network.name}': example({batch}) has to return a batch of {batch}, and returned {found}")
    return inputs, targets


def split(given: Any, takes_targets: bool, giver: str) -> tuple[Inputs, Any]:
    """Return inputs and targets of a batch; targets are None where the loss takes none. Raises ValueError where they are missing."""
    if not takes_targets:
        return given, None
    if not isinstance(given, list | tuple) or len(given) != 2:  # inputs and targets
        raise ValueError(f"{giver} gives {kinds(given)!s:.80}, and a step takes (inputs, targets)")
    return given[0], given[1]


def kinds(tree: Any) -> Any:
    """Return the kind of each leaf of nested values, such as ``{"ids": "Tensor"}``."""
    return tree_map(lambda each: "Tensor" if isinstance(each, Tensor) else type(each).__name__, tree)


def on_device(tree: Any, device: torch.device, dtype: Dtype, *, non_blocking: bool = False) -> Any:
    """Move nested tensors to the device, floating-point ones in the precision's storage type; ``non_blocking``: only start the copies."""

    def move(tensor: Tensor) -> Tensor:
        return tensor.to(device, storage(dtype) if tensor.is_floating_point() else None, non_blocking=non_blocking)

    return tree_map_only(Tensor, move, tree)


def with_memory_format(network: Network, inputs: Inputs, memory_format: torch.memory_format) -> Inputs:
    """Return inputs with their image batches in this memory format. Raises NotImplementedError where no input is an image batch."""
    if all(each.dim() != 4 for each in tensors_of(inputs)):  # N, C, H, W
        raise NotImplementedError(f"no input of network '{network.name}' has four dimensions, so none has a layout; leave layout out")
    return tree_map_only(Tensor, lambda each: each.contiguous(memory_format=memory_format) if each.dim() == 4 else each, inputs)


def forward_of(module: Callable[..., Any], inputs: Inputs) -> Callable[[Inputs], Any]:
    """Return a function that calls the network with such inputs: a mapping as keyword arguments, a tuple as positional ones."""
    if isinstance(inputs, Mapping):
        return lambda given: module(**given)
    if isinstance(inputs, tuple):
        return lambda given: module(*given)
    return module


@torch.no_grad()
def refuse_inputs_that_fail(module: nn.Module, inputs: Inputs) -> None:
    """Run a network forward once. Raises ValueError where that fails."""
    try:
        forward_of(module, inputs)(inputs)
    except Exception as error:
        shapes = ", ".join(str(tuple(each.shape)) for each in tensors_of(inputs))
        raise ValueError(f"the network does not take its input, {shapes}: {error}") from error


def main_output(output: Any) -> Any:
    """Return the logits in a network's output: those named so, or else its first floating-point tensor, or else the output itself."""
    if isinstance(output, Tensor):
        return output
    if isinstance(output, Mapping) and "logits" in output:
        return output["logits"]
    return next((each for each in tensors_of(output) if each.is_floating_point()), output)


def loss_of(network: Network, module: Callable[..., Any], example: Inputs) -> Loss:
    """Return the loss that a training step minimises, as a function of inputs and targets; ``example``: inputs such as it gets.

    ``module`` computes the output of ``network``. The loss is the network's own loss function, or else for a classifier cross-entropy, or
    else the ``loss`` in the output. When called, the function raises ValueError where there is none of these, or where it is no scalar.
    """
    forward, own_loss = forward_of(module, example), network.loss
    if own_loss and network.takes_targets:
        return lambda inputs, targets: _require_scalar(own_loss(forward(inputs), targets))
    if own_loss:
        return lambda inputs, targets: _require_scalar(own_loss(forward(inputs)))
    if network.classes:
        return lambda inputs, targets: F.cross_entropy(main_output(forward(inputs)), targets)

    def loss_in_output(inputs: Inputs, targets: Any) -> Tensor:
        output = forward(inputs)
        loss = output.get("loss") if isinstance(output, Mapping) else None
        if loss is None:
            raise ValueError(f"network '{network.name}' has neither classes nor a loss to be trained by; give @dlbench.network one")
        return _require_scalar(loss)

    return loss_in_output


def _require_scalar(loss: Any) -> Tensor:
    if not isinstance(loss, Tensor) or loss.dim():
        found = tuple(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
        raise ValueError(f"a network's loss has to be one number, a tensor without dimensions, not {found}")
    return loss


def optimizer_of(network: Network, module: nn.Module, rate: float | None) -> torch.optim.Optimizer:
    """Return the network's own optimizer, at this learning rate if one is given. Raises TypeError where its function returns none."""
    optimizer = network.optimizer and network.optimizer(trained_weights(network, module))
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"network '{network.name}': optimizer returns {type(optimizer).__name__}, not a torch.optim.Optimizer")
    if rate is None:
        return optimizer
    for group in optimizer.param_groups:
        group["lr"] = rate
    return optimizer


def trained_weights(network: Network, module: nn.Module) -> list[nn.Parameter]:
    """Return the weights that require a gradient. Raises ValueError where there are none."""
    weights = [each for each in module.parameters() if each.requires_grad]
    if not weights:
        raise ValueError(f"network '{network.name}' has no weights to train; infer_step measures it")
    return weights
