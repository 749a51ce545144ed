"""Parent-side handle of measuring processes, which starts them, sends requests, reads replies and ends what takes too long."""

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
"""For the other ranks to answer once one has failed: they may fail, too, or wait for it for ever."""
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
    """How a process died, with its last line of output; at the deadline, the stage that it, or rank 0, was in."""
    who: str = "its process"
    unkillable: bool = False
    """Whether the process was still there long after it was killed: it waits for a driver, and keeps the memory that it had."""
    timed: Reply | None = None
    """The measurement as it was once it was timed, without what later steps add; None if the case did not get that far."""

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
            # `_gather` has an outcome only where the processes can't answer.
            outcome = self._gather(run_ends) or self._collect(deadline_s, run_ends, window)
        except Interrupted:
            outcome = RequestOutcome("interrupted")
        timed = {channel.number: channel.timed for channel in self._channels if channel.timed}
        all_done = len(self._channels) == self._size and all(channel.exit is not None for channel in self._channels)
        reply = outcome.reply
        # A process whose device is at fault is unfit for another request, and so are all ranks once one of them has run out of memory.
        is_unfit = reply is not None and (reply.fault or (self._size > 1 and reply.status is Status.OOM))
        if not all_done or is_unfit:
            self.end()
        timed_by_all = combine_replies(timed, self._size) if len(timed) == self._size else None
        return replace(outcome, unkillable=self._unkillable, timed=timed_by_all)

    def _collect(self, deadline_s: float, run_ends: float, window: Window | None) -> RequestOutcome:
        """Read the messages of all processes until each is done with the request, and return how it ended. Raises Interrupted.

        First each sends the ``pid`` of the process that does the request: its own, or its fork's. Last comes the ``exit`` code of that.
        Between them there may be its ``stage``, what was ``timed`` so far, marks that begin or end sampling of the ``window``, and its
        ``reply``.
        """
        # Until the first process begins the request this is the deadline for importing torch; then it is the request's own.
        deadline = time.monotonic() + IMPORT_S
        has_begun = has_failed = False
        replies: dict[int, Reply] = {}
        for channel in self._channels:
            channel.stage = ""
            channel.case_pid = channel.timed = channel.exit = None
        while waiting := [channel for channel in self._channels if channel.exit is None]:
            try:
                ready = self._wait(waiting, min(deadline, run_ends), window)
            except TimeoutError:
                if has_failed:  # the reply of the failed rank says how the request ended
                    break
                return self._out_of_time(has_begun, run_ends)
            for channel in ready:
                try:
                    message = channel.read()
                except EOFError:  # it is gone; of several ranks the first that is gone causes the errors of the others
                    return self._death(channel)
                except ForeignLine as error:
                    return RequestOutcome("died", sentence=str(error), who=channel.who)
                match message:
                    case {"pid": pid}:
                        channel.case_pid = pid
                        if not has_begun:
                            has_begun, deadline = True, time.monotonic() + deadline_s
                    case {"stage": stage}:
                        channel.stage = stage
                    # A single process may send several, and the last counts. Of several ranks only some may send another one. So the first
                    # of each counts: these are of the same point of the case, and are combined.
                    case {"timed": timed} if self._size == 1 or not channel.timed:
                        channel.timed = convert(Reply, timed)
                    case {"window": mark} if window:
                        window.mark(mark)
                    case {"reply": reply}:
                        replies[channel.number] = convert(Reply, reply)
                    case {"exit": code}:
                        channel.exit = code
            # The other ranks may wait for a failed one for ever, so they get a short time to end.
            if self._size > 1 and not has_failed and any(reply.status is not Status.OK for reply in replies.values()):
                has_failed, deadline = True, time.monotonic() + _ANSWER_S
        # Without any reply each process that did the request has died. The first one stands for all.
        return RequestOutcome("replied", combine_replies(replies, self._size)) if replies else self._death(self._channels[0])

    def _out_of_time(self, has_begun: bool, run_ends: float) -> RequestOutcome:
        """Stop a request that is not done in time, and return which time was over: the run's, its own or that for importing torch."""
        if time.monotonic() >= run_ends:
            return RequestOutcome("budget", sentence=self._stop() if self._size == 1 else "")
        if has_begun:
            return RequestOutcome("deadline", sentence=self._stop())
        late = f"had not imported torch after {IMPORT_S:g} s; try again, as the disk may have it at hand by then"
        return RequestOutcome("died", sentence=late)

    def _wait(self, waiting: Sequence[Channel], deadline: float, window: Window | None) -> list[Channel]:
        """Wait for messages as `wire.wait` does, and take a sample of the window whenever one is due."""
        while window and window.due_s < deadline:
            with suppress(TimeoutError):
                return wait(waiting, window.due_s, self._wake)
            window.read()
        return wait(waiting, deadline, self._wake)

    def end(self) -> None:
        """Kill all processes and free their resources; a second time does nothing."""

    def _gather(self, run_ends: float) -> RequestOutcome | None:
        """Wait until all processes can answer. Return None then, else how the request ended. Raises Interrupted."""

    def _death(self, channel: Channel) -> RequestOutcome:
        """Return the outcome of a request whose process, or fork, ended without a reply."""
        raise NotImplementedError

    def _stop(self) -> str:
        """End the fork that does a request, if there is one, and return the stage that the request was in."""
        raise NotImplementedError


