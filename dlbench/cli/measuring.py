"""A session while it is measured: its file, the screen, and the footer at the end."""

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from dlbench.cli.session import Session
from dlbench.core.errors import DeviceFault
from dlbench.harness.host import Host
from dlbench.harness.interruption import Interruption
from dlbench.harness.runner import run_rounds


class Recording:
    """Measures into the file of a session. Use as a context manager: leaving it closes the file, and keeps all that was measured.

    A device that fails is left alone, and what it had to say stays in ``fault``, to be raised once what there is has been written. So does
    a DeviceFault that ends the measuring.
    """

    def __init__(self, session: Session, interruption: Interruption) -> None:
        self._interruption = interruption
        self._devices = session.devices
        self._writer = session.open_writer()
        self._started = time.monotonic()
        self.path = self._writer.path
        self.rounds = 0
        """That the file has by now."""
        self.fault: DeviceFault | None = None

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self._started

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        try:
            if error is None and not self._interruption.requested:
                self._writer.append(self._footer())
        finally:
            self._writer.close()
        if isinstance(error, DeviceFault):
            self.fault = error
        return isinstance(error, DeviceFault)

    def measure(self, session: Session, first_hosts: Mapping[str | None, Host]) -> None:
        """Run the rounds of the session, or of another one that goes on in the same file; ``first_hosts`` are as in `run_rounds`."""
        from dlbench.cli.live import screen
        from dlbench.harness.watch import Watch

        with screen(session, self.path) as observer, Watch(session.devices, session.settings.threads) as watch:
            outcome = run_rounds(
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
        self.rounds = max(self.rounds, outcome.rounds)
        if outcome.faults:
            self.fault = DeviceFault(f"{'; '.join(outcome.faults)}; the remaining cases there were skipped; check it, then measure again")

    def _footer(self) -> dict[str, Any]:
        from dlbench.harness.environment import read_state

        return {"kind": "footer", "rounds": self.rounds, "seconds": self.seconds, "state": read_state(self._devices)}
