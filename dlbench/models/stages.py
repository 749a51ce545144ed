"""A network cut into stages, for devices that have a part of it each."""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice, pairwise

from torch import nn

from dlbench.models.flops import layer_flops

Counted = nn.Conv2d | nn.Linear
"""The layers whose operations are counted."""


def stages(network: nn.Module, input_shape: tuple[int, ...], number: int) -> list[nn.Sequential]:
    """Cut into stages of consecutive layers, so that the one with the most training operations has as few as can be.

    Each stage is a row of layers, as `layers` returns them. Raises ValueError where there are fewer layers than stages.
    """
    row = layers(network)
    if len(row) < number:
        raise ValueError(f"the network has {len(row)} layers, too few for {number} ranks; take {len(row)} at most")
    begins = cut(train_costs(row, layer_flops(network, input_shape)), number)
    return [nn.Sequential(*row[begin:end]) for begin, end in pairwise((*begins, len(row)))]


def layers(network: nn.Module) -> list[nn.Sequential]:
    """Return the network as layers that run one after the other.

    Each begins with a convolution, a linear layer or a residual block, and has all that follows up to the next of these. So no stage
    begins with an operation in place, which would overwrite what it was sent. It takes a network whose children run in the order in
    which they are defined; what it flattens on the way is flattened in front of its first linear layer.
    """
    found: list[nn.Sequential] = []
    flat = False
    for module in _opened(network):
        if not found or any(isinstance(each, Counted) for each in module.modules()):
            if isinstance(module, nn.Linear) and found and not flat:
                found[-1].append(nn.Flatten())
            found.append(nn.Sequential())
        flat = flat or isinstance(module, nn.Flatten | nn.Linear)
        found[-1].append(module)
    return found


def _opened(module: nn.Module) -> Iterator[nn.Module]:
    for child in module.children():
        if isinstance(child, nn.Sequential):
            yield from _opened(child)
        else:
            yield child


def train_costs(row: Sequence[nn.Module], counts: Sequence[int]) -> list[int]:
    """Return the operations that each layer takes in training, from those of the forward passes of all that is counted in them.

    The first needs no gradient of its input, as in `train_flops`.
    """
    remaining = iter(counts)
    forward = [sum(islice(remaining, sum(isinstance(each, Counted) for each in layer.modules()))) for layer in row]
    return [3 * forward[0] - counts[0], *(3 * each for each in forward[1:])]


def cut(costs: Sequence[int], parts: int) -> tuple[int, ...]:
    """Return where each of so many non-empty consecutive parts begins, such that the costliest costs as little as can be."""

    @cache
    def best(end: int, parts: int) -> tuple[int, tuple[int, ...]]:
        """Cut what is in front of ``end``: the cost of the costliest part, and where the parts begin."""
        if parts == 1:
            return sum(costs[:end]), (0,)
        options = []
        for begin in range(parts - 1, end):
            cost, begins = best(begin, parts - 1)
            options.append((max(cost, sum(costs[begin:end])), (*begins, begin)))
        return min(options)

    return best(len(costs), parts)[1]
