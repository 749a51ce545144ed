"""Measuring processes of one round: chosen by side and case, started when first needed, replaced once unusable."""

import zlib
from collections.abc import Mapping
from typing import Literal, Self

from dlbench.core.model import Case
from dlbench.harness.process.interrupt import Interruption
from dlbench.harness.process.wire import MeasureRequest
from dlbench.harness.process.worker_process import Ending, Mode, WorkerProcess
from dlbench.harness.ranks.placement import Placement, kind_of
from dlbench.harness.ranks.rank_group import RankGroup
from dlbench.harness.schedule import Side

Isolation = Literal["fork", "spawn", "none"]


def layout_seed(seed: int, number: int, side: str | None = None) -> int:
    """Return the seed of the hash seed and environment of a round's processes; each side has its own."""
    return seed * 1_000_003 + number + (zlib.crc32(side.encode()) << 64 if side else 0)


def process_for(case: Case, isolation: Isolation) -> str:
    """Name the process of a side that measures a case: the one that forks, that of the accelerators, or a group of so many ranks."""
    if case.ranks is not None:
        return f"{case.ranks} ranks on {kind_of(case.device)}"
    return "cpu" if case.device == "cpu" and isolation != "none" else "accelerator"


class WorkerPool:
    """The measuring processes of one round. Use as a context manager: leaving it ends them all.

    ``first_workers`` are the processes that answered the handshake, by side: the first round goes on in them.
    """

    def __init__(
        self, isolation: Isolation, seed: int, interruption: Interruption, number: int, first_workers: Mapping[str | None, WorkerProcess]
    ) -> None:
        self._isolation = isolation
        self._seed = seed
        self._interruption = interruption
        self._number = number
        self._workers: dict[tuple[str | None, str], WorkerProcess | RankGroup] = {
            (side, "cpu" if worker.mode == "fork" else "accelerator"): worker for side, worker in first_workers.items()
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers.values():
            worker.end()

    def ask(self, request: MeasureRequest, side: Side, placement: Placement) -> Ending:
        """Have a case measured in the process that fits its side, its device and the isolation, or by all of its ranks."""
        key = side.name, process_for(request.case, self._isolation)
        self._end_conflicting(key, side.one_process, request.case.ranks)
        worker = self._workers.get(key)
        if worker is None or not worker.usable:
            worker = self._workers[key] = self._started(request.case, side, placement)
        ending = worker.ask(request, request.policy.timeout_s)
        if (ending.reply and ending.reply.fault) or (key[1] == "cpu" and self._isolation == "spawn"):
            worker.end()
        return ending

    def _end_conflicting(self, key: tuple[str | None, str], one_process: bool, ranks: int | None) -> None:
        """End those that hold a device which takes one process, and ranks of another size, which would hold memory while they wait."""
        for other, worker in self._workers.items():
            holds_device = one_process and "cpu" not in (key[1], other[1]) and other != key
            if holds_device or (ranks is not None and isinstance(worker, RankGroup) and other[1] != key[1]):
                worker.end()

    def _started(self, case: Case, side: Side, placement: Placement) -> WorkerProcess | RankGroup:
        layout = layout_seed(self._seed, self._number, side.name)
        if case.ranks is not None:
            return RankGroup(placement.counts, placement.threads, layout, self._interruption, side.interpreter, side.machines)
        mode: Mode = "fork" if process_for(case, self._isolation) == "cpu" and self._isolation == "fork" else "stay"
        return WorkerProcess(mode, placement.threads, layout, self._interruption, side.interpreter)
