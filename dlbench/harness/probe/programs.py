"""Programs of others that take the CPUs, by name: for who starts a run to read, and never for a result file."""

import heapq
import os
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import NamedTuple

import psutil

from dlbench.core.conditions import BUSY, OVERRUN
from dlbench.core.units import percent
from dlbench.harness.probe import processor
from dlbench.harness.probe.linux import CpuTime

_SHORTEST_S, _LONGEST_S = 1.0, 10.0
"""Between two looks: CPU time is counted in ticks of 10 ms, and what began a moment ago does not show in the mean of a minute. A case
that lost time may take longer, as what took it was there meanwhile."""
_NAMED = 3
_LEAST = 0.05
"""CPUs that a program must take to be named."""
OWN = ""
"""Instead of the names of this process and of those that descend from it."""


class _Look(NamedTuple):
    at_s: float
    machine: CpuTime | None
    cpu_s: Mapping[str, float]


def cpu_s_by_name() -> Mapping[str, float]:
    """Return the CPU time of all processes that can be seen from here, with that of their children that have ended, by name."""
    found, own = defaultdict[str, float](float), {os.getpid(), *(each.pid for each in psutil.Process().children(recursive=True))}
    for each in psutil.process_iter(["name", "cpu_times"]):
        if spent := each.info["cpu_times"]:  # ours to look at
            found[OWN if each.pid in own else each.info["name"] or "unnamed"] += sum(spent[:4])
    return found


class OtherPrograms:
    """Looks at all processes between cases, and names once what takes the CPUs: how much by the machine's own count.

    A look takes 0.05 ms of CPU time a process.
    """

    def __init__(
        self,
        cpus: int | None = None,
        running: Callable[[], Mapping[str, float]] = cpu_s_by_name,
        machine: Callable[[], CpuTime | None] = processor.cpu_time,
        now: Callable[[], float] = time.monotonic,
        shortest_s: float = _SHORTEST_S,
    ) -> None:
        self._cpus = cpus or len(processor.affinity() or ()) or os.cpu_count() or 1
        self._running, self._machine, self._now, self._shortest_s = running, machine, now, shortest_s
        self.found = ""
        """What takes the CPUs, once it was named."""
        self._before = self._look()

    def named(self, lost: float = 0.0) -> str | None:
        """Return ``other programs take 1.5 of 2 CPUs: python, node``, once; None before, afterwards, and where nothing does.

        ``lost`` is the share of its time that a case has just lost: however long it took, what takes the CPUs did so meanwhile. Without
        one it takes more to be named, and a look that is not too old.
        """
        seconds = self._now() - self._before.at_s
        if self.found or seconds < self._shortest_s:
            return None
        before, self._before = self._before, self._look()
        if seconds > _LONGEST_S and lost <= BUSY:
            return None
        self.found = self._sentence(before, self._before, lost)
        return self.found or None

    def renew(self) -> None:
        """Look again before a case where the last look is so old that the time before the case would blur what takes the CPUs in it."""
        if not self.found and self._now() - self._before.at_s > _LONGEST_S:
            self._before = self._look()

    def _look(self) -> _Look:
        return _Look(self._now(), self._machine(), self._running())

    def _sentence(self, before: _Look, after: _Look, lost: float) -> str:
        seconds = after.at_s - before.at_s
        names = before.cpu_s.keys() | after.cpu_s
        taken = {name: (after.cpu_s.get(name, 0.0) - before.cpu_s.get(name, 0.0)) / seconds for name in names}
        own, stolen = taken.pop(OWN, 0.0), 0.0
        others = sum(taken.values())
        if before.machine and after.machine:
            others = (after.machine.busy_s - before.machine.busy_s) / seconds - own
            stolen = (after.machine.stolen_s - before.machine.stolen_s) / seconds
        least = (BUSY if lost > BUSY else OVERRUN) * self._cpus
        parts = []
        if others > least:
            named = [name for name in heapq.nlargest(_NAMED, taken, key=taken.__getitem__) if taken[name] >= _LEAST]
            parts.append(f"other programs take {others:.2g} of {self._cpus} CPUs: {', '.join(named) or 'none that can be seen from here'}")
        if stolen > least:
            parts.append(f"{stolen:.2g} of {self._cpus} CPUs are stolen time: somebody outside of this machine has them")
        if not parts and lost > OVERRUN and own < (1 - OVERRUN) * self._cpus:
            parts.append(f"stolen time: a case waited for a CPU for {percent(lost)} of its time, and no program that can be seen had it")
        return "; ".join(parts)
