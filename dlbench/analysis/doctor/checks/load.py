"""Load: what others used of the CPUs while rounds were measured."""

import statistics
from collections.abc import Sequence

from dlbench.core.conditions import BUSY
from dlbench.core.machine import Finding, Fitness
from dlbench.core.store import RunFile

ORDER = 10


def findings(run: RunFile, threads: int) -> list[Finding]:
    """Say what others used of the CPUs while rounds were measured."""
    load, stolen = [each.other_cpus for each in run.states], [each.stolen_cpus for each in run.states]
    elsewhere = "measure at another time, or on a machine that is not shared"
    return [
        _used("load", "other processes", load, threads, "stop them; top shows which"),
        _used("stolen time", "the hypervisor's other guests", stolen, threads, elsewhere),
    ]


def _used(check: str, who: str, cpus: Sequence[float | None], threads: int, advice: str) -> Finding:
    known = [each for each in cpus if each is not None]
    if not known:
        return Finding(check, "cpu", Fitness.UNKNOWN, "the operating system does not count it", "look yourself: top")
    matters = [each for each in known if each / threads > BUSY]
    usual, most = statistics.median(known), max(known)
    found = f"{who} took {usual:.2f} CPUs' time on average, and {most:.2f} at most, next to the {threads} that dlbench computes with"
    values = {"cpus": usual, "cpus_most": most}
    if not matters:
        return Finding(check, "cpu", Fitness.FIT, found, values=values)
    usually = 2 * len(matters) > len(known)
    found += "" if usually else f"; that mattered in {len(matters)} of {len(known)} rounds"
    return Finding(check, "cpu", Fitness.UNFIT if usually else Fitness.NOTE, found, advice, values)
