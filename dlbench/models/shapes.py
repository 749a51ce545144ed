"""Networks without their numbers: on the meta device, where there are only shapes, a call takes milliseconds and no memory."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map


def tensors_of(tree: Any) -> tuple[Tensor, ...]:
    """Return the tensors in nested tuples and dictionaries, in order."""
    return tuple(each for each in tree_leaves(tree) if isinstance(each, Tensor))


@dataclass(frozen=True, slots=True)
class Shapes:
    """A network and what one call of it gets, all of it on the meta device."""

    network: nn.Module
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]

    @classmethod
    def of(cls, network: nn.Module, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Self:
        """Copy them, in whatever containers the tensors are.

        A copy, as a network may keep tensors of a call, and a recurrent layer has its weights in a list that ``functional_call`` misses.
        """
        network = getattr(network, "_orig_mod", network)  # what torch.compile wraps, which would compile all of this, too
        held = tensors_of([vars(each) for each in network.modules()])
        # Of tensors that deepcopy finds here it takes these copies instead of making one, which would take their memory again.
        copies: dict[int, Any] = {id(each): _on_meta(each) for each in held}
        arguments, keywords = tree_map(_on_meta, (arguments, dict(keywords)))
        return cls(deepcopy(network, copies), arguments, keywords)


def _on_meta(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    shape = torch.empty_like(value.detach(), device="meta")
    if isinstance(value, nn.Parameter):
        return nn.Parameter(shape, value.requires_grad)
    return shape.requires_grad_(value.requires_grad)
