"""Parent-side handle of the measuring processes of several ranks: start by torchrun, request, timeout, kill, all together."""

import math
import select
import socket
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from itertools import accumulate, groupby
from pathlib import Path

from dlbench.core.decoding import convert
from dlbench.core.errors import Interrupted, WorkerError
from dlbench.core.model import Status
from dlbench.harness.process.interrupt import Interruption
from dlbench.harness.process.wire import ForeignLine, Reader, Reply, Request, send, wait
from dlbench.harness.process.worker_process import IMPORT_S, START_S, Interpreter, RequestOutcome, kill_group
from dlbench.harness.ranks.cluster import RemoteNode
from dlbench.harness.ranks.torchrun import RankSpec, Torchrun, printed, running_functions

_GRACE_S = 1.0
"""For the other ranks to answer once one has failed: they may say more, or wait for it for ever."""
_HELLO_S = 10.0
"""For a rank that has connected to send its number."""


class _Rank(Reader):
    """One rank: its messages, and its progress with the present request."""

    def __init__(self, connection: socket.socket, folder: Path) -> None:
        super().__init__(connection.fileno())
        self._connection = connection
        self._folder = folder
        self.number = self.pid = -1
        self.printed_before = 0
        """Bytes that it had printed before the request, if it is on this machine."""
        self.done = False

    def identify(self, wake: int) -> bool:
        """Read its number and process; False if it is no rank, or has disconnected."""
        with suppress(EOFError, ForeignLine, TimeoutError, KeyError):
            hello = self.read(time.monotonic() + _HELLO_S, wake)
            self.number, self.pid = hello["rank"], hello["pid"]
            return True
        self.end()
        return False

    def begin(self, request: Request) -> None:
        """Send a request; that a rank is gone already shows when its answer is read."""
        self.done = False
        self.printed_before = len(printed(self._folder, self.number))
        with suppress(OSError):
            send(self.fileno(), request.to_json())

    def end(self) -> None:
        """Disconnect, at which it ends with its group."""
        self._connection.close()


