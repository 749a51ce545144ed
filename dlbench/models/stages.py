"""Stages of a network, for pipelines over several devices."""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice, pairwise

from torch import nn

from dlbench.models.flops import Counted, layer_flops


def stages(network: nn.Module, input_shape: tuple[int, ...], number: int) -> list[nn.Sequential]:
    """Cut into stages of consecutive layers, so that the largest number of training operations is as small as possible.

    Each stage is a row of layers, as `layers` returns them. Raises ValueError where there are fewer layers than stages.
    """
    row = layers(network)
    if len(row) < number:
        raise ValueError(f"the network has {len(row)} layers, too few for {number} ranks; take {len(row)} at most")
    begins = cut(train_costs(row, layer_flops(network, input_shape)), number)
    return [nn.Sequential(*row[begin:end]) for begin, end in pairwise((*begins, len(row)))]


def layers(network: nn.Module) -> list[nn.Sequential]:
    """Return the network as layers that run one after the other.

    Each begins with a convolution, a linear layer or a residual block, so that no stage begins with an operation in place, which would
    overwrite its input. The network's children must run in the order of their definition; a flatten goes before its first linear layer.
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
        yield from _opened(child) if isinstance(child, nn.Sequential) else (child,)


def train_costs(row: Sequence[nn.Module], counts: Sequence[int]) -> list[int]:
    """Return the operations that each layer takes in training, from those of the forward passes of all that is counted in them.

    The first needs no gradient of its input, as in `train_flops`.
    """
    remaining = iter(counts)
    forward = [sum(islice(remaining, sum(isinstance(each, Counted) for each in layer.modules()))) for layer in row]
    return [3 * forward[0] - counts[0], *(3 * each for each in forward[1:])]


def cut(costs: Sequence[int], parts: int) -> tuple[int, ...]:
    """Return where each of so many consecutive parts begins, so that the costliest costs as little as possible."""

    @cache
    def best(end: int, parts: int) -> tuple[int, tuple[int, ...]]:
        """Cut what is in front of ``end``: the cost of the costliest part, and where the parts begin."""
        if parts == 1:
            return sum(costs[:end]), (0,)
        earlier = ((begin, *best(begin, parts - 1)) for begin in range(parts - 1, end))
        return min((max(cost, sum(costs[begin:end])), (*begins, begin)) for begin, cost, begins in earlier)

    return best(len(costs), parts)[1]
