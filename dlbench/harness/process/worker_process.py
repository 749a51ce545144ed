"""Parent-side handle of a measuring process: spawn, request, timeout, kill."""

import math
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Literal

import dlbench
from dlbench.core.decoding import convert
from dlbench.core.errors import DeviceFault, Interrupted, WorkerError
from dlbench.core.model import Status
from dlbench.harness.probe import processor
from dlbench.harness.probe.window import Window
from dlbench.harness.process.interrupt import Interruption
from dlbench.harness.process.wire import ForeignLine, HelloRequest, Message, Reader, Reply, Request, send

_START = """
import sys
if sys.version_info < (3, 11):
    sys.exit("too old: Python %d.%d" % tuple(sys.version_info[:2]))
if not {imports_from_folder!r}:
    sys.path[:] = [path for path in sys.path if path]
import importlib.util
spec = importlib.util.spec_from_file_location("dlbench", {package!r})
sys.modules["dlbench"] = package = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
"""
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
_GRACE_S = 10.0
"""For a process to report the end of its fork, or to be gone once killed: one that waits for a driver can't be ended."""
_TRACEBACK = ("File ", "Current thread", "Thread ", "Stack ", "Extension modules", "<no Python frame>")


Mode = Literal["fork", "stay"]
"""Whether the process forks for every request or does them itself."""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The Python of a measuring process, which needs torch and nothing else, with its environment and folder."""

    python: str = sys.executable
    environ: Mapping[str, str] = field(default_factory=dict)
    """Added to this process's own environment."""
    folder: Path | None = None
    """Where it runs; None: where this process runs."""
    imports_from_folder: bool = True
    """Whether modules there come before installed ones."""

    def environment(self) -> dict[str, str]:
        """Return the variables that it is started with, except `own_variables`."""
        return {**os.environ, **self.environ}


@dataclass(frozen=True, slots=True)
class RequestOutcome:
    """How one request ended."""

    how: Literal["replied", "died", "deadline", "budget", "interrupted"]
    """``deadline`` is its own, ``budget`` the end of the whole run."""
    reply: Reply | None = None
    sentence: str = ""
    """How a process died, with its last line of output; at the deadline, what it was at, or the functions that its ranks were in."""
    who: str = "its process"
    unkillable: bool = False
    """Whether the process was still there long after it was killed: it waits for a driver, and whatever it had stays taken."""
    timed: Reply | None = None
    """What there was before the last reply, or instead of it."""

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


