"""The measuring processes of one round: which of them does what, and when it is replaced."""

import sys
import zlib
from typing import Literal, Protocol

from dlbench.core.model import Case
from dlbench.harness.process.interrupt import Interruption
from dlbench.harness.process.wire import Request
from dlbench.harness.process.worker_process import Ending, Mode, WorkerProcess
from dlbench.harness.ranks.placement import kind_of, place_ranks
from dlbench.harness.ranks.rank_group import RankGroup
from dlbench.harness.schedule import Side

Isolation = Literal["fork", "spawn", "none"]


def default_isolation() -> Isolation:
    """Return fork where it is safe and known to be: on Linux."""
    return "fork" if sys.platform == "linux" else "spawn"


def handshake_mode(isolation: Isolation) -> Mode:
    """Return the mode of the process that is asked what there is, so that the first round has a use for it."""
    return "fork" if isolation == "fork" else "stay"


def layout_seed(seed: int, number: int, side: str | None = None) -> int:
    """Return what decides the hash seed and environment of a round's processes, which differ between the sides, too."""
    return seed * 1_000_003 + number + (zlib.crc32(side.encode()) << 64 if side else 0)


def lane_of(case: Case, isolation: Isolation) -> str:
    """Return which of a side's processes does a case: the one that forks, that of the accelerators, or a launch of so many ranks."""
    if case.ranks is not None:
        return f"{case.ranks} ranks on {kind_of(case.device)}"
    return "cpu" if case.device == "cpu" and isolation != "none" else "accelerator"


class _Processes(Protocol):
    """A `WorkerProcess` or a `RankGroup`."""

    usable: bool

    def ask(self, request: Request, deadline_s: float) -> Ending: ...

    def end(self) -> None: ...


class WorkerPool:
    """The measuring processes of one round: made when first needed, replaced when spent, gone at the end."""

    def __init__(self, isolation: Isolation, seed: int, threads: int, interruption: Interruption, number: int) -> None:
        self._isolation = isolation
        self._seed = seed
        self._threads = threads
        self._interruption = interruption
        self._number = number
        self._hosts: dict[tuple[str | None, str], _Processes] = {}

    def adopt(self, side: str | None, host: WorkerProcess) -> None:
        """Take over the process that said what there is: the first round need not start another of its mode."""
        self._hosts[side, "cpu" if host.mode == "fork" else "accelerator"] = host

    def ask(self, request: Request, side: Side, case: Case, deadline_s: float) -> Ending:
        """Have one request done in the process that fits the side, the case and the isolation, or by all ranks of the case."""
        lane = lane_of(case, self._isolation)
        if side.one_process and lane != "cpu":
            self._free_devices((side.name, lane))
        host = self._hosts.get((side.name, lane))
        if host is None or not host.usable:
            host = self._hosts[side.name, lane] = self._started(side, case, lane)
        ending = host.ask(request, deadline_s)
        if (ending.reply and ending.reply.fault) or (lane == "cpu" and self._isolation == "spawn"):
            host.end()
        return ending

    def _free_devices(self, wanted: tuple[str | None, str]) -> None:
        """End all processes that may hold a device but the one that wants it."""
        for key, host in self._hosts.items():
            if key != wanted and key[1] != "cpu":
                host.end()

    def end(self) -> None:
        """End them all."""
        for host in self._hosts.values():
            host.end()

    def _started(self, side: Side, case: Case, lane: str) -> _Processes:
        layout = layout_seed(self._seed, self._number, side.name)
        if case.ranks is not None:
            # Another size's ranks would wait beside these, and hold memory that these need.
            for (_, other), host in self._hosts.items():
                if other != lane and isinstance(host, RankGroup):
                    host.end()
            where = place_ranks(case, side.rooms(self._threads))
            return RankGroup(where.counts, where.threads, layout, self._interruption, side.interpreter, side.machines)
        mode: Mode = "fork" if lane == "cpu" and self._isolation == "fork" else "stay"
        return WorkerProcess(mode, self._threads, layout, self._interruption, side.interpreter)
