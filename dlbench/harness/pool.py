"""Measuring processes of a run. Those of a round start together; a case is measured in that of its side, device and isolation."""

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
"""Most processes that start side by side: each takes some 200 MB while it waits."""
_Key = tuple[int, str | None, str]
"""A round, the name of a side, and the name of the process by `process_for`."""


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
        """Start the processes that these tasks of a round need, and end the processes of this round when the context is left.

        Nothing can be measured while processes start, as importing torch keeps CPUs busy. So the forking processes of the next rounds
        start at the same time, and then wait without taking CPU time. ``rounds_ahead`` is the number of rounds to start processes for,
        this one included. ``training`` says that some tasks use an optimizer, which is then imported, too.
        """
        began_s = time.monotonic()
        self._number = number
        self._training = training
        new = [self._start(key, side) for key, side in self._missing(tasks, rounds_ahead)]
        for worker in new:  # all of them start by now; this waits until each is ready, or has failed: `ask` starts it anew then
            worker.answer(run_ends=self.settings.run_ends)
        if new:
            self.start_s = time.monotonic() - began_s
        try:
            yield
        finally:
            for key in [key for key in self._workers if key[0] == number]:  # a key begins with its round
                self._workers.pop(key).end()

    def _missing(self, tasks: Sequence[Task], rounds_ahead: int) -> list[tuple[_Key, Side]]:
        """Return the processes to start now, with their sides: those that this round lacks, then those of later rounds that fork."""
        number = self._number
        needed: dict[tuple[str | None, str], Side] = {}
        for task in filter(self._uses_shared_process, tasks):
            needed[task.side.name, process_for(task.case, self.settings.isolation, self.signatures)] = task.side
        missing = [
            ((each, *key), side)
            for each in range(number, number + rounds_ahead)
            for key, side in needed.items()
            if (each == number or key[1] == "cpu") and (each, *key) not in self._workers  # "cpu" is the process that forks
        ]
        of_this_round = [each for each in missing if each[0][0] == number]
        # The caller waits for all processes that it starts. Those of later rounds start only if this round waits for its own anyway.
        # While processes of the handshake are left, this round takes them. They are ready, and later ones would only delay it.
        if not of_this_round or self.first_workers:
            return of_this_round
        # Each of those that start together keeps a CPU busy.
        return missing[: max(len(of_this_round), min(self.settings.threads, MOST_AT_ONCE))]

    def _uses_shared_process(self, task: Task) -> bool:
        """Whether a task is measured in a process that serves all cases of a round, and not in one that is started for it alone."""
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
        """Measure a case in the process that `process_for` names, or in all of its ranks; return how that ended.

        A process that is missing or unusable is started first, ranks as ``placement`` says. ``window`` gets the samples of the device,
        unless the case has ranks. At ``run_ends``, on the scale of `time.monotonic`, the process is ended.
        """
        is_single = request.case.ranks is None
        process = process_for(request.case, self.settings.isolation, self.signatures)
        key = self._number, side.name, process
        for other_key, other_worker in self._workers.items():
            other_process = other_key[2]
            # The other process may hold an accelerator, and the accelerators of this side take only one process at a time.
            blocks_device = side.one_process and "cpu" not in (process, other_process) and other_key != key
            # A group of ranks that can't measure this case would only hold memory.
            has_other_ranks = isinstance(other_worker, RankGroup) and process != other_process
            if blocks_device or has_other_ranks:
                other_worker.end()
        worker = self._workers.get(key)
        if worker is None or not worker.usable:
            if is_single:
                worker = self._start(key, side)
                start_outcome = worker.answer(run_ends=run_ends)
                if start_outcome.how != "replied":
                    return start_outcome
            else:  # `worker.ask` below waits until all ranks have started
                layout = layout_seed(self.settings.seed, self._number, side.name)
                worker = RankGroup(placement.counts, placement.threads, layout, self.interruption, side.interpreter, side.machines)
                self._workers[key] = worker
        outcome = worker.ask(request, request.policy.timeout_s, run_ends, window if is_single else None)
        if process == "cpu" and self.settings.isolation == "spawn":  # each case has a process of its own
            worker.end()
        return outcome
