"""Messages between processes, each a line of JSON over a pipe or a socket, and the requests and replies in them.

A measuring process answers a `Request` by three messages: ``{"pid": …}``, the process that does it; ``{"reply": …}``, a `Reply`, absent
if that process died; and ``{"exit": …}``, its exit code, negative for a signal. Between the first two, ``{"stage": …}`` names what it does,
``{"window": …}`` begins or ends sampling of the device, and ``{"timed": …}`` is a `Reply` that lacks what later steps add.
"""

import json
import math
import os
import select
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from dlbench.core.errors import Interrupted, Unknown
from dlbench.core.measurement import Measurement, measurement_to_json
from dlbench.core.model import Case, Policy, Status

Message = dict[str, Any]


class ForeignLine(ValueError):
    """A line that is no message; the text completes ``the process …``."""


class Reader:
    """Reads messages from a descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._buffer = b""
        self._ended = False

    def fileno(self) -> int:
        """Return the descriptor, for `select`."""
        return self._descriptor

    @property
    def ready(self) -> bool:
        """Whether `read` has an answer at once."""
        return self._ended or b"\n" in self._buffer

    def read(self, deadline: float = math.inf, wake: int | None = None) -> Message:
        """Wait as the function `wait` does, and return the next message.

        Raises EOFError at the end, even in the middle of a line, and ForeignLine for a line that is no message.
        """
        wait([self], deadline, wake)
        line, newline, rest = self._buffer.partition(b"\n")
        if not newline:  # `wait` returned without a whole line, so this is the end
            raise EOFError
        self._buffer = rest
        with suppress(ValueError):
            message = json.loads(line)
            if isinstance(message, dict):
                return message
        raise ForeignLine(f"wrote {line[:40].decode(errors='replace')!r} where only dlbench writes; leave descriptors of others alone")

    def __iter__(self) -> Iterator[Message]:
        """Yield each message until the end."""
        with suppress(EOFError):
            while True:
                yield self.read()

    def take(self) -> None:
        """Read what has arrived, waiting for it if need be. A broken connection counts as the end."""
        try:
            data = os.read(self._descriptor, 1 << 16)
        except OSError:
            data = b""
        self._buffer += data
        self._ended = not data


AnyReader = TypeVar("AnyReader", bound=Reader)


def wait(readers: Sequence[AnyReader], deadline: float = math.inf, wake: int | None = None) -> list[AnyReader]:
    """Block until some readers are ready, and return those.

    Raises TimeoutError at the ``deadline``, on the scale of `time.monotonic`, and Interrupted if the descriptor ``wake`` gets readable.
    """
    while not (ready := [reader for reader in readers if reader.ready]):
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        sources = [reader.fileno() for reader in readers] + ([] if wake is None else [wake])
        readable, _, _ = select.select(sources, [], [], None if left_s == math.inf else left_s)
        if wake in readable:
            raise Interrupted
        for reader in readers:
            if reader.fileno() in readable:
                reader.take()
    return ready


def call_parent(address: str) -> socket.socket:
    """Connect to a path, or to ``host:port``. Raises OSError where nobody listens."""
    if "/" in address:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(address)
        return connection
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)))


def send(descriptor: int, message: Mapping[str, Any]) -> None:
    """Write a message. Raises BrokenPipeError, or another OSError of a connection, where nobody reads there any more."""
    write_all(descriptor, json.dumps(message, allow_nan=False).encode() + b"\n")


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of it, in as many parts as the system takes. Raises OSError as `send` does."""
    while data:
        data = data[os.write(descriptor, data) :]


@dataclass(frozen=True, kw_only=True)
class Request:
    """The fields that a hello and a measurement have in common."""

    threads: int
    plugins: tuple[str, ...] = ()
    """Modules or .py files to load first."""
    not_from: str | None = None
    """A folder that no module may be imported from."""

    @staticmethod
    def from_json(message: Message) -> "HelloRequest | MeasureRequest | PrepareRequest":
        """Return the request that `asdict` made this message of, in a measuring process, which has no msgspec."""
        given: Message = {name: tuple(value) if isinstance(value, list) else value for name, value in message.items()}
        if "training" in given:
            return PrepareRequest(**given)
        if "case" in given:
            return MeasureRequest(**given | {"case": Case(**given["case"]), "policy": Policy(**given["policy"])})
        return HelloRequest(**given)


@dataclass(frozen=True, kw_only=True)
class PrepareRequest(Request):
    """Asks a process to import itself what its requests will need, ``plugins`` too. The reply is empty."""

    threads: int = 1
    training: bool
    """Whether an optimizer will be used."""


@dataclass(frozen=True, kw_only=True)
class HelloRequest(Request):
    """Asks for devices, versions and workloads, installed ones by name: see `dlbench.harness.worker.serving.main.hello`."""

    workloads: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class MeasureRequest(Request):
    """Asks to measure one case in one round. ``threads`` are those of each rank."""

    case: Case
    round: int
    policy: Policy
    seed: int
    device_name: str | None
    devices: tuple[str, ...]
    """Device of each rank; a case in one process has one."""
    memory_bytes: int | None
    """Host memory that each rank may take; None where nothing limits it."""
    scratch: str | None = None
    """The folder that its workload may write in, where it declares that it does."""
    cpus: tuple[tuple[int, ...], ...] = ()
    """Logical CPUs of each rank, or of the one process; empty: those that it has."""
    hide_accelerators: bool = False
    """Whether the process that does it computes on the CPU alone."""


@dataclass(frozen=True)
class Reply:
    """The answer to a request: that of a hello, a measurement, or an error instead."""

    hello: Message | None = None
    measurement: Measurement | None = None
    fault: bool = False
    """Whether the device is at fault, which leaves the process unfit for another case."""
    error: str | None = None
    missing: tuple[str, ...] = ()
    """Groups of columns that are still to be added to what was timed; with an error those that never will be."""

    @property
    def status(self) -> Status:
        """The measurement's; an error is a failure."""
        return Status.FAILED if self.measurement is None else self.measurement.status

    @property
    def reason(self) -> str | None:
        """The sentence why it is not ok."""
        return self.error if self.measurement is None else self.measurement.reason

    def with_reason(self, reason: str) -> "Reply":
        """Return it with another reason."""
        if self.measurement is None:
            return replace(self, error=reason)
        return replace(self, measurement=replace(self.measurement, reason=reason))

    def cut_off(self, reason: str) -> Measurement | None:
        """Return the measurement, with the reason why the groups in ``missing`` were cut off."""
        cut_off = dict.fromkeys(self.missing, (Unknown.CUT_OFF.reason(text=reason),))
        return self.measurement and replace(self.measurement, missing_reasons={**self.measurement.missing_reasons, **cut_off})

    def to_json(self) -> Message:
        """Return it as a message."""
        return {**vars(self), "measurement": self.measurement and measurement_to_json(self.measurement)}
