"""Machines that ranks run on: torchrun starts the ranks of this machine, and a dlbench on each other machine starts those there."""

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dlbench.core.errors import DeviceFault, Interrupted, UsageError, WorkerError
from dlbench.harness.process.launch import Interpreter, Interruption, exit_description, kill_group, own_variables, start, start_code
from dlbench.harness.process.wire import ForeignLine, Message, Reader, call_parent, send
from dlbench.harness.process.worker_process import IMPORT_S
from dlbench.harness.ranks.placement import NodeCapacity

_PATIENCE_S = 60.0
"""Longest wait for the other machines: torchrun starts dlbench everywhere at once, but one may be slower to import torch."""
# Code of a process that sets the address of the first machine in torchrun's store if it gets one, and prints the one that is there.
_STORE = """
import sys
from datetime import timedelta
from torch.distributed import TCPStore
host, port, seconds, *address = sys.argv[1:]
store = TCPStore(host, int(port), None, False, timedelta(seconds=float(seconds)))
if address:
    store.set("dlbench", address[0])
print(store.get("dlbench").decode())
"""
_REPORT_S = 5.0
"""Longest wait for torchrun to notice that ranks are gone, and to report how they ended."""

_LAUNCHER = """
from dlbench.harness.worker.parent import die_with_parent
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
    """Ranks to start on one machine: ``count`` of the ``size`` ranks on all. Plain data, sent from machine to machine."""

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
    """Seed of the layout of their memory."""


class Torchrun:
    """torchrun with its ranks, each of which prints to a file in ``folder``."""

    def __init__(self, spec: RankSpec, interpreter: Interpreter, folder: Path) -> None:
        self._folder = folder
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  # end() closes it
        # --standalone: torchrun takes a port that is free. It looks after its ranks once a second, too seldom to disturb what they measure.
        options = ["--standalone", f"--nproc-per-node={spec.count}", "--max-restarts=0", "--monitor-interval=1"]
        rank_arguments = [spec.address, str(folder), f"{spec.first}", f"{spec.size}", spec.store]
        rank_command = [interpreter.python, "-c", start_code(_RANK, interpreter), *rank_arguments]
        # On several machines another torchrun started dlbench itself; its variables are not meant for these ranks.
        variables = {name: value for name, value in interpreter.environment().items() if not name.startswith("TORCHELASTIC_")}
        # Without --log-dir torchrun makes a folder and leaves it behind.
        arguments = [*options, f"--log-dir={folder}", "--no-python", *rank_command]
        environ = {**variables, **own_variables(spec.threads, spec.seed)}
        try:
            self._process = start(interpreter, _LAUNCHER, arguments, environ, self._output)
        except WorkerError:
            self._output.close()
            raise

    def exit_description(self) -> str | None:
        """Describe how torchrun itself ended; None while it runs."""
        code = self._process.poll()
        return None if code is None else exit_description(code, self._text())

    def exit_description_of(self, rank: int, pid: int, since_byte: int) -> str:
        """Return how a rank ended, once all are gone, with the last line that it printed after the first ``since_byte`` bytes."""
        self._wait()
        found = re.search(rf"exitcode\s*: (-?\d+) \(pid: {pid}\)", self._text())
        return exit_description(int(found[1]), self._printed(rank, since_byte)) if found else "died"

    def _printed(self, rank: int, since_byte: int) -> str:
        """Return what a rank has printed after so many bytes."""
        try:
            return (self._folder / str(rank)).read_bytes()[since_byte:].decode(errors="replace")
        except FileNotFoundError:
            return ""

    def _wait(self) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=_REPORT_S)

    def _text(self) -> str:
        return os.pread(self._output.fileno(), 1 << 20, 0).decode(errors="replace")

    def end(self) -> None:
        """End torchrun and its ranks."""
        # Not SIGKILL at once: only the CPU time of processes that torchrun has waited for counts as dlbench's own.
        self._process.terminate()
        self._wait()
        kill_group(self._process.pid)
        self._wait()
        self._output.close()


@dataclass(frozen=True, slots=True)
class Node:
    """This machine among several, by torchrun's number, with the host of the first one and the port of torchrun's store there."""

    number: int
    count: int
    host: str
    port: int

    @classmethod
    def of_torchrun(cls) -> "Node | None":
        """Return this machine by torchrun's variables; None if torchrun started only this process, or nothing.

        Raises UsageError if torchrun started several processes on one machine.
        """
        if "TORCHELASTIC_RUN_ID" not in os.environ or os.environ.get("WORLD_SIZE") == "1":
            return None
        if os.environ["LOCAL_WORLD_SIZE"] != "1":
            raise UsageError("torchrun has to start one dlbench a machine, which starts the ranks itself; give torchrun --nproc-per-node 1")
        return cls(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))


def refuse_several(command: str) -> None:
    """Raise UsageError if torchrun started on several machines a command that measures on one."""
    if Node.of_torchrun():
        raise UsageError(f"{command} measures on one machine; start it without torchrun, or have dlbench run measure on several")


class RemoteNode:
    """Another machine, seen from the first one: its capacity, and a dlbench there that starts ranks on request."""

    def __init__(self, connection: socket.socket, node: Node) -> None:
        self._connection = connection
        self._answers = Reader(connection.fileno())
        info = self._answers.read(time.monotonic() + _PATIENCE_S)
        self.number: int = info["number"]
        self.capacity = NodeCapacity(**info["capacity"])
        self.environment: Mapping[str, Any] = info["environment"]
        self.first = node
        """The first machine, where the ranks connect, and its store."""

    def start(self, spec: RankSpec) -> None:
        """Start ranks there. Raises DeviceFault if the machine is gone."""
        self._send({"start": asdict(spec)})

    def exit_description_of(self, rank: int, pid: int, since_byte: int) -> str:
        """Return how a rank there ended: see `Torchrun.exit_description_of`. Raises DeviceFault if the machine is gone."""
        self._send({"ended": [rank, pid, since_byte]})
        with suppress(EOFError, ForeignLine, TimeoutError):
            return str(self._answers.read(time.monotonic() + _PATIENCE_S)["how"])
        return "died"

    def end(self) -> None:
        """End its ranks. If the machine is gone, so are they."""
        with suppress(DeviceFault):
            self._send({"start": None})

    def close(self) -> None:
        """Disconnect, which ends the dlbench there."""
        self._connection.close()

    def _send(self, message: Message) -> None:
        try:
            send(self._connection.fileno(), message)
        except OSError as error:
            raise DeviceFault(f"machine {self.number} is gone ({error.strerror or error}); look what dlbench said there") from error


@contextmanager
def connect_nodes(node: Node) -> Iterator[tuple[RemoteNode, ...]]:
    """Wait on the first machine, ``node``, until all others have connected. Yield those, by number, and disconnect at the end.

    Raises WorkerError if one does not connect in time, or if torchrun's store can't be used.
    """
    machines: list[RemoteNode] = []
    with socket.create_server(("", 0), backlog=node.count) as listener:
        listener.settimeout(_PATIENCE_S)
        _ask_store(node, f"{node.host}:{listener.getsockname()[1]}")  # sets this address there, and the others read it
        try:
            while len(machines) < node.count - 1:
                with suppress(EOFError, ForeignLine, KeyError):  # whoever connected is no dlbench
                    machines.append(RemoteNode(listener.accept()[0], node))
        except TimeoutError as error:
            raise WorkerError(f"only {len(machines) + 1} of {node.count} machines came within {_PATIENCE_S:g} s") from error
    try:
        yield tuple(sorted(machines, key=lambda machine: machine.number))
    finally:
        for machine in machines:
            machine.close()


def serve(node: Node, capacity: NodeCapacity, environment: Mapping[str, Any], interruption: Interruption) -> None:
    """Serve the first machine from this other one: start and end ranks here whenever the first one asks for it, until it disconnects.

    ``capacity`` and ``environment`` describe this machine to the first one. Raises WorkerError if the first one can't be reached.
    """
    address = _ask_store(node)
    try:
        connection = call_parent(address)
    except OSError as error:
        raise WorkerError(
            f"the first machine does not answer at {address}: {error.strerror or error}; open its ports to this one"
        ) from error
    send(connection.fileno(), {"number": node.number, "capacity": asdict(capacity), "environment": environment})
    torchrun: Torchrun | None = None
    with connection, tempfile.TemporaryDirectory(prefix="dlbench-") as folder:
        messages = Reader(connection.fileno())
        with suppress(EOFError, ForeignLine, Interrupted):
            while True:
                match messages.read(wake=interruption.fileno()):
                    case {"ended": arguments}:  # asks how a rank ended; the arguments are those of `exit_description_of`
                        send(connection.fileno(), {"how": torchrun.exit_description_of(*arguments) if torchrun else "died"})
                    case {"start": spec}:  # ends the ranks that run here, and starts those of ``spec`` unless it is None
                        if torchrun:
                            torchrun.end()
                        torchrun = Torchrun(RankSpec(**spec), Interpreter(), Path(folder)) if spec else None
        if torchrun:
            torchrun.end()


def _ask_store(node: Node, *address: str) -> str:
    """Return the address of the first machine from torchrun's store. Raises WorkerError if the store can't be used.

    Only the first machine gives an ``address``: its own, which is then set in the store.
    """
    # In a process of its own: this one never imports torch.
    command = [sys.executable, "-c", _STORE, node.host, str(node.port), str(_PATIENCE_S), *address]
    try:
        # A store that nobody can reach shows here, without the time to import torch.
        socket.create_connection((node.host, node.port), timeout=_PATIENCE_S).close()
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=IMPORT_S).stdout.strip()
    except (OSError, subprocess.SubprocessError) as error:
        why = getattr(error, "strerror", None) or "it said nothing of the first machine"
        raise WorkerError(
            f"torchrun's rendezvous at {node.host}:{node.port} can't be used ({why}); "
            "start the same command on every machine, with an --rdzv-endpoint that all of them reach"
        ) from error
