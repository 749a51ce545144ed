"""Networks that can't be measured, or hardly, each for another reason."""

import sys

from torch import nn, randn

import dlbench


class Overflowing(nn.Linear):
    def forward(self, features):
        return super().forward(features) * 1e38 * 1e38


class Loud(nn.Linear):
    def forward(self, features):
        sys.stdout.write("loud " * 100_000)
        return super().forward(features)


def linear() -> nn.Module:
    return nn.Linear(6, 3)


@dlbench.network(inputs=(6,), classes=3)
def unbuilt() -> nn.Module:
    raise KeyError("depth")


for name, build, given in (
    ("sound", linear, {"inputs": (6,), "classes": 3}),
    ("no_module", object, {"inputs": (6,), "classes": 3}),
    ("misfit", linear, {"inputs": (7,), "classes": 3}),
    ("weightless", nn.ReLU, {"inputs": (6,), "classes": 6}),
    ("overflowing", lambda: Overflowing(6, 3), {"inputs": (6,), "classes": 3}),
    ("other_batch", linear, {"example": lambda batch: randn(batch + 1, 6), "classes": 3}),
    ("no_loss", linear, {"inputs": (6,)}),
    ("many_losses", linear, {"inputs": (6,), "loss": lambda output: output}),
    ("no_optimizer", linear, {"inputs": (6,), "classes": 3, "optimizer": lambda weights: "adam"}),
    ("loud", lambda: Loud(6, 3), {"inputs": (6,), "classes": 3}),
):

    def made(build=build) -> nn.Module:
        return build()

    made.__name__ = name
    dlbench.network(**given)(made)
