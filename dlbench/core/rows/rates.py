"""Rates of a case: what it does in a second, what share of the device's peak that is, and whether it can be true."""

import statistics
from collections.abc import Sequence

from dlbench.core.model import Case, Measurement, ParamValue, SpotCheck
from dlbench.core.reference.peaks import arithmetic_share, memory_share, peak_of
from dlbench.core.rows.plausibility import doubts, together

Cells = dict[str, ParamValue | None]
"""Some columns of a row."""


def rates(stated: Sequence[Measurement], call_s: ParamValue | None) -> Cells:
    """Return what is done in a second, by the time of a call that stands in the same row; ``stated`` are the rounds that were timed.

    Not everything over all the time: a round ends on time, so that its blocks, and its weight, are the more the faster it was.
    """
    return {
        "rate.items_per_s": _rate([each.items for each in stated], call_s),
        "rate.flops_per_s": _rate([each.flops for each in stated], call_s),
        "rate.bytes_per_s": _rate([each.bytes for each in stated], call_s),
    }


def _rate(counts: Sequence[float | None], call_s: ParamValue | None) -> float | None:
    """Return what is done a second, where ``counts`` is what a call handles in each round; None where a round does not state it."""
    known = [count for count in counts if count is not None]
    return statistics.median(known) / float(call_s) if known and len(known) == len(counts) and call_s else None


def plausibility(
    stated: Measurement,
    identity: Cells,
    rates: Cells,
    fastest_s: float,
    check: SpotCheck | None,
) -> Cells:
    """Set the rates against the device's peaks, and say what can't be true; ``stated`` is a round, for what it says of itself."""
    flops_per_s, bytes_per_s = rates["rate.flops_per_s"], rates["rate.bytes_per_s"]
    device, dtype = peak_of(stated.device_name), str(identity["case.dtype"] or "")
    ranks = _ranks(stated.case)
    arithmetic = arithmetic_share(device, dtype, float(flops_per_s) / ranks) if device and flops_per_s is not None else None
    moved = stated.bytes / ranks if stated.bytes else 0.0
    memory = memory_share(device, moved, float(bytes_per_s) / ranks) if device and moved and bytes_per_s is not None else None
    nearest = max((share for share in (arithmetic, memory) if share), key=lambda share: share.fraction, default=None)
    reason = together(doubts(fastest_s, stated, arithmetic, memory, check))
    return {
        "rate.peak_fraction": nearest.fraction if nearest else None,
        "rate.peak": str(nearest) if nearest else None,
        "rate.reason": None if nearest else _no_peak(stated, bool(device), dtype),
        "flag.implausible": reason is not None,
        "flag.implausible_reason": reason,
    }


def _ranks(case: Case) -> int:
    """Return how many devices the rates count together, each rank being on its own; an edited file may hold anything there."""
    ranks = case.params.get("ranks")
    return ranks if isinstance(ranks, int) and 0 < ranks < 2**31 else 1


def _no_peak(stated: Measurement, known: bool, dtype: str) -> str:
    if stated.flops is None and stated.bytes is None:
        return "the workload states neither operations nor bytes"
    if stated.case.device == "cpu":
        return "a CPU's peak takes its multiply-add units and its highest clock, which no file has"
    if not known:
        return f"{stated.device_name or 'an unnamed device'} is not in dlbench's table of published peaks"
    if stated.flops is None:
        return "what a call moves may come from a cache, so the bandwidth of memory does not bound it"
    return f"no published {dtype} peak of {stated.device_name} is known" if dtype else "the case names no precision"
