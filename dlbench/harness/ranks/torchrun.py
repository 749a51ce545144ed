"""torchrun on this machine: starts ranks, says how they ended, and is ended together with them."""

import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dlbench.core.errors import WorkerError
from dlbench.harness.process.interpreter import Interpreter, exit_description, kill_group, own_variables, start, start_code

_REPORT_S = 5.0
"""For torchrun to notice that ranks are gone, and to report how they ended."""
_DUMP_S = 1.0
"""For ranks that are out of time to dump their tracebacks."""

_LAUNCHER = """
from dlbench.harness.worker.lifecycle import die_with_parent
die_with_parent([])
from torch.distributed.run import main
main(sys.argv[1:])
"""
_RANK = """
from dlbench.harness.worker.serving.rank_main import main
main()
"""


@dataclass(frozen=True, slots=True)
class RankSpec:
    """``count`` ranks to start on one machine, of ``size`` on all: plain data, sent from machine to machine."""

    count: int
    first: int
    """The number of the first of them."""
    size: int
    address: str
    """Where they connect to the parent: a path, or ``host:port``."""
    store: str
    """Shared by the ranks of several machines; empty for torchrun's own. See `RankProcess.of_torchrun`."""
    threads: int
    seed: int
    """Of the layout of their memory."""


class Torchrun:
    """torchrun with its ranks. ``folder`` takes what each of them prints."""

    def __init__(self, spec: RankSpec, interpreter: Interpreter, folder: Path) -> None:
        self._folder = folder
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  # end() closes it
        # torchrun takes a port that is free. It looks after its ranks once a second, which should not show in what they measure.
        options = ["--standalone", f"--nproc-per-node={spec.count}", "--max-restarts=0", "--monitor-interval=1"]
        # Else torchrun makes a folder of its own and leaves it behind.
        self._logs = tempfile.TemporaryDirectory(prefix="dlbench-")
        where = [spec.address, str(folder), f"{spec.first}", f"{spec.size}", spec.store]
        rank = [interpreter.python, "-c", start_code(_RANK, interpreter), *where]
        # On several machines another torchrun started dlbench itself, and its report is not about these ranks.
        variables = {name: value for name, value in interpreter.environment().items() if not name.startswith("TORCHELASTIC_")}
        arguments = [*options, f"--log-dir={self._logs.name}", "--no-python", *rank]
        environ = {**variables, **own_variables(spec.threads, spec.seed)}
        try:
            self._process = start(interpreter, _LAUNCHER, arguments, environ, self._output)
        except WorkerError:
            self._free()
            raise

    def exit_description(self) -> str | None:
        """Describe how torchrun itself ended; None while it runs."""
        code = self._process.poll()
        return None if code is None else exit_description(code, self._text())

    def exit_description_of(self, rank: int, pid: int, since: int = 0) -> str:
        """Say how a rank ended, once all are gone, with its last line after the first ``since`` bytes."""
        self._wait()
        found = re.search(rf"exitcode\s*: (-?\d+) \(pid: {pid}\)", self._text())
        return exit_description(int(found[1]), self._printed(rank, since)) if found else "died"

    def running_functions(self, pids: Mapping[int, int]) -> dict[int, str]:
        """Have ranks, by number, dump their tracebacks; return the function that each is in, of those that could."""
        before = {rank: len(self._printed(rank)) for rank in pids}
        for pid in pids.values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGUSR1)
        deadline = time.monotonic() + _DUMP_S
        found: dict[int, str] = {}
        while len(found) < len(pids) and time.monotonic() < deadline:
            time.sleep(0.02)
            dumps = {rank: re.search(r"^  File .* in (\w+)$", self._printed(rank, since), re.MULTILINE) for rank, since in before.items()}
            found = {rank: dump[1] for rank, dump in dumps.items() if dump}
        return found

    def _printed(self, rank: int, since: int = 0) -> str:
        """Return what a rank has printed after so many bytes."""
        try:
            return (self._folder / str(rank)).read_bytes()[since:].decode(errors="replace")
        except FileNotFoundError:
            return ""

    def _wait(self) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=_REPORT_S)

    def _text(self) -> str:
        return os.pread(self._output.fileno(), 1 << 20, 0).decode(errors="replace")

    def end(self) -> None:
        """End it and its ranks."""
        # Not SIGKILL at once: only the CPU time of processes that torchrun has waited for counts as dlbench's own.
        self._process.terminate()
        self._wait()
        kill_group(self._process.pid)
        self._wait()
        self._free()

    def _free(self) -> None:
        self._output.close()
        self._logs.cleanup()