class RankGroup:
    """All ranks of one size, started together by torchrun. Use like a `WorkerProcess`: ``ask``, ``usable`` and ``end``.

    torchrun passes on no descriptors, so each rank connects: to a socket in a temporary folder, or to a free port where other
    ``machines`` have some of the ranks.
    """

    def __init__(
        self,
        counts: Sequence[int],
        threads: int,
        seed: int,
        interruption: Interruption,
        interpreter: Interpreter,
        machines: Sequence[RemoteNode] = (),
    ) -> None:
        self.usable = True
        self._size = sum(counts)
        firsts = accumulate(counts)
        self._others = [(first, machine) for first, machine, count in zip(firsts, machines, counts[1:], strict=False) if count]
        """The number of its first rank, and the machine."""
        self._interruption = interruption
        self._ranks: list[_Rank] = []
        self._timed: dict[int, Reply] = {}
        """What each had timed, before it went on to what is added."""
        self._folder = tempfile.TemporaryDirectory(prefix="dlbench-")
        first = machines[0].first if self._others else None
        store = f"{first.host}:{first.port}/{uuid.uuid4().hex}" if first else ""
        try:
            self._listener, address = self._listen()
            spec = RankSpec(counts[0], 0, self._size, address, store, threads, seed)
            self._torchrun = Torchrun(spec, interpreter, Path(self._folder.name))
        except BaseException:
            self._folder.cleanup()
            raise
        try:
            for (number, machine), count in zip(self._others, filter(None, counts[1:]), strict=True):
                machine.start(replace(spec, count=count, first=number))
        except BaseException:
            self.end()
            raise

    def ask(self, request: Request, deadline_s: float = START_S, run_ends: float = math.inf) -> RequestOutcome:
        """Ask every rank, and wait as `WorkerProcess.ask` does. All are ended unless each has answered and is fit for another request."""
        self._timed.clear()
        try:
            outcome = self._gather(run_ends) or self._answers(request, deadline_s, run_ends)
        except Interrupted:
            outcome = RequestOutcome("interrupted")
        reply = outcome.reply
        if reply is None or reply.fault or reply.status is Status.OOM or not all(rank.done for rank in self._ranks):
            self.end()
        return replace(outcome, timed=combined(self._timed, self._size) if len(self._timed) == self._size else None)

    def end(self) -> None:
        """End all ranks and torchrun, and free what belongs to them; a second time does nothing."""
        if not self.usable:
            return
        self.usable = False
        self._kill()
        self._torchrun.end()
        self._listener.close()
        self._folder.cleanup()
        for _, machine in self._others:
            machine.end()

    def _kill(self) -> None:
        for rank in self._ranks:
            rank.end()
            if self._machine_of(rank) is None:
                kill_group(rank.pid)

    def _machine_of(self, rank: _Rank) -> RemoteNode | None:
        """Return the other machine that a rank is on; None for this one."""
        return next((machine for first, machine in reversed(self._others) if first <= rank.number), None)

    def _listen(self) -> tuple[socket.socket, str]:
        """Return the socket that ranks connect to, and its address."""
        if self._others:
            listener = socket.create_server(("", 0), backlog=self._size)
            return listener, f"{self._others[0][1].first.host}:{listener.getsockname()[1]}"
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
        """Wait until every rank has connected; None when they have, else how it ended. Raises Interrupted."""
        deadline, wake = time.monotonic() + IMPORT_S, self._interruption.fileno()
        while len(self._ranks) < self._size:
            # Short waits, as torchrun has to be polled; nothing is measured now.
            ready, _, _ = select.select([self._listener.fileno(), wake], [], [], 0.1)
            if wake in ready:
                raise Interrupted
            if ready:
                rank = _Rank(self._listener.accept()[0], Path(self._folder.name))
                self._ranks += [rank] if rank.identify(wake) else []
            elif sentence := self._torchrun.exit_description():
                return RequestOutcome("died", sentence=sentence, who="torchrun")
            elif time.monotonic() >= run_ends:
                return RequestOutcome("budget")
            elif time.monotonic() > deadline:
                return RequestOutcome("died", sentence=f"did not start {self._size} ranks within {IMPORT_S:g} s", who="torchrun")
        self._ranks.sort(key=lambda rank: rank.number)
        return None

    def _answers(self, request: Request, deadline_s: float, run_ends: float) -> RequestOutcome:
        """Collect the answers of all ranks to one request. Raises Interrupted."""
        for rank in self._ranks:
            rank.begin(request)
        deadline = time.monotonic() + IMPORT_S  # while they still import torch; their own time starts when the first begins
        begun = failed = False
        replies: dict[int, Reply] = {}
        while waiting := [rank for rank in self._ranks if not rank.done]:
            try:
                ready = wait(waiting, min(deadline, run_ends), self._interruption.fileno())
            except TimeoutError:
                break
            for rank in ready:
                try:
                    message = rank.read()
                except EOFError:  # whatever the others say now comes from that
                    return self._death(rank)
                except ForeignLine as error:
                    return RequestOutcome("died", sentence=str(error), who=f"rank {rank.number}")
                if "pid" in message and not begun:
                    begun, deadline = True, time.monotonic() + deadline_s
                elif "timed" in message:
                    self._timed.setdefault(rank.number, convert(Reply, message["timed"]))
                elif "reply" in message:
                    replies[rank.number] = convert(Reply, message["reply"])
                rank.done = "exit" in message
            if not failed and any(reply.status is not Status.OK for reply in replies.values()):
                failed, deadline = True, time.monotonic() + _GRACE_S
        if failed or not waiting:
            return RequestOutcome("replied", combined(replies, self._size))
        if time.monotonic() >= run_ends:
            return RequestOutcome("budget")
        return RequestOutcome("deadline", sentence=self._functions())

    def _death(self, rank: _Rank) -> RequestOutcome:
        """Describe how a rank ended, which torchrun on its machine reports once all of them are gone."""
        self._kill()
        if machine := self._machine_of(rank):
            sentence = machine.exit_description_of(rank.number, rank.pid)
        else:
            sentence = self._torchrun.exit_description_of(rank.number, rank.pid, rank.printed_before)
        return RequestOutcome("died", sentence=sentence, who=f"rank {rank.number}")

    def _functions(self) -> str:
        """Say in which function each rank is: one that waits is in a collective, one that hangs elsewhere."""
        found: dict[int, str] = {}
        for machine, ranks in groupby(self._ranks, self._machine_of):
            pids = {rank.number: rank.pid for rank in ranks}
            found |= machine.running_functions(pids) if machine else running_functions(Path(self._folder.name), pids)
        known = sorted(found, key=lambda number: (found[number], number))
        together = [(function, [f"{number}" for number in numbers]) for function, numbers in groupby(known, found.__getitem__)]
        return ", ".join(f"rank{'s' * (len(numbers) > 1)} {' and '.join(numbers)} in {function}()" for function, numbers in together)


def combined(replies: Mapping[int, Reply], size: int) -> Reply:
    """Make one reply of those of all ranks, which stand in the order of their arrival.

    It is rank 0's, with the highest memory and the bytes that all copy; or the first that is not ok, with its rank in the sentence unless
    all ranks say the same.
    """
    if bad := {number: reply for number, reply in replies.items() if reply.status is not Status.OK}:
        number, reply = next(iter(bad.items()))
        alike = len(bad) == size and len({each.reason for each in bad.values()}) == 1
        named = reply if alike else reply.with_reason(f"rank {number}: {reply.reason}")
        return replace(named, fault=any(each.fault for each in bad.values()))
    measurements = [measurement for _, reply in sorted(replies.items()) if (measurement := reply.measurement)]
    whole = measurements[0]
    known = [name for name, peak in asdict(whole.memory).items() if peak is not None]
    memory = replace(whole.memory, **{name: max(getattr(each.memory, name) or 0 for each in measurements) for name in known})
    transfer = whole.transfer
    if transfer:  # taken by all ranks or by none, in a time that all of them read
        copied = ("h2d_bytes", "d2h_bytes")
        transfer = replace(transfer, **{name: sum(getattr(each.transfer, name) for each in measurements) for name in copied})
    return replace(replies[0], measurement=replace(whole, memory=memory, transfer=transfer))
