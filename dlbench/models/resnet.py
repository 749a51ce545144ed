"""ResNet, from "Deep residual learning for image recognition".

He et al. 2015, https://arxiv.org/abs/1512.03385, table 1. The bottleneck strides in its 3x3 convolution, not in the
first 1x1 (known as v1.5, https://arxiv.org/abs/1706.02677 section 5.1 footnote); with torchvision's module names, so
that its state dicts load.
"""

import torch
from torch import Tensor, nn


def downsample(channels: int, out: int, stride: int) -> nn.Sequential | None:
    """Return the projection that fits a shortcut to its block's output, or None where it fits as it is."""
    if stride == 1 and channels == out:
        return None
    return nn.Sequential(nn.Conv2d(channels, out, kernel_size=1, stride=stride, bias=False), nn.BatchNorm2d(out))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut around them: (batch, channels, h, w) to (batch, width, h / stride, w / stride)."""

    expansion = 1

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, kernel_size=3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, kernel_size=3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample(channels, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Return relu(residual(x) + shortcut(x))."""
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.bn2(self.conv2(x))
        x += shortcut
        out: Tensor = self.relu(x)
        return out


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolution and a shortcut around them: (batch, channels, h, w) to (batch, 4 width, h / stride, w / stride)."""

    expansion = 4

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, kernel_size=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, kernel_size=3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, width * self.expansion, kernel_size=1, bias=False)
        self.bn3 = nn.BatchNorm2d(width * self.expansion)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample(channels, width * self.expansion, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Return relu(residual(x) + shortcut(x))."""
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        x = self.bn3(self.conv3(x))
        x += shortcut
        out: Tensor = self.relu(x)
        return out


Block = type[BasicBlock] | type[Bottleneck]

STAGES: dict[str, tuple[Block, tuple[int, int, int, int]]] = {
    "resnet18": (BasicBlock, (2, 2, 2, 2)),
    "resnet34": (BasicBlock, (3, 4, 6, 3)),
    "resnet50": (Bottleneck, (3, 4, 6, 3)),
    "resnet101": (Bottleneck, (3, 4, 23, 3)),
    "resnet152": (Bottleneck, (3, 8, 36, 3)),
}
"""Kind of block, and blocks in each stage."""


class ResNet(nn.Module):
    """Four stages of residual blocks: (batch, 3, 224, 224) images to (batch, 1000) logits."""

    def __init__(self, block: Block, stages: tuple[int, int, int, int]) -> None:
        super().__init__()
        e = block.expansion
        self.conv1 = nn.Conv2d(3, 64, kernel_size=7, stride=2, padding=3, bias=False)  # 64 x 112 x 112
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)  # 64 x 56 x 56
        self.layer1 = stage(block, 64, 64, stages[0], stride=1)  # 64 e x 56 x 56
        self.layer2 = stage(block, 64 * e, 128, stages[1], stride=2)  # 128 e x 28 x 28
        self.layer3 = stage(block, 128 * e, 256, stages[2], stride=2)  # 256 e x 14 x 14
        self.layer4 = stage(block, 256 * e, 512, stages[3], stride=2)  # 512 e x 7 x 7
        self.avgpool = nn.AdaptiveAvgPool2d(1)  # 512 e x 1 x 1
        self.fc = nn.Linear(512 * e, 1000)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        logits: Tensor = self.fc(torch.flatten(self.avgpool(x), 1))
        return logits


def stage(block: Block, channels: int, width: int, blocks: int, stride: int) -> nn.Sequential:
    """Return blocks in a row; the first changes the number of channels and the size."""
    first = block(channels, width, stride)
    return nn.Sequential(first, *(block(width * block.expansion, width, 1) for _ in range(1, blocks)))
