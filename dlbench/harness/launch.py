"""The measuring processes of several ranks as their parent sees them: started by torchrun, asked together, and taken down together."""

import json
import select
import socket
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any

from dlbench.core.errors import WorkerError
from dlbench.core.model import Status
from dlbench.harness.agent import Agent, Order, places, printed
from dlbench.harness.host import START_S, Ending, Interpreter, fate, kill_group
from dlbench.harness.interruption import Interruption
from dlbench.harness.machines import Machine

_GRACE_S = 1.0
"""For the other ranks to answer once one has failed: they may say more, or wait for it for ever."""
_HELLO_S = 10.0
"""For a rank that has called to say which it is."""


class _Rank:
    """One rank: the connection to it, and how far it is with the present request."""

    def __init__(self, connection: socket.socket, number: int, pid: int, folder: Path) -> None:
        self._connection = connection
        self.number = number
        self.pid = pid
        self._folder = folder
        self.said_before = 0
        """Bytes that it had printed before the request, if it is on this machine."""
        self.done = self.dead = False
        self._buffer = b""

    @classmethod
    def calling(cls, listener: socket.socket, folder: Path) -> "_Rank | None":
        """Answer a call; None if it was no rank that called, or one that has hung up."""
        connection, _ = listener.accept()
        connection.settimeout(_HELLO_S)
        try:
            hello = json.loads(connection.recv(1 << 10))
            rank = cls(connection, hello["rank"], hello["pid"], folder)
        except (OSError, ValueError, TypeError, KeyError):
            connection.close()
            return None
        connection.settimeout(None)
        return rank

    def fileno(self) -> int:
        """Return what becomes readable when it answers, or dies."""
        return self._connection.fileno()

    def begin(self, request: bytes) -> None:
        """Hand over a request; a rank that is gone already tells so when its answer is read."""
        self.done = False
        self.said_before = len(printed(self._folder, self.number))
        with suppress(OSError):
            self._connection.sendall(request)

    def messages(self) -> list[dict[str, Any]]:
        """Read what it has written, waiting for some; at the end it is dead."""
        try:
            data = self._connection.recv(1 << 16)
        except OSError:  # a connection that was cut, not closed
            data = b""
        self.dead = not data
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def end(self) -> None:
        """Cut it off, at which it ends with its group."""
        self._connection.close()


