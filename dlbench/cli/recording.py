"""Recording of a session: its rounds, measured into its result file."""

import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

import click

from dlbench.cli.session import Session
from dlbench.core.errors import DeviceFault
from dlbench.harness.probe import fingerprint
from dlbench.harness.probe.monitor import Watch
from dlbench.harness.process.interrupt import Interruption
from dlbench.harness.process.worker_process import WorkerProcess
from dlbench.harness.runner import Runner

if TYPE_CHECKING:
    from dlbench.analysis.read.table import Results


class Recording:
    """Measures into the file of a session, which it closes when it is left as a context manager.

    A DeviceFault is kept in ``fault``, for the caller to raise after it has written the results.
    """

    def __init__(self, session: Session, interruption: Interruption) -> None:
        self._devices = session.devices
        self.interruption = interruption
        self._writer = session.open_writer()
        if why := self._writer.unlocked:
            path = self._writer.path
            click.echo(f"note: {path} can't be locked where it is ({why}); see to it that no other dlbench writes it meanwhile", err=True)
        self._tried = list(session.tried)
        self._started = time.monotonic()
        self.path = self._writer.path
        self.rounds = 0
        """Rounds that the file has by now."""
        self.fault: DeviceFault | None = None

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self._started

    @property
    def stopped(self) -> bool:
        """Whether an interruption or a device's fault ended it early."""
        return bool(self.interruption.requested or self.fault)

    def results(self) -> "Results":
        """Read what its file has by now."""
        from dlbench.analysis.read.table import collect  # not at the top, so that --help stays quick

        return collect((self.path,))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        try:
            if error is None and not self.interruption.requested:
                state = fingerprint.read_state(self._devices)
                self._writer.append({"kind": "footer", "rounds": self.rounds, "seconds": self.seconds, "state": state})
        finally:
            self._writer.close()
        if isinstance(error, DeviceFault):
            self.fault = error
        return isinstance(error, DeviceFault)

    def measure(self, session: Session, first_workers: Mapping[str | None, WorkerProcess]) -> None:
        """Run the rounds of the session, or of another one that goes on in the same file; ``first_workers`` as in `Runner`."""
        from dlbench.cli.live import screen  # not at the top, so that --help stays quick

        with screen(session, self.path) as observer, Watch(session.devices, session.settings.threads) as watch:
            outcome = Runner(
                session.tasks,
                session.settings,
                self.interruption,
                self._writer.append,
                observer,
                watch,
                session.done,
                self._tried,
                first_workers,
                session.signatures,
                kept=session.kept,
            ).run(session.first_round)
        self.rounds = max(self.rounds, outcome.rounds)
        if outcome.faults:
            self.fault = DeviceFault(f"{'; '.join(outcome.faults)}; the remaining cases there were skipped; check it, then measure again")
