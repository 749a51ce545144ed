"""Bytes that the layers of a network move through memory, each run alone: from memory to memory, as eager mode does.

An estimate. Caches that hold a tensor from one layer to the next, and kernels that do the work of several layers, move less, down to
`least_bytes`; kernels that need scratch memory, or go over a tensor several times as normalisation does, move more. Adding a shortcut,
the loss and autocast's casts are left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.dropout import _DropoutNd

from dlbench.models.flops import Counted, run_on_meta
from dlbench.models.operations import ProductWatch, call_on_meta, needs_numbers, no_formula
from dlbench.models.shapes import tensors_of

MOVE_NOTHING = (nn.Flatten, nn.Unflatten, nn.Identity)


class Traffic(NamedTuple):
    """What one call of a layer takes and gives for one input of the network."""

    inputs: int
    """Values, as many as are in its input."""
    outputs: int
    weight_bytes: int
    multiplies: bool
    """Whether it is a convolution or a linear layer, whose weight has a gradient that takes a product of its own."""
    needs_input_gradient: bool = True
    needs_weight_gradient: bool = True
    table_bytes: int = 0
    """Of an embedding, whose forward pass reads the rows that it takes and no other: bytes of the gradient, which has all of them."""


def forward_bytes(layers: Sequence[Traffic], batch: int, value_bytes: int) -> int:
    """Return bytes of the forward pass: of each layer its input, its weights and its output once; ``value_bytes`` are those of a value."""
    return sum(map(sum, _forward(layers, batch, value_bytes)))


def train_bytes(layers: Sequence[Traffic], batch: int, value_bytes: int, update_bytes: int) -> int:
    """Return bytes of forward, backward and an update that moves ``update_bytes``.

    Backward of a layer that multiplies is two products over tensors of the forward's sizes: of the output's gradient with the weights for
    the gradient of the input, which the first layer does not need, and with the input for that of the weights, which a frozen one does
    not. Backward of any other layer reads the gradient of its output and its input, and writes the gradient of its input and of its
    weights.
    """
    backward = 0
    for layer, (values, weights) in zip(layers, _forward(layers, batch, value_bytes), strict=True):
        if layer.multiplies:
            backward += (layer.needs_input_gradient + layer.needs_weight_gradient) * (values + weights)
        elif layer.needs_input_gradient or layer.needs_weight_gradient:
            inputs = layer.inputs if layer.needs_input_gradient else 0
            backward += values + batch * inputs * value_bytes + weights + layer.table_bytes
    return forward_bytes(layers, batch, value_bytes) + backward + update_bytes


def _forward(layers: Sequence[Traffic], batch: int, value_bytes: int) -> list[tuple[int, int]]:
    return [(batch * (layer.inputs + layer.outputs) * value_bytes, layer.weight_bytes) for layer in layers]


def weight_bytes(model: nn.Module) -> int:
    """Return bytes of all weights."""
    return sum(each.nbytes for each in model.parameters())


def layer_traffic(model: nn.Module, input_shape: tuple[int, ...]) -> list[Traffic]:
    """Return what each layer moves, in the order they run, a layer that runs twice twice; a dropout does only where the model trains."""
    found: list[Traffic] = []

    def note(layer: nn.Module, inputs: Any, output: Tensor) -> None:
        weights = sum(each.nbytes for each in layer.parameters())
        multiplies = isinstance(layer, Counted)
        is_first = multiplies and not any(each.multiplies for each in found)
        found.append(Traffic(inputs[0].numel(), output.numel(), weights, multiplies, needs_input_gradient=not is_first))

    leaves = [each for each in model.modules() if not list(each.children()) and not isinstance(each, MOVE_NOTHING)]
    run_on_meta(model, input_shape, note, [each for each in leaves if each.training or not isinstance(each, nn.Dropout)])
    return found


@dataclass(frozen=True, slots=True)
class LayersTraffic:
    """What the layers of any network move in one call."""

    layers: tuple[Traffic, ...] | None = None
    """In the order they run, with the values of all inputs of the call: for `forward_bytes` and `train_bytes` with a ``batch`` of 1."""
    reason: str | None = None
    """Why there are none, such as ``no formula for encoder.attention (MultiheadAttention)``."""


@torch.inference_mode(mode=False)  # in which no tensor needs a gradient
def count_traffic(network: nn.Module, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> LayersTraffic:
    """Note what each layer moves in one call of any network, which is left as it is.

    All of it is unknown where a layer that runs is none of those that move what the formulas say, or where a product or a weight is outside
    of them. Other functions between them, such as adding a shortcut, are left out.
    """
    called = call_on_meta(network, arguments, keywords, _LayerWatch)
    if unknown := called.watch.unknown:
        return LayersTraffic(reason=no_formula([f"{name} ({kind})" if name else kind for kind, name in unknown.items()]))
    return LayersTraffic(reason=needs_numbers(called.error)) if called.error else LayersTraffic(tuple(called.watch.found))


class _LayerWatch(ProductWatch):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """Sees what each known layer takes and gives, and what else computes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Traffic] = []
        self.unknown: dict[str, str] = {}
        """Kinds of modules, each with the name of the first in the network."""
        self._names: dict[nn.Module, str] = {}
        self._running: list[nn.Module] = []

    def follow(self, network: nn.Module) -> None:
        """Watch all modules of a network."""
        self._names = {module: name for name, module in network.named_modules()}
        for module in self._names:
            module.register_forward_pre_hook(self._enter, prepend=True)
            module.register_forward_hook(self._leave, with_kwargs=True)

    def see(self, first: Tensor, second: Tensor, operations: int) -> None:
        self._computes(self._running[-1])

    def see_unknown(self, operator: str) -> None:
        self._computes(self._running[-1])

    def _enter(self, module: nn.Module, arguments: Any) -> None:
        self._running.append(module)
        if _is_leaf(module) or next(module.parameters(recurse=False), None) is not None:
            self._computes(module)

    def _computes(self, module: nn.Module) -> None:
        if not _is_known(module):
            self.unknown.setdefault(type(module).__name__, self._names[module])

    def _leave(self, module: nn.Module, arguments: Any, keywords: Any, output: Any) -> None:
        self._running.pop()
        passes_on = isinstance(module, MOVE_NOTHING) or (isinstance(module, _DropoutNd) and not module.training)
        if _is_known(module) and not passes_on:
            self.found.append(_traffic(module, tensors_of((arguments, keywords))[0], tensors_of(output)))


