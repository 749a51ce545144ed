"""Programs of others that take the CPUs, by name: for who starts a run to read, and never for a result file."""

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

import psutil

from dlbench.core.conditions import BUSY, OVERRUN
from dlbench.core.units import percent
from dlbench.harness.probe import processor
from dlbench.harness.probe.memory import CpuTime

_SHORTEST_S, _LONGEST_S = 1.0, 10.0
"""Between two looks: CPU time is counted in ticks of 10 ms, and what began a moment ago does not show in the mean of a minute. A case
that lost time may take longer, as what took it was there meanwhile."""
_NAMED = 3
_LEAST = 0.05
"""CPUs that a program must take to be named."""


class Process(NamedTuple):
    """What is known of a process."""

    name: str
    parent: int
    cpu_s: float
    """That it took so far, with its children that have ended."""
    roams: bool = False
    """Whether it may also run on CPUs that this process may not."""


Processes = Mapping[int, Process]
"""By id."""


class _Look(NamedTuple):
    at_s: float
    machine: CpuTime | None
    processes: Processes


def processes() -> dict[int, Process]:
    """Return every process that can be seen from here and may run on a CPU of this one, by its id; a container shows its own alone."""
    found, ours = {}, processor.affinity() or frozenset()
    asked = ["ppid", "name", "cpu_times"]
    if ours and len(ours) < (os.cpu_count() or 1):  # else no process may run anywhere but here
        asked.append("cpu_affinity")
    for each in psutil.process_iter(asked):
        spent, allowed = each.info["cpu_times"], frozenset(each.info.get("cpu_affinity") or ours)
        if spent is not None and (allowed & ours or not ours):  # ours to look at, and able to take anything of ours
            cpu_s = spent.user + spent.system + getattr(spent, "children_user", 0.0) + getattr(spent, "children_system", 0.0)
            found[each.pid] = Process(each.info["name"] or "unnamed", each.info["ppid"] or 0, cpu_s, roams=bool(allowed - ours))
    return found


class OtherPrograms:
    """Looks at all processes between cases, and names once what takes the CPUs.

    A look takes 0.05 ms of CPU time a process. CPU time that is gone without any program to see is called stolen, as in a virtual
    machine: somebody outside of the container, or of the machine, has it.
    """

    def __init__(
        self,
        cpus: int | None = None,
        running: Callable[[], Processes] = processes,
        machine: Callable[[], CpuTime | None] = processor.cpu_time,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cpus = cpus or len(processor.affinity() or ()) or os.cpu_count() or 1
        self._running, self._machine, self._now = running, machine, now
        self.found = ""
        """What takes the CPUs, once it was named."""
        self._before = self._look()

    def named(self, lost: float = 0.0) -> str | None:
        """Return ``other programs take 1.5 of 2 CPUs: python (2 processes) 1.4``, once; None before, afterwards, and where nothing does.

        ``lost`` is the share of its time that a case has just lost: however long it took, what takes the CPUs did so meanwhile. Without
        one it takes more to be named, and a look that is not too old.
        """
        seconds = self._now() - self._before.at_s
        if self.found or seconds < _SHORTEST_S:
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
        least = (BUSY if lost > BUSY else OVERRUN) * self._cpus
        own, programs, counts = _taken(before.processes, after.processes, seconds)
        known = sum(programs.values())
        gone = _gone(before.machine, after.machine, seconds, own + known)
        seen = known
        if before.machine and after.machine and any(each.roams for each in after.processes.values()):
            seen = min(known, max(0.0, (after.machine.busy_s - before.machine.busy_s) / seconds - own))  # the rest they took elsewhere
        parts = []
        if seen > least:
            parts.append(f"other programs take {seen:.2g} of {self._cpus} CPUs{_listed(programs, counts, exact=known - seen < _LEAST)}")
        if gone > least:
            parts.append(f"{gone:.2g} of {self._cpus} CPUs are stolen time: no program that can be seen from here takes them")
        if not parts and lost > OVERRUN and own + seen < (1 - OVERRUN) * self._cpus:
            parts.append(f"stolen time: a case waited for a CPU for {percent(lost)} of its time, and no program that can be seen had it")
        return "; ".join(parts)


def _listed(programs: Mapping[str, float], counts: Mapping[str, int], *, exact: bool) -> str:
    """Return ``: python (2 processes) 1.2, node 0.12``; without figures where part of them is time on CPUs that are not ours."""
    listed = []
    for name in sorted(programs, key=programs.__getitem__, reverse=True)[:_NAMED]:
        if programs[name] >= _LEAST:
            several = f" ({counts[name]} processes)" if counts[name] > 1 else ""
            listed.append(f"{name}{several}{f' {programs[name]:.2g}' if exact else ''}")
    return f"{': ' if exact else ', perhaps '}{', '.join(listed)}" if listed else ""


def _gone(before: CpuTime | None, after: CpuTime | None, seconds: float, seen: float) -> float:
    """Return how many CPUs somebody takes who can't be seen; ``seen`` are those that dlbench and the programs to be seen take."""
    if before is None or after is None:
        return 0.0
    unseen = (after.busy_s - before.busy_s) / seconds - seen
    # The machine and its processes are counted apart, so that a small difference is no evidence.
    return (unseen if unseen > OVERRUN * seen else 0.0) + max(0.0, after.stolen_s - before.stolen_s) / seconds


def _taken(before: Processes, after: Processes, seconds: float) -> tuple[float, dict[str, float], Counter[str]]:
    """Return the CPUs that dlbench's own processes took, those of each other program, and how many processes of it took a part."""
    gained = {pid: each.cpu_s - (before[pid].cpu_s if pid in before else 0.0) for pid, each in after.items()}
    for pid, each in before.items():
        if pid not in after:  # who waited for it, its parent or the next above that is left, got all that it ever took
            heir = each.parent
            while heir in before and heir not in after:
                heir = before[heir].parent
            if heir in gained:
                gained[heir] -= each.cpu_s
    own, programs, counts = 0.0, dict[str, float](), Counter[str]()
    for pid, each in after.items():
        cpus = max(0.0, gained[pid]) / seconds
        if _is_own(pid, after):
            own += cpus
        else:
            programs[each.name] = programs.get(each.name, 0.0) + cpus
            counts[each.name] += cpus >= _LEAST
    return own, programs, counts


def _is_own(pid: int, running: Processes) -> bool:
    """Whether a process is this one or descends from it."""
    passed = set[int]()
    while pid in running and pid not in passed:
        if pid == os.getpid():
            return True
        passed.add(pid)
        pid = running[pid].parent
    return False
