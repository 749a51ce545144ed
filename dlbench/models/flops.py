"""Floating-point operations of a network for one input, by the closed formulas of its layers."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F  # noqa: N812  # what everybody calls it
from torch.overrides import TorchFunctionMode

FASTER_CONVOLUTION = 4
"""How many times fewer operations the fastest algorithm in use takes for a convolution: Winograd's F(4 x 4, 3 x 3) multiplies 36 times
where the formula says 144 (Lavin and Gray, https://arxiv.org/abs/1509.09308, section 4)."""

Counted = nn.Conv2d | nn.Linear
"""The layers whose operations are counted."""


def forward_flops(model: nn.Module, input_shape: tuple[int, ...]) -> int:
    """Return operations of the forward pass for one input, such as an image of shape (channels, height, width)."""
    return sum(layer_flops(model, input_shape))


def train_flops(model: nn.Module, input_shape: tuple[int, ...]) -> int:
    """Return operations of forward and backward for one input, such as an image of shape (channels, height, width).

    Backward takes each layer's forward twice, for the gradients of its input and of its weight; only the first layer,
    whose input is the image, needs no gradient of that.
    """
    first, *others = layer_flops(model, input_shape)
    return 2 * first + 3 * sum(others)


def layer_flops(model: nn.Module, input_shape: tuple[int, ...]) -> list[int]:
    """Return forward operations of each convolution and linear layer, in the order they run; the rest is not counted.

    One multiply-add is two operations; adding a bias is none, as in the published counts.
    """
    counts: list[int] = []

    def count(layer: nn.Module, inputs: Any, output: Tensor) -> None:
        values_in = layer.weight[0].numel()  # type: ignore[index]  # what one output value is the sum over
        counts.append(2 * output.numel() * values_in)

    run_on_meta(model, input_shape, count, [each for each in model.modules() if isinstance(each, Counted)])
    return counts


def run_on_meta(model: nn.Module, input_shape: tuple[int, ...], hook: Callable[..., None], layers: Iterable[nn.Module]) -> None:
    """Run a network once for one input on the meta device, where there are only shapes, and call the hook behind each of these layers.

    The model itself is left as it is.
    """
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    shapes = {name: torch.empty_like(tensor, device="meta") for name, tensor in tensors.items()}
    one = torch.empty(1, *input_shape, dtype=next(model.parameters()).dtype, device="meta")
    with ExitStack() as hooks, torch.no_grad(), SkipElementwise():
        for each in layers:
            hooks.enter_context(each.register_forward_hook(hook))
        functional_call(model, shapes, one)


class SkipElementwise(TorchFunctionMode):
    """Passes on the first argument of what keeps its shape; on the meta device these would take nine tenths of the time."""

    KEEP_SHAPE = (F.batch_norm, F.relu, F.dropout, Tensor.__iadd__, Tensor.add_)

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run or skip one torch function."""
        return args[0] if func in self.KEEP_SHAPE else func(*args, **(kwargs or {}))
