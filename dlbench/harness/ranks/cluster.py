"""Cluster of machines on each of which torchrun starts dlbench: the first has the others start ranks when a case needs them."""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dlbench.core.errors import DeviceFault, Interrupted, UsageError, WorkerError
from dlbench.harness.process.interpreter import Interpreter
from dlbench.harness.process.interrupt import Interruption
from dlbench.harness.process.wire import ForeignLine, Message, Reader, call_parent, send
from dlbench.harness.process.worker_process import IMPORT_S
from dlbench.harness.ranks.placement import NodeCapacity
from dlbench.harness.ranks.torchrun import RankSpec, Torchrun

_PATIENCE_S = 60.0
"""For the other machines: torchrun starts dlbench everywhere at once, but one may be slower to import torch."""
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


@dataclass(frozen=True, slots=True)
class Node:
    """This machine among several, as torchrun numbers them; host of the first one, and port of torchrun's store there."""

    number: int
    count: int
    host: str
    port: int

    @classmethod
    def of_torchrun(cls) -> "Node | None":
        """Read torchrun's variables; None where it started no more than this process. Raises UsageError for several on one machine."""
        if "TORCHELASTIC_RUN_ID" not in os.environ or os.environ.get("WORLD_SIZE") == "1":
            return None
        if os.environ["LOCAL_WORLD_SIZE"] != "1":
            raise UsageError("torchrun has to start one dlbench a machine, which starts the ranks itself; give torchrun --nproc-per-node 1")
        return cls(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))


def refuse_several(command: str) -> None:
    """Raise UsageError where torchrun started ``command``, which measures on one machine, on several."""
    if Node.of_torchrun():
        raise UsageError(f"{command} measures on one machine; start it without torchrun, or have dlbench run measure on several")


class RemoteNode:
    """Another machine as the first one sees it: its capacity, and a dlbench there that starts ranks on request."""

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
        """Have ranks started there. Raises DeviceFault if the machine is gone."""
        self._send({"op": "start", "ranks": asdict(spec)})

    def exit_description_of(self, rank: int, pid: int, since: int = 0) -> str:
        """Ask how a rank that has died there ended. Raises DeviceFault if the machine is gone."""
        return str(self._ask({"op": "exit_description", "of": [rank, pid, since]}).get("exit_description", "died"))

    def running_functions(self, pids: Mapping[int, int]) -> dict[int, str]:
        """Ask in which function each rank there is: see `Torchrun.running_functions`. Raises DeviceFault if the machine is gone."""
        functions = self._ask({"op": "running_functions", "pids": pids}).get("running_functions", {})
        return {int(rank): str(function) for rank, function in functions.items()}

    def end(self) -> None:
        """Have its ranks ended; if it is gone, they are."""
        with suppress(DeviceFault):
            self._send({"op": "end"})

    def close(self) -> None:
        """Disconnect, at which dlbench ends there."""
        self._connection.close()

    def _ask(self, message: Message) -> Message:
        """Return its answer, which comes at once; an empty one where it is out of reach by now."""
        self._send(message)
        with suppress(EOFError, ForeignLine, TimeoutError):
            return self._answers.read(time.monotonic() + _PATIENCE_S)
        return {}

    def _send(self, message: Message) -> None:
        try:
            send(self._connection.fileno(), message)
        except OSError as error:
            raise DeviceFault(f"machine {self.number} is gone ({error.strerror or error}); look what dlbench said there") from error


@contextmanager
def connected_nodes(node: Node) -> Iterator[tuple[RemoteNode, ...]]:
    """Wait, on the first machine, for all the others, and disconnect at the end. Raises WorkerError for one that does not connect."""
    machines: list[RemoteNode] = []
    with socket.create_server(("", 0), backlog=node.count) as listener:
        listener.settimeout(_PATIENCE_S)
        _ask_store(node, f"{node.host}:{listener.getsockname()[1]}")
        try:
            while len(machines) < node.count - 1:
                with suppress(EOFError, ForeignLine, KeyError):  # something else has called
                    machines.append(RemoteNode(listener.accept()[0], node))
        except TimeoutError as error:
            raise WorkerError(f"only {len(machines) + 1} of {node.count} machines came within {_PATIENCE_S:g} s") from error
    try:
        yield tuple(sorted(machines, key=lambda machine: machine.number))
    finally:
        for machine in machines:
            machine.close()


def serve(node: Node, capacity: NodeCapacity, environment: Mapping[str, Any], interruption: Interruption) -> None:
    """Start and end ranks here as the first machine says, until it disconnects. Raises WorkerError where it can't be reached."""
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
                match message := messages.read(wake=interruption.fileno()):
                    case {"op": "exit_description", "of": of}:
                        description = torchrun.exit_description_of(*of) if torchrun else "died"
                        send(connection.fileno(), {"exit_description": description})
                    case {"op": "running_functions", "pids": pids}:
                        found = torchrun.running_functions({int(rank): pid for rank, pid in pids.items()}) if torchrun else {}
                        send(connection.fileno(), {"running_functions": found})
                    case _:
                        if torchrun:
                            torchrun.end()
                        ranks = message.get("ranks")
                        torchrun = ranks and Torchrun(RankSpec(**ranks), Interpreter(), Path(folder))
        if torchrun:
            torchrun.end()


def _ask_store(node: Node, *address: str) -> str:
    """Return where the first machine listens, from torchrun's store; with an address, put it there. Raises WorkerError if there is none."""
    # In a process of its own: this one never imports torch.
    command: Sequence[str] = [sys.executable, "-c", _STORE, node.host, str(node.port), str(_PATIENCE_S), *address]
    try:
        socket.create_connection((node.host, node.port), timeout=_PATIENCE_S).close()
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=IMPORT_S).stdout.strip()
    except (OSError, subprocess.SubprocessError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "it said nothing of the first machine"
        raise WorkerError(
            f"torchrun's rendezvous at {node.host}:{node.port} can't be used ({why}); "
            "start the same command on every machine, with an --rdzv-endpoint that all of them reach"
        ) from error