class WorkerProcess:
    """One measuring process. Use as a context manager: leaving it ends the process and all it started."""

    def __init__(self, mode: Mode, threads: int, seed: int, interruption: Interruption, interpreter: Interpreter = Interpreter()) -> None:
        self.mode = mode
        self.interpreter = interpreter
        self.usable = True
        self._interruption = interruption
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  # end() closes it
        self._case_pid: int | None = None
        self._stage = ""
        self._unkillable = self._imported = False
        self._printed_before = 0
        request_read, self._requests = os.pipe()
        reply_read, reply_write = os.pipe()
        self._replies = Reader(reply_read)
        lifeline_read, self._lifeline = os.pipe()
        handed = (request_read, reply_write, lifeline_read)
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

    def ask(
        self, request: Request, deadline_s: float = START_S, run_ends: float = math.inf, window: Window | None = None
    ) -> RequestOutcome:
        """Send one request and wait for its end: a reply, the death of its process, the deadline, the end of the run, or Ctrl-C.

        ``deadline_s`` counts from when it begins; ``run_ends`` is on the scale of `time.monotonic`.
        After anything but a reply the process that did the request is gone, with its group. ``window`` is read while the request has a
        step metered.
        """
        self._timed: Reply | None = None
        self.send(request)
        return replace(self.answer(deadline_s, run_ends, window), timed=self._timed)

    def send(self, request: Request) -> None:
        """Send a request, and leave it to `answer` to tell how it ended."""
        with suppress(BrokenPipeError):  # the process has died, which its answer shows
            send(self._requests, request.to_json())

    def answer(self, deadline_s: float = START_S, run_ends: float = math.inf, window: Window | None = None) -> RequestOutcome:
        """Wait for the end of the request sent last, as `ask` does."""
        try:
            outcome = self._answer(deadline_s, run_ends, window)
            self._forget_output()
            return outcome
        except EOFError:
            code = self._wait()
            return self._died("has ended and is still there" if code is None else self._cause(code))
        except ForeignLine as error:
            return self._died(str(error))
        except TimeoutError:
            run_ended = time.monotonic() >= run_ends
            if not self._imported and not run_ended:
                return self._died(f"had not imported torch after {IMPORT_S:g} s; try again, as the disk may have it at hand by then")
            if self._survives_its_case():
                self._forget_output()
            else:
                self.end()
            return RequestOutcome("budget" if run_ended else "deadline", sentence=self._stage, unkillable=self._unkillable)
        except Interrupted:
            self.end()
            return RequestOutcome("interrupted")

    def end(self) -> None:
        """Kill the process and its group and free what belongs to it; a second time does nothing."""
        self.usable = False
        if self._requests < 0:
            return
        self._close()
        if self._case_pid:
            kill_group(self._case_pid)
        kill_group(self._process.pid)
        self._unkillable = self._wait() is None

    def _wait(self) -> int | None:
        """Return how the process exited; None where it does not, as one that waits for a device which fell off its bus."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(_GRACE_S)
        return None

    def _answer(self, deadline_s: float, run_ends: float, window: Window | None) -> RequestOutcome:
        # The request waits while this process still imports torch; its own clock starts when it begins.
        deadline = min(run_ends, time.monotonic() + (START_S if self._imported else IMPORT_S))
        reply: Reply | None = None
        while "exit" not in (message := self._next_message(deadline, window)):
            self._imported = True
            if "pid" in message:
                self._case_pid, self._stage = message["pid"], ""
                deadline = min(run_ends, time.monotonic() + deadline_s)
            elif "stage" in message:
                self._stage = message["stage"]
            elif "timed" in message:
                self._timed = convert(Reply, message["timed"])
            elif "window" in message:
                if window:
                    window.mark(message["window"])
            else:
                reply = convert(Reply, message["reply"])
        self._case_pid = None
        return RequestOutcome("replied", reply) if reply else RequestOutcome("died", sentence=self._cause(message["exit"]))

    def _next_message(self, deadline: float, window: Window | None) -> Message:
        """Wait for a message as `Reader.read` does, and take the readings that are due meanwhile."""
        while window and window.due_s < deadline:
            with suppress(TimeoutError):
                return self._replies.read(window.due_s, self._interruption.fileno())
            window.read()
        return self._replies.read(deadline, self._interruption.fileno())

    def _survives_its_case(self) -> bool:
        """Kill the fork that does the request; return whether the process itself lives on, which it shows by reporting that end."""
        if self.mode == "stay" or self._case_pid is None:
            return False
        kill_group(self._case_pid)
        self._case_pid = None
        grace = time.monotonic() + _GRACE_S
        with suppress(EOFError, ForeignLine, TimeoutError, Interrupted):
            while "exit" not in self._replies.read(grace, self._interruption.fileno()):
                pass
            return True
        return False

    def _forget_output(self) -> None:
        """Have no later request end in the words of this one. What was printed ahead of the first may be why it can't be done."""
        self._printed_before = os.fstat(self._output.fileno()).st_size

    def _died(self, sentence: str) -> RequestOutcome:
        self.end()
        return RequestOutcome("died", sentence=sentence, unkillable=self._unkillable)

    def _close(self) -> None:
        for descriptor in (self._requests, self._replies.fileno(), self._lifeline):
            os.close(descriptor)
        self._requests = -1
        self._output.close()

    def _cause(self, code: int) -> str:
        # pread, because the process shares this file's offset and goes on writing there.
        return exit_description(code, os.pread(self._output.fileno(), 1 << 16, self._printed_before).decode(errors="replace"))


