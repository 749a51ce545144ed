"""Eight networks as people bring them, with random weights: three of transformers, and five written out."""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  # what everybody calls it
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    ViTConfig,
    ViTForImageClassification,
)

import dlbench


@dlbench.network(inputs=dlbench.Tokens(seq=128, vocabulary=30522), classes=2)
def bert_base() -> nn.Module:
    """Return BERT-base as a classifier of sentences."""
    return BertForSequenceClassification(BertConfig())


def tokens(batch: int) -> dict[str, Tensor]:
    """Return sentences whose next tokens are to be told."""
    ids = torch.randint(50257, (batch, 64))
    return {"input_ids": ids, "labels": ids}


@dlbench.network(example=tokens, optimizer=torch.optim.AdamW)
def gpt2_two_layers() -> nn.Module:
    """Return a language model of two of the twelve layers of GPT-2; its output has the loss."""
    return GPT2LMHeadModel(GPT2Config(n_layer=2, use_cache=False))


@dlbench.network(inputs=(3, 224, 224), classes=1000)
def vit_b_16() -> nn.Module:
    """Return ViT-B/16 as a classifier of images."""
    return ViTForImageClassification(ViTConfig(num_labels=1000))


class Inverted(nn.Sequential):
    """Inverted residual of MobileNetV2: wider by a factor, a convolution channel by channel, narrower again."""

    def __init__(self, inputs: int, outputs: int, stride: int, factor: int) -> None:
        wide = inputs * factor
        widen = conv(inputs, wide, 1) if factor > 1 else []
        super().__init__(*widen, *conv(wide, wide, 3, stride, groups=wide), *conv(wide, outputs, 1)[:2])
        self.is_residual = stride == 1 and inputs == outputs

    def forward(self, values: Tensor) -> Tensor:
        """Add what it computes to what it gets, where both have the same shape."""
        computed = super().forward(values)
        return values + computed if self.is_residual else computed


def conv(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """Return a convolution, its normalisation and its activation."""
    layer = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [layer, nn.BatchNorm2d(outputs), nn.ReLU6(inplace=True)]


@dlbench.network(inputs=(3, 224, 224), classes=1000)
def mobilenet_v2() -> nn.Module:
    """Return MobileNetV2, whose convolutions are mostly grouped."""
    layers, inputs = conv(3, 32, 3, 2), 32
    stages = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for factor, outputs, blocks, stride in stages:
        for block in range(blocks):
            layers.append(Inverted(inputs, outputs, 1 if block else stride, factor))
            inputs = outputs
    return nn.Sequential(*layers, *conv(320, 1280, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(1280, 1000))


class UNet(nn.Module):
    """U-Net of three levels."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        sizes = (1, width, 2 * width, 4 * width)
        self.down = nn.ModuleList(nn.Sequential(*conv(a, b, 3), *conv(b, b, 3)) for a, b in pairwise(sizes))
        self.up = nn.ModuleList(nn.ConvTranspose2d(each, each // 2, 2, 2) for each in sizes[:1:-1])
        self.join = nn.ModuleList(nn.Sequential(*conv(each, each // 2, 3)) for each in sizes[:1:-1])
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, images: Tensor) -> Tensor:
        """Return a logit for each pixel."""
        levels: list[Tensor] = []
        for down in self.down:
            levels.append(down(F.max_pool2d(levels[-1], 2) if levels else images))
        values = levels.pop()
        for up, join in zip(self.up, self.join, strict=True):
            values = join(torch.cat((levels.pop(), up(values)), 1))
        return self.head(values)


def images_and_masks(batch: int) -> tuple[Tensor, Tensor]:
    """Return images, and which of their pixels belong to an object."""
    return torch.randn(batch, 1, 128, 128), torch.randint(2, (batch, 1, 128, 128)).float()


@dlbench.network(example=images_and_masks, loss=nn.BCEWithLogitsLoss())
def unet() -> nn.Module:
    """Return a U-Net that separates objects from what is behind them."""
    return UNet()


class Tagger(nn.Module):
    """LSTM of two layers over embedded tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.lstm, self.head = nn.Embedding(10_000, 128), nn.LSTM(128, 256, 2, batch_first=True), nn.Linear(256, 5)

    def forward(self, ids: Tensor) -> Tensor:
        """Return logits of the whole sentence."""
        _, (hidden, _) = self.lstm(self.embedding(ids))
        return self.head(hidden[-1])


@dlbench.network(inputs=dlbench.Tokens(seq=64, vocabulary=10_000), classes=5)
def lstm() -> nn.Module:
    """Return a classifier of sentences that reads token by token."""
    return Tagger()


class GraphNetwork(nn.Module):
    """Graph convolutions: each node takes the mean of its neighbours."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(inputs, outputs) for inputs, outputs in ((64, 256), (256, 256), (256, 7)))

    def forward(self, adjacency: Tensor, features: Tensor) -> Tensor:
        """Return logits of each node, (batch, classes, nodes)."""
        weights = adjacency / adjacency.sum(-1, keepdim=True).clamp(min=1)
        for layer in self.layers:
            features = weights @ layer(features.relu())
        return features.mT


def graphs(batch: int) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Return graphs of 256 nodes, and a class for each node."""
    return ((torch.rand(batch, 256, 256) < 0.05).float(), torch.randn(batch, 256, 64)), torch.randint(7, (batch, 256))


@dlbench.network(example=graphs, loss=nn.CrossEntropyLoss())
def graph() -> nn.Module:
    """Return a graph network on adjacency matrices."""
    return GraphNetwork()


class TwoHeads(nn.Module):
    """One trunk, and two answers."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(*conv(3, 32, 3, 2), *conv(32, 64, 3, 2), *conv(64, 128, 3, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.kinds, self.boxes = nn.Linear(128, 20), nn.Linear(128, 4)

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        """Return what is in an image, and where."""
        values = self.trunk(images)
        return {"kinds": self.kinds(values), "boxes": self.boxes(values)}


def objects(batch: int) -> tuple[Tensor, dict[str, Tensor]]:
    """Return images with one object each, and what and where that is."""
    return torch.randn(batch, 3, 96, 96), {"kinds": torch.randint(20, (batch,)), "boxes": torch.rand(batch, 4)}


def of_both(outputs: dict[str, Tensor], targets: dict[str, Tensor]) -> Tensor:
    """Return the sum of both losses."""
    return F.cross_entropy(outputs["kinds"], targets["kinds"]) + F.smooth_l1_loss(outputs["boxes"], targets["boxes"])


@dlbench.network(example=objects, loss=of_both)
def two_heads() -> nn.Module:
    """Return a network whose output is a dictionary."""
    return TwoHeads()
