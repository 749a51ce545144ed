"""A small network for pictures and the loader that feeds it: what a step waits for is decoding."""

import bz2
from functools import cache

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import dlbench

SIDE = 64
PICTURES = 128


@dlbench.network(inputs=(3, SIDE, SIDE), classes=10, optimizer=lambda weights: torch.optim.AdamW(weights, weight_decay=0.05))
def small_cnn() -> nn.Module:
    """Two convolutions and a classifier."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )


@cache
def compressed() -> tuple[bytes, ...]:
    """Return random pictures as bytes that take a millisecond to decode, as those of a small JPEG do."""
    drawn = torch.randint(256, (PICTURES, 3, SIDE, SIDE), dtype=torch.uint8)
    return tuple(bz2.compress(bytes(each.flatten().tolist())) for each in drawn)


class Pictures(Dataset[tuple[torch.Tensor, int]]):
    """Decodes each picture when it is asked for."""

    def __len__(self) -> int:
        return PICTURES

    def __getitem__(self, at: int) -> tuple[torch.Tensor, int]:
        pixels = torch.frombuffer(bytearray(bz2.decompress(compressed()[at])), dtype=torch.uint8)
        return pixels.view(3, SIDE, SIDE).float() / 255, at % 10


@dlbench.data
def pictures(batch: int, workers: int) -> DataLoader[tuple[torch.Tensor, int]]:
    """Return shuffled batches of them."""
    compressed()  # before there are workers, so that these share it; importing the file computes nothing, and so happens once a round
    return DataLoader(Pictures(), batch_size=batch, num_workers=workers, shuffle=True, persistent_workers=workers > 0)
