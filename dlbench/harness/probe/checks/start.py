"""Start: whether each device can be used."""

from collections.abc import Iterator

from dlbench.core.machine import Finding, Fitness
from dlbench.harness.probe.checks import Seen
from dlbench.harness.probe.devices import unusable

ORDER = 20


def findings(seen: Seen) -> Iterator[Finding]:
    """Yield a finding for each device that can't."""
    for name, reason in unusable(seen.devices).items():
        advice = "mend that, or look at the others alone: --device cpu"
        yield Finding("start", name, Fitness.UNFIT, f"can't be used: {reason}", advice)
