"""Parent-side handle of several ranks: started by torchrun, asked and ended all together."""

import select
import socket
import tempfile
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

from dlbench.core.errors import Interrupted, WorkerError
from dlbench.harness.process.launch import Interpreter, Interruption, kill_group
from dlbench.harness.process.wire import ForeignLine, Reader
from dlbench.harness.process.worker_process import IMPORT_S, Channel, MeasuringProcess, RequestOutcome
from dlbench.harness.ranks.machines import RankSpec, RemoteNode, Torchrun

_HELLO_S = 10.0
"""Longest wait for a rank that has connected to send its number."""


class RankGroup(MeasuringProcess):
    """All ranks of a case, started together by torchrun: ``counts`` on this machine and on each of the other ``machines``.

    torchrun passes on no descriptors, so each rank connects to this process: over a socket in a temporary folder, or over a free port if
    other machines have some of the ranks.
    """

    def __init__(
        self,
        counts: Sequence[int],
        threads: int,
        seed: int,
        interruption: Interruption,
        interpreter: Interpreter,
        machines: Sequence[RemoteNode],
    ) -> None:
        super().__init__(interruption, sum(counts))
        self._channels = self._ranks = list[Channel]()  # one list with two names, empty until the ranks connect
        self._connections: list[socket.socket] = []
        """When one closes, its rank ends with its group."""
        # Ranks are numbered machine by machine. So the first number on each other machine is the sum of the counts before it.
        # The last sum counts all ranks and begins no machine: `zip` drops it.
        remote_ranks = zip(accumulate(counts), counts[1:], machines, strict=False)
        # For each other machine that has ranks: the number of its first one, their count, and the machine.
        others = [(number, count, machine) for number, count, machine in remote_ranks if count]
        this_node = machines[0].first if others else None  # this machine, which every other one knows as the first
        # A name of its own for each group, as the store keeps what an earlier one wrote into it.
        store = f"{this_node.host}:{this_node.port}/{uuid.uuid4().hex}" if this_node else ""
        self._folder = tempfile.TemporaryDirectory(prefix="dlbench-")
        try:
            self._listener, address = self._listen(this_node.host if this_node else None)
            spec = RankSpec(counts[0], 0, self._size, address, store, threads, seed)
            self._torchrun = Torchrun(spec, interpreter, Path(self._folder.name))
            self._machines: list[tuple[int, Torchrun | RemoteNode]] = [(0, self._torchrun)]
            """For each machine with ranks the number of its first rank."""
            self._machines += [(number, machine) for number, _, machine in others]
        except BaseException:  # torchrun did not start, so there is no more to end
            self._folder.cleanup()
            raise
        try:
            for number, count, machine in others:
                machine.start(replace(spec, count=count, first=number))
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """End all ranks and torchrun, and free their resources; a second time does nothing."""
        if not self.usable:
            return
        self.usable = False
        self._kill()
        for _, machine in self._machines:
            machine.end()
        self._listener.close()
        self._folder.cleanup()

    def _kill(self) -> None:
        for connection in self._connections:
            connection.close()
        for rank in self._ranks:
            if self._machine_of(rank) is self._torchrun:
                kill_group(rank.pid)

    def _machine_of(self, rank: Channel) -> Torchrun | RemoteNode:
        return next(machine for first, machine in reversed(self._machines) if first <= rank.number)

    def _listen(self, host: str | None) -> tuple[socket.socket, str]:
        """Return the socket that ranks connect to and its address: a path, or ``host:port`` if other machines take part."""
        if host:
            listener = socket.create_server(("", 0), backlog=self._size)
            return listener, f"{host}:{listener.getsockname()[1]}"
        listener = socket.socket(socket.AF_UNIX)
        address = str(Path(self._folder.name) / "parent")
        try:
            listener.bind(address)
        except OSError as error:
            listener.close()
            raise WorkerError(f"cannot make a socket in {tempfile.gettempdir()}: {error}; set TMPDIR to another folder") from error
        listener.listen(self._size)
        return listener, address

    def _gather(self, run_ends: float) -> RequestOutcome | None:
        """Wait until every rank has connected, and send the first request; return None then. Otherwise return how the request ended."""
        if self._ranks:  # all have connected for an earlier request
            return None
        deadline = time.monotonic() + IMPORT_S
        while len(self._ranks) < self._size:
            # Short waits, as torchrun has to be asked whether it still runs; nothing is measured now.
            ready, _, _ = select.select([self._listener.fileno(), self._wake], [], [], 0.1)
            if self._wake in ready:
                raise Interrupted
            if ready:
                self._connections.append(self._listener.accept()[0])
                descriptor = self._connections[-1].fileno()
                with suppress(EOFError, ForeignLine, TimeoutError, KeyError):  # no rank, or one that has disconnected
                    hello = Reader(descriptor).read(time.monotonic() + _HELLO_S, self._wake)
                    number, pid = hello["rank"], hello["pid"]
                    output = Path(self._folder.name) / str(number)
                    self._ranks.append(Channel(descriptor, descriptor, output, number, pid, f"rank {number}"))
            elif sentence := self._torchrun.exit_description():
                return RequestOutcome("died", sentence=sentence, who="torchrun")
            elif time.monotonic() >= run_ends:
                return RequestOutcome("budget")
            elif time.monotonic() > deadline:
                return RequestOutcome("died", sentence=f"did not start {self._size} ranks within {IMPORT_S:g} s", who="torchrun")
        self._ranks.sort(key=lambda rank: rank.number)
        self.send(self._request)  # once more: at the first time no rank was there to get it
        return None

    def _death(self, channel: Channel) -> RequestOutcome:
        """Return how a rank ended. torchrun on its machine reports that once all ranks are gone."""
        self._kill()
        sentence = self._machine_of(channel).exit_description_of(channel.number, channel.pid, channel.printed_before)
        return RequestOutcome("died", sentence=sentence, who=channel.who)

    def _stop(self) -> str:
        return self._ranks[0].stage
