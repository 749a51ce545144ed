"""Programs of others that take the CPUs, by name: for who starts a run to read, and never for a result file."""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Mapping

import psutil

from dlbench.core.conditions import BUSY, OVERRUN
from dlbench.harness.probe import processor
from dlbench.harness.probe.linux import CpuTime
from dlbench.harness.probe.processor import TICKS_S, CpuUse

_LONGEST_S = 10.0
"""After which what others took does not show who takes it now. A case that lost time may last longer: who took it was there meanwhile."""
_NAMED, _LEAST_NAMED = 3, 0.05
"""Programs that are named at most, and the CPUs that one must take for it."""
OWN = ""
"""Instead of the names of this process and of those that descend from it."""


def cpu_s_by_name() -> Mapping[str, float]:
    """Return the CPU time of all processes that can be seen from here, with that of their children that have ended, by name."""
    found, own = defaultdict[str, float](float), {os.getpid(), *(each.pid for each in psutil.Process().children(recursive=True))}
    for each in psutil.process_iter(["name", "cpu_times"]):
        if spent := each.info["cpu_times"]:  # ours to look at
            found[OWN if each.pid in own else each.info["name"] or "unnamed"] += sum(spent[:4])
    return found


class OtherPrograms:
    """Looks at all processes between cases, and names once, for who started the run and never in a file, what takes the CPUs.

    A look takes 0.05 ms of CPU time a process.
    """

    def __init__(
        self,
        cpus: int | None = None,
        running: Callable[[], Mapping[str, float]] = cpu_s_by_name,
        machine: Callable[[], CpuTime | None] = processor.cpu_time,
        now: Callable[[], float] = time.monotonic,
        shortest_s: float = TICKS_S,
    ) -> None:
        self._cpus = cpus or len(processor.affinity() or ()) or os.cpu_count() or 1
        self._running, self._machine, self._now, self._shortest_s = running, machine, now, shortest_s
        self.found = ""
        """The programs that take the CPUs, once they were named."""
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
        if seconds <= _LONGEST_S or lost > BUSY:
            self.found = self._sentence(before, self._before, lost)
        return self.found or None

    def renew(self) -> None:
        """Look again before a case where the last look is so old that the time before the case would blur what takes the CPUs in it."""
        if not self.found and self._now() - self._before.at_s > _LONGEST_S:
            self._before = self._look()

    def _look(self) -> CpuUse:
        at_s, machine, spent_s = self._now(), self._machine(), dict(self._running())
        return CpuUse(at_s, machine, spent_s.pop(OWN, 0.0), spent_s)

    def _sentence(self, before: CpuUse, after: CpuUse, lost: float) -> str:
        seconds = after.at_s - before.at_s
        names = before.by_name.keys() | after.by_name
        taken = {name: (after.by_name.get(name, 0.0) - before.by_name.get(name, 0.0)) / seconds for name in names}
        others, stolen = after.others_since(before) or (sum(taken.values()), 0.0)
        least, parts = (BUSY if lost > BUSY else OVERRUN) * self._cpus, list[str]()
        if others > least:
            busiest = sorted(taken, key=taken.__getitem__, reverse=True)[:_NAMED]
            named = ", ".join(name for name in busiest if taken[name] >= _LEAST_NAMED)
            parts.append(f"other programs take {others:.2g} of {self._cpus} CPUs: {named or 'none that can be seen from here'}")
        if stolen > least:
            parts.append(f"{stolen:.2g} of {self._cpus} CPUs are stolen time: somebody outside of this machine has them")
        return "; ".join(parts)
