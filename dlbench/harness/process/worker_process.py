"""Parent-side handle of measuring processes: spawn, request, timeout, kill."""

import math
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from dlbench.core.decoding import convert
from dlbench.core.errors import DeviceFault, Interrupted, WorkerError
from dlbench.core.measurement import Memory
from dlbench.core.model import Status
from dlbench.harness.probe.sampler import Window
from dlbench.harness.process.launch import Interpreter, Interruption, exit_description, kill_group, own_variables, start
from dlbench.harness.process.wire import ForeignLine, HelloRequest, Reader, Reply, Request, send, wait

_WORKER = """
import gc
gc.disable()
from dlbench.harness.worker.serving.main import main
main()
"""
_LEAST_TORCH = (2, 6)
IMPORT_S = 300.0
"""For a new process to import torch: with CUDA's libraries that is several GB, from a cold disk or over a network."""
START_S = 120.0
"""For starting the devices, once torch is imported."""
_ANSWER_S = 1.0
"""For the other ranks to answer once one has failed: they may say more, or wait for it for ever."""
_GRACE_S = 10.0
"""For a process to report the end of its fork, or to be gone once killed: one that waits for a driver can't be ended."""


Mode = Literal["fork", "stay"]
"""Whether the process forks for every request or does them itself."""


@dataclass(frozen=True)
class RequestOutcome:
    """How one request ended."""

    how: Literal["replied", "died", "deadline", "budget", "interrupted"]
    """``deadline`` is its own, ``budget`` the end of the whole run."""
    reply: Reply | None = None
    sentence: str = ""
    """How a process died, with its last line of output; at the deadline, its stage, or the functions that its ranks were in."""
    who: str = "its process"
    unkillable: bool = False
    """Whether the process was still there long after it was killed: it waits for a driver, and keeps the memory that it had."""
    timed: Reply | None = None
    """The measurement as it was before the last reply, or instead of it."""

    def ending(self, timeout_s: float, *, memory_ran_out: bool) -> tuple[Status, str]:
        """Return status and reason of a case without a reply, or with one that has only an error."""
        if self.reply:
            return self.reply.status, self.reply.error or ""
        if self.how in ("budget", "interrupted"):
            return Status.SKIPPED, "the budget was spent" if self.how == "budget" else "the run was interrupted"
        if self.how == "deadline":
            doing = f" ({self.sentence})" if self.sentence else ""
            return Status.TIMEOUT, f"not done within {timeout_s:g} s{doing}; raise --timeout"
        if memory_ran_out:
            return Status.OOM, f"the kernel ended {self.who} for want of memory"
        return Status.CRASHED, f"{self.who} {self.sentence}"


class Channel(Reader):
    """The messages of one measuring process, and its progress with the present request."""

    def __init__(self, replies: int, requests: int, output: int | Path, number: int = 0, pid: int = 0, who: str = "its process") -> None:
        super().__init__(replies)
        self._requests, self._output = requests, output
        self.number, self.pid, self.who = number, pid, who
        self.printed_before = 0
        """Bytes that it had printed before the request; 0 for the first, as what it printed before may say why that fails."""
        self.stage = ""
        self.case_pid: int | None = None
        """Process that does the request: the process itself, or its fork."""
        self.timed: Reply | None = None
        self.exit: int | None = None
        """The exit code of the process that did the request, once that is over."""

    def send(self, request: Request) -> None:
        """Send a request. If the process is gone already, reading its answer will show that."""
        with suppress(OSError):  # the output is a file on another machine
            if self.exit is not None:
                self.printed_before = os.stat(self._output).st_size  # noqa: PTH116  # of a descriptor, too
        with suppress(OSError):
            send(self._requests, asdict(request))


