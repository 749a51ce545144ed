"""Recording of a session: its rounds, measured into its result file, and the rounds that a gate adds.

A gate is a comparison that is to fail if a case is slower. An A/B is one, and a baseline is measured for one. Both get more rounds until
the slowdown that must be detected (--detect) could be shown.
"""

import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
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
"""Rounds a side of a gate at least: from here on testing pairs of rounds as well costs no power where their noise is not shared;
docs/validation.md."""
_MOST_ROUNDS = 60
"""Rounds a side that a gate measures at most: as many as ten cases need whose rounds differ by 30 %."""
_LEAST_STEP = 2
"""Rounds added at a time: the need is an estimate, and reading the file costs little against a round."""
_LEAST_ROUND_S = 1e-9
"""In place of a round that takes no time, as this divides what is left of a budget."""
_HOPELESS_FACTOR = 4
"""A case that lacks more than so many times the rounds that can be added is given up, as it would hardly get them all."""


@contextmanager
def record(session: Session, interruption: Interruption) -> Iterator["Recording"]:
    """Open the file of a session, yield its recording, and close the file at the end.

    The file ends with a footer. It is left out after an interruption, or if the block raises a DeviceFault: then the file counts as
    incomplete. Such a DeviceFault is kept in the recording's ``fault``, for the caller to raise after it has written the results.
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
        """Run the rounds of ``session`` and add them to the file. It is the session that the file was opened for, or one of further rounds.

        ``first_workers``: by side, a running worker that measures its first round; a side without one gets a new one. ``programs`` has
        watched which other programs use the CPUs, and the screen shows them. None: they are watched from now on.
        """
        from dlbench.cli.live import screen  # not at the top, so that --help stays quick

        monitor = Monitor(session.devices, session.settings.threads)
        with screen(session, self.path, programs or OtherPrograms()) as observer:
            runner = Runner(
                session.tasks,
                session.settings,
                self.interruption,
                save=self.writer.append,
                observer=observer,
                monitor=monitor,
                done=session.done,
                tried=self._tried,  # the runner adds its own tries to this list
                first_workers=first_workers,
                signatures=session.signatures,
            )
            runner.run(session.first_round)
        self.rounds = max(self.rounds, runner.progress.rounds)  # the runner has 0 where further rounds measured nothing
        self.out_of_budget |= runner.out_of_budget
        if faults := runner.quarantine.faults():  # of devices that failed repeatedly and were given up
            self.fault = DeviceFault(f"{'; '.join(faults)}; the remaining cases there were skipped; check it, then measure again")


def announce_gate(session: Session, goes_on: bool) -> None:
    """Say on stderr how many cases a gate has, and how long its first rounds and, if it ``goes_on``, all its rounds take."""
    policy = session.settings.policy
    tasks = [task for task in session.tasks if task.has_device]
    tries = sum(search.usual_tries() for search in searches_in((task.case for task in tasks), session.signatures))
    least_and_most = [policy.rounds]
    if goes_on and policy.rounds < _MOST_ROUNDS:
        least_and_most.append(_MOST_ROUNDS)
    times = [seconds(estimate(replace(policy, rounds=rounds), len(tasks), tries)) for rounds in least_and_most]
    in_time = " to ".join(dict.fromkeys(times))  # a budget may make them the same
    cases = plural(len({task.case.id for task in tasks}), "case")
    in_rounds = f"{' to '.join(map(str, least_and_most))} round{'' if least_and_most[-1] == 1 else 's'}"
    a_side = " a side" if len({task.side.name for task in session.tasks}) > 1 else ""
    say(f"{cases} in {in_rounds}{a_side}, about {in_time} (estimated from the policy; slow steps take longer{at_most(policy)})")


def measure_until_seen(
    recording: Recording, session: Session, judge: Callable[["Results"], "Comparison"], budget_s: float | None = None
) -> None:
    """Add rounds until every case can show the change that must be detected, or until `_MOST_ROUNDS` or the budget is reached.

    ``judge`` compares the results so far. ``budget_s`` is the time for the whole recording; None: no limit. Which cases get more rounds
    depends on the precision of their changes alone. It does not depend on size, sign or verdict: rounds that are added until a case looks
    slower would find a slowdown by chance.
    """
    full_round_s = recording.seconds / max(recording.rounds, 1)  # a round of all cases of the session
    session_cases = {task.case.id for task in session.tasks}
    while not recording.stopped:
        verdicts = judge(recording.results()).cases
        # The rounds that each case needs in total. A case is left out if it can show the change already, or if no number is enough.
        # The verdicts are on all cases of the file, but a session that measures again has only some of them.
        needed_rounds = {each.case: each.rounds_to_see for each in verdicts if each.rounds_to_see and each.case in session_cases}
        done_rounds = recording.rounds - session.first_round
        most_added = _MOST_ROUNDS - done_rounds
        left_s = None if budget_s is None else budget_s - recording.seconds
        if left_s is not None:
            most_added = min(most_added, _rounds_in_time(left_s, full_round_s, session, needed_rounds))
        lacking_rounds = {case: needed - done_rounds for case, needed in needed_rounds.items()}
        # A case that lacks far more rounds than can be added is given up.
        reachable = {case: lacking for case, lacking in lacking_rounds.items() if lacking <= _HOPELESS_FACTOR * most_added}
        if most_added < 1 or not reachable:
            return
        # As many as the case that lacks the fewest. The loop then asks again which cases still need rounds.
        fewest_lacking = max(min(reachable.values()), _LEAST_STEP)
        rounds = min(fewest_lacking, most_added)
        say(f"{plural(rounds, 'more round')} for {plural(len(reachable), 'case')} whose change is not known well enough yet")
        tasks = [task for task in session.tasks if task.case.id in reachable]
        # {}: the workers of the earlier rounds have ended, so new ones are started.
        recording.measure(further_rounds(session, recording, tasks, rounds, left_s), {})


def _rounds_in_time(left_s: float, full_round_s: float, session: Session, cases: Container[str]) -> int:
    """Return how many rounds of these cases fit into the time; they take their share of a round of all the session's cases."""
    share = sum(task.case.id in cases for task in session.tasks) / len(session.tasks)
    return int(left_s / max(full_round_s * share, _LEAST_ROUND_S))


def further_rounds(session: Session, recording: Recording, tasks: Sequence[Task], rounds: int, budget_s: float | None = None) -> Session:
    """Return the session that measures ``tasks`` in so many further rounds into the same file."""
    policy = replace(session.settings.policy, rounds=rounds, max_rounds=rounds, budget_s=budget_s)
    settings = replace(session.settings, policy=policy, began=time.monotonic())
    return replace(session, tasks=tuple(tasks), settings=settings, first_round=recording.rounds, done=())
