"""Kinds of operations by the names that torch gives them: an operation's own, and those of what it runs within.

A call to torch runs further ones, each of which the profiler notes: ``aten::linear`` runs ``aten::addmm``, and that has the time. Of
these names the innermost that tells a kind counts, so that a copy within a convolution is a copy. Of an optimizer, of a fetch of a batch,
of pooling and of attention the whole counts, whatever it runs.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import torch

from dlbench.core.measurement import OperationKind

OF_BACKWARD = "autograd::engine::evaluate_function: "
"""Begins the name of what runs one node of the backward pass."""
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
    """Return the kind of an operation: its own name first, then of what it runs within, the outermost last."""
    kinds = [kind for name in names if (kind := _kind_named(name))]
    return next((kind for kind in reversed(kinds) if kind in _WHOLE), kinds[0] if kinds else OperationKind.REST)


@lru_cache(4096)
def _kind_named(name: str) -> OperationKind | None:
    """Return the kind that a name tells: ``aten::addmm``, ``AddmmBackward0``, ``Optimizer.step#SGD.step``; None where it tells none."""
    name = name.removeprefix(OF_BACKWARD)
    if known := next((kind for start, kind in _RANGES.items() if name.startswith(start)), None):
        return known
    if node := re.fullmatch(r"(\w+)Backward\d*", name):
        operation = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", node[1]).lower()
    elif name.startswith("aten::"):
        operation = name.removeprefix("aten::")
    else:
        return None
    plain = re.sub(r"_(forward|backward).*", "", operation.strip("_"))
    if known := next((kind for kind, pattern in _PATTERNS.items() if pattern.fullmatch(plain)), None):
        return known
    return OperationKind.NORMALISATION if _is_pointwise(operation) else None


def _is_pointwise(operation: str) -> bool:
    """Whether torch says of an operation that it goes number by number."""
    known: Any = getattr(torch.ops.aten, operation, None)
    return known is not None and any(torch.Tag.pointwise in getattr(known, each).tags for each in known.overloads())
