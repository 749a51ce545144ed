"""Ctrl-C, SIGTERM and a closed terminal as something to wait for: the first ends the current case, the second ends the program."""

import os
import select
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Self

from dlbench.core.errors import ExitCode


class Interruption:
    """While entered, notes the first SIGINT, SIGTERM or SIGHUP and makes its ``fileno`` readable; a second exits at once.

    Exiting closes the pipes that every child watches, so none of them stays.
    """

    def __init__(self) -> None:
        self.requested: signal.Signals | None = None
        self._read, self._write = os.pipe()
        self._previous: dict[signal.Signals, object] = {}
        self._before_exit: list[Callable[[], object]] = []

    def fileno(self) -> int:
        """Return a descriptor that is readable once a signal has come."""
        return self._read

    @property
    def exit_code(self) -> ExitCode:
        """The code to exit with: as a shell has it, 128 and the number of the signal; 0 without one."""
        return ExitCode(128 + self.requested if self.requested else 0)

    def wait(self, seconds: float) -> None:
        """Return after so long, or at once when a signal comes."""
        select.select([self._read], [], [], seconds)

    @contextmanager
    def before_exit(self, action: Callable[[], object]) -> Iterator[None]:
        """While entered, the action, which must not raise, is done before a second signal ends the program."""
        self._before_exit.append(action)
        try:
            yield
        finally:
            self._before_exit.remove(action)

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
            for action in self._before_exit:
                action()
            os._exit(128 + number)
        self.requested = signal.Signals(number)
        os.write(self._write, b"!")