def handshake(
    worker: WorkerProcess, plugins: Sequence[str], workloads: Sequence[str], threads: int, not_from: Path | None = None
) -> dict[str, Any]:
    """Ask a new process for devices, versions and workloads, with no module imported from ``not_from``.

    Raises WorkerError, in the words of the process, if it can't say, or if it lacks what measuring needs; DeviceFault if the devices do not
    answer.
    """
    folder = str(not_from) if not_from else None
    outcome = worker.ask(HelloRequest(threads=threads, plugins=tuple(plugins), workloads=tuple(workloads), not_from=folder))
    name = Path(worker.interpreter.python).name
    if outcome.reply and outcome.reply.hello:
        torch = str(outcome.reply.hello["versions"]["torch"])
        if (found := re.match(r"(\d+)\.(\d+)", torch)) and tuple(map(int, found.groups())) < _LEAST_TORCH:
            raise WorkerError(f"{name} has torch {torch}; dlbench needs torch 2.6 or later")
        return outcome.reply.hello
    if outcome.how == "interrupted":
        raise Interrupted
    if outcome.reply:
        raise WorkerError(outcome.reply.error)
    if outcome.how == "died" and "No module named 'torch'" in outcome.sentence:
        raise WorkerError(f"torch is not installed for {name}; dlbench measures the torch you have: install torch 2.6 or later")
    if outcome.how == "died" and (old := re.search(r"too old: (Python [\d.]+)", outcome.sentence)):
        raise WorkerError(f"{name} is {old[1]}; the measuring process needs Python 3.11 or later")
    failed = "the measuring process could not start: it"
    if outcome.how == "deadline":
        raise DeviceFault(
            f"{failed} imported torch, and did not say within {START_S:g} s which devices there are; see what their driver says"
        )
    raise WorkerError(f"{failed} {outcome.sentence or outcome.how}")


def own_variables(threads: int, seed: int) -> dict[str, str]:
    """Return dlbench's own variables for a measuring process.

    Each round gets its own hash seed and its own size of the environment, which shifts the stack: layout luck is averaged out.
    Mytkowicz and others, Producing Wrong Data Without Doing Anything Obviously Wrong, ASPLOS 2009.
    """
    chance = random.Random(seed)
    return {
        "PYTHONHASHSEED": str(chance.randrange(2**32)),
        "DLBENCH_PADDING": "x" * chance.randrange(4096),
        "DLBENCH_PID": str(os.getpid()),
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        # Asking for devices must not initialise CUDA in a process that will fork.
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    }


def start_code(rest: str, interpreter: Interpreter) -> str:
    """Return code that imports dlbench by its path alone, as its folder may hold another interpreter's packages, and does the rest."""
    return _START.format(package=str(Path(dlbench.__file__).resolve()), imports_from_folder=interpreter.imports_from_folder) + rest


def start(
    interpreter: Interpreter, code: str, arguments: Sequence[str], environ: Mapping[str, str], output: IO[bytes], handed: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """Start a process on the CPUs to measure on, which prints to a file. Raises WorkerError where it can't be started."""
    try:
        process = subprocess.Popen(
            [interpreter.python, "-c", start_code(code, interpreter), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=handed,
            start_new_session=True,  # Ctrl-C at the terminal reaches only the parent, which decides
            cwd=interpreter.folder,
            env=environ,
        )
    except OSError as error:
        raise WorkerError(f"cannot start {interpreter.python}: {error.strerror or error}; give the path of a Python") from error
    if cpus := processor.cpus_to_measure_on():
        with suppress(OSError):  # it is gone already, which the first request will show
            os.sched_setaffinity(process.pid, cpus)  # before it has any thread that would not inherit it
    return process


def exit_description(code: int, output: str) -> str:
    """Describe an exit code, with the last line that the process wrote."""
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code} and no result"
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    # The traceback that faulthandler prints names files of this machine; its heading is what helps.
    last = next((line[:300] for line in reversed(lines) if not line.startswith(_TRACEBACK)), "")
    return f"{how}; it said: {last}" if last else how


def kill_group(pid: int) -> None:
    """Kill a process with its group, if they are still there."""
    for kill in (os.killpg, os.kill):  # a child that had no time to make its own group is ended by itself
        with suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)
