"""Streams and events as a device has them, which do what they are given only when somebody waits for it, as late as they may."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch


class QueueingStream:
    """Actions in the order they were given, none of which is done yet."""

    def __init__(self) -> None:
        self.queue: list[Callable[[], object]] = []

    def run(self, until: Callable[[], object] | None = None) -> None:
        """Do them, all or those before one."""
        while self.queue and self.queue[0] is not until:
            self.queue.pop(0)()

    def wait_event(self, event: Any) -> None:
        event.synchronize()

    def wait_stream(self, other: "QueueingStream") -> None:
        other.run()


class QueueingStreams:
    """Module of a kind of device, such as torch.cuda; ``step`` is the stream that is current at first."""

    def __init__(self) -> None:
        self.made: list[QueueingStream] = []
        self.step = self._current = self.Stream()

    def Stream(self) -> QueueingStream:  # noqa: N802  # as torch calls it
        self.made.append(QueueingStream())
        return self.made[-1]

    @property
    def Event(self) -> type:  # noqa: N802  # likewise
        streams = self

        class QueueingEvent:
            on: QueueingStream | None = None

            def record(self, stream: QueueingStream | None = None) -> None:
                self.on, self.place = stream or streams.current_stream(), lambda: None
                self.on.queue.append(self.place)

            def synchronize(self) -> None:
                if self.on is not None and self.place in self.on.queue:
                    self.on.run(self.place)

        return QueueingEvent

    @contextmanager
    def stream(self, stream: QueueingStream) -> Iterator[None]:
        before, self._current = self._current, stream
        yield
        self._current = before

    def current_stream(self) -> QueueingStream:
        return self._current

    def queue(self, action: Callable[[], object]) -> None:
        """Give an action to the current stream."""
        self._current.queue.append(action)

    def synchronize(self) -> None:
        """Do all that was given, on the latest stream first: what others wait for, but nobody said so, is done too late."""
        for stream in reversed(self.made):
            stream.run()

    def copied(self, part: torch.Tensor, device: object) -> torch.Tensor:
        """Start a copy; what it will fill has -1 throughout."""
        target = torch.full_like(part, -1)
        self.queue(lambda: target.copy_(part))
        return target
