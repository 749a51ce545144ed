"""A session while it is measured: its file, the screen, and the footer at the end."""

import time
from collections.abc import Mapping
from typing import Self

from dlbench.cli.session import Session
from dlbench.harness.host import Host
from dlbench.harness.interruption import Interruption
from dlbench.harness.runner import run_rounds


class Recording:
    """Measures into the file of a session. Use as a context manager: leaving it closes the file, and keeps all that was measured."""

    def __init__(self, session: Session, interruption: Interruption) -> None:
        self._interruption = interruption
        self._devices = session.devices
        self._writer = session.open_writer()
        self._started = time.monotonic()
        self.path = self._writer.path
        self.rounds = 0
        """That the file has by now."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def measure(self, session: Session, first_hosts: Mapping[str | None, Host]) -> None:
        """Run the rounds of the session, or of another one that goes on in the same file; ``first_hosts`` are as in `run_rounds`."""
        from dlbench.cli.live import screen
        from dlbench.harness.watch import Watch

        with screen(session, self.path) as observer, Watch(session.devices, session.settings.threads) as watch:
            self.rounds = run_rounds(
                session.tasks,
                session.settings,
                self._interruption,
                self._writer.append,
                observer,
                watch,
                session.done,
                first_hosts,
                session.first_round,
            )

    def finish(self) -> None:
        """Write the footer, unless the rounds were interrupted."""
        from dlbench.harness.environment import read_state

        if not self._interruption.requested:
            seconds = time.monotonic() - self._started
            self._writer.append({"kind": "footer", "rounds": self.rounds, "seconds": seconds, "state": read_state(self._devices)})