class Launch:
    """All ranks of one size, started together by torchrun. Use like a `Host`: ``ask``, ``usable`` and ``end``.

    torchrun hands on no descriptors, so each rank calls back: at a socket in a folder of this launch, or, where ``machines`` other than
    this one have ranks of it, at a port that is free.
    """

    def __init__(
        self,
        counts: Sequence[int],
        threads: int,
        seed: int,
        interruption: Interruption,
        interpreter: Interpreter,
        machines: Sequence[Machine] = (),
    ) -> None:
        self.usable = True
        self._here, self._size = counts[0], sum(counts)
        firsts = accumulate(counts)
        self._others = [(first, machine) for first, machine, count in zip(firsts, machines, counts[1:], strict=False) if count]
        """The number of its first rank, and the machine."""
        self._interruption = interruption
        self._ranks: list[_Rank] = []
        self._folder = tempfile.TemporaryDirectory(prefix="dlbench-")
        store = f"{machines[0].store}/{uuid.uuid4().hex}" if self._others else ""
        try:
            self._listener, address = self._listen()
            order = Order(self._here, 0, self._size, address, store, threads, seed)
            self._agent = Agent(order, interpreter, Path(self._folder.name))
        except BaseException:
            self._folder.cleanup()
            raise
        try:
            for (first, machine), count in zip(self._others, filter(None, counts[1:]), strict=True):
                machine.start(replace(order, count=count, first=first))
        except BaseException:
            self.end()
            raise

    def ask(self, request: dict[str, Any], deadline_s: float = START_S) -> Ending:
        """Send one request to every rank and wait for all of them, as one: see `Host.ask`.

        They stay for the next one only where each has answered and is fit for it; else all of them are gone.
        """
        if len(self._ranks) < self._size and (ending := self._gather()):
            self.end()
            return ending
        line = json.dumps(request).encode() + b"\n"
        for rank in self._ranks:
            rank.begin(line)
        ending = self._wait(deadline_s)
        if not self._fit_for_more(ending):
            self.end()
        return ending

    def _fit_for_more(self, ending: Ending) -> bool:
        """Whether no rank waits for another in vain, and no device is at fault or full."""
        reply = ending.reply or {}
        full = reply.get("measurement", {}).get("status") == Status.OOM
        return ending.how == "replied" and all(rank.done for rank in self._ranks) and not full and not reply.get("fault")

    def end(self) -> None:
        """End all ranks and torchrun, and free what belongs to them; a second time does nothing."""
        if not self.usable:
            return
        self.usable = False
        self._kill()
        self._agent.end()
        self._listener.close()
        self._folder.cleanup()
        for _, machine in self._others:
            machine.end()

    def _kill(self) -> None:
        for rank in self._ranks:
            rank.end()
            if self._machine_of(rank) is None:
                kill_group(rank.pid)

    def _machine_of(self, rank: _Rank) -> Machine | None:
        """Return the other machine that a rank is on; None for this one."""
        return next((machine for first, machine in reversed(self._others) if first <= rank.number), None)

    def _listen(self) -> tuple[socket.socket, str]:
        """Return the socket at which ranks call back, and its address."""
        if self._others:
            listener = socket.create_server(("", 0), backlog=self._size)
            return listener, f"{self._others[0][1].head}:{listener.getsockname()[1]}"
        listener = socket.socket(socket.AF_UNIX)
        address = str(Path(self._folder.name) / "parent")
        try:
            listener.bind(address)
        except OSError as error:
            listener.close()
            raise WorkerError(f"cannot make a socket in {tempfile.gettempdir()}: {error}; set TMPDIR to another folder") from error
        listener.listen(self._size)
        return listener, address

    def _gather(self) -> Ending | None:
        """Wait until every rank has called; None when they have, else how it ended."""
        deadline = time.monotonic() + START_S
        while len(self._ranks) < self._size:
            # Short waits: nothing is measured now, and torchrun itself tells of its end only when asked.
            ready, _, _ = select.select([self._listener.fileno(), self._interruption.fileno()], [], [], 0.1)
            if self._interruption.requested:
                return Ending("interrupted")
            if self._listener.fileno() in ready:
                self._ranks += filter(None, [_Rank.calling(self._listener, Path(self._folder.name))])
            elif (code := self._agent.exit_code()) is not None:
                return Ending("died", sentence=fate(code, self._agent.text()), who="torchrun")
            elif time.monotonic() > deadline:
                return Ending("died", sentence=f"did not start {self._size} ranks within {START_S:g} s", who="torchrun")
        self._ranks.sort(key=lambda rank: rank.number)
        return None

    def _wait(self, deadline_s: float) -> Ending:
        """Collect the answers of all ranks to one request."""
        deadline = time.monotonic() + START_S  # while they still import torch; their own time starts when the first begins
        begun = failed = False
        replies: dict[int, dict[str, Any]] = {}
        while waiting := [rank for rank in self._ranks if not rank.done]:
            left = max(0.0, deadline - time.monotonic())
            ready, _, _ = select.select([*map(_Rank.fileno, waiting), self._interruption.fileno()], [], [], left)
            if self._interruption.requested:
                return Ending("interrupted")
            if not ready:
                break
            for rank in waiting:
                for message in rank.messages() if rank.fileno() in ready else ():
                    if "pid" in message and not begun:
                        begun, deadline = True, time.monotonic() + deadline_s
                    elif "reply" in message:
                        replies[rank.number] = message["reply"]
                    rank.done = "exit" in message
                if rank.dead:  # whatever the others say now comes from that
                    return self._death(rank)
            if not failed and not all(map(_is_ok, replies.values())):
                failed, deadline = True, time.monotonic() + _GRACE_S
        if failed or not waiting:
            return Ending("replied", combined(replies, self._size))
        return Ending("deadline", sentence=self._whereabouts())

    def _death(self, rank: _Rank) -> Ending:
        """Say how a rank ended, which torchrun knows on its machine and tells once all of them are gone."""
        self._kill()
        if machine := self._machine_of(rank):
            sentence = machine.fate_of(rank.number, rank.pid)
        else:
            sentence = self._agent.fate_of(rank.number, rank.pid, rank.said_before)
        return Ending("died", sentence=sentence, who=f"rank {rank.number}")

    def _whereabouts(self) -> str:
        """Say in which function each rank is: one that waits is in a collective, one that hangs elsewhere."""
        found: dict[int, str] = {}
        for machine, ranks in groupby(self._ranks, self._machine_of):
            pids = {rank.number: rank.pid for rank in ranks}
            found |= machine.places(pids) if machine else places(Path(self._folder.name), pids)
        known = sorted(found, key=lambda number: (found[number], number))
        together = [(place, [f"{number}" for number in numbers]) for place, numbers in groupby(known, found.__getitem__)]
        return ", ".join(f"rank{'s' * (len(numbers) > 1)} {' and '.join(numbers)} in {place}()" for place, numbers in together)


def combined(replies: Mapping[int, Mapping[str, Any]], size: int) -> dict[str, Any]:
    """Make one reply of those of all ranks, the first to answer first.

    It is rank 0's, with the highest memory and the bytes that all copy; or the first that is not ok, whose sentence names its rank
    unless all say the same.
    """
    if bad := {number: reply for number, reply in replies.items() if not _is_ok(reply)}:
        number, reply = next(iter(bad.items()))
        alike = len(bad) == size and len({_sentence(each) for each in bad.values()}) == 1
        told = dict(reply) if alike else _with_sentence(reply, f"rank {number}: {_sentence(reply)}")
        return told | ({"fault": True} if any(each.get("fault") for each in bad.values()) else {})
    measurements = [replies[0]["measurement"], *(reply["measurement"] for number, reply in replies.items() if number)]
    whole = dict(measurements[0])
    if memory := whole.get("memory"):
        highest = {name: max(each["memory"][name] or 0 for each in measurements) for name, value in memory.items() if value is not None}
        whole["memory"] = memory | highest
    if transfer := whole.get("transfer"):  # taken by all ranks or by none, in a time that all of them read
        whole["transfer"] = transfer | {name: sum(each["transfer"][name] for each in measurements) for name in ("h2d_bytes", "d2h_bytes")}
    return {"measurement": whole, "fault": False}


def _is_ok(reply: Mapping[str, Any] | None) -> bool:
    return reply is not None and "measurement" in reply and reply["measurement"]["status"] == Status.OK


def _sentence(reply: Mapping[str, Any]) -> str:
    return str(reply["error"] if "error" in reply else reply["measurement"].get("reason"))


def _with_sentence(reply: Mapping[str, Any], sentence: str) -> dict[str, Any]:
    if "error" in reply:
        return {**reply, "error": sentence}
    return {**reply, "measurement": {**reply["measurement"], "reason": sentence}}