class MeasuringProcess:
    """Handle of a measuring process, alone or as several ranks: `ask` it as long as it is ``usable``, and `end` it."""

    def __init__(self, interruption: Interruption, size: int = 1) -> None:
        self.usable = True
        self._size = size
        self._wake = interruption.fileno()
        self._channels: Sequence[Channel] = ()
        self._unkillable = False

    def ask(
        self, request: Request, deadline_s: float = START_S, run_ends: float = math.inf, window: Window | None = None
    ) -> RequestOutcome:
        """Send one request and wait for its end: a reply, the death of a process, the deadline, the end of the run, or Ctrl-C.

        ``deadline_s`` counts from the beginning of the request; ``run_ends`` is on the scale of `time.monotonic`. After anything but a
        reply the process that did the request is gone, with its group. ``window`` is read while the request has a step metered.
        """
        self.send(request)
        return self.answer(deadline_s, run_ends, window)

    def send(self, request: Request) -> None:
        """Send a request without waiting for it: `answer` does that."""
        self._request = request
        for channel in self._channels:
            channel.send(request)

    def answer(self, deadline_s: float = START_S, run_ends: float = math.inf, window: Window | None = None) -> RequestOutcome:
        """Wait for the end of the last request, as `ask` does. End all processes unless they are fit for another one."""
        try:
            outcome = self._gather(run_ends) or self._collect(deadline_s, run_ends, window)
        except Interrupted:
            outcome = RequestOutcome("interrupted")
        timed = {channel.number: channel.timed for channel in self._channels if channel.timed}
        ended = len(self._channels) == self._size and all(channel.exit is not None for channel in self._channels)
        reply = outcome.reply
        is_unfit = reply is not None and (reply.fault or (self._size > 1 and reply.status is Status.OOM))
        if not ended or is_unfit:
            self.end()
        whole = combine_replies(timed, self._size) if len(timed) == self._size else None
        return replace(outcome, unkillable=self._unkillable, timed=whole)

    def _collect(self, deadline_s: float, run_ends: float, window: Window | None) -> RequestOutcome:
        """Read messages until every process is done with the request, and return how it ended. Raises Interrupted.

        A process sends the ``pid`` of what does the request when it begins, then, where there are such, its ``stage``, what was ``timed``
        so far, the ends of the metered ``window`` and its ``reply``, and at last the code of its ``exit``. Once a rank has failed the
        others, which may wait for it for ever, have `_ANSWER_S` to fail as well.
        """
        deadline = time.monotonic() + IMPORT_S  # until the first process has imported torch and begins the request
        begun = failed = False
        replies: dict[int, Reply] = {}
        for channel in self._channels:
            channel.stage = ""
            channel.case_pid = channel.timed = channel.exit = None
        while waiting := [channel for channel in self._channels if channel.exit is None]:
            try:
                ready = self._wait(waiting, min(deadline, run_ends), window)
            except TimeoutError:
                if failed:
                    break
                if time.monotonic() >= run_ends:
                    return RequestOutcome("budget", sentence=self._stop() if self._size == 1 else "")
                if begun:
                    return RequestOutcome("deadline", sentence=self._stop())
                late = f"had not imported torch after {IMPORT_S:g} s; try again, as the disk may have it at hand by then"
                return RequestOutcome("died", sentence=late)
            for channel in ready:
                try:
                    message = channel.read()
                except EOFError:  # the errors of the other ranks follow from this one's
                    return self._death(channel)
                except ForeignLine as error:
                    return RequestOutcome("died", sentence=str(error), who=channel.who)
                if "pid" in message:
                    channel.case_pid = message["pid"]
                    if not begun:
                        begun, deadline = True, time.monotonic() + deadline_s
                elif "stage" in message:
                    channel.stage = message["stage"]
                elif "timed" in message and (self._size == 1 or not channel.timed):  # of ranks the first, which all have
                    channel.timed = convert(Reply, message["timed"])
                elif "window" in message and window:
                    window.mark(message["window"])
                elif "reply" in message:
                    replies[channel.number] = convert(Reply, message["reply"])
                elif "exit" in message:
                    channel.exit = message["exit"]
            if self._size > 1 and not failed and any(reply.status is not Status.OK for reply in replies.values()):
                failed, deadline = True, time.monotonic() + _ANSWER_S
        return RequestOutcome("replied", combine_replies(replies, self._size)) if replies else self._death(self._channels[0])

    def _wait(self, waiting: Sequence[Channel], deadline: float, window: Window | None) -> list[Channel]:
        """Wait for messages as `wire.wait` does, and read the window whenever a reading is due."""
        while window and window.due_s < deadline:
            with suppress(TimeoutError):
                return wait(waiting, window.due_s, self._wake)
            window.read()
        return wait(waiting, deadline, self._wake)

    def end(self) -> None:
        """Kill all processes and free their resources; a second time does nothing."""
        raise NotImplementedError

    def _gather(self, run_ends: float) -> RequestOutcome | None:
        """Wait until all processes can answer. Return None then, else how the request ended. Raises Interrupted."""

    def _death(self, channel: Channel) -> RequestOutcome:
        """Return how a process, or the fork that did its request, ended."""
        raise NotImplementedError

    def _stop(self) -> str:
        """Return the stage of a request that is out of time, and end what can be ended without the process itself."""
        raise NotImplementedError


def combine_replies(replies: Mapping[int, Reply], size: int) -> Reply:
    """Combine the replies of ranks, by their numbers and in the order of their arrival, into one.

    If all are ok, return that of rank 0 with the highest memory of any rank. Otherwise return the first that is not ok; its reason names
    the rank, unless all ranks give the same one.
    """
    if size == 1:
        return replies[0]
    bad = {number: reply for number, reply in replies.items() if reply.status is not Status.OK}
    if bad:
        number, reply = next(iter(bad.items()))
        alike = len(bad) == size and len({each.reason for each in bad.values()}) == 1
        named = reply if alike else reply.with_reason(f"rank {number}: {reply.reason}")
        return replace(named, fault=any(each.fault for each in bad.values()))
    memories = [astuple(reply.measurement.memory) for reply in replies.values() if reply.measurement]
    # The highest of each kind of memory; None, for unknown, if a rank does not know its own.
    highest = Memory(*(None if None in ranks else max(ranks) for ranks in zip(*memories, strict=True)))
    first = replies[0]
    return replace(first, measurement=first.measurement and replace(first.measurement, memory=highest))


