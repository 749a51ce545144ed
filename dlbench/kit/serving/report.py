"""What the stamps of an open loop come to."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean

from dlbench import CLIENT_BOUND, OpenRun, Reported, overloaded, percentile
from dlbench.kit.serving.loop import Stamps

PARTS = 7
"""Of a run, whose shares of misses are taken apart: three runs have twenty such parts, from which their dependence shows."""
PERCENTS = (50, 90, 99)


def reported(stamps: Stamps, bound_s: float, largest: int, warm: int) -> Mapping[str, Reported]:
    """Return the values of a run without its first requests, which met an empty queue. Latencies count from the schedule.

    Where the backlog has outgrown a queue there are no percentiles: they would only say how long the run was.
    """
    scheduled, sent, begun, done = (each[warm:] for each in (stamps.scheduled, stamps.sent, stamps.begun, stamps.done))
    latencies, count = [*map(float.__sub__, done, scheduled)], len(done)
    missed = [latency > bound_s for latency in latencies]
    late = sorted(map(float.__sub__, sent, scheduled))[-(-99 * count // 100) - 1] / bound_s
    run = OpenRun(_parts(missed), count, late, max(0, sum(each > sent[-1] for each in begun) - largest))
    found: dict[str, Reported] = {}
    if not overloaded([run]):
        times = {each: percentile(sorted(latencies), each) for each in PERCENTS}
        found |= {f"p{each}_s": time for each, time in times.items() if time is not None and time < math.inf}
    if late <= CLIENT_BOUND:
        found["within"] = missed.count(False) / count
    went_well = [end for end in done if end < math.inf]
    for name, stamped in (("scheduled", scheduled), ("offered", sent), ("completed", went_well)):
        found[f"{name}_per_s"] = (len(stamped) - 1) / (stamped[-1] - stamped[0]) if len(stamped) > 1 else 0.0
    return {
        **found,
        **run._asdict(),
        "queue_s": fmean(map(float.__sub__, begun, sent)),
        "service_s": fmean(end - start for end, start in zip(done, begun, strict=True) if end < math.inf),
    }


def _parts(missed: Sequence[bool]) -> list[float]:
    """Return the share of misses in each part of a run."""
    ends = [len(missed) * part // PARTS for part in range(PARTS + 1)]
    return [fmean(missed[begun:end]) for begun, end in pairwise(ends)]
