"""Collectives, with the sizes that nccl-tests gives them.

https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
"""

import math
from collections.abc import Callable
from itertools import cycle
from typing import Any, Literal, NamedTuple, cast

import torch
import torch.distributed as dist
from torch import Tensor

from dlbench import CollectiveOp, Dtype, Size, Work, workload
from dlbench.kit.precision import storage

Op = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "send_recv"]
_IN_SHARES = ("all_gather", "reduce_scatter", "all_to_all")
"""Operations whose bytes are one share for each rank."""
_ROOT = 0


class _Collective(NamedTuple):
    """A collective and its tensors on this rank; in place, both are the same tensor."""

    input: Tensor
    result: Tensor
    run: Callable[[], object]


@workload(tags=("collective",))
def collective(
    device: torch.device,
    *,
    op: CollectiveOp[Op],
    bytes: Size,  # noqa: A002  # the field's standard name of this parameter
    ranks: Size,
    dtype: Dtype = "fp32",
) -> Work:
    """Run one collective over `bytes` of data, which nccl-tests' meaning of size says where to find."""
    element = storage(dtype)
    shares = ranks if op in _IN_SHARES else 1
    share_elements, rest = divmod(bytes, element.itemsize * shares)
    if rest:
        parts = f"{shares} shares of {dtype}" if shares > 1 else dtype
        raise ValueError(f"{bytes} bytes do not divide into {parts}; give a multiple of {element.itemsize * shares}")
    if op == "send_recv" and ranks == 1:
        raise NotImplementedError("one rank has nobody to send to; give ranks = 2 or more")
    whole = torch.randn(share_elements * shares).to(element).to(device)
    prepared = _prepare(op, whole, share_elements, ranks)
    _verify(op, prepared, ranks)
    prepared.input.copy_(torch.randn(prepared.input.shape))
    call = _restore_before_overflow(prepared, ranks) if op == "all_reduce" else prepared.run
    return Work(call=call, items=1, bytes=bytes)


def _prepare(op: Op, whole: Tensor, share_elements: int, ranks: int) -> _Collective:
    """Return the collective over the numbers of ``whole``: all ranks' shares for operations in `_IN_SHARES`, else one rank's data."""
    share, other = whole[:share_elements].clone(), torch.empty_like(whole)
    names = cast(Any, dist)
    match op:
        case "all_reduce":
            return _Collective(whole, whole, lambda: dist.all_reduce(whole))
        case "reduce":
            return _Collective(whole, whole, lambda: dist.reduce(whole, _ROOT))
        case "broadcast":
            return _Collective(whole, whole, lambda: dist.broadcast(whole, _ROOT))
        case "all_gather":
            # torch 2.13 renamed this function and that of the next case.
            gather = getattr(dist, "all_gather_single", None) or names.all_gather_into_tensor
            return _Collective(share, whole, lambda: gather(whole, share))
        case "reduce_scatter":
            scatter = getattr(dist, "reduce_scatter_single", None) or names.reduce_scatter_tensor
            return _Collective(whole, share, lambda: scatter(share, whole))
        case "all_to_all":
            return _Collective(whole, other, lambda: names.all_to_all_single(other, whole))
        case "send_recv":
            return _Collective(whole, other, lambda: _pass_on(whole, other, ranks))


def _pass_on(sent: Tensor, received: Tensor, ranks: int) -> None:
    """Send to the next rank of a ring while receiving from the one before."""
    rank = dist.get_rank()
    both = [dist.P2POp(dist.isend, sent, (rank + 1) % ranks), dist.P2POp(dist.irecv, received, (rank - 1) % ranks)]
    for request in dist.batch_isend_irecv(both):
        request.wait()


def _restore_before_overflow(all_reduce: _Collective, ranks: int) -> Callable[[], object]:
    """Return a call of an all-reduce that restores its input every so many calls.

    It sums in place, so each result is up to ``ranks`` times the last, and would become infinite.
    """
    start = all_reduce.input.clone()
    doublings = math.log2(torch.finfo(start.dtype).max / 16)  # no number drawn is larger than 16
    safe_calls = int(doublings / math.log2(max(2, ranks)))
    turns = cycle(range(safe_calls))

    def run() -> None:
        if next(turns) == 0:
            all_reduce.input.copy_(start)
        all_reduce.run()

    return run


def _verify(op: Op, collective: _Collective, ranks: int) -> None:
    """Run the collective once on numbers with a known result. Raises ValueError for any other result."""
    rank = dist.get_rank()
    everyone = torch.arange(1, ranks + 1)  # each rank's number plus one
    values, expected = {
        "all_reduce": (everyone[rank], everyone.sum()),
        "reduce": (everyone[rank], everyone.sum() if rank == _ROOT else None),
        "broadcast": (everyone[rank], everyone[_ROOT]),
        "all_gather": (everyone[rank], everyone),
        "reduce_scatter": (everyone, ranks * everyone[rank]),
        "all_to_all": (rank * ranks + everyone, ranks * (everyone - 1) + rank + 1),
        "send_recv": (everyone[rank], everyone[rank - 1]),
    }[op]
    result = collective.result
    collective.input.copy_(_fill_shares(values, collective.input))
    collective.run()
    if expected is None:  # the result of a reduce is undefined on other ranks than the root
        return
    if not torch.allclose(result.double().cpu(), _fill_shares(expected, result).double().cpu(), rtol=0.02):
        raise ValueError(f"{op} gave rank {rank} a wrong result, such as {result.flatten()[0].item():g}")


def _fill_shares(values: Tensor, like: Tensor) -> Tensor:
    """Return a vector of the length and type of ``like`` in as many equal shares as there are values, each filled with its value."""
    return values.reshape(-1, 1).expand(-1, like.numel() // values.numel()).flatten().to(like.dtype)
