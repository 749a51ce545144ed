"""A measuring process as its parent sees it: started, asked, waited for with a deadline, and taken down."""

import json
import os
import random
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

import dlbench
from dlbench.core.errors import Interrupted, WorkerError
from dlbench.harness import processor
from dlbench.harness.interruption import Interruption

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
from dlbench.harness.worker import main
main()
"""
_LEAST_TORCH = (2, 6)
START_S = 120.0
"""Patience for importing torch and meeting the devices, on a cold disk too; no case is under way then."""
_TRACEBACK = ("File ", "Current thread", "Thread ", "Stack ", "Extension modules", "<no Python frame>")


Mode = Literal["fork", "stay"]
"""Whether the process forks for every request or does them itself."""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The Python that a measuring process runs in, which needs torch and nothing else, and where and with what it is started."""

    python: str = sys.executable
    environ: Mapping[str, str] = field(default_factory=dict)
    """On top of this process's own environment."""
    folder: Path | None = None
    """Where it runs; None: where this process runs."""
    imports_from_folder: bool = True
    """Whether what lies there is imported before what is installed."""

    def environment(self) -> dict[str, str]:
        """Return all variables that it is started with, but for those of dlbench's own."""
        return {**os.environ, **self.environ}


@dataclass(frozen=True, slots=True)
class Ending:
    """How one request ended."""

    how: Literal["replied", "died", "deadline", "interrupted"]
    reply: dict[str, Any] | None = None
    sentence: str = ""
    """Of what a process died, with the last of what it said; at the deadline, where its ranks were."""
    who: str = "its process"
    """Which died."""


class Host:
    """One measuring process. Use as a context manager: leaving it ends the process and all it started."""

    def __init__(self, mode: Mode, threads: int, seed: int, interruption: Interruption, interpreter: Interpreter = Interpreter()) -> None:
        self.mode = mode
        self.interpreter = interpreter
        self.usable = True
        self._interruption = interruption
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  # end() closes it
        self._case_pid: int | None = None
        self._buffer = b""
        self._said_before = 0
        request_read, self._requests = os.pipe()
        self._replies, reply_write = os.pipe()
        lifeline_read, self._lifeline = os.pipe()
        handed = (request_read, reply_write, lifeline_read)
        environ = {**interpreter.environment(), **own_variables(threads, seed)}
        try:
            self._process = start(interpreter, _WORKER, [mode, *map(str, handed)], environ, self._said, handed)
        except WorkerError:
            for descriptor in (self._requests, self._replies, self._lifeline):
                os.close(descriptor)
            self._said.close()
            raise
        finally:
            for descriptor in handed:
                os.close(descriptor)

    def __enter__(self) -> "Host":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def ask(self, request: dict[str, Any], deadline_s: float = START_S) -> Ending:
        """Send one request and wait for its end: a reply, the death of its process, the deadline, or Ctrl-C.

        After anything but a reply the process that did the request is gone, with its group.
        """
        self._said_before = os.fstat(self._said.fileno()).st_size
        try:
            write(self._requests, json.dumps(request).encode() + b"\n")
        except BrokenPipeError:
            return self._dead("")
        # The request waits while this process still imports torch; its own clock starts when it begins.
        deadline = time.monotonic() + START_S
        reply: dict[str, Any] | None = None
        while True:
            message = self._next_message(deadline)
            if isinstance(message, str):
                return self._stopped(message)
            if "pid" in message:
                self._case_pid = message["pid"]
                deadline = time.monotonic() + deadline_s
            elif "reply" in message:
                reply = message["reply"]
            else:
                self._case_pid = None
                if reply is None:
                    return Ending("died", sentence=self._cause(message["exit"]))
                return Ending("replied", reply)

    def end(self) -> None:
        """Kill the process and its group and free what belongs to it; a second time does nothing."""
        self.usable = False
        if self._requests < 0:
            return
        for descriptor in (self._requests, self._replies, self._lifeline):
            os.close(descriptor)
        self._requests = -1
        if self._case_pid:
            kill_group(self._case_pid)
        kill_group(self._process.pid)
        self._process.wait()
        self._said.close()

    def _next_message(self, deadline: float) -> dict[str, Any] | Literal["died", "deadline", "interrupted"]:
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0:
                return "deadline"
            ready, _, _ = select.select([self._replies, self._interruption.fileno()], [], [], left)
            if self._interruption.requested:
                return "interrupted"
            if self._replies in ready:
                data = os.read(self._replies, 1 << 16)
                if not data:
                    return "died"
                self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def _stopped(self, how: Literal["died", "deadline", "interrupted"]) -> Ending:
        """End the process of the request; a forking host lives on, and its own line about the end is read."""
        if how == "died":
            return self._dead(self._cause(self._process.wait()))
        if self.mode == "stay" or self._case_pid is None:
            self.end()
            return Ending(how)
        kill_group(self._case_pid)
        self._case_pid = None
        grace = time.monotonic() + 10.0
        while how == "deadline" and not isinstance(message := self._next_message(grace), str):
            if "exit" in message:
                return Ending(how)
        self.end()
        return Ending(how)

    def _dead(self, sentence: str) -> Ending:
        sentence = sentence or self._cause(self._process.wait())
        self.end()
        return Ending("died", sentence=sentence)

    def _cause(self, code: int) -> str:
        # pread, because the process shares this file's offset and goes on writing there.
        return fate(code, os.pread(self._said.fileno(), 1 << 16, self._said_before).decode(errors="replace"))


