"""Recording of a session: its rounds, measured into its result file, and those that a gate adds until all is seen that must be."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from dlbench.analysis.presentation.wording import plural
from dlbench.cli.planning import at_most
from dlbench.cli.session import Session
from dlbench.cli.terminal import say
from dlbench.core.errors import DeviceFault
from dlbench.core.units import seconds
from dlbench.harness.plan.cases import estimate
from dlbench.harness.plan.searches import searches_in
from dlbench.harness.probe import fingerprint
from dlbench.harness.probe.programs import OtherPrograms
from dlbench.harness.probe.sampler import Monitor
from dlbench.harness.process.launch import Interruption
from dlbench.harness.process.worker_process import WorkerProcess
from dlbench.harness.runner import Runner
from dlbench.harness.schedule import Task

if TYPE_CHECKING:
    from dlbench.analysis.compare.verdict import Comparison
    from dlbench.analysis.read.table import Results

LEAST_ROUNDS = 14
"""A side: from here on testing pairs of rounds, too, costs no power where their noise is not shared; docs/validation.md."""
_MOST_FURTHER = 60
"""Rounds a side, up to which a gate goes on where nobody limits it: as many as rounds need that differ by 30 %, in ten cases."""
_LEAST_STEP = 2
"""Rounds added at a time: the need is an estimate, and reading the file costs little against a round."""
_HOPELESS = 4
"""Times the rounds that can be added; a case that needs more would hardly get there."""


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
        self.path = self.writer.path
        if why := self.writer.unlocked:
            say(f"note: {self.path} can't be locked where it is ({why}); see to it that no other dlbench writes it meanwhile")
        self._tried = list(session.tried)
        self._started = time.monotonic()
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

        ``programs``: watches who has used the CPUs since the command began, which the screen says first.
        """
        from dlbench.cli.live import screen  # not at the top, so that --help stays quick

        monitor = Monitor(session.devices, session.settings.threads)
        with screen(session, self.path, programs or OtherPrograms()) as observer:
            runner = Runner(
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
            )
            runner.run(session.first_round)
        self.rounds = max(self.rounds, runner.progress.rounds)
        self.out_of_budget |= runner.out_of_budget
        if faults := runner.quarantine.faults():
            self.fault = DeviceFault(f"{'; '.join(faults)}; the remaining cases there were skipped; check it, then measure again")


def announce_gate(session: Session, goes_on: bool) -> None:
    """Say on stderr how many cases a gate has, and how long its first rounds and, if it ``goes_on``, all its rounds take."""
    policy = session.settings.policy
    tasks = [task for task in session.tasks if task.has_device]
    tries = sum(search.usual_tries() for search in searches_in((task.case for task in tasks), session.signatures))
    most = max(policy.rounds, _MOST_FURTHER) if goes_on else policy.rounds
    rounds = list(dict.fromkeys((policy.rounds, most)))
    times = dict.fromkeys(seconds(estimate(replace(policy, rounds=each), len(tasks), tries)) for each in rounds)
    cases = plural(len({task.case.id for task in tasks}), "case")
    a_side = " a side" if len({task.side.name for task in session.tasks}) > 1 else ""
    say(
        f"{cases} in {' to '.join(map(str, rounds))} round{'s' * (most > 1)}{a_side}, about {' to '.join(times)} "
        f"(estimated from the policy; slow steps take longer{at_most(policy)})"
    )


def measure_until_seen(
    recording: Recording, session: Session, judge: Callable[["Results"], "Comparison"], budget_s: float | None = None
) -> None:
    """Measure the session's cases that can't yet show the change that must be detected in more rounds, within the budget if there is one.

    ``judge``: how to compare the results so far. Only the precision of a change decides, never its size, sign or verdict, so that further
    rounds favour none.
    """
    full_round_s = recording.seconds / max(recording.rounds, 1)
    ids = {task.case.id for task in session.tasks}
    while not recording.stopped:
        judged = judge(recording.results()).cases
        needed = {case.case: case.rounds_to_see for case in judged if case.rounds_to_see and case.case in ids}
        have = recording.rounds - session.first_round
        most = _MOST_FURTHER - have
        left_s = None
        if budget_s is not None:  # a round of some of the cases takes their share of a full one
            left_s = budget_s - recording.seconds
            share = sum(task.case.id in needed for task in session.tasks) / len(session.tasks)
            most = min(most, int(left_s / max(full_round_s * share, 1e-9)))
        lacking = {case: need - have for case, need in needed.items() if need - have <= _HOPELESS * most}
        if most < 1 or not lacking:
            return
        rounds = min(max(min(lacking.values()), _LEAST_STEP), most)  # until the first case is expected to have enough, and drops out
        say(f"{plural(rounds, 'more round')} for {plural(len(lacking), 'case')} whose change is not known well enough yet")
        tasks = [task for task in session.tasks if task.case.id in lacking]
        recording.measure(further_rounds(session, recording, tasks, rounds, left_s), {})


def further_rounds(session: Session, recording: Recording, tasks: Sequence[Task], rounds: int, budget_s: float | None = None) -> Session:
    """Return the session that measures ``tasks`` in so many further rounds into the same file."""
    policy = replace(session.settings.policy, rounds=rounds, max_rounds=rounds, budget_s=budget_s)
    settings = replace(session.settings, policy=policy, began=time.monotonic())
    return replace(session, tasks=tuple(tasks), settings=settings, first_round=recording.rounds, done=())
