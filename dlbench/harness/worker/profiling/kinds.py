"""Operations of a step by kind: how many, the bytes that they move, and their time.

A kind is found by the names that torch gives them: an operation's own, and those of what it runs within.
A call to torch runs further ones, each of which the profiler notes: ``aten::linear`` runs ``aten::addmm``, and that has the time. Of
these names the innermost that tells a kind counts, so that a copy within a convolution is a copy. Of an optimizer, of a fetch of a batch,
of pooling and of attention the whole counts, whatever it runs.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import lru_cache
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  # what everybody calls it
from torch.utils._pytree import tree_leaves

from dlbench.core.measurement import OperationKind
from dlbench.harness.worker.checking.operations import OperationWatch

OF_BACKWARD = "autograd::engine::evaluate_function: "
"""Beginning of the name of an event that runs one node of the backward pass."""
Within = Sequence[Any]
"""An event of the profiler, and those that it runs within, the outermost last."""
_WHOLE = frozenset((OperationKind.UPDATE, OperationKind.DATA, OperationKind.POOLING, OperationKind.ATTENTION))
_RANGES = {
    "Optimizer.": OperationKind.UPDATE,
    "torch::autograd::AccumulateGrad": OperationKind.UPDATE,
    "enumerate(DataLoader)": OperationKind.DATA,
}
"""Beginnings of names that torch gives to no operation."""
_NAMED = {
    OperationKind.UPDATE: r"foreach_.*|fused_(sgd|adam|adamw|adagrad)|amp_.*",
    OperationKind.DATA: r"index|index_select|randperm",
    OperationKind.ATTENTION: r".*attention.*|transformer_encoder_layer_fwd",
    OperationKind.POOLING: r".*pool.*",
    OperationKind.PRODUCTS: r".*conv(?!ert).*|((b?add)?b?|addb|int_|scaled_|grouped_)mm|addmm_activation|(add)?mv|v?dot|matmul|einsum"
    r"|(mkldnn_|bi)?linear|tensordot|lstm|gru|.*rnn.*",
    # torch itself says of most operations whether they go number by number; these are the others.
    OperationKind.NORMALISATION: r".*norm.*|.*softmax.*|.*loss.*|.*dropout|.*relu.*|.*elu|.*glu|prelu.*|hard(tanh|swish|sigmoid)"
    r"|log_sigmoid|sum|mean|prod|std|var|var_mean|std_mean|a?max|a?min|argmax|argmin|cumsum|logsumexp|masked_fill|lerp|bernoulli|uniform|embedding.*",
    OperationKind.COPIES: r"copy|to|to_copy|clone|contiguous|cat|stack|fill|(zero|one)s?(_like)?|full(_like)?|.*pad.*|repeat|roll|flip"
    r"|mkldnn_reorder.*|pin_memory|item|local_scalar_dense",
}
_PATTERNS = {kind: re.compile(pattern) for kind, pattern in _NAMED.items()}


def kind_of(names: Iterable[str]) -> OperationKind:
    """Return the kind of an operation by its own name, and those of what it runs within, the outermost last."""
    kinds = [kind for name in names if (kind := _kind_named(name))]
    return next((kind for kind in reversed(kinds) if kind in _WHOLE), kinds[0] if kinds else OperationKind.REST)


@lru_cache(4096)
def _kind_named(name: str) -> OperationKind | None:
    """Return the kind of a name such as ``aten::addmm``, ``AddmmBackward0`` or ``Optimizer.step#SGD.step``; None if unknown."""
    name = name.removeprefix(OF_BACKWARD)
    of_range = next((kind for start, kind in _RANGES.items() if name.startswith(start)), None)
    if of_range:
        return of_range
    node = re.fullmatch(r"(\w+)Backward\d*", name)
    if node:
        operation = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", node[1]).lower()
    elif name.startswith("aten::"):
        operation = name.removeprefix("aten::")
    else:
        return None
    plain = re.sub(r"_(forward|backward).*", "", operation.strip("_"))
    of_pattern = next((kind for kind, pattern in _PATTERNS.items() if pattern.fullmatch(plain)), None)
    return of_pattern or (OperationKind.NORMALISATION if _is_pointwise(operation) else None)


def _is_pointwise(operation: str) -> bool:
    """Return whether torch marks an operation as pointwise."""
    known: Any = getattr(torch.ops.aten, operation, None)
    return known is not None and any(torch.Tag.pointwise in getattr(known, each).tags for each in known.overloads())


_COMPOSITES = {
    "scaled_dot_product_attention": OperationKind.ATTENTION,
    **dict.fromkeys(("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"), OperationKind.POOLING),
}
"""Functions of `torch.nn.functional`, where networks and torch's own layers look them up."""


