"""Start and kill of processes, descriptions of how they ended, and signals such as Ctrl-C, which a `select` can wait for."""

import os
import random
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO, Self

from dlbench.core.errors import ExitCode, WorkerError
from dlbench.core.files import PACKAGE
from dlbench.harness.probe import processor


class Interruption:
    """While entered, notes the first SIGINT, SIGTERM or SIGHUP and makes its ``fileno`` readable; a second exits after `clean_ups` alone.

    Exiting closes the pipes that every child watches, so none of them stays.
    """

    def __init__(self) -> None:
        self.requested: signal.Signals | None = None
        self.clean_ups: list[Callable[[], None]] = []
        """What a second signal still does before it exits."""
        self._read, self._write = os.pipe()
        self._previous: dict[signal.Signals, object] = {}

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when a signal comes."""
        return self._read

    @property
    def exit_code(self) -> ExitCode:
        """The exit code that a shell expects: 128 plus the number of the signal; 0 without one."""
        return ExitCode(128 + self.requested if self.requested else 0)

    def wait(self, seconds: float) -> None:
        """Wait for so long, or until a signal comes."""
        select.select([self._read], [], [], seconds)

    def __enter__(self) -> Self:
        # A terminal that is closed counts unless that is ignored, as under nohup.
        hangup = [signal.SIGHUP] if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL else []
        for number in (signal.SIGINT, signal.SIGTERM, *hangup):
            self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        if self.requested is None:  # else a second one still ends the program at once
            for number, handler in self._previous.items():
                signal.signal(number, handler)  # type: ignore[arg-type]  # signal.signal returned it
        os.close(self._read)
        os.close(self._write)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested is not None:
            for clean_up in self.clean_ups:
                clean_up()
            os._exit(128 + number)
        self.requested = signal.Signals(number)
        os.write(self._write, b"!")


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
_TRACEBACK = ("File ", "Current thread", "Thread ", "Stack ", "Extension modules", "<no Python frame>")


@dataclass(frozen=True)
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


def own_variables(threads: int, seed: int) -> dict[str, str]:
    """Return the variables that dlbench itself sets for a measuring process.

    Each round has another ``seed``. From that its processes get another hash seed and an environment of another size, which shifts the
    stack. The layout of memory changes times, and over the rounds these changes average out (Mytkowicz and others, Producing Wrong Data
    Without Doing Anything Obviously Wrong, ASPLOS 2009).
    """
    chance = random.Random(seed)
    return {
        "PYTHONHASHSEED": str(chance.randrange(2**32)),
        "DLBENCH_PADDING": "x" * chance.randrange(4096),
        "DLBENCH_PID": str(os.getpid()),  # names this dlbench where its processes share files
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        # Asking for devices must not initialise CUDA in a process that will fork.
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    }


def start_code(rest: str, interpreter: Interpreter) -> str:
    """Return code that imports dlbench by the path of its package, and then does ``rest``.

    The folder around the package is not searched: it may hold packages of another interpreter.
    """
    return _START.format(package=str(PACKAGE / "__init__.py"), imports_from_folder=interpreter.imports_from_folder) + rest


def start(
    interpreter: Interpreter, code: str, arguments: Sequence[str], environ: Mapping[str, str], output: IO[bytes], handed: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """Start a process that runs ``code``, and keep it to the logical CPUs of `cpus_to_measure_on`, one of each core, if there are any.

    It prints to the file ``output`` and inherits the descriptors ``handed``. Raises WorkerError if it can't be started.
    """
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
            os.sched_setaffinity(process.pid, cpus)  # at once: threads inherit it only if they start later
    return process


def exit_description(code: int, output: str) -> str:
    """Describe an exit code (negative: a signal), with the last line that the process wrote."""
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code} and no result"
    lines = map(str.strip, reversed(output.splitlines()))
    # The traceback that faulthandler prints names files of this machine; its heading is what helps.
    last = next((line[:300] for line in lines if line and not line.startswith(_TRACEBACK)), "")
    return f"{how}; it said: {last}" if last else how


def kill_group(pid: int) -> None:
    """Kill a process with its group, if they are still there."""
    for kill in (os.killpg, os.kill):  # a child that had no time to make its own group gets the signal alone
        with suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)