_KNOWN = {
    f"torch.nn.modules.{each}"
    for each in (
        *("activation", "batchnorm", "conv", "dropout", "flatten", "instancenorm", "linear", "normalization", "padding", "pixelshuffle"),
        *("pooling", "sparse", "upsampling"),
    )
}
"""Modules whose layers take one tensor, and move that, their weights and their output once."""


def _is_known(module: nn.Module) -> bool:
    """Whether the code that runs is that of a known layer: a layer that is derived from one may have its own."""
    home = getattr(module.forward, "__module__", None)
    # A bilinear layer takes two tensors, and a bag of an embedding adds up what it reads. What has children is attention, or has weights
    # that are computed of others.
    return home in _KNOWN and _is_leaf(module) and not isinstance(module, nn.Bilinear | nn.EmbeddingBag)


def _is_leaf(module: nn.Module) -> bool:
    return next(module.children(), None) is None


def _traffic(layer: nn.Module, taken: Tensor, given: Sequence[Tensor]) -> Traffic:
    weights, outputs = list(layer.parameters()), sum(each.numel() for each in given)
    weight_bytes, needs_weight_gradient = sum(each.nbytes for each in weights), any(each.requires_grad for each in weights)
    if isinstance(layer, nn.Embedding):
        table_bytes = 0 if layer.sparse else weight_bytes
        return Traffic(outputs, outputs, 0, False, False, needs_weight_gradient, table_bytes)
    multiplies = isinstance(layer, _ConvNd | nn.Linear)
    return Traffic(taken.numel(), outputs, weight_bytes, multiplies, taken.requires_grad, needs_weight_gradient)
