"""Networks of every kind that a user may bring, each trained in milliseconds."""

import torch
from torch import nn

import dlbench
from dlbench.harness.worker.checking import correctness

correctness.BUDGET_S = 60.0  # a busy machine may take long to set up


@dlbench.network(inputs=(3, 8, 8), classes=10)
def pictures() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 6 * 6, 10))


class Words(nn.Module):
    """Token ids to a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(50, 8), nn.Linear(8, 5)

    def forward(self, ids):
        hidden = self.table(ids).mean(1)
        return {"hidden": hidden, "logits": self.head(hidden)}


@dlbench.network(inputs=dlbench.Tokens(seq=6, vocabulary=50), classes=5)
def words() -> nn.Module:
    return Words()


class Pair(nn.Module):
    """Two inputs to a tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(4, 3), nn.Linear(5, 3)

    def forward(self, left, right):
        return self.left(left), self.right(right)


@dlbench.network(
    example=lambda batch: (torch.randn(batch, 4), torch.randn(batch, 5)),
    loss=lambda outputs: (outputs[0] - outputs[1]).square().mean(),
    optimizer=lambda weights: torch.optim.RMSprop(weights, lr=0.1),
)
def pair() -> nn.Module:
    return Pair()


class Named(nn.Linear):
    """Inputs by name to a dictionary with a loss, as those of transformers."""

    def forward(self, features, labels):
        logits = super().forward(features)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


@dlbench.network(example=lambda batch: {"features": torch.randn(batch, 4), "labels": torch.zeros(batch, dtype=torch.long)})
def named() -> nn.Module:
    return Named(4, 2)


@dlbench.network(example=lambda batch: (torch.randn(batch, 1, 8, 8), torch.rand(batch, 1, 8, 8)), loss=nn.MSELoss())
def masks() -> nn.Module:
    return nn.Conv2d(1, 1, 3, padding=1)


@dlbench.network(inputs=(6,), classes=3)
def dropping() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.Dropout(), nn.Linear(8, 3))


class Counting(nn.Linear):
    """Gives another answer each time."""

    calls = 0

    def forward(self, features):
        self.calls += 1
        return super().forward(features) * self.calls


@dlbench.network(inputs=(6,), classes=3)
def counting() -> nn.Module:
    return Counting(6, 3)