def greet(host: Host, plugins: Sequence[str], workloads: Sequence[str], threads: int, not_from: Path | None = None) -> dict[str, Any]:
    """Ask a new process what there is, with no module imported from ``not_from``.

    Raises WorkerError, in its own words, if it can't say, or if it lacks what measuring needs.
    """
    names = {"plugins": list(plugins), "workloads": list(workloads), "not_from": not_from and str(not_from)}
    ending = host.ask({"op": "hello", "threads": threads, **names})
    name = Path(host.interpreter.python).name
    if ending.how == "replied" and ending.reply is not None and "error" not in ending.reply:
        torch = str(ending.reply["versions"]["torch"])
        if (found := re.match(r"(\d+)\.(\d+)", torch)) and tuple(map(int, found.groups())) < _LEAST_TORCH:
            raise WorkerError(f"{name} has torch {torch}; dlbench needs torch 2.6 or later")
        return ending.reply
    if ending.how == "interrupted":
        raise Interrupted
    if ending.reply is not None:
        raise WorkerError(ending.reply["error"])
    if ending.how == "died" and "No module named 'torch'" in ending.sentence:
        raise WorkerError(f"torch is not installed for {name}; dlbench measures the torch you have: install torch 2.6 or later")
    if ending.how == "died" and (old := re.search(r"too old: (Python [\d.]+)", ending.sentence)):
        raise WorkerError(f"{name} is {old[1]}; the measuring process needs Python 3.11 or later")
    said = ending.sentence or (f"did not answer within {START_S:g} s" if ending.how == "deadline" else ending.how)
    raise WorkerError(f"the measuring process could not start: it {said}")


def own_variables(threads: int, seed: int) -> dict[str, str]:
    """Return what dlbench itself puts into the environment of a measuring process.

    Each round gets its own hash seed and its own size of the environment, which shifts the stack: layout luck is averaged out.
    Mytkowicz and others, Producing Wrong Data Without Doing Anything Obviously Wrong, ASPLOS 2009.
    """
    chance = random.Random(seed)
    return {
        "PYTHONHASHSEED": str(chance.randrange(2**32)),
        "DLBENCH_PADDING": "x" * chance.randrange(4096),
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        # Asking for devices must not initialise CUDA in a process that will fork.
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    }


def start_code(rest: str, interpreter: Interpreter) -> str:
    """Return Python for an interpreter that finds this dlbench and nothing beside it, wherever it lies, and then does the rest.

    Its folder may hold the packages of another interpreter, torch among them.
    """
    return _START.format(package=str(Path(dlbench.__file__).resolve()), imports_from_folder=interpreter.imports_from_folder) + rest


def start(
    interpreter: Interpreter, code: str, arguments: Sequence[str], environ: Mapping[str, str], said: IO[bytes], handed: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """Start a process for measuring, on the CPUs to measure on: `start_code` of the code, with descriptors handed on, printing to a file.

    Raises WorkerError where it can't be started.
    """
    try:
        process = subprocess.Popen(
            [interpreter.python, "-c", start_code(code, interpreter), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            pass_fds=handed,
            start_new_session=True,  # Ctrl-C at the terminal reaches only the parent, which decides
            cwd=interpreter.folder,
            env=environ,
        )
    except OSError as error:
        raise WorkerError(f"cannot start {interpreter.python}: {error.strerror or error}; give the path of a Python") from error
    if cpus := processor.cpus_to_measure_on():
        with suppress(OSError):  # it is gone already, which the first request will tell
            os.sched_setaffinity(process.pid, cpus)  # before it has any thread that would not inherit it
    return process


def fate(code: int, said: str) -> str:
    """Put an exit code into words, with the last line that the process wrote."""
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code} and no result"
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    # The traceback that faulthandler prints names files of this machine; its heading is what helps.
    last = next((line[:300] for line in reversed(lines) if not line.startswith(_TRACEBACK)), "")
    return f"{how}; it said: {last}" if last else how


def kill_group(pid: int) -> None:
    """Kill a process with its group, if they are still there."""
    for kill in (os.killpg, os.kill):  # a child that had no time to make its own group is ended by itself
        with suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def write(descriptor: int, data: bytes) -> None:
    """Write all of it to a pipe. Raises BrokenPipeError where nobody reads there any more."""
    while data:
        data = data[os.write(descriptor, data) :]
