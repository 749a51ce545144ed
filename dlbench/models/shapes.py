"""Networks without their numbers: on the meta device, where there are only shapes, a call takes milliseconds and no memory."""

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
        """Return that of a tensor."""
        return cls(tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device)

    def meta(self) -> Tensor:
        """Return a tensor of it on the meta device."""
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device="meta")

    def fake(self, mode: FakeTensorMode) -> Tensor:
        """Return a tensor of it that says it is on its device, and otherwise is on the meta device."""
        return FakeTensor(mode, self.meta(), self.device)


def shapes_of(mode: FakeTensorMode, network: nn.Module, given: Any) -> tuple[Any, ...]:
    """Copy a network and what it is given, in whatever containers the tensors are, each as a shape that is on the tensor's device.

    A copy, as a network may keep tensors of a call, and a recurrent layer has its weights in a list that ``functional_call`` misses.
    """

    def shape_of(tensor: Tensor) -> Tensor:
        shape = FakeTensor(mode, Shape.of(tensor).meta(), home if tensor.is_meta else tensor.device)
        if isinstance(tensor, nn.Parameter):
            shape._is_param = True  # by which torch knows one; its class would take a copy
        return shape.requires_grad_(tensor.requires_grad)

    network = getattr(network, "_orig_mod", network)  # what torch.compile wraps, which would compile all of this, too
    held = tensors_of([vars(each) for each in network.modules()])
    home = next((each.device for each in held if not each.is_meta), torch.device("cpu"))
    # Of tensors that deepcopy finds here it takes these copies instead of making one, which would take their memory again.
    copies: dict[int, Any] = {id(each): shape_of(each) for each in held}
    return deepcopy(network, copies), *tree_map_only(Tensor, shape_of, given)