def combine_replies(replies: Mapping[int, Reply], size: int) -> Reply:
    """Return one reply for those of ``size`` ranks, which are given by the number of the rank and in the order in which they arrived.

    If all are ok, it is that of rank 0 with the highest memory of any rank. Otherwise it is the first that is not ok; its reason names the
    rank, unless all ranks give the same reason.
    """
    if size == 1:
        return replies[0]
    bad = {number: reply for number, reply in replies.items() if reply.status is not Status.OK}
    if bad:
        number, reply = next(iter(bad.items()))
        have_one_reason = len(bad) == size and len({each.reason for each in bad.values()}) == 1
        named_reply = reply if have_one_reason else reply.with_reason(f"rank {number}: {reply.reason}")
        return replace(named_reply, fault=any(each.fault for each in bad.values()))
    memories = [astuple(reply.measurement.memory) for reply in replies.values() if reply.measurement]
    bytes_by_kind = zip(*memories, strict=True)  # of each kind of memory the bytes of all ranks
    # Unknown, which is None, if any rank does not know its own.
    highest = Memory(*(None if None in of_ranks else max(of_ranks) for of_ranks in bytes_by_kind))
    rank_0 = replies[0]
    return replace(rank_0, measurement=rank_0.measurement and replace(rank_0.measurement, memory=highest))


class WorkerProcess(MeasuringProcess):
    """One measuring process; ``seed`` is that of `own_variables`. A context manager that ends it, and all that it started, at its end."""

    def __init__(self, mode: Mode, threads: int, seed: int, interruption: Interruption, interpreter: Interpreter) -> None:
        super().__init__(interruption)
        self.mode = mode
        self.interpreter = interpreter
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  # end() closes it
        request_read, requests = os.pipe()
        replies, reply_write = os.pipe()
        lifeline_read, lifeline = os.pipe()  # nothing is written to it; when this process is gone, it closes, and that ends the other one
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
            for descriptor in handed:  # the process has its own copies; a pipe ends only once nobody else has its end open
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
        """Kill the fork that does the request, if there is one, and return the stage that the request was in.

        The process is given time to report that its fork has ended. With that report it is fit for the next request.
        """
        (channel,) = self._channels
        if self.mode == "fork" and channel.case_pid is not None:
            kill_group(channel.case_pid)
            channel.case_pid = None
            deadline = time.monotonic() + _GRACE_S
            with suppress(EOFError, ForeignLine, TimeoutError, Interrupted):
                while "exit" not in (message := channel.read(deadline, self._wake)):
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
    """Ask a new process for devices, versions and workloads, and return its answer. The process imports no module from ``not_from``.

    Raises WorkerError if it gives an error, did not start or lacks what measuring needs. Raises DeviceFault if its devices do not answer
    in time. Raises Interrupted after a signal such as Ctrl-C.
    """
    outcome = worker.ask(HelloRequest(threads=threads, plugins=tuple(plugins), workloads=tuple(workloads), not_from=not_from))
    python = Path(worker.interpreter.python).name
    reply = outcome.reply
    if reply and reply.hello:
        torch = str(reply.hello["versions"]["torch"])
        if tuple(map(int, torch.split(".")[:2])) < _LEAST_TORCH:
            raise WorkerError(f"{python} has torch {torch}; dlbench needs torch 2.6 or later")
        return reply.hello
    if outcome.how == "interrupted":
        raise Interrupted
    if reply:
        raise WorkerError(reply.error)
    if "No module named 'torch'" in outcome.sentence:
        raise WorkerError(f"torch is not installed for {python}; dlbench measures the torch you have: install torch 2.6 or later")
    if too_old := re.search(r"too old: (Python [\d.]+)", outcome.sentence):  # see `launch._START`
        raise WorkerError(f"{python} is {too_old[1]}; the measuring process needs Python 3.11 or later")
    not_started = "the measuring process could not start: it"
    if outcome.how == "deadline":
        raise DeviceFault(
            f"{not_started} imported torch, and did not say within {START_S:g} s which devices there are; see what their driver says"
        )
    raise WorkerError(f"{not_started} {outcome.sentence or outcome.how}")
