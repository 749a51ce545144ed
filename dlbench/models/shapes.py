"""Shapes of tensors and networks without their numbers: a call on them takes milliseconds and no memory."""

from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map_only


def tensors_of(tree: Any) -> tuple[Tensor, ...]:
    """Return the tensors in nested tuples and dictionaries, in order."""
    return tuple(each for each in tree_leaves(tree) if isinstance(each, Tensor))


@dataclass(frozen=True, slots=True)
class Shape:
    """A tensor without its numbers."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, tensor: Tensor) -> Self:
        """Return the shape of a tensor."""
        return cls(tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device)

    def meta(self) -> Tensor:
        """Return a tensor of this shape on the meta device."""
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device="meta")

    def fake(self, mode: FakeTensorMode) -> Tensor:
        """Return a fake tensor of this shape: on the meta device, but reporting its own."""
        return FakeTensor(mode, self.meta(), self.device)


def shapes_of(mode: FakeTensorMode, network: nn.Module, given: Any) -> tuple[Any, ...]:
    """Return a copy of a network, and of what it is given, with a fake tensor on the same device for each tensor, in any containers.

    A copy, as a network may keep tensors of a call, and a recurrent layer has its weights in a list that ``functional_call`` misses.
    """

    def shape_of(tensor: Tensor) -> Tensor:
        shape = FakeTensor(mode, Shape.of(tensor).meta(), home if tensor.is_meta else tensor.device)
        if isinstance(tensor, nn.Parameter):
            shape._is_param = True  # by which torch knows one; its class would take a copy
        return shape.requires_grad_(tensor.requires_grad)

    network = getattr(network, "_orig_mod", network)  # the network that torch.compile wraps, as the wrapper would compile this call, too
    tensors = tensors_of([vars(each) for each in network.modules()])
    home = next((each.device for each in tensors if not each.is_meta), torch.device("cpu"))
    # deepcopy takes these for copies of the tensors, and makes none, which would take their memory once more.
    copies: dict[int, Any] = {id(each): shape_of(each) for each in tensors}
    return deepcopy(network, copies), *tree_map_only(Tensor, shape_of, given)
