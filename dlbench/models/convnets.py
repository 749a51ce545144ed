"""Published image classifiers: AlexNet, VGG, ResNet and Inception, with torchvision's module names, so that its state dicts load."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  # what everybody calls it

ALEXNET = ((3, 64, 11, 4, True), (64, 192, 5, 1, True), (192, 384, 3, 1, False), (384, 256, 3, 1, False), (256, 256, 3, 1, True))
"""Convolutions: channels, filters, kernel, stride, and whether a pooling halves height and width behind it."""


class PlainNetwork(nn.Module):
    """Convolutions one behind the other and three linear layers: (batch, 3, 224, 224) images to (batch, 1000) logits."""

    def __init__(self, features: Sequence[nn.Module], size: int, classifier: Sequence[nn.Module]) -> None:
        super().__init__()
        self.features = nn.Sequential(*features)
        self.avgpool = nn.AdaptiveAvgPool2d(size)  # changes nothing at 224 x 224; lets other sizes in
        self.classifier = nn.Sequential(*classifier)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits."""
        logits: Tensor = self.classifier(torch.flatten(self.avgpool(self.features(images)), 1))
        return logits


def alexnet() -> PlainNetwork:
    """Return the single-column network of Krizhevsky 2014, https://arxiv.org/abs/1404.5997.

    Without local response normalisation, as in torchvision.
    """
    layers: list[nn.Module] = []
    for channels, filters, kernel, stride, pooled in ALEXNET:
        layers += [nn.Conv2d(channels, filters, kernel, stride, 2 if kernel > 3 else 1), nn.ReLU(inplace=True)]
        layers += [nn.MaxPool2d(kernel_size=3, stride=2)] if pooled else []
    first, second, last = nn.Linear(256 * 6 * 6, 4096), nn.Linear(4096, 4096), nn.Linear(4096, 1000)
    classifier = [nn.Dropout(), first, nn.ReLU(inplace=True), nn.Dropout(), second, nn.ReLU(inplace=True), last]
    return PlainNetwork(layers, 6, classifier)


VGG_STAGES = {
    "vgg11": (1, 1, 2, 2, 2),  # A
    "vgg13": (2, 2, 2, 2, 2),  # B
    "vgg16": (2, 2, 3, 3, 3),  # D
    "vgg19": (2, 2, 4, 4, 4),  # E
}
"""Convolutions in each stage. With the three linear layers they make the number in the name."""

VGG_CHANNELS = (64, 128, 256, 512, 512)
"""Width of each stage. Each ends by halving height and width: 224, 112, 56, 28, 14, and 7 at the end."""


