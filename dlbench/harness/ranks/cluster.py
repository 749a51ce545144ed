"""Several machines as one: torchrun starts dlbench once on each, and the first has the others start ranks when a case needs them."""

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
from dlbench.harness.process.interrupt import Interruption
from dlbench.harness.process.wire import ForeignLine, Message, Reader, send
from dlbench.harness.process.worker_process import START_S, Interpreter
from dlbench.harness.ranks.placement import NodeCapacity
from dlbench.harness.ranks.torchrun import RankSpec, Torchrun, places
from dlbench.harness.worker.rank_main import call_parent

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
    """Which of several machines this is, as torchrun says."""

    number: int
    count: int
    host: str
    """Of the first machine."""
    port: int
    """Of torchrun's store there."""

    @classmethod
    def of_torchrun(cls, environ: Mapping[str, str]) -> "Node | None":
        """Read torchrun's variables; None where it started no more than this process. Raises UsageError for several on one machine."""
        if "TORCHELASTIC_RUN_ID" not in environ or environ.get("WORLD_SIZE") == "1":
            return None
        if environ["LOCAL_WORLD_SIZE"] != "1":
            raise UsageError("torchrun has to start one dlbench a machine, which starts the ranks itself; give torchrun --nproc-per-node 1")
        return cls(int(environ["RANK"]), int(environ["WORLD_SIZE"]), environ["MASTER_ADDR"], int(environ["MASTER_PORT"]))


def refuse_several(command: str, environ: Mapping[str, str]) -> None:
    """Raise UsageError where torchrun started ``command``, which measures on one machine, on several."""
    if Node.of_torchrun(environ):
        raise UsageError(f"{command} measures on one machine; start it without torchrun, or have dlbench run measure on several")


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """What a machine brings along."""

    devices: Mapping[str, str | None]
    """Id to name."""
    cores: int
    environment: Mapping[str, Any]
    """For the result file."""


class RemoteNode:
    """Another machine, as the first one sees it: what it offers, and a dlbench there that starts ranks when told to."""

    def __init__(self, connection: socket.socket, node: Node) -> None:
        self._connection = connection
        self._answers = Reader(connection.fileno())
        info = self._answers.read(time.monotonic() + _PATIENCE_S)
        self.number: int = info["number"]
        self.capacity = NodeCapacity(info["devices"], info["cores"])
        self.environment: Mapping[str, Any] = info["environment"]
        self.head = node.host
        """Where ranks call back."""
        self.store = f"{node.host}:{node.port}"
        """What ranks of several machines share."""

    def start(self, order: RankSpec) -> None:
        """Have ranks started there. Raises DeviceFault if the machine is gone."""
        self._tell({"op": "start", "order": asdict(order)})

    def exit_description_of(self, rank: int, pid: int) -> str:
        """Ask how a rank that has died there ended. Raises DeviceFault likewise."""
        return str(self._ask({"op": "fate", "rank": rank, "pid": pid}).get("fate", "died"))

    def places(self, pids: Mapping[int, int]) -> dict[int, str]:
        """Ask in which function each rank there is, given its process: see `agent.places`. Raises DeviceFault likewise."""
        return {int(rank): str(node) for rank, node in self._ask({"op": "places", "pids": pids}).get("places", {}).items()}

    def end(self) -> None:
        """Have its ranks ended; if it is gone, they are."""
        with suppress(DeviceFault):
            self._tell({"op": "end"})

    def close(self) -> None:
        """Let it go: dlbench ends there."""
        self._connection.close()

    def _ask(self, message: Message) -> Message:
        """Return its answer, which comes at once; an empty one where it is out of reach by now."""
        self._tell(message)
        with suppress(EOFError, ForeignLine, TimeoutError):
            return self._answers.read(time.monotonic() + _PATIENCE_S)
        return {}

    def _tell(self, message: Message) -> None:
        try:
            send(self._connection.fileno(), message)
        except OSError as error:
            raise DeviceFault(f"machine {self.number} is gone ({error.strerror or error}); look what dlbench said there") from error


@contextmanager
def gathered(node: Node) -> Iterator[tuple[RemoteNode, ...]]:
    """Wait, on the first machine, for all the others, and let them go at the end. Raises WorkerError for one that does not come."""
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


def serve(node: Node, info: NodeInfo, interruption: Interruption) -> None:
    """Start and end ranks here as the first machine says, until it lets go. Raises WorkerError where it can't be reached."""
    address = _ask_store(node)
    try:
        connection = call_parent(address)
    except OSError as error:
        raise WorkerError(
            f"the first machine does not answer at {address}: {error.strerror or error}; open its ports to this one"
        ) from error
    send(connection.fileno(), {"number": node.number, **asdict(info)})
    agent: Torchrun | None = None
    with connection, tempfile.TemporaryDirectory(prefix="dlbench-") as folder:
        for message in _orders(connection, interruption):
            match message:
                case {"op": "fate", "rank": rank, "pid": pid}:
                    send(connection.fileno(), {"fate": agent.exit_description_of(rank, pid) if agent else "died"})
                case {"op": "places", "pids": pids}:
                    found = places(Path(folder), {int(rank): pid for rank, pid in pids.items()})
                    send(connection.fileno(), {"places": found})
                case _:
                    if agent:
                        agent.end()
                    order = message.get("order")
                    agent = order and Torchrun(RankSpec(**order), Interpreter(), Path(folder))
        if agent:
            agent.end()


def _orders(connection: socket.socket, interruption: Interruption) -> Iterator[Message]:
    """Yield what the first machine says, until it lets go or this one is interrupted."""
    messages = Reader(connection.fileno())
    with suppress(EOFError, ForeignLine, Interrupted):
        while True:
            yield messages.read(wake=interruption.fileno())


def _ask_store(node: Node, *address: str) -> str:
    """Return where the first machine listens, from torchrun's store; with an address, put it there. Raises WorkerError if there is none."""
    # In a process of its own: this one never imports torch.
    command: Sequence[str] = [sys.executable, "-c", _STORE, node.host, str(node.port), str(_PATIENCE_S), *address]
    try:
        socket.create_connection((node.host, node.port), timeout=_PATIENCE_S).close()
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=START_S).stdout.strip()
    except (OSError, subprocess.SubprocessError) as error:
        said = error.strerror if isinstance(error, OSError) and error.strerror else "it said nothing of the first machine"
        raise WorkerError(
            f"torchrun's rendezvous at {node.host}:{node.port} can't be used ({said}); "
            "start the same command on every machine, with an --rdzv-endpoint that all of them reach"
        ) from error
