"""Rounds over cases until each is precise enough; each result is saved the moment it exists."""

import math
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from dlbench.core.declarations import Declaration
from dlbench.core.errors import Interrupted
from dlbench.core.measurement import Measurement, measurement_to_json
from dlbench.core.model import Case, Policy, Signature, Status
from dlbench.harness.plan.cases import policy_of_tries
from dlbench.harness.plan.searches import SpeedSearch, search_of
from dlbench.harness.pool import WorkerPool
from dlbench.harness.probe.linux import available_memory, oom_kills
from dlbench.harness.probe.processor import cpus_of
from dlbench.harness.probe.sampler import Monitor, Window
from dlbench.harness.process.folders import ScratchFolders
from dlbench.harness.process.launch import Interpreter, Interruption
from dlbench.harness.process.wire import MeasureRequest
from dlbench.harness.process.worker_process import WorkerProcess, handshake
from dlbench.harness.progress import Progress
from dlbench.harness.ranks.placement import Placement, place_ranks, reason_to_refuse
from dlbench.harness.schedule import (
    GRACE_S,
    Attempt,
    BudgetSpent,
    DeviceQuarantine,
    Observer,
    Retries,
    RunSettings,
    Task,
    Try,
    best_try,
    in_order,
)

Measured = tuple[Measurement, bool]
"""A measurement, and whether the device is at fault."""