def vgg(stages: tuple[int, ...]) -> PlainNetwork:
    """Return a network of 3x3 convolutions, without batch norm.

    Simonyan and Zisserman 2014, https://arxiv.org/abs/1409.1556, table 1: columns A, B, D and E.
    """
    layers: list[nn.Module] = []
    channels = 3
    for convolutions, width in zip(stages, VGG_CHANNELS, strict=True):
        for _ in range(convolutions):
            layers += [nn.Conv2d(channels, width, kernel_size=3, padding=1), nn.ReLU(inplace=True)]
            channels = width
        layers += [nn.MaxPool2d(kernel_size=2, stride=2)]
    first, second, last = nn.Linear(512 * 7 * 7, 4096), nn.Linear(4096, 4096), nn.Linear(4096, 1000)
    classifier = [first, nn.ReLU(inplace=True), nn.Dropout(), second, nn.ReLU(inplace=True), nn.Dropout(), last]
    return PlainNetwork(layers, 7, classifier)


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions, or as a bottleneck 1x1, 3x3 and 1x1, and a shortcut around them.

    (batch, channels, h, w) to (batch, width or 4 width, h / stride, w / stride).
    """

    def __init__(self, channels: int, width: int, stride: int, *, bottleneck: bool) -> None:
        super().__init__()
        self.bottleneck, out = bottleneck, (4 if bottleneck else 1) * width
        if bottleneck:
            self.conv1, self.bn1 = _normalised(channels, width, 1)
            self.conv2, self.bn2 = _normalised(width, width, 3, stride)
            self.conv3, self.bn3 = _normalised(width, out, 1)
        else:
            self.conv1, self.bn1 = _normalised(channels, width, 3, stride)
            self.conv2, self.bn2 = _normalised(width, width, 3)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None if stride == 1 and channels == out else nn.Sequential(*_normalised(channels, out, 1, stride))

    def forward(self, x: Tensor) -> Tensor:
        """Return relu(residual(x) + shortcut(x))."""
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.bn2(self.conv2(x))
        if self.bottleneck:
            x = self.bn3(self.conv3(self.relu(x)))
        x += shortcut
        out: Tensor = self.relu(x)
        return out


def _normalised(channels: int, filters: int, kernel: int, stride: int = 1) -> tuple[nn.Conv2d, nn.BatchNorm2d]:
    return nn.Conv2d(channels, filters, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(filters)


RESNET_STAGES: dict[str, tuple[bool, tuple[int, int, int, int]]] = {
    "resnet18": (False, (2, 2, 2, 2)),
    "resnet34": (False, (3, 4, 6, 3)),
    "resnet50": (True, (3, 4, 6, 3)),
    "resnet101": (True, (3, 4, 23, 3)),
    "resnet152": (True, (3, 8, 36, 3)),
}
"""Kind of block, bottleneck or not, and blocks in each stage."""


class ResNet(nn.Module):
    """Four stages of residual blocks: (batch, 3, 224, 224) images to (batch, 1000) logits.

    He et al. 2015, https://arxiv.org/abs/1512.03385, table 1. The bottleneck strides in its 3x3 convolution, not in the first 1x1 (known as
    v1.5, https://arxiv.org/abs/1706.02677 section 5.1 footnote).
    """

    def __init__(self, bottleneck: bool, blocks: tuple[int, int, int, int]) -> None:
        super().__init__()
        self.conv1, self.bn1 = _normalised(3, 64, 7, 2)  # 64 x 112 x 112
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)  # 64 x 56 x 56
        channels = 64
        for at, number in enumerate(blocks):
            width = 64 << at  # 56, 28, 14 and 7 pixels each way
            row = []
            for stride in (2 if at else 1, *[1] * (number - 1)):
                row.append(ResidualBlock(channels, width, stride, bottleneck=bottleneck))
                channels = 4 * width if bottleneck else width
            self.add_module(f"layer{at + 1}", nn.Sequential(*row))
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(channels, 1000)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        for stage in ("layer1", "layer2", "layer3", "layer4"):
            x = getattr(self, stage)(x)
        logits: Tensor = self.fc(torch.flatten(self.avgpool(x), 1))
        return logits


AT_35 = "branch1x1 64@1 / branch5x5 48@1 64@5 / branch3x3dbl 64@1 96@3 96@3 / branch_pool {0}@1"
AT_17 = "branch1x1 192@1 / branch7x7 {0}@1 {0}@1x7 192@7x1 / branch7x7dbl {0}@1 {0}@7x1 {0}@1x7 {0}@7x1 192@1x7 / branch_pool 192@1"
AT_8 = "branch1x1 320@1 / branch3x3 384@1 384@1x3+3x1 / branch3x3dbl 448@1 384@3 384@1x3+3x1 / branch_pool 192@1"
MIXED = {
    **{f"Mixed_5{letter}": AT_35.format(pooled) for letter, pooled in zip("bcd", (32, 64, 64), strict=True)},
    "Mixed_6a": "branch3x3 384@3 / branch3x3dbl 64@1 96@3 96@3",
    **{f"Mixed_6{letter}": AT_17.format(inner) for letter, inner in zip("bcde", (128, 160, 160, 192), strict=True)},
    "Mixed_7a": "branch3x3 192@1 320@3 / branch7x7x3 192@1 192@1x7 192@7x1 192@3",
    **{f"Mixed_7{letter}": AT_8 for letter in "bc"},
}
"""Branches of each module, figures 5 to 7: a name, and convolutions one behind the other, filters@kernel; two kernels are side by side."""


class ConvNorm(nn.Module):
    """Convolution, batch normalisation and ReLU: (batch, channels, h, w) to (batch, filters, …)."""

    def __init__(self, channels: int, filters: int, kernel: str, stride: int = 1, *, padded: bool = False) -> None:
        super().__init__()
        size = tuple(map(int, kernel.split("x") * 2))[:2]  # 3 is 3x3
        padding = tuple(each // 2 for each in size) if padded else 0
        self.conv = nn.Conv2d(channels, filters, size, stride, padding, bias=False)  # type: ignore[arg-type]  # they are two
        self.bn = nn.BatchNorm2d(filters, eps=0.001)

    def forward(self, x: Tensor) -> Tensor:
        """Return relu(bn(conv(x)))."""
        return F.relu(self.bn(self.conv(x)), inplace=True)


class Mixed(nn.Module):
    """An Inception module, of branches side by side: (batch, channels, h, w) to (batch, `channels`, …), the outputs of all branches.

    A branch is a row of convolutions; the one called branch_pool convolves an average of neighbours. A module without that one halves
    height and width, each branch by its last convolution, and its output has a maximum of the input's neighbours as well.
    """

    def __init__(self, channels: int, branches: str) -> None:
        """Make the branches of a text as in `MIXED`."""
        super().__init__()
        self.halves = "branch_pool" not in branches
        self.rows: list[list[list[str]]] = []
        """For each branch its steps in order. A step is the names of convolutions that get the same input, usually of one."""
        self.channels = channels if self.halves else 0
        """Channels of the output: a module that halves hands on its input's channels, too."""
        for branch in branches.split("/"):
            name, *convolutions = branch.split()
            self.channels += self._add_branch(name, convolutions, channels)

    def _add_branch(self, branch: str, convolutions: Sequence[str], channels: int) -> int:
        """Add a branch's convolutions as submodules, and return the channels of the branch's output.

        ``convolutions``: texts such as ``192@1x7``, filters and kernel. ``channels``: those of the branch's input.
        """
        row: list[list[str]] = []
        for at, convolution in enumerate(convolutions, 1):
            filters, _, kernels = convolution.partition("@")
            name = f"{branch}_{at}" if len(convolutions) > 1 else branch  # as torchvision names it
            side_by_side = {name: kernels}
            if "+" in kernels:  # two convolutions of the same input
                first_kernel, second_kernel = kernels.split("+")
                side_by_side = {f"{name}a": first_kernel, f"{name}b": second_kernel}
            # In a module that halves height and width, the last convolution of each branch does so, and without padding.
            is_halving = self.halves and at == len(convolutions)
            for module_name, kernel in side_by_side.items():
                self.add_module(module_name, ConvNorm(channels, int(filters), kernel, 2 if is_halving else 1, padded=not is_halving))
            row.append(list(side_by_side))
            channels = int(filters) * len(side_by_side)  # of the next convolution's input, and in the end of the branch's output
        self.rows.append(row)
        return channels

    def forward(self, x: Tensor) -> Tensor:
        """Return the channels of all branches, one behind the other."""
        outputs = []
        for row in self.rows:
            y = F.avg_pool2d(x, 3, 1, 1) if row == [["branch_pool"]] else x
            for names in row:
                parallel = [getattr(self, each)(y) for each in names]
                y = torch.cat(parallel, 1) if len(parallel) > 1 else parallel[0]
            outputs.append(y)
        if self.halves:
            outputs.append(F.max_pool2d(x, 3, 2))
        return torch.cat(outputs, 1)