class WorkerProcess(MeasuringProcess):
    """One measuring process. A context manager that ends the process, and all that it started, at its end."""

    def __init__(self, mode: Mode, threads: int, seed: int, interruption: Interruption, interpreter: Interpreter | None = None) -> None:
        super().__init__(interruption)
        self.mode = mode
        self.interpreter = interpreter = interpreter or Interpreter()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  # end() closes it
        request_read, requests = os.pipe()
        replies, reply_write = os.pipe()
        lifeline_read, lifeline = os.pipe()
        self._ours = (requests, replies, lifeline)
        handed = (request_read, reply_write, lifeline_read)
        self._channels = [Channel(replies, requests, self._output.fileno())]
        environ = {**interpreter.environment(), **own_variables(threads, seed)}
        try:
            self._process = start(interpreter, _WORKER, [mode, *map(str, handed)], environ, self._output, handed)
        except WorkerError:
            self._close()
            raise
        finally:
            for descriptor in handed:
                os.close(descriptor)

    def __enter__(self) -> "WorkerProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Kill the process and its group and free its resources; a second time does nothing."""
        if not self.usable:
            return
        self.usable = False
        self._close()
        if self._channels[0].exit is None and (pid := self._channels[0].case_pid):
            kill_group(pid)
        kill_group(self._process.pid)
        self._unkillable = self._exit() is None

    def _exit(self) -> int | None:
        """Return the exit code; None if the process does not exit, such as one that waits for a device which fell off its bus."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(_GRACE_S)
        return None

    def _death(self, channel: Channel) -> RequestOutcome:
        code = self._exit() if channel.exit is None else channel.exit
        if code is None:
            return RequestOutcome("died", sentence="has ended and is still there")
        # pread, because the process shares this file's offset and goes on writing there.
        output = os.pread(self._output.fileno(), 1 << 16, channel.printed_before)
        return RequestOutcome("died", sentence=exit_description(code, output.decode(errors="replace")))

    def _stop(self) -> str:
        """Kill the fork that does the request, if any, and wait until the process reports its end, which shows that it lives on."""
        (channel,) = self._channels
        if self.mode == "fork" and channel.case_pid is not None:
            kill_group(channel.case_pid)
            channel.case_pid = None
            grace = time.monotonic() + _GRACE_S
            with suppress(EOFError, ForeignLine, TimeoutError, Interrupted):
                while "exit" not in (message := channel.read(grace, self._wake)):
                    pass
                channel.exit = message["exit"]
        return channel.stage

    def _close(self) -> None:
        for descriptor in self._ours:
            os.close(descriptor)
        self._output.close()


def handshake(
    worker: WorkerProcess, plugins: Sequence[str], workloads: Sequence[str], threads: int, not_from: str | None = None
) -> dict[str, Any]:
    """Ask a new process for devices, versions and workloads, and return its answer. It imports no module from ``not_from``.

    Raises WorkerError with its error, or if it lacks what measuring needs, and DeviceFault if the devices do not answer.
    """
    outcome = worker.ask(HelloRequest(threads=threads, plugins=tuple(plugins), workloads=tuple(workloads), not_from=not_from))
    name = Path(worker.interpreter.python).name
    reply = outcome.reply
    if reply and reply.hello:
        torch = str(reply.hello["versions"]["torch"])
        if tuple(map(int, torch.split(".")[:2])) < _LEAST_TORCH:
            raise WorkerError(f"{name} has torch {torch}; dlbench needs torch 2.6 or later")
        return reply.hello
    if outcome.how == "interrupted":
        raise Interrupted
    if reply:
        raise WorkerError(reply.error)
    if "No module named 'torch'" in outcome.sentence:
        raise WorkerError(f"torch is not installed for {name}; dlbench measures the torch you have: install torch 2.6 or later")
    if old := re.search(r"too old: (Python [\d.]+)", outcome.sentence):
        raise WorkerError(f"{name} is {old[1]}; the measuring process needs Python 3.11 or later")
    failed = "the measuring process could not start: it"
    if outcome.how == "deadline":
        raise DeviceFault(
            f"{failed} imported torch, and did not say within {START_S:g} s which devices there are; see what their driver says"
        )
    raise WorkerError(f"{failed} {outcome.sentence or outcome.how}")
