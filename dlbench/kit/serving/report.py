"""What the stamps of an open loop come to."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

from dlbench import CLIENT_BOUND, OpenRun, Reported, Unit, Value, overloaded, percentile
from dlbench.kit.serving.loop import Stamps

PARTS = 7
"""Of a run, whose shares of misses are taken apart: three runs have twenty such parts, from which their dependence shows."""
PERCENTS = (50, 90, 99)

VALUES = (
    *(
        Value(f"p{each}_s", Unit.SECONDS, "lower", f"{each} % of the requests were done so long after they were scheduled", role=role)
        for each, role in zip(PERCENTS, ("p50", "p90", "p99"), strict=True)
    ),
    Value("within", Unit.FRACTION, "higher", "share of them done within bound_ms; null where the client is bound", role="within", margin=0.01),
    Value("missed", Unit.FRACTION, None, "share of them that were not, in each part of the run, those that failed among them", series=True, role="missed"),
    Value("requests", Unit.COUNT, None, "requests that these rest on", role="queries"),
    Value("scheduled_per_s", Unit.ITEMS_PER_S, None, "rate at which they were scheduled"),
    Value("offered_per_s", Unit.ITEMS_PER_S, None, "rate at which they were sent"),
    Value("completed_per_s", Unit.ITEMS_PER_S, None, "rate at which they were done"),
    Value("late", Unit.FRACTION, None, "how late 99 % of them were sent at most, as a share of the bound; beyond 5 % the client is bound", role="late"),
    Value("queue_s", Unit.SECONDS, None, "mean time between being sent and the beginning of a batch"),
    Value("service_s", Unit.SECONDS, None, "mean time of their batch"),
    Value("backlog", Unit.COUNT, None, "requests that waited, beyond a batch, as the last was sent", role="backlog"),
)


def reported(stamps: Stamps, bound_s: float, largest: int, warm: int) -> Mapping[str, Reported]:
    """Return the values of a run without its first requests, which met an empty queue. Latencies count from the schedule."""
    scheduled, sent, begun, done = (each[warm:] for each in (stamps.scheduled, stamps.sent, stamps.begun, stamps.done))
    latencies, count = [end - due for end, due in zip(done, scheduled, strict=True)], len(done)
    missed = [latency > bound_s for latency in latencies]
    well = [at for at in range(count) if done[at] < math.inf]
    late = sorted(map(float.__sub__, sent, scheduled))[-(-99 * count // 100) - 1] / bound_s
    found: dict[str, Reported] = {
        f"p{each}_s": time for each in PERCENTS if (time := percentile(sorted(latencies), each)) is not None and time < math.inf
    }
    if late <= CLIENT_BOUND:
        found["within"] = 1 - fmean(missed)
    rates = {"scheduled": scheduled, "offered": sent, "completed": [done[at] for at in well]}
    return {
        **found,
        "missed": [fmean(missed[count * part // PARTS : count * (part + 1) // PARTS]) for part in range(PARTS)],
        "requests": count,
        **{f"{name}_per_s": _rate(times) for name, times in rates.items()},
        "late": late,
        "queue_s": fmean(map(float.__sub__, begun, sent)),
        "service_s": fmean(done[at] - begun[at] for at in well),
        "backlog": max(0, sum(each > sent[-1] for each in begun) - largest),
    }


def _rate(times: Sequence[float]) -> float:
    return (len(times) - 1) / (times[-1] - times[0]) if len(times) > 1 else 0.0
