"""Measuring processes of a run: those of a round start together, are chosen by side and case, and are replaced when unusable."""

import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from dlbench.core.model import Case, Signature
from dlbench.harness.probe.sampler import Window
from dlbench.harness.process.launch import Interruption
from dlbench.harness.process.wire import MeasureRequest, PrepareRequest
from dlbench.harness.process.worker_process import Mode, RequestOutcome, WorkerProcess
from dlbench.harness.ranks.placement import Placement
from dlbench.harness.ranks.rank_group import RankGroup
from dlbench.harness.schedule import Isolation, RunSettings, Side, Task, group_of

MOST_AT_ONCE = 4
"""Processes that start side by side: each takes some 200 MB while it waits."""
_Key = tuple[int, str | None, str]
"""A round, a side, and which process of it (`process_for`)."""


def layout_seed(seed: int, number: int, side: str | None) -> int:
    """Return the seed of the hash seed and environment of a round's processes; each side has its own."""
    return seed * 1_000_003 + number + (zlib.crc32(side.encode()) << 64 if side else 0)


def process_for(case: Case, isolation: Isolation, signatures: Mapping[str, Signature]) -> str:
    """Name the process of a side that measures a case: the one that forks, those of the accelerators, or a group of ranks."""
    if group := group_of(case):
        return group
    if case.device == "cpu" and isolation != "none":
        return "cpu"
    signature = signatures.get(case.workload)
    return "accelerator, apart" if signature and signature.declared.stands_out("own_process", case.params) else "accelerator"


@dataclass
class WorkerPool:
    """The measuring processes of a run. Use as a context manager: leaving it ends them all.

    ``first_workers`` are the processes that answered the handshake, by side: the first ones to be started are these.
    """

    settings: RunSettings
    interruption: Interruption
    first_workers: dict[str | None, WorkerProcess]
    signatures: Mapping[str, Signature]

    def __post_init__(self) -> None:
        self._number = 0
        self._training = False
        self._workers: dict[_Key, WorkerProcess | RankGroup] = {}
        self.start_s = 0.0
        """Seconds that the last start of processes, for one round or several, took."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in (*self._workers.values(), *self.first_workers.values()):
            worker.end()

    @contextmanager
    def processes_of_round(self, number: int, tasks: Sequence[Task], rounds_ahead: int, *, training: bool) -> Iterator[None]:
        """Start the processes that a round of these tasks needs, and end them when left; ``training``: some tasks use an optimizer.

        Importing torch keeps one CPU busy, and nothing may be measured meanwhile. So where processes of this round start, those that fork
        in the next rounds start with them, up to min(``threads``, `MOST_AT_ONCE`) at once; they wait without taking any CPU time, and
        on leaving only the processes of this round end. ``rounds_ahead`` is the number of rounds to start for, this one included.
        """
        began_s = time.monotonic()
        self._number = number
        self._training = training
        new = [self._start(key, side) for key, side in self._missing(tasks, rounds_ahead)]
        for worker in new:
            worker.answer(run_ends=self.settings.run_ends)
        if new:
            self.start_s = time.monotonic() - began_s
        try:
            yield
        finally:
            for key in [key for key in self._workers if key[0] == number]:
                self._workers.pop(key).end()

    def _missing(self, tasks: Sequence[Task], rounds_ahead: int) -> list[tuple[_Key, Side]]:
        """Return the processes to start now, with their sides: those that this round lacks, then those of later rounds that fork."""
        number = self._number
        needed: dict[tuple[str | None, str], Side] = {}
        for task in filter(self._sure_to_use, tasks):
            needed[task.side.name, process_for(task.case, self.settings.isolation, self.signatures)] = task.side
        missing = [((number, *key), side) for key, side in needed.items() if (number, *key) not in self._workers]
        if not missing or self.first_workers:  # the processes of the handshake are ready, and nothing waits for others meanwhile
            return missing
        ahead: list[tuple[_Key, Side]] = []
        for later in range(number + 1, number + rounds_ahead):
            ahead += [((later, name, process), side) for (name, process), side in needed.items() if process == "cpu"]
        room = max(0, min(self.settings.threads, MOST_AT_ONCE) - len(missing))
        return missing + ahead[:room]

    def _sure_to_use(self, task: Task) -> bool:
        """Whether a task will use a process that was started for the round."""
        case, side = task
        starts_its_own = self.settings.isolation == "spawn" if case.device == "cpu" else side.one_process
        return case.ranks is None and task.has_device and not starts_its_own

    def _start(self, key: _Key, side: Side) -> WorkerProcess:
        """Start a process, or take that of the handshake, and return it at once; `WorkerProcess.answer` waits until it is ready."""
        number, name, process = key
        mode: Mode = "fork" if process == "cpu" and self.settings.isolation == "fork" else "stay"
        worker = self.first_workers.get(name)
        if worker is not None and worker.mode == mode:
            del self.first_workers[name]
        else:
            layout = layout_seed(self.settings.seed, number, name)
            worker = WorkerProcess(mode, self.settings.threads, layout, self.interruption, side.interpreter)
        self._workers[key] = worker
        worker.send(PrepareRequest(training=self._training, plugins=side.imports_once))
        return worker

    def ask(self, request: MeasureRequest, side: Side, placement: Placement, window: Window, run_ends: float) -> RequestOutcome:
        """Measure a case in the process for its side, its device and the isolation, or in all of its ranks; return how that ended.

        ``window`` is read while the step of a single process is metered. At ``run_ends``, by the monotonic clock, it is ended.
        """
        single = request.case.ranks is None
        process = process_for(request.case, self.settings.isolation, self.signatures)
        key = self._number, side.name, process
        # End processes that hold a device which takes only one, and ranks of another number, which would hold memory while they wait.
        for other, waiting in self._workers.items():
            holds_device = side.one_process and "cpu" not in (process, other[2]) and other != key
            other_ranks = isinstance(waiting, RankGroup) and process != other[2]
            if holds_device or other_ranks:
                waiting.end()
        worker = self._workers.get(key)
        if worker is None or not worker.usable:
            if single:
                worker = self._start(key, side)
                ready = worker.answer(run_ends=run_ends)
                if ready.how != "replied":
                    return ready
            else:
                layout = layout_seed(self.settings.seed, self._number, side.name)
                worker = RankGroup(placement.counts, placement.threads, layout, self.interruption, side.interpreter, side.machines)
                self._workers[key] = worker
        outcome = worker.ask(request, request.policy.timeout_s, run_ends, window if single else None)
        if process == "cpu" and self.settings.isolation == "spawn":
            worker.end()
        return outcome
