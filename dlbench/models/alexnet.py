"""AlexNet, the single-column network of "One weird trick for parallelizing convolutional neural networks".

Krizhevsky 2014, https://arxiv.org/abs/1404.5997; without local response normalisation, as torchvision has it, and
with torchvision's module names, so that its state dicts load.
"""

import torch
from torch import Tensor, nn


class AlexNet(nn.Module):
    """Five convolutions and three linear layers: (batch, 3, 224, 224) images to (batch, 1000) logits."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(  # 3 x 224 x 224
            nn.Conv2d(3, 64, kernel_size=11, stride=4, padding=2),  # 64 x 55 x 55
            nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=3, stride=2),  # 64 x 27 x 27
            nn.Conv2d(64, 192, kernel_size=5, padding=2),  # 192 x 27 x 27
            nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=3, stride=2),  # 192 x 13 x 13
            nn.Conv2d(192, 384, kernel_size=3, padding=1),  # 384 x 13 x 13
            nn.ReLU(inplace=True),
            nn.Conv2d(384, 256, kernel_size=3, padding=1),  # 256 x 13 x 13
            nn.ReLU(inplace=True),
            nn.Conv2d(256, 256, kernel_size=3, padding=1),  # 256 x 13 x 13
            nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=3, stride=2),  # 256 x 6 x 6
        )
        self.avgpool = nn.AdaptiveAvgPool2d(6)  # changes nothing at 224 x 224; lets other sizes in
        self.classifier = nn.Sequential(
            nn.Dropout(),
            nn.Linear(256 * 6 * 6, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(4096, 4096),
            nn.ReLU(inplace=True),
            nn.Linear(4096, 1000),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return logits."""
        x = self.avgpool(self.features(images))  # (batch, 256, 6, 6)
        logits: Tensor = self.classifier(torch.flatten(x, 1))  # (batch, 9216) to (batch, 1000)
        return logits
