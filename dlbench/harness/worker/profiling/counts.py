"""Counts of the operations of a step by kind: how many, and the bytes that they move."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Self

import torch

from dlbench.core.measurement import OperationKind
from dlbench.harness.worker.checking.operations import OperationWatch
from dlbench.harness.worker.profiling.composites import CompositeWatch
from dlbench.harness.worker.profiling.kinds import kind_of

_NOT_READ = ("copy_", "fill_", "zero_")
"""Operations whose first operand is only written."""
_READ_IN_PART = ("embedding", "index_select", "index")
"""Those that read of their first operand as much as they write."""


class OperationCounts(OperationWatch):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """Counts operations while it is entered."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self.operations = defaultdict[OperationKind, int](int)
        self.bytes = defaultdict[OperationKind, int](int)
        self.flops = defaultdict[OperationKind, float](float)
        """Of attention alone."""
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
        """Count it, within the ranges that are open."""
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
    """Return the products of attention: queries with keys, (…, s, d) and (…, t, d), and what comes of that with values, (…, t, e).

    Twice as many backward, as torch counts them for every product; kernels that compute some again do more.
    """
    backward = "backward" in name
    query, key, value = tensors[1:4] if backward else tensors[:3]  # behind the gradient of the output
    forward = 2.0 * query.shape[:-1].numel() * key.shape[-2] * (query.shape[-1] + value.shape[-1])
    return 2 * forward if backward else forward


def _product_flops(name: str, operands: Sequence[Any]) -> float:
    """Return those of a product that attention is made of, (b, s, k) by (b, k, t); 0 of anything else."""
    return 2.0 * operands[0].numel() * operands[1].shape[-1] if name in ("bmm", "mm") else 0.0


def _bytes(tensor: torch.Tensor) -> int:
    """Return those in memory: a tensor that was expanded has fewer than its shape says."""
    return min(tensor.nbytes, tensor.untyped_storage().nbytes())


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for each in value for tensor in _tensors(each)] if isinstance(value, list | tuple) else []
