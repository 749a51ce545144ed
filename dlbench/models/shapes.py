"""Networks without their numbers: on the meta device, where there are only shapes, a call takes milliseconds and no memory."""

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map_only


def tensors_of(tree: Any) -> tuple[Tensor, ...]:
    """Return the tensors in nested tuples and dictionaries, in order."""
    return tuple(each for each in tree_leaves(tree) if isinstance(each, Tensor))


def shapes_of(mode: FakeTensorMode, network: nn.Module, given: Any) -> tuple[Any, ...]:
    """Copy a network and what it is given, in whatever containers the tensors are, each as a shape that is on the tensor's device.

    A copy, as a network may keep tensors of a call, and a recurrent layer has its weights in a list that ``functional_call`` misses.
    """

    def shape_of(tensor: Tensor) -> Tensor:
        shape = fake(mode, torch.empty_like(tensor.detach(), device="meta"), tensor.device)
        return nn.Parameter(shape, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else shape.requires_grad_(tensor.requires_grad)

    network = getattr(network, "_orig_mod", network)  # what torch.compile wraps, which would compile all of this, too
    held = tensors_of([vars(each) for each in network.modules()])
    # Of tensors that deepcopy finds here it takes these copies instead of making one, which would take their memory again.
    copies: dict[int, Any] = {id(each): shape_of(each) for each in held}
    return deepcopy(network, copies), *tree_map_only(Tensor, shape_of, given)


def fake(mode: FakeTensorMode, shape: Tensor, device: torch.device) -> Tensor:
    """Return a tensor of the meta device as one that says it is on another."""
    return FakeTensor(mode, shape, torch.device("cpu") if device.type == "meta" else device)