class CompositeWatch:
    """Knows, while entered, which composite function the running operation is part of."""

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
        """Return the kind of the composite that the running operation is part of, forward or backward; None if there is none."""
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
    """Return the nodes of a function from its ``last`` back to those that made its arguments, ``taken``, without these or weights."""
    known = {None, *taken}
    pending = [last]
    found = set()
    while pending:
        node = pending.pop()
        if node not in known and not hasattr(node, "variable"):
            known.add(node)
            found.add(node)
            pending += [each for each, _ in node.next_functions]
    return found


def kinds_in(timed: Iterable[tuple[Within, float]]) -> Iterator[tuple[OperationKind, float]]:
    """Yield the kind and the seconds of each event. ``timed`` are the events in the order of their beginning, each with its own seconds.

    A node of the backward pass has the sequence number of the operation that made it, as in `profile.slowest_layers`.
    """
    made_by: dict[int, OperationKind] = {}
    for within, seconds in timed:
        kind = kind_of(each.name for each in within)
        number = within[0].sequence_nr
        node = next((each for each in within if each.name.startswith(OF_BACKWARD)), None)
        if node:
            made = made_by.get(node.sequence_nr, kind)
            yield made if made in _COMPOSITES.values() else kind, seconds
        else:
            if number >= 0:
                made_by[number] = kind
            yield kind, seconds


_NOT_READ = ("copy_", "fill_", "zero_")
"""Operations that write their first operand without reading it."""
_READ_IN_PART = ("embedding", "index_select", "index")
"""Operations that read only as much of their first operand as they write."""


class OperationCounts(OperationWatch):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """Counts operations while it is entered."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self.operations = defaultdict[OperationKind, int](int)
        self.bytes = defaultdict[OperationKind, int](int)
        self.flops = defaultdict[OperationKind, float](float)
        """Counted for attention alone."""
        self._ranges: list[str] = []
        self._composites = CompositeWatch()

    def __enter__(self) -> Self:
        self._composites.__enter__()
        super().__enter__()  # type: ignore[no-untyped-call]  # as above
        return self

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)  # type: ignore[no-untyped-call]  # as above
        self._composites.__exit__(*raised)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.__name__.partition(".")[0]
        if name == "_record_function_enter_new":
            self._ranges.append(args[0])
        elif name == "_record_function_exit" and self._ranges:
            self._ranges.pop()
        return super().__torch_dispatch__(func, types, args, kwargs)

    def see(self, name: str, operands: Sequence[Any], output: Any) -> None:
        """Count an operation, by its kind within the open ranges."""
        kind = self._composites.kind_at_work() or kind_of((f"aten::{name}", *reversed(self._ranges)))
        self.operations[kind] += 1
        self.bytes[kind] += _moved(name, operands, output)
        if kind is OperationKind.ATTENTION:
            self.flops[kind] += _attention_flops(name, _tensors(operands)) if "attention" in name else _product_flops(name, operands)


def _moved(name: str, operands: Sequence[Any], output: Any) -> int:
    """Return the bytes that an operation reads and writes, each operand once."""
    read, written = _tensors(operands), sum(map(_bytes, _tensors(output)))
    if name in _NOT_READ:
        return written + sum(map(_bytes, read[1:]))
    if name in _READ_IN_PART:
        return 2 * written + sum(map(_bytes, read[1:]))
    return written + sum(map(_bytes, read))


def _attention_flops(name: str, tensors: Sequence[torch.Tensor]) -> float:
    """Return the operations of attention's products: of queries (…, s, d) with keys (…, t, d), and of the result with values (…, t, e).

    Backward has twice as many, as torch counts for every product; kernels that recompute some take more.
    """
    backward = "backward" in name
    query, key, value = tensors[1:4] if backward else tensors[:3]  # the first is the gradient of the output
    forward = 2.0 * query.shape[:-1].numel() * key.shape[-2] * (query.shape[-1] + value.shape[-1])
    return 2 * forward if backward else forward


def _product_flops(name: str, operands: Sequence[Any]) -> float:
    """Return the operations of a product within attention, (b, s, k) by (b, k, t); 0 for other operations."""
    return 2.0 * operands[0].numel() * operands[1].shape[-1] if name in ("bmm", "mm") else 0.0


def _bytes(tensor: torch.Tensor) -> int:
    """Return a tensor's bytes in memory: fewer than its shape has if it was expanded."""
    return min(tensor.nbytes, tensor.untyped_storage().nbytes())


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for each in value for tensor in _tensors(each)] if isinstance(value, list | tuple) else []
