"""Collectives of torch.distributed, with the sizes that nccl-tests gives them.

The size is that of the larger of a rank's two tensors. all_gather makes this tensor of one share from each rank, and reduce_scatter and
all_to_all split it into one share for each rank. In the other operations both tensors are as large.
See https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md.
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
_LARGEST_DRAWN = 16
"""Above any standard normal number that torch draws."""


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
    """Run one collective; `bytes`, as in nccl-tests, is the size of the larger of a rank's two tensors."""
    # `bytes` is the size of the larger of a rank's two tensors, `whole`.
    element_type = storage(dtype)
    shares = ranks if op in _IN_SHARES else 1
    share_elements, remainder = divmod(bytes, element_type.itemsize * shares)
    if remainder:
        parts = f"{shares} shares of {dtype}" if shares > 1 else dtype
        raise ValueError(f"{bytes} bytes do not divide into {parts}; give a multiple of {element_type.itemsize * shares}")
    if op == "send_recv" and ranks == 1:
        raise NotImplementedError("one rank has nobody to send to; give ranks = 2 or more")
    whole = torch.randn(share_elements * shares).to(element_type).to(device)
    prepared = _prepare(op, whole, share_elements, ranks)
    _verify(op, prepared, ranks)
    prepared.input.copy_(torch.randn(prepared.input.shape))  # in place of the numbers of the check
    # An all-reduce writes over its input on every rank, so the numbers grow from call to call.
    call = _restore_before_overflow(prepared, ranks) if op == "all_reduce" else prepared.run
    return Work(call=call, items=1, bytes=bytes)


def _prepare(op: Op, whole: Tensor, share_elements: int, ranks: int) -> _Collective:
    """Return the collective with its tensors on this rank.

    ``whole``: the larger tensor; for the operations in `_IN_SHARES` it holds a share for each rank, of ``share_elements`` elements.
    """
    # Each operation needs one or two of these three tensors.
    share, other_whole = whole[:share_elements].clone(), torch.empty_like(whole)
    untyped_dist = cast(Any, dist)  # torch's annotations lack some of its functions
    match op:
        case "all_reduce":
            return _Collective(whole, whole, lambda: dist.all_reduce(whole))
        case "reduce":
            return _Collective(whole, whole, lambda: dist.reduce(whole, _ROOT))
        case "broadcast":
            return _Collective(whole, whole, lambda: dist.broadcast(whole, _ROOT))
        case "all_gather":
            # torch 2.13 renamed this function and that of the next case.
            gather = getattr(dist, "all_gather_single", None) or untyped_dist.all_gather_into_tensor
            return _Collective(share, whole, lambda: gather(whole, share))
        case "reduce_scatter":
            scatter = getattr(dist, "reduce_scatter_single", None) or untyped_dist.reduce_scatter_tensor
            return _Collective(whole, share, lambda: scatter(share, whole))
        case "all_to_all":
            return _Collective(whole, other_whole, lambda: untyped_dist.all_to_all_single(other_whole, whole))
        case "send_recv":
            return _Collective(whole, other_whole, lambda: _pass_on(whole, other_whole, ranks))


def _pass_on(sent: Tensor, received: Tensor, ranks: int) -> None:
    """Send to the next rank of a ring while receiving from the one before."""
    rank = dist.get_rank()
    both = [dist.P2POp(dist.isend, sent, (rank + 1) % ranks), dist.P2POp(dist.irecv, received, (rank - 1) % ranks)]
    for request in dist.batch_isend_irecv(both):
        request.wait()


def _restore_before_overflow(all_reduce: _Collective, ranks: int) -> Callable[[], object]:
    """Return a function that runs an all-reduce, and from time to time restores its input first.

    An all-reduce sums in place: each call can multiply the numbers by ``ranks``, and after enough calls they would be infinite.
    """
    original = all_reduce.input.clone()
    most_growth = torch.finfo(original.dtype).max / _LARGEST_DRAWN
    # The numbers of a single rank do not grow. It counts as two ranks all the same, to avoid a division by the logarithm of 1.
    growth_of_call = max(2, ranks)
    safe_calls = int(math.log2(most_growth) / math.log2(growth_of_call))
    calls_since_restoring = cycle(range(safe_calls))

    def run() -> None:
        if next(calls_since_restoring) == 0:
            all_reduce.input.copy_(original)
        all_reduce.run()

    return run


def _verify(op: Op, collective: _Collective, ranks: int) -> None:
    """Run the collective once on numbers with a known result. Raises ValueError for any other result."""
    rank = dist.get_rank()
    numbers = torch.arange(1, ranks + 1)  # rank 0 has the number 1, rank 1 the number 2, and so on
    own = numbers[rank]
    # The numbers that fill the shares of this rank's input, and those that have to fill its result.
    input_numbers, result_numbers = {
        "all_reduce": (own, numbers.sum()),
        "reduce": (own, numbers.sum()),
        "broadcast": (own, numbers[_ROOT]),
        "all_gather": (own, numbers),
        "reduce_scatter": (numbers, ranks * own),  # each rank gives rank j the number j + 1, and rank j gets their sum
        "all_to_all": (rank * ranks + numbers, (numbers - 1) * ranks + own),  # rank i sends i * ranks + j + 1 to rank j
        "send_recv": (own, numbers[rank - 1]),  # from the rank before, which for rank 0 is the last
    }[op]
    result = collective.result
    collective.input.copy_(_fill_shares(input_numbers, collective.input))
    collective.run()
    if op == "reduce" and rank != _ROOT:  # torch leaves the result undefined there
        return
    wanted = _fill_shares(result_numbers, result)
    # Within 2 %, as bf16 rounds integers above 256.
    if not torch.allclose(result.double().cpu(), wanted.double().cpu(), rtol=0.02):
        raise ValueError(f"{op} gave rank {rank} a wrong result, such as {result.flatten()[0].item():g}")


def _fill_shares(numbers: Tensor, like: Tensor) -> Tensor:
    """Return a vector of the length and type of ``like`` in as many equal shares as there are numbers, each filled with its number."""
    return numbers.reshape(-1, 1).expand(-1, like.numel() // numbers.numel()).flatten().to(like.dtype)
