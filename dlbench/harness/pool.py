"""Measuring processes of a run: those of a round start together, are chosen by side and case, and are replaced once unusable."""

import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal, Self

from dlbench.core.model import Case
from dlbench.harness.process.interrupt import Interruption
from dlbench.harness.process.wire import MeasureRequest, PrepareRequest
from dlbench.harness.process.worker_process import Ending, Mode, WorkerProcess
from dlbench.harness.ranks.placement import Placement, kind_of
from dlbench.harness.ranks.rank_group import RankGroup
from dlbench.harness.schedule import Side, Task

Isolation = Literal["fork", "spawn", "none"]
_Key = tuple[int, str | None, str]
"""A round, a side, and which process of it (`process_for`)."""


def layout_seed(seed: int, number: int, side: str | None = None) -> int:
    """Return the seed of the hash seed and environment of a round's processes; each side has its own."""
    return seed * 1_000_003 + number + (zlib.crc32(side.encode()) << 64 if side else 0)


def process_for(case: Case, isolation: Isolation) -> str:
    """Name the process of a side that measures a case: the one that forks, that of the accelerators, or a group of so many ranks."""
    if case.ranks is not None:
        return f"{case.ranks} ranks on {kind_of(case.device)}"
    return "cpu" if case.device == "cpu" and isolation != "none" else "accelerator"


class WorkerPool:
    """The measuring processes of a run. Use as a context manager: leaving it ends them all.

    ``first_workers`` are the processes that answered the handshake, by side: the first round goes on in them. ``trains`` tells whether a
    case may use an optimizer.
    """

    def __init__(
        self,
        isolation: Isolation,
        seed: int,
        threads: int,
        interruption: Interruption,
        first_workers: Mapping[str | None, WorkerProcess],
        trains: Callable[[Case], bool],
    ) -> None:
        self._isolation = isolation
        self._seed = seed
        self._threads = threads
        self._interruption = interruption
        self._first_workers = first_workers
        self._trains = trains
        self._number = 0
        self._workers: dict[_Key, WorkerProcess | RankGroup] = {}
        self.start_s = 0.0
        """How long the processes of the last round that had to wait for any took to start."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers.values():
            worker.end()

    @contextmanager
    def round(self, number: int, tasks: Sequence[Task], certain: int) -> Iterator[None]:
        """Have the processes ready that a round of these tasks needs, and end them when left.

        As importing torch keeps one CPU busy, and nothing may be measured meanwhile, as many processes start side by side as there are
        CPUs to use: those of the round, then those that fork in the next ones, up to ``certain`` rounds in all. They wait without
        taking any CPU time.
        """
        self._number = number
        began = time.monotonic()
        new: list[WorkerProcess] = []
        for side, worker in self._first_workers.items():
            self._workers[number, side, "cpu" if worker.mode == "fork" else "accelerator"] = worker
            new.append(worker)
        self._first_workers = {}
        needed = {(task.side.name, process_for(task.case, self._isolation)): task.side for task in filter(self._in_one_process, tasks)}
        missing = [(number, *key) for key in needed if (number, *key) not in self._workers]
        later = [(later, *key) for later in range(number + 1, number + certain) for key in needed if key[1] == "cpu"]
        for key in missing + later[: max(0, self._threads - len(missing))] if missing else []:
            started = self._workers[key] = self._start(key, needed[key[1:]])
            new.append(started)
        training = any(map(self._trains, (task.case for task in tasks)))
        for worker in new:
            worker.send(PrepareRequest(training=training))
        for worker in new:
            worker.answer()
        if new:
            self.start_s = time.monotonic() - began
        try:
            yield
        finally:
            for key in [key for key in self._workers if key[0] == number]:
                self._workers.pop(key).end()

    def _in_one_process(self, task: Task) -> bool:
        """Whether a case can be measured, and in a process that is sure to be of use to it when it is started ahead."""
        alone = task.case.device == "cpu" and self._isolation == "spawn"
        taken = task.case.device != "cpu" and task.side.one_process
        return task.case.ranks is None and task.case.device in task.side.devices and not alone and not taken

    def _start(self, key: _Key, side: Side) -> WorkerProcess:
        number, _, process = key
        mode: Mode = "fork" if process == "cpu" and self._isolation == "fork" else "stay"
        return WorkerProcess(mode, self._threads, layout_seed(self._seed, number, side.name), self._interruption, side.interpreter)

    def ask(self, request: MeasureRequest, side: Side, placement: Placement) -> Ending:
        """Have a case measured in the process that fits its side, its device and the isolation, or by all of its ranks."""
        key = self._number, side.name, process_for(request.case, self._isolation)
        self._end_conflicting(key, side.one_process, request.case.ranks)
        worker = self._workers.get(key)
        if worker is None or not worker.usable:
            worker = self._workers[key] = self._start(key, side) if request.case.ranks is None else self._launched(side, placement)
        ending = worker.ask(request, request.policy.timeout_s)
        if (ending.reply and ending.reply.fault) or (key[2] == "cpu" and self._isolation == "spawn"):
            worker.end()
        return ending

    def _end_conflicting(self, key: _Key, one_process: bool, ranks: int | None) -> None:
        """End those that hold a device which takes one process, and ranks of another size, which would hold memory while they wait."""
        for other, worker in self._workers.items():
            holds_device = one_process and "cpu" not in (key[2], other[2]) and other != key
            if holds_device or (ranks is not None and isinstance(worker, RankGroup) and other[2] != key[2]):
                worker.end()

    def _launched(self, side: Side, placement: Placement) -> RankGroup:
        layout = layout_seed(self._seed, self._number, side.name)
        return RankGroup(placement.counts, placement.threads, layout, self._interruption, side.interpreter, side.machines)
