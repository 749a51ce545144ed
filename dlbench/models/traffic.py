"""Bytes that the layers of a network move through memory, each run alone: from memory to memory, as eager mode does.

An estimate. Caches that hold a tensor from one layer to the next, and kernels that do the work of several layers, move less, down to
`least_bytes`; kernels that need scratch memory, or go over a tensor several times as normalisation does, move more. Adding a shortcut,
the loss and autocast's casts are left out.
"""

from typing import Any, NamedTuple

from torch import Tensor, nn

from dlbench.models.flops import Counted, run_on_meta

_MOVE_NOTHING = (nn.Flatten, nn.Identity)


class Traffic(NamedTuple):
    """What one call of a layer takes and gives for one input of the network."""

    inputs: int
    """Values, as many as are in its input."""
    outputs: int
    weight_bytes: int
    multiplies: bool
    """Whether it is a convolution or a linear layer, whose weight has a gradient that takes a product of its own."""


def forward_bytes(layers: list[Traffic], batch: int, value_bytes: int) -> int:
    """Return bytes of the forward pass: of each layer its input, its weights and its output once; ``value_bytes`` are those of a value."""
    return sum(map(sum, _forward(layers, batch, value_bytes)))


def train_bytes(layers: list[Traffic], batch: int, value_bytes: int, update_bytes: int) -> int:
    """Return bytes of forward, backward and an update that moves ``update_bytes``.

    Backward of a layer that multiplies is two products over tensors of the forward's sizes: of the output's gradient with the weights for
    the gradient of the input, which the first layer does not need, and with the input for that of the weights. Backward of any other
    layer reads the gradient of its output and its input, and writes the gradient of its input and of its weights.
    """
    first = next((at for at, layer in enumerate(layers) if layer.multiplies), None)
    backward = 0
    for at, (layer, (values, weights)) in enumerate(zip(layers, _forward(layers, batch, value_bytes), strict=True)):
        if layer.multiplies:
            backward += (1 if at == first else 2) * (values + weights)
        else:
            backward += values + batch * layer.inputs * value_bytes + weights
    return forward_bytes(layers, batch, value_bytes) + backward + update_bytes


def _forward(layers: list[Traffic], batch: int, value_bytes: int) -> list[tuple[int, int]]:
    return [(batch * (layer.inputs + layer.outputs) * value_bytes, layer.weight_bytes) for layer in layers]


def weight_bytes(model: nn.Module) -> int:
    """Return bytes of all weights."""
    return sum(each.nbytes for each in model.parameters())


def layer_traffic(model: nn.Module, input_shape: tuple[int, ...]) -> list[Traffic]:
    """Return what each layer moves, in the order they run, a layer that runs twice twice; a dropout does only where the model trains."""
    found: list[Traffic] = []

    def note(layer: nn.Module, inputs: Any, output: Tensor) -> None:
        weights = sum(each.nbytes for each in layer.parameters())
        found.append(Traffic(inputs[0].numel(), output.numel(), weights, isinstance(layer, Counted)))

    leaves = [each for each in model.modules() if not list(each.children()) and not isinstance(each, _MOVE_NOTHING)]
    run_on_meta(model, input_shape, note, [each for each in leaves if each.training or not isinstance(each, nn.Dropout)])
    return found