@dataclass
class Runner:
    """Measures the tasks of a run round after round, or says why not, and saves each result at once.

    A retry measures a case again on each side, at the end of its round, if it was throttled or disturbed on one. A throttled one waits
    first. A case that leaves parameters open is searched once, by tries; the fastest settings are then measured in each round. A device
    that fails twice in a row is given up: its remaining cases are skipped.

    No case starts after the budget is spent, or if its earlier rounds say that it would end more than ``GRACE_S`` later. A case that still
    runs by then is ended. In the first round such a case is skipped; in a later one it keeps the rounds that it has.
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
    """Measurements of an earlier, interrupted run: not made again."""
    tried: list[Measurement] = field(default_factory=list)
    """The tries of all searches so far, those of an earlier, interrupted run first."""
    first_workers: Mapping[str | None, WorkerProcess] = field(default_factory=dict)
    """The processes that answered the handshake, by side."""
    signatures: Mapping[str, Signature] = field(default_factory=dict)
    """The signatures of the workloads, by name."""

    def __post_init__(self) -> None:
        self.progress = Progress(self.tasks, self.settings.policy, self.done)
        self.quarantine = DeviceQuarantine()
        self.out_of_budget = False
        """Whether a case was skipped because the budget was spent, and so has no measurement."""
        self._retries = Retries(self.settings.policy.tries)
        self._scratch = ScratchFolders()
        self.observer.left_s = lambda: max(0.0, min(self.progress.left_s(), self._left_s()))

    def run(self, first_round: int = 0) -> None:
        """Measure round after round until each task has enough.

        ``first_round`` is the number of the first one. It is above 0 where the file has rounds already to which an A/B adds further ones.
        Raises DeviceFault if a whole machine of several is gone.
        """
        policy, progress = self.settings.policy, self.progress
        self._read_idle()  # before the pool is made: this may end the processes of the handshake
        self._pool = WorkerPool(self.settings, self.interruption, dict(self.first_workers), self.signatures)
        # Only a budget pays for more rounds than the policy's own.
        most_rounds = max(policy.rounds, policy.max_rounds if policy.budget_s else 0)
        with self._scratch, self._pool:
            for number in range(first_round, first_round + most_rounds):
                pending = progress.pending(number, self._left_s())
                if progress.finished():
                    break
                # Round 0 begins in any case: each case that it has no time for gets a row that says so.
                if number and progress.start_s + progress.cases_s(pending) > self._left_s():
                    break
                # If none is pending, the file has all of this round already, from before the interruption.
                if pending and not self._measure_round(number, pending):
                    break

    def _left_s(self) -> float:
        """Return the rest of the budget."""
        return self.settings.budget_ends - time.monotonic()

    def _require_time(self, tasks: Sequence[Task]) -> None:
        """Raise BudgetSpent where no budget is left, or where the tasks, by their last round, would end behind its grace."""
        left_s = self._left_s()
        if (left_s <= 0 or self.progress.cases_s(tasks) > left_s + GRACE_S) and not self._is_reference(tasks[0].case):
            raise BudgetSpent("its turn")

    def _is_reference(self, case: Case) -> bool:
        """Whether the other cases of its workload are compared with this one, as trainings with the one in fp32.

        It is measured first, and whether or not the budget is spent.
        """
        return self._declared(case).stands_out("format", case.params)

    def _read_idle(self) -> None:
        """Meter the idle devices before the first round if a step on them will be metered, while no worker is alive."""
        devices = {case.device for case, _ in self.tasks if self._declared(case).is_sustained}
        if devices and not self.progress.finished() and self.monitor.meters(devices):
            for worker in self.first_workers.values():
                worker.end()
            self.first_workers = {}
            self.monitor.read_idle(devices, self.interruption.wait)

    def _measure_round(self, number: int, tasks: Sequence[Task]) -> bool:
        """Measure each task once, then the retries that were granted. Return whether the round is complete: no interruption ended it."""
        self.observer.round_started(number, [task.series for task in tasks])
        training = any("training" in self._declared(task.case).tags for task in tasks)
        # False sorts first, so references do. `in_order` may keep this order in the first round of a budget; otherwise it draws one.
        tasks = sorted(tasks, key=lambda task: not self._is_reference(task.case))
        # Once the budget is spent no process is started ahead of its first case.
        tasks_to_start_for = tasks if self._left_s() > 0 else ()
        workers = self._pool.processes_of_round(number, tasks_to_start_for, self.progress.certain_rounds, training=training)
        with workers, self.monitor.round(number, lambda state: self.save(state.to_json())) as read_state:
            self.progress.start_s = self._pool.start_s
            for attempt in self._retries.of_round(in_order(tasks, self.settings.policy, self.settings.seed, number)):
                try:
                    measured = self._measure_attempt(attempt, number)
                except BudgetSpent:
                    self._keep_best(attempt)
                    if not attempt.earlier_tries:  # the case has no result of this round
                        for task in attempt.tasks:
                            self.observer.case_left_out(task.series)
                    continue
                if len(measured) < len(attempt.tasks) or self.interruption.requested is not None:
                    # Whatever was tried counts, also where a retry was still to come.
                    self._keep_best(attempt, measured)
                    for waiting in self._retries.waiting:
                        self._keep_best(waiting)
                    return False
                # The retry itself takes a part of the time left. Only the rest may be spent on the pause before it.
                left_for_pause_s = self._left_s() - self.progress.cases_s(attempt.tasks)
                if self._retries.grant(attempt, measured, left_for_pause_s):
                    # `grant` has added this try to the earlier ones: their count is its own number among the tries.
                    self._discard(measured, len(attempt.earlier_tries))
                    for measurement in measured:
                        self.observer.case_postponed(measurement)
                else:
                    self._keep_best(attempt, measured)
            read_state()
        return True

    def _measure_attempt(self, attempt: Attempt, number: int) -> Try:
        """Measure a case on each of its sides. After an interruption only the sides before it are returned.

        Raises BudgetSpent if no budget is left for the attempt, and the case has an earlier round or try.
        """
        if number or attempt.earlier_tries:
            self._require_time(attempt.tasks)  # for all sides, as one alone would be in no pair
        if attempt.pause_s:
            self.interruption.wait(attempt.pause_s)
        measured: list[Measurement] = []
        with suppress(Interrupted):
            # An interruption leaves the sides that were measured before it in the list.
            measured.extend(self._measure(task, number, is_retry=bool(attempt.earlier_tries)) for task in attempt.tasks)
        return measured

    def _measure(self, task: Task, number: int, is_retry: bool) -> Measurement:
        """Measure a case on one side, and return its row, which may say why it was not measured.

        Raises Interrupted, and BudgetSpent if no budget is left for a case that has a row already, of an earlier round or try.
        """
        self.observer.case_started(task.series, number)
        try:
            return self._measure_or_search(task, number)[0]
        except BudgetSpent as error:
            if number or is_retry:
                raise
            self.out_of_budget = True
            reason = f"the budget of {self.settings.policy.budget_s:g} s was spent before {error}; give a larger --budget"
            return error.so_far or self._unmeasured(task, number, Status.SKIPPED, reason)

    def _measure_or_search(self, task: Task, number: int) -> Measured:
        """Measure a task, by a search if its case leaves parameters open.

        The tries give the largest size or the highest rate. For the fastest settings they are too brief: these are then measured in full.
        Raises Interrupted. Raises BudgetSpent if there is no time for the next try, or for the measurement in full. That error carries a
        row with the best values so far, if any try was made.
        """
        policy = self.settings.policy
        search = search_of(task.case, self.signatures.get(task.case.workload))
        if search is None:
            return self._measure_case(task, task.case, number, policy)
        tries = [each for each in self.tried if each.side == task.side.name and search.is_try(each.case)]
        try:
            while next_case := search.next(tries):
                tried, fault = self._measure_case(task, next_case, number, policy_of_tries(policy))
                if fault or tried.status is Status.SKIPPED:  # it is no try: it shows nothing about these settings
                    return search.unfinished(replace(tried, case=task.case, round=number), tries), fault
                self.save(measurement_to_json(tried, "try"))
                self.observer.case_tried(tried)
                self.tried.append(tried)
                tries.append(tried)
            outcome = search.outcome(tries, number)
            if outcome.status is not Status.OK or not isinstance(search, SpeedSearch):
                return outcome, False
            measurement, fault = self._measure_case(task, search.with_values(outcome.found), number, policy)
        except BudgetSpent as error:
            if not tries:
                raise
            when = "before that was measured"  # the search was done, and `unfinished` names its fastest settings: these are "that"
            if next_case:  # the search itself was cut short
                when = "after 1 try" if len(tries) == 1 else f"after {len(tries)} tries"
            reason = f"the budget ran out {when}; go on with --resume and a larger --budget"
            error.so_far = search.unfinished(Measurement(task.case, number, Status.SKIPPED, reason, task.side.name), tries)
            raise
        return replace(measurement, case=task.case, round=number, found=outcome.found), fault

    def _measure_case(self, task: Task, case: Case, number: int, policy: Policy) -> Measured:
        """Measure ``case``, that of the task or one that its search tries, and return its row, which may say why it was not measured.

        Raises BudgetSpent if the case has no time to begin, or is not yet timed when the run ends. Raises Interrupted if it is interrupted
        before it was timed. A case that was timed has a row in any case.
        """
        attempted = task._replace(case=case)
        unmeasured = partial(self._unmeasured, attempted, number)
        placement = place_ranks(case, task.side.capacities(self.settings.threads))
        if refusal := self._refusal(attempted, placement):
            return unmeasured(*refusal), False
        self._require_time([task])
        try:
            request = self._request(attempted, task.case.key, number, self.progress.lengthened(task.case, policy), placement)
        except OSError as error:
            reason = f"no folder can be made in {error.filename}: {error.strerror}; name one that can be written"
            return unmeasured(Status.FAILED, reason), False
        window = Window(self.monitor, case.device, self._declared(case))
        kills_before = oom_kills()
        began_s = time.monotonic()
        run_ends = math.inf if self._is_reference(case) else self.settings.run_ends
        outcome = self._pool.ask(request, task.side, placement, window, run_ends)
        # A search comes here once for each case that it measures. The last time counts, as a further round repeats only that case.
        self.progress.took(task.series, time.monotonic() - began_s)
        reply, timed = outcome.reply, outcome.timed
        # Whatever ended the rest of a case, what was timed of it is kept.
        if not timed and outcome.how == "interrupted":
            raise Interrupted
        if not timed and outcome.how == "budget":
            raise BudgetSpent("it was done")
        status, reason = outcome.ending(policy.timeout_s, memory_ran_out=oom_kills() > kills_before)
        measurement = None
        if reply and not reply.missing:  # the measurement has all its columns, or there is only an error
            measurement = reply.measurement
        elif timed:  # without the columns that a later step would have added
            measurement = timed.cut_off(reason)
        measurement = measurement or unmeasured(status, reason)
        fault = outcome.unkillable or bool(reply and reply.fault)
        self.quarantine.note(attempted, fault, measurement.reason)
        return replace(window.add_samples(measurement), side=task.side.name), fault

    def _declared(self, case: Case) -> Declaration:
        """Return what the workload of a case declares; nothing where it is unknown."""
        return signature.declared if (signature := self.signatures.get(case.workload)) else Declaration()

    def _unmeasured(self, task: Task, number: int, status: Status, reason: str) -> Measurement:
        placement = place_ranks(task.case, task.side.capacities(self.settings.threads))
        return Measurement(task.case, number, status, reason, task.side.name, placement.device_name, placement.threads)

    def _refusal(self, task: Task, placement: Placement) -> tuple[Status, str] | None:
        """Return status and reason of a case that can't be measured on its side; None if it can."""
        case, side = task
        if case.device in side.unusable:
            return Status.SKIPPED, f"{case.device} can't be used: {side.unusable[case.device]}"
        if case.device not in side.devices:
            who = f"side {side.name}" if side.name else "this machine"
            return Status.SKIPPED, f"{who} has no {case.device}; it has {', '.join(side.devices)}"
        if why := reason_to_refuse(case, placement, self.settings.threads, self.settings.logical_cpus):
            return Status.UNSUPPORTED, why
        why = self.quarantine.why_skipped(task, placement.devices[: placement.counts[0]])
        return (Status.SKIPPED, why) if why else None

    def _request(self, task: Task, key: str, number: int, policy: Policy, placement: Placement) -> MeasureRequest:
        """Return the request to measure the case of a task in a round. ``key`` gives the seed: all tries of a search draw the same numbers.

        Raises OSError if no folder can be made in the place that the case names.
        """
        case, side = task
        declared = self._declared(case)
        folder = None
        place_parameter = declared.parameter("scratch")
        if place_parameter or declared.writes_files:
            place = case.params.get(place_parameter or "")  # None: the system's temporary folder
            folder = self._scratch.folder_of(case.workload, Path(str(place)) if place else None)
        available = available_memory()  # None where it is unknown; the ranks of this machine share it
        return MeasureRequest(
            plugins=side.plugins,
            not_from=side.not_from,
            case=case,
            round=number,
            policy=policy,
            seed=zlib.crc32(f"{self.settings.seed}/{key}".encode()),
            threads=placement.threads,
            device_name=placement.device_name,
            devices=placement.devices,
            memory_bytes=available and available // placement.counts[0],
            scratch=str(folder) if folder else None,
            # Only a case that sets its own threads or instances has CPUs of its own: the others run where dlbench does.
            cpus=cpus_of(placement.counts[0], placement.threads) if case.threads or case.instances else (),
            # Without isolation a process that has to see the accelerators measures cases on the CPU, too. Ranks have their own processes.
            hide_accelerators=case.device == "cpu" and (case.ranks is not None or self.settings.isolation != "none"),
        )

    def _discard(self, measured: Try, tries: int) -> None:
        for measurement in measured:
            self.save(measurement_to_json(_with_tries(measurement, tries), "discarded"))

    def _keep_best(self, attempt: Attempt, last_try: Try = ()) -> None:
        """Save the best try at a case as its result in this round.

        The earlier tries are in the file as discarded already, so the best of those gets a second row. ``last_try`` is not in the file
        yet, and is saved as discarded if it is not the best; it is empty where the budget or an interruption prevented it.
        """
        has_failed = any(each.status is not Status.OK for each in last_try)
        is_complete = len(last_try) == len(attempt.tasks)
        candidates = [] if has_failed else [*attempt.earlier_tries]  # a failed last try is the result, whatever came before
        if is_complete or not candidates:  # a try without all sides counts only where there is no other; an empty one saves nothing
            candidates.append(last_try)
        best = best_try(candidates)
        if best is not last_try:
            self._discard(last_try, len(attempt.earlier_tries) + 1)  # its own number among the tries
        # The result has the number of tries that it was chosen from: a failed last try, which replaces all others, counts as the only one.
        for measurement in (_with_tries(each, len(candidates)) for each in best):
            self.save(measurement_to_json(measurement))
            self.progress.add(measurement)
            self.observer.case_ended(measurement)


def _with_tries(measurement: Measurement, tries: int) -> Measurement:
    throttling = measurement.throttling
    return replace(measurement, throttling=replace(throttling, tries=tries)) if throttling and tries > 1 else measurement


def ask_hello(plugins: Sequence[str] = (), workloads: Sequence[str] = ()) -> dict[str, Any]:
    """Ask a worker of its own for devices, versions and workloads: see `serving.main.hello`. Raises what `handshake` raises."""
    with Interruption() as interruption, WorkerProcess("stay", 1, 0, interruption, Interpreter()) as worker:
        return handshake(worker, plugins, workloads, 1)
