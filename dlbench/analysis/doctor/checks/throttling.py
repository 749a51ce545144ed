"""Throttling: whether devices were held back while they were measured."""

from collections.abc import Sequence

from dlbench.analysis.presentation.wording import plural
from dlbench.core.conditions import Throttling
from dlbench.core.machine import Finding, Fitness
from dlbench.core.store import RunFile

ORDER = 20


def findings(run: RunFile, _: int) -> list[Finding]:
    """Say of each device whether it was throttled; discarded measurements may have been, and were made again."""
    found = []
    for device in dict.fromkeys(each.case.device for each in run.measurements):
        kept = [each.throttling for each in run.measurements if each.case.device == device]
        again = [each.throttling for each in run.discarded if each.case.device == device]
        found.append(_throttling(device, [each for each in kept if each], [each for each in again if each and each.throttled]))
    return found


def _throttling(device: str, kept: Sequence[Throttling], again: Sequence[Throttling]) -> Finding:
    held = [each for each in kept if each.throttled]
    advice = "cool it, or have a larger CPU quota granted" if device == "cpu" else "cool it better: nvidia-smi -q -d PERFORMANCE"
    if held:
        found = f"{len(held)} of {len(kept)} measurements were held back, and pauses did not help: {held[-1].causes()}"
        return Finding("throttling", device, Fitness.UNFIT, found, advice)
    if again:
        was = "was" if len(again) == 1 else "were"
        found = f"{plural(len(again), 'measurement')} {was} held back and made again: {again[-1].causes()}"
        return Finding("throttling", device, Fitness.NOTE, found, advice)
    sources = {"thermal": "heat", "reasons": "the driver's reasons", "quota": "the CPU quota"}
    if counted := [what for name, what in sources.items() if any(getattr(each, name) is not None for each in kept)]:
        return Finding("throttling", device, Fitness.FIT, f"none while measuring, by {' or '.join(counted)}; nothing else is counted here")
    return Finding("throttling", device, Fitness.UNKNOWN, "nothing here counts it", "watch temperature and clock yourself")
