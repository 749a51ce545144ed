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
    """A collective over two tensors, or in place where they are one."""

    given: Tensor
    """Input of this rank."""
    got: Tensor
    """Its result."""
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
    element, shares = storage(dtype), ranks if op in _IN_SHARES else 1
    count, rest = divmod(bytes, element.itemsize * shares)
    if rest:
        of = f"{shares} shares of {dtype}" if shares > 1 else dtype
        raise ValueError(f"{bytes} bytes do not divide into {of}; give a multiple of {element.itemsize * shares}")
    if op == "send_recv" and ranks == 1:
        raise NotImplementedError("one rank has nobody to send to; give ranks = 2 or more")
    ready = _prepared(op, count, ranks, torch.randn(count * shares).to(element).to(device))
    _verify(op, ready, ranks)
    ready.given.copy_(torch.randn(ready.given.shape))
    return Work(call=_refilled(ready, ranks) if op == "all_reduce" else ready.run, items=1, bytes=bytes)


def _prepared(op: Op, count: int, ranks: int, whole: Tensor) -> _Collective:
    """Return the collective over ``whole``, which is all shares where there are shares, of ``count`` elements each."""
    share, other = whole[:count].clone(), torch.empty_like(whole)
    names = cast(Any, dist)
    match op:
        case "all_reduce":
            return _Collective(whole, whole, lambda: dist.all_reduce(whole))
        case "reduce":
            return _Collective(whole, whole, lambda: dist.reduce(whole, _ROOT))
        case "broadcast":
            return _Collective(whole, whole, lambda: dist.broadcast(whole, _ROOT))
        case "all_gather":
            # Torch 2.13 renamed this and the next.
            gather = names.all_gather_single if hasattr(dist, "all_gather_single") else names.all_gather_into_tensor
            return _Collective(share, whole, lambda: gather(whole, share))
        case "reduce_scatter":
            scatter = names.reduce_scatter_single if hasattr(dist, "reduce_scatter_single") else names.reduce_scatter_tensor
            return _Collective(whole, share, lambda: scatter(share, whole))
        case "all_to_all":
            return _Collective(whole, other, lambda: names.all_to_all_single(other, whole))
        case "send_recv":
            return _Collective(whole, other, lambda: _pass_on(whole, other, ranks))


def _pass_on(given: Tensor, got: Tensor, ranks: int) -> None:
    """Send to the next rank of a ring while receiving from the one before."""
    rank = dist.get_rank()
    both = [dist.P2POp(dist.isend, given, (rank + 1) % ranks), dist.P2POp(dist.irecv, got, (rank - 1) % ranks)]
    for work in dist.batch_isend_irecv(both):
        work.wait()


def _refilled(ready: _Collective, ranks: int) -> Callable[[], object]:
    """Return an all-reduce that restores its input before the sums, each ``ranks`` times the last, become infinite."""
    start = ready.given.clone()
    headroom = math.log2(torch.finfo(start.dtype).max / 16)  # no number drawn is larger than 16
    calls = cycle(range(max(1, int(headroom / math.log2(max(2, ranks))))))

    def run() -> None:
        if next(calls) == 0:
            ready.given.copy_(start)
        ready.run()

    return run


def _verify(op: Op, ready: _Collective, ranks: int) -> None:
    """Run it once on numbers with a known result. Raises ValueError for another one."""
    rank, everyone = dist.get_rank(), torch.arange(1, ranks + 1)  # in `everyone` each rank's number plus one
    given, expected = {
        "all_reduce": (everyone[rank], everyone.sum()),
        "reduce": (everyone[rank], everyone.sum() if rank == _ROOT else None),
        "broadcast": (everyone[rank], everyone[_ROOT]),
        "all_gather": (everyone[rank], everyone),
        "reduce_scatter": (everyone, ranks * everyone[rank]),
        "all_to_all": (rank * ranks + everyone, ranks * (everyone - 1) + rank + 1),
        "send_recv": (everyone[rank], everyone[rank - 1]),
    }[op]
    ready.given.copy_(_spread(given, ready.given))
    ready.run()
    # The result of a reduce is undefined on other ranks than the root.
    if expected is not None and not torch.allclose(ready.got.double().cpu(), _spread(expected, ready.got).double().cpu(), rtol=0.02):
        raise ValueError(f"{op} gave rank {rank} a wrong result, such as {ready.got.flatten()[0].item():g}")


def _spread(values: Tensor, like: Tensor) -> Tensor:
    """Return one value everywhere, or each value over a share, in the shape and precision of ``like``."""
    return values.reshape(-1, 1).expand(-1, like.numel() // values.numel()).flatten().to(like.dtype)
