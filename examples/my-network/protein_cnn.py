"""A small network of one-dimensional convolutions over one-hot amino acids: is batch 64 worth more than batch 8 to it?"""

import torch
from torch import nn

import dlbench

AMINO_ACIDS, WINDOW, CLASSES = 21, 512, 2
"""Twenty and one for unknown; residues in a window; binding or not."""


@dlbench.network(inputs=(AMINO_ACIDS, WINDOW), classes=CLASSES, optimizer=lambda weights: torch.optim.Adam(weights, lr=1e-3))
def protein_cnn() -> nn.Module:
    """Three convolutions, the strongest response of each filter, and a classifier."""
    return nn.Sequential(
        nn.Conv1d(AMINO_ACIDS, 64, 9, padding=4),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.Conv1d(64, 128, 7, padding=3),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.Conv1d(128, 128, 5, padding=2),
        nn.ReLU(),
        nn.AdaptiveMaxPool1d(1),
        nn.Flatten(),
        nn.Linear(128, CLASSES),
    )
