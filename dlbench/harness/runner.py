"""Rounds over cases until each is precise enough; each result is saved the moment it exists."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from dlbench.core.measurement import Measurement, measurement_to_json
from dlbench.core.model import Signature, Status
from dlbench.harness.measurer import Measurer
from dlbench.harness.pool import WorkerPool
from dlbench.harness.probe.sampler import Monitor
from dlbench.harness.process.folders import ScratchFolders
from dlbench.harness.process.launch import Interruption
from dlbench.harness.process.worker_process import WorkerProcess, handshake
from dlbench.harness.progress import Progress
from dlbench.harness.schedule import GRACE_S, Attempt, BudgetSpent, Observer, Retries, RunSettings, Task, Try, best_try, in_order


class Outcome(NamedTuple):
    """How a run ended."""

    rounds: int
    """Rounds in the file by then."""
    faults: tuple[str, ...]
    """A sentence for each device that was given up."""
    out_of_budget: bool
    """Whether a case has no row but that of the spent budget."""


@dataclass
class Runner:
    """Measures the tasks of a run round after round, and saves each result at once.

    A case that was throttled or disturbed on one side is measured again at the end of its round, on each side; where it was throttled,
    after a pause. A device that fails twice in a row is given up: its remaining cases are skipped.

    No case starts behind the budget, nor one that by its earlier rounds would not be done ``GRACE_S`` later; one that is not done then is
    ended. In the first round such a case is skipped; in a later one it keeps the rounds that it has.
    """

    tasks: Sequence[Task]
    settings: RunSettings
    interruption: Interruption
    """Once requested, it ends the rounds early."""
    save: Callable[[dict[str, Any]], None]
    """Takes the lines of the result file: a measurement a task, and the machine's state around the round."""
    observer: Observer
    monitor: Monitor
    done: Sequence[Measurement] = ()
    """Those of an earlier, interrupted run: not measured again."""
    tried: list[Measurement] = field(default_factory=list)
    """The tries of searches so far, which it adds its own to."""
    first_workers: Mapping[str | None, WorkerProcess] = field(default_factory=dict)
    """The processes that answered the handshake, by side."""
    signatures: Mapping[str, Signature] = field(default_factory=dict)
    """The signatures of the workloads, by name."""

    def run(self, first_round: int = 0) -> Outcome:
        """Measure round after round until each task has enough. Raises DeviceFault if a whole machine of several is gone."""
        settings = self.settings
        policy = settings.policy
        self._progress = progress = Progress(self.tasks, policy, self.done)
        self._retries = Retries(policy.tries)
        self._read_idle()
        run_ends = settings.budget_ends + GRACE_S
        pool = WorkerPool(
            settings.isolation, settings.seed, settings.threads, self.interruption, self.first_workers, self.signatures, run_ends
        )
        scratch = ScratchFolders()
        self._measurer = measurer = Measurer(
            settings, self.signatures, self.observer, self.monitor, pool, progress, scratch, self._save_try, self.tried
        )
        self.observer.left_s = lambda: max(0.0, min(progress.left_s(), measurer.left_s()))
        most_rounds = policy.max_rounds if policy.budget_s else policy.rounds
        with scratch, self.interruption.before_exit(scratch.remove), pool:
            for number in range(first_round, first_round + most_rounds):
                pending = progress.pending(number, measurer.left_s())
                if progress.finished():
                    break
                # The first round begins in any case: each of its cases gets a row that says why it was not measured.
                if number and progress.start_s + progress.cases_s(pending) > measurer.left_s():
                    break
                # If none is pending, the file has all of this round already, from before the interruption.
                if pending and not self._measure_round(number, pending, pool):
                    break
        return Outcome(progress.rounds, measurer.quarantine.faults(), measurer.out_of_budget)

    def _read_idle(self) -> None:
        """Meter the idle devices before the first round if a step on them will be metered, while no worker is alive."""
        sustained = {name for name, signature in self.signatures.items() if signature.declared.is_sustained}
        devices = {case.device for case, _ in self.tasks if case.workload in sustained}
        if devices and not self._progress.finished() and self.monitor.meters(devices):
            for worker in self.first_workers.values():
                worker.end()
            self.first_workers = {}
            self.monitor.read_idle(devices, self.interruption.wait)

    def _measure_round(self, number: int, tasks: Sequence[Task], pool: WorkerPool) -> bool:
        """Measure each task, and those again that were held back. Return whether the round is complete, without an interruption."""
        self.observer.round_started(number, [task.series for task in tasks])
        training = any("training" in self._measurer.declared(task.case).tags for task in tasks)
        # Cases that all others are compared with come first.
        tasks = sorted(tasks, key=lambda task: not self._measurer.is_base(task.case))
        served = tasks if self._measurer.left_s() > 0 else ()
        workers = pool.processes_of_round(number, served, self._progress.certain(tasks), training=training)
        with workers, self.monitor.round(number, lambda state: self.save(state.to_json())) as read_state:
            self._progress.start_s = pool.start_s
            for attempt in self._retries.of_round(in_order(tasks, self.settings.policy, self.settings.seed, number)):
                try:
                    measured = self._measure_attempt(attempt, number)
                except BudgetSpent:
                    if attempt.made:
                        self._keep_best(attempt)
                    else:
                        for task in attempt.tasks:
                            self.observer.case_left_out(task.series)
                    continue
                if len(measured) < len(attempt.tasks) or self.interruption.requested is not None:
                    self._keep_best(attempt, measured)
                    for waiting in self._retries.waiting:
                        if waiting.made:
                            self._keep_best(waiting)
                    return False
                left_s = self._measurer.left_s() - self._progress.cases_s(attempt.tasks)
                if self._retries.grant(attempt, measured, left_s):
                    self._discard(measured, len(attempt.made))
                    for measurement in measured:
                        self.observer.case_postponed(measurement)
                else:
                    self._keep_best(attempt, measured)
            read_state()
        return True

    def _measure_attempt(self, attempt: Attempt, number: int) -> Try:
        """Return a case's measurements on each of its sides; fewer after an interruption.

        Raises BudgetSpent if no budget is left for the attempt, and the case has an earlier round or try.
        """
        if attempt.made and self._progress.cases_s(attempt.tasks) + attempt.pause_s > self._measurer.left_s():
            raise BudgetSpent("its turn")
        if number and len(attempt.tasks) > 1:
            self._measurer.require_time(attempt.tasks)  # one side alone would be in no pair
        if attempt.pause_s:
            self.interruption.wait(attempt.pause_s)
        measured: list[Measurement] = []
        for task in attempt.tasks:
            measurement = self._measurer.measure(task, number, again=bool(attempt.made))
            if measurement is None:
                break
            measured.append(measurement)
        return measured

    def _save_try(self, tried: Measurement) -> None:
        self.save(measurement_to_json(tried, "try"))
        self.observer.case_tried(tried)

    def _discard(self, measured: Try, tries: int) -> None:
        for measurement in measured:
            self.save(measurement_to_json(_with_tries(measurement, tries), "discarded"))

    def _keep_best(self, attempt: Attempt, measured: Try = ()) -> None:
        """Save ``measured``, the last try at a case, if there is one, and the best of all as the one that counts.

        If that was discarded earlier, the file has it twice.
        """
        # A last try that is not ok counts: earlier ones do not.
        tries = attempt.made if all(each.status is Status.OK for each in measured) else []
        if len(measured) == len(attempt.tasks) or not tries:
            tries = [*tries, measured]
        best = best_try(tries)
        if best is not measured:
            self._discard(measured, len(attempt.made) + 1)
        for measurement in (_with_tries(each, len(tries)) for each in best):
            self.save(measurement_to_json(measurement))
            self._progress.add(measurement)
            self.observer.case_ended(measurement)


def _with_tries(measurement: Measurement, tries: int) -> Measurement:
    throttling = measurement.throttling
    return replace(measurement, throttling=replace(throttling, tries=tries)) if throttling and tries > 1 else measurement


def ask_hello(plugins: Sequence[str] = (), workloads: Sequence[str] = ()) -> dict[str, Any]:
    """Ask a worker of its own for devices, versions and workloads: see `serving.main.hello`. Raises what `handshake` raises."""
    with Interruption() as interruption, WorkerProcess("stay", 1, 0, interruption) as worker:
        return handshake(worker, plugins, workloads, 1)