class Auxiliary(nn.Sequential):
    """The head of training, behind the 17 x 17 modules: (batch, 768, 17, 17) to (batch, 1000) logits."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.pool = nn.AvgPool2d(5, 3)  # 5 x 5
        self.conv0, self.conv1 = ConvNorm(channels, 128, "1"), ConvNorm(128, 768, "5")  # 1 x 1
        self.flatten, self.fc = nn.Flatten(), nn.Linear(768, 1000)


class Inception(nn.Module):
    """Modules of branches: (batch, 3, 299, 299) images to (batch, 1000) logits, and in training to those of its auxiliary head, too.

    Inception-v3 of Szegedy et al. 2015, https://arxiv.org/abs/1512.00567, table 1 and figures 5 to 8, with the head of section 4.
    """

    def __init__(self) -> None:
        super().__init__()
        # `forward` runs the layers in the order in which they are added here.
        self.Conv2d_1a_3x3 = ConvNorm(3, 32, "3", 2)  # 149 x 149
        self.Conv2d_2a_3x3 = ConvNorm(32, 32, "3")
        self.Conv2d_2b_3x3 = ConvNorm(32, 64, "3", padded=True)  # 147 x 147
        self.maxpool1 = nn.MaxPool2d(3, 2)  # 73 x 73
        self.Conv2d_3b_1x1, self.Conv2d_4a_3x3 = ConvNorm(64, 80, "1"), ConvNorm(80, 192, "3")  # 71 x 71
        self.maxpool2 = nn.MaxPool2d(3, 2)  # 35 x 35
        channels = 192
        for name, branches in MIXED.items():
            if name == "Mixed_7a":  # the auxiliary head gets the output of the module before, Mixed_6e
                self.AuxLogits = Auxiliary(channels)
            mixed = Mixed(channels, branches)
            self.add_module(name, mixed)
            channels = mixed.channels  # 288 behind Mixed_5d, 768 behind Mixed_6e and 2048 behind Mixed_7c
        self.avgpool, self.flatten = nn.AdaptiveAvgPool2d(1), nn.Flatten()
        self.dropout, self.fc = nn.Dropout(), nn.Linear(channels, 1000)

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Return logits."""
        if self.training and len(x) == 1:
            raise ValueError("Inception-v3 trains batches of 2 or more, as its auxiliary head normalises a single number a channel")
        logits: list[Tensor] = []
        for part in self.children():
            if not isinstance(part, Auxiliary):
                x = part(x)
            elif self.training:
                logits.append(part(x))
        return (x, *logits) if logits else x
