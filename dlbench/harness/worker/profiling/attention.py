"""Attention that torch makes of products and a softmax, as on a CPU where it drops out: which operations are part of it.

Forward they run within `F.scaled_dot_product_attention`. Backward nothing is around them: each node of the backward pass is one of them
that stands for one of these.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  # what everybody calls it
from torch.overrides import TorchFunctionMode

from dlbench.core.step_profile import OperationKind
from dlbench.harness.worker.profiling.kinds import OF_BACKWARD, kind_of
from dlbench.harness.worker.profiling.layers import Within


class AttentionWatch(TorchFunctionMode):
    """Tells while it is entered whether an operation that runs is part of attention."""

    def __init__(self) -> None:
        super().__init__()
        self._open = 0
        self._nodes: set[Any] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is not F.scaled_dot_product_attention:
            return func(*args, **kwargs)
        self._open += 1
        try:
            output = func(*args, **kwargs)
        finally:
            self._open -= 1
        taken = {each.grad_fn for each in (*args, *kwargs.values()) if isinstance(each, Tensor)}
        self._nodes.update(_nodes_between(output.grad_fn, taken))
        return output

    def is_at_work(self) -> bool:
        """Whether what runs now is part of attention, forward or backward."""
        return self._open > 0 or torch._C._current_autograd_node() in self._nodes


def _nodes_between(last: Any, taken: Iterable[Any]) -> set[Any]:
    """Return the nodes from one back to those that made what a function takes, without these, and without those of weights."""
    known, pending, found = {None, *taken}, [last], set()
    while pending:
        node = pending.pop()
        if node not in known and not hasattr(node, "variable"):
            known.add(node)
            found.add(node)
            pending += [each for each, _ in node.next_functions]
    return found


def kinds_in(timed: Iterable[tuple[Within, float]]) -> Iterator[tuple[OperationKind, float]]:
    """Yield the kind and the seconds of each event; ``timed`` are the events in the order they began, each with its own seconds.

    A node of the backward pass has the number of the operation that made it, as in `layers.slowest_layers`.
    """
    made_by: dict[int, OperationKind] = {}
    for within, seconds in timed:
        kind, number = kind_of(each.name for each in within), within[0].sequence_nr
        if node := next((each for each in within if each.name.startswith(OF_BACKWARD)), None):
            is_attention = made_by.get(node.sequence_nr) is OperationKind.ATTENTION
            yield OperationKind.ATTENTION if is_attention else kind, seconds
        else:
            if number >= 0:
                made_by[number] = kind
            yield kind, seconds
