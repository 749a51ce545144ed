"""VGG, from "Very deep convolutional networks for large-scale image recognition".

Simonyan and Zisserman 2014, https://arxiv.org/abs/1409.1556, table 1: columns A, B, D and E, without batch norm; with
torchvision's module names, so that its state dicts load.
"""

import torch
from torch import Tensor, nn

STAGES = {
    "vgg11": (1, 1, 2, 2, 2),  # A
    "vgg13": (2, 2, 2, 2, 2),  # B
    "vgg16": (2, 2, 3, 3, 3),  # D
    "vgg19": (2, 2, 4, 4, 4),  # E
}
"""Convolutions in each stage. With the three linear layers they make the number in the name."""

CHANNELS = (64, 128, 256, 512, 512)
"""Width of each stage. Each ends by halving height and width: 224, 112, 56, 28, 14, and 7 at the end."""


class VGG(nn.Module):
    """3x3 convolutions and three linear layers: (batch, 3, 224, 224) images to (batch, 1000) logits."""

    def __init__(self, stages: tuple[int, ...]) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for convolutions, width in zip(stages, CHANNELS, strict=True):
            for _ in range(convolutions):
                layers += [nn.Conv2d(channels, width, kernel_size=3, padding=1), nn.ReLU(inplace=True)]
                channels = width
            layers += [nn.MaxPool2d(kernel_size=2, stride=2)]
        self.features = nn.Sequential(*layers)  # 512 x 7 x 7
        self.avgpool = nn.AdaptiveAvgPool2d(7)  # changes nothing at 224 x 224; lets other sizes in
        self.classifier = nn.Sequential(
            nn.Linear(512 * 7 * 7, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(4096, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(4096, 1000),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return logits."""
        x = self.avgpool(self.features(images))  # (batch, 512, 7, 7)
        logits: Tensor = self.classifier(torch.flatten(x, 1))  # (batch, 25088) to (batch, 1000)
        return logits
