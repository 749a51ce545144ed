"""What can't be true of a measured case, in sentences that end in what to do next."""

from collections.abc import Sequence

from dlbench.core import units
from dlbench.core.model import Measurement, SpotCheck
from dlbench.core.reference.peaks import Share

ALLOWANCE = 1.25
"""Cards run above the boost clock that their figures are computed from, a TITAN X (Pascal) by a fifth, and a cache may hold an eighth of
a large working set. A wrong count is off by a factor of two, as a rule."""
EMPTY = 2.0
"""A call that takes less than this many times an empty one did nothing: the least operation of torch takes more than ten times as long."""


def doubts(fastest_s: float, stated: Measurement, arithmetic: Share | None, memory: Share | None, check: SpotCheck | None) -> list[str]:
    """Return a sentence for each reason why a case can't have done what it says in the time it took.

    ``fastest_s`` is the time of a call in its fastest block, as others may have been held up. ``stated`` is a round of it, for the
    counts. The shares are those of a device's peaks that it seems to reach.
    """
    return [*_no_work(fastest_s, stated, check), *_too_fast(stated, arithmetic, memory), *_no_input(check)]


def _no_work(fastest_s: float, stated: Measurement, check: SpotCheck | None) -> list[str]:
    counts = {"items": stated.items, "operations": stated.flops, "bytes": stated.bytes}
    if not fastest_s:
        return ["its time reads as zero; give it more to do"]
    if zero := [name for name, count in counts.items() if count == 0]:
        return [f"it states 0 {' and 0 '.join(zero)}; leave a count out where it means nothing"]
    does = [name for name, count in counts.items() if count is not None]
    if does and check and check.empty_call_s is not None and fastest_s < EMPTY * check.empty_call_s:
        empty = f"{units.seconds(fastest_s)} is no more than {EMPTY:g} times what an empty call takes ({units.seconds(check.empty_call_s)})"
        return [f"it states {' and '.join(does)}, and {empty}; see that its call does the work and does not only prepare it"]
    return []


def _too_fast(stated: Measurement, arithmetic: Share | None, memory: Share | None) -> list[str]:
    found = []
    # A faster algorithm does fewer operations than are stated; only those that it can't do without count against the peak.
    needed = stated.least_flops / stated.flops if stated.least_flops and stated.flops else 1.0
    if arithmetic and arithmetic.fraction * needed > ALLOWANCE:
        advice = "see what its flops count, or state least_flops where an algorithm needs fewer"
        found.append(f"{_times(arithmetic)}; {advice}")
    if memory and memory.fraction > ALLOWANCE:
        found.append(f"{_times(memory)}; see what its bytes count")
    return found


def _times(share: Share) -> str:
    return f"it reaches {units.three_digits(share.fraction)} times the published peak of {share.of} ({share.figure})"


def _no_input(check: SpotCheck | None) -> list[str]:
    if check and check.follows_input is False:
        return ["its output stayed the same on other inputs; see that its call computes, and that Work.inputs are the tensors it reads"]
    return []


def together(sentences: Sequence[str]) -> str | None:
    """Return all reasons as one text; None where there is none."""
    return "; also, ".join(sentences) or None
