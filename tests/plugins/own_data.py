"""A network and loaders of a user's: some that feed it, and some that go wrong, each in its own way."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import dlbench


@dlbench.network(inputs=(6,), classes=3)
def small():
    return nn.Linear(6, 3)


class Numbered(Dataset):
    """Twenty samples, of which the tenth can't be read."""

    def __init__(self, torn=False):
        self.torn = torn

    def __len__(self):
        return 20

    def __getitem__(self, at):
        if self.torn and at == 9:
            raise FileNotFoundError("there is no image 9.jpg")
        return torch.full((6,), float(at)), at % 3


@dlbench.data
def loaded(batch, workers):
    return DataLoader(Numbered(), batch_size=batch, num_workers=workers)


@dlbench.data
def listed():
    return [(torch.ones(4, 6), torch.zeros(4, dtype=torch.long))]


@dlbench.data
def torn(batch, workers):
    return DataLoader(Numbered(torn=True), batch_size=batch, num_workers=workers)


@dlbench.data
def empty():
    return []


@dlbench.data
def alone(batch):
    return DataLoader(TensorDataset(torch.ones(8, 6)), batch_size=batch)


@dlbench.data
def words(batch):
    return [(["a"] * batch, torch.zeros(batch, dtype=torch.long))]
