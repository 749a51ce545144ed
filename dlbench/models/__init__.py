"""Published networks by name, parameter for parameter as in torchvision, with random weights."""

import math
from collections.abc import Callable
from functools import partial
from typing import Annotated, Literal

import torch
from torch import Tensor, nn

from dlbench import UserDefined
from dlbench.models import convnets
from dlbench.models.convnets import Auxiliary, ConvNorm, Inception
from dlbench.models.language_models import BertHeads

RowName = Literal["alexnet", "vgg11", "vgg13", "vgg16", "vgg19", "resnet18", "resnet34", "resnet50", "resnet101", "resnet152"]
"""Networks whose layers run one behind the other."""
ModelName = Literal[RowName, "inception_v3"]
Model = Annotated[ModelName, UserDefined("network")]
"""One of these, or a network that the user brings."""

MODELS: dict[str, Callable[[], nn.Module]] = {
    "alexnet": convnets.alexnet,
    **{name: partial(convnets.vgg, stages) for name, stages in convnets.VGG_STAGES.items()},
    **{name: partial(convnets.ResNet, *stages) for name, stages in convnets.RESNET_STAGES.items()},
    "inception_v3": Inception,
}
"""As they are trained."""
SIZES: dict[str, int] = {"inception_v3": 299}
"""Height and width of the images that a network takes; of all others 224."""


def build(name: ModelName) -> nn.Module:
    """Return the network on the CPU, in fp32, with random weights from torch's default generator."""
    return with_random_weights(on_meta(MODELS[name]))


def on_meta(make: Callable[[], nn.Module]) -> nn.Module:
    """Return a network of shapes without memory, so that the layers' own initialisation costs nothing."""
    with torch.device("meta"):
        return make()


def with_random_weights(model: nn.Module) -> nn.Module:
    """Give a network of the meta device memory on the CPU and random weights, in place, and return it."""
    model.to_empty(device="cpu")
    initialise(model)
    return model


def for_inference(model: nn.Module) -> nn.Module:
    """Remove the parts of a network that serve training alone, in place, and return it in evaluation mode."""
    for name, part in list(model.named_children()):
        if isinstance(part, Auxiliary | BertHeads):
            delattr(model, name)
    return model.eval()


@torch.no_grad()
def initialise(model: nn.Module) -> None:
    """Fill a network's weights with normal numbers, in place, so that activations keep their scale from layer to layer.

    The standard deviation is sqrt(gain / fan_in). The gain is 2, because a ReLU that follows halves the variance (He et al. 2015,
    https://arxiv.org/abs/1502.01852, eq. 10). It is 1 for the convolutions of a ResNet.
    """
    # Only convolutions before a batch norm have no bias. Those of Inception are in a ConvNorm, where a ReLU comes next; the others are a
    # ResNet's.
    convolutions_before_relu = {each.conv for each in model.modules() if isinstance(each, ConvNorm)}
    for layer in model.modules():
        match layer:
            case nn.Conv2d() | nn.Linear():
                # A ResNet adds the output of each block to its input. With a gain of 2 each block would double the variance, and the 50
                # blocks of ResNet-152 would multiply it by 2^50. Batch norms would not undo that: untrained, they change nothing in
                # inference.
                is_of_resnet = layer.bias is None and layer not in convolutions_before_relu
                gain = 1 if is_of_resnet else 2
                fan_in = layer.weight[0].numel()
                fill_normal(layer.weight, math.sqrt(gain / fan_in))
                if layer.bias is not None:
                    layer.bias.zero_()
            case nn.Embedding():
                fill_normal(layer.weight, EMBEDDED_STD)
            case nn.BatchNorm2d() | nn.LayerNorm() | BertHeads():
                layer.reset_parameters()  # to ones and zeros, which pass activations on


EMBEDDED_STD = 0.02
"""Spread of words and positions, as BERT and GPT-2 have it."""
BLOCK = 2**16 + 1
"""Random numbers drawn for one tensor at most. A prime, so that the rows of a matrix begin at different places of it."""


def fill_normal(weight: Tensor, std: float) -> None:
    """Fill with normal numbers of mean 0, in place; beyond BLOCK values they repeat.

    Drawing each of VGG-16's 138 million numbers takes every process 0.7 s, repeating some takes 0.1 s. Constants would not do, as a GPU
    multiplies them with less power and therefore faster.
    """
    values = weight.view(-1)
    values[:BLOCK].normal_(0, std)
    repeat_block(values)


def repeat_block(values: Tensor) -> None:
    """Repeat the first BLOCK values of a vector throughout it, in place, on any device."""
    if whole := values.numel() // BLOCK:
        block, rest = values[:BLOCK], values[whole * BLOCK :]
        values[: whole * BLOCK].view(whole, BLOCK)[1:].copy_(block)
        rest.copy_(block[: rest.numel()])
