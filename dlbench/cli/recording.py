"""Recording of a session: its rounds, measured into its result file."""

import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from dlbench.cli.session import Session
from dlbench.cli.terminal import say
from dlbench.core.errors import DeviceFault
from dlbench.harness.probe import fingerprint
from dlbench.harness.probe.monitor import Monitor
from dlbench.harness.probe.programs import OtherPrograms
from dlbench.harness.process.interrupt import Interruption
from dlbench.harness.process.worker_process import WorkerProcess
from dlbench.harness.runner import Runner

if TYPE_CHECKING:
    from dlbench.analysis.read.table import Results


@contextmanager
def record(session: Session, interruption: Interruption) -> Iterator["Recording"]:
    """Open the file of a session and close it at the end, with a footer unless an interruption came.

    A DeviceFault is kept in the recording's ``fault``, for the caller to raise after it has written the results.
    """
    recording = Recording(session, interruption)
    with closing(recording.writer):
        try:
            yield recording
        except DeviceFault as fault:
            recording.fault = fault
            return
        if not interruption.requested:
            state = fingerprint.read_state(session.devices)
            recording.writer.append({"kind": "footer", "rounds": recording.rounds, "seconds": recording.seconds, "state": state})


class Recording:
    """Measures into the file of a session; see `record`."""

    def __init__(self, session: Session, interruption: Interruption) -> None:
        self.interruption = interruption
        self.writer = session.open_writer()
        if why := self.writer.unlocked:
            path = self.writer.path
            say(f"note: {path} can't be locked where it is ({why}); see to it that no other dlbench writes it meanwhile")
        self._tried = list(session.tried)
        self._started = time.monotonic()
        self.path = self.writer.path
        self.rounds = 0
        """Rounds that the file has by now."""
        self.out_of_budget = False
        """Whether the budget left a case without any."""
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

    def measure(self, session: Session, first_workers: Mapping[str | None, WorkerProcess], programs: OtherPrograms | None = None) -> None:
        """Run the rounds of the session, or of another one that goes on in the same file; ``first_workers`` as in `Runner`.

        ``programs``: those that took CPUs since the command began, which is said before anything is measured.
        """
        from dlbench.cli.live import screen  # not at the top, so that --help stays quick

        with (
            screen(session, self.path, programs or OtherPrograms()) as observer,
            Monitor(session.devices, session.settings.threads) as monitor,
        ):
            outcome = Runner(
                session.tasks,
                session.settings,
                self.interruption,
                self.writer.append,
                observer,
                monitor,
                session.done,
                self._tried,
                first_workers,
                session.signatures,
            ).run(session.first_round)
        self.rounds = max(self.rounds, outcome.rounds)
        self.out_of_budget |= outcome.out_of_budget
        if outcome.faults:
            self.fault = DeviceFault(f"{'; '.join(outcome.faults)}; the remaining cases there were skipped; check it, then measure again")
