"""Functions that torch may make of other operations and that count as a whole: which operations are part of them.

On a CPU attention that drops out is products and a softmax, and pooling to one number is a mean. Forward these run within the function.
Backward nothing is around them: each node of the backward pass is part of it that stands for one of them.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  # what everybody calls it
from torch.utils._pytree import tree_leaves

from dlbench.core.measurement import OperationKind
from dlbench.harness.worker.profiling.kinds import OF_BACKWARD, kind_of
from dlbench.harness.worker.profiling.layers import Within

_COMPOSITES = {
    "scaled_dot_product_attention": OperationKind.ATTENTION,
    **dict.fromkeys(("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"), OperationKind.POOLING),
}
"""Of `torch.nn.functional`, where networks and torch's own layers look them up."""


class CompositeWatch:
    """Tells while it is entered of what composite an operation that runs is part."""

    def __init__(self) -> None:
        self._open: list[OperationKind] = []
        self._nodes: dict[Any, OperationKind] = {}
        self._put_back = ExitStack()

    def __enter__(self) -> Self:
        for name, kind in _COMPOSITES.items():
            function = getattr(F, name)
            self._put_back.callback(setattr, F, name, function)
            setattr(F, name, self._watched(function, kind))
        return self

    def __exit__(self, *raised: object) -> None:
        self._put_back.close()

    def kind_at_work(self) -> OperationKind | None:
        """Return the kind of the composite that what runs now is part of, forward or backward; None where it is in none."""
        return self._open[-1] if self._open else self._nodes.get(torch._C._current_autograd_node())

    def _watched(self, function: Callable[..., Any], kind: OperationKind) -> Callable[..., Any]:
        def watched(*args: Any, **kwargs: Any) -> Any:
            self._open.append(kind)
            try:
                output = function(*args, **kwargs)
            finally:
                self._open.pop()
            taken = {each.grad_fn for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)}
            self._nodes.update(dict.fromkeys(_nodes_between(output.grad_fn, taken), kind))
            return output

        return watched


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
            made = made_by.get(node.sequence_nr, kind)
            yield made if made in _COMPOSITES.values() else kind, seconds
        else:
            if number >= 0:
                made_by[number] = kind
            yield kind, seconds
