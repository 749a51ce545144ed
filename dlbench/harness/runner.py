"""Rounds over cases until each is precise enough; each result is saved the moment it exists."""

import math
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from dlbench.core.declarations import Declaration
from dlbench.core.measurement import Measurement, measurement_to_json
from dlbench.core.model import Case, Policy, Signature, Status
from dlbench.harness.observer import Observer
from dlbench.harness.plan.adaptive import unsearched
from dlbench.harness.pool import Isolation, WorkerPool
from dlbench.harness.probe.memory import available_memory, oom_kills
from dlbench.harness.probe.monitor import Monitor
from dlbench.harness.probe.processor import cpus_of
from dlbench.harness.probe.window import Window
from dlbench.harness.process.interrupt import Interruption
from dlbench.harness.process.scratch import ScratchFolders
from dlbench.harness.process.wire import MeasureRequest
from dlbench.harness.process.worker_process import WorkerProcess, handshake
from dlbench.harness.ranks.placement import Placement, place_ranks, refusal
from dlbench.harness.schedule import (
    GRACE_S,
    Attempt,
    BudgetSpent,
    DeviceQuarantine,
    Fault,
    Progress,
    Retries,
    Side,
    Task,
    in_order,
)
from dlbench.harness.searches import Measured, Searches
from dlbench.harness.tries import Tries


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How a run measures."""

    policy: Policy
    seed: int
    isolation: Isolation
    threads: int
    began: float = field(default_factory=time.monotonic, compare=False)
    """When the command began, on the scale of `time.monotonic`: its budget counts from there."""
    logical_cpus: int = 0
    """What there is to compute on with SMT; less than `threads` counts as these."""

    @property
    def budget_ends(self) -> float:
        """When the budget is spent, on the same scale; infinite without one."""
        return self.began + (self.policy.budget_s or math.inf)


class Outcome(NamedTuple):
    """How a run ended."""

    rounds: int
    """That the file has by then."""
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
    """Of the workloads, by name."""

    def __post_init__(self) -> None:
        self._quarantine = DeviceQuarantine()
        self._tries = Tries(self.save, self._keep)
        self._out_of_budget = False
        self._scratch = ScratchFolders()
        self._searches = Searches(self.signatures, self.settings.policy, self._save_try, self.tried)
        self._progress = Progress(self.tasks, self.settings.policy, self.done)
        self._retries = Retries(self.settings.policy.tries)

    def run(self, first_round: int = 0) -> Outcome:
        """Measure round after round until each task has enough. Raises DeviceFault where a whole machine of several is gone."""
        policy, settings = self.settings.policy, self.settings
        run_ends = settings.budget_ends + GRACE_S
        self._read_idle()
        pool = WorkerPool(
            settings.isolation, settings.seed, settings.threads, self.interruption, self.first_workers, self.signatures, run_ends
        )
        with self._scratch, self.interruption.before_exit(self._scratch.remove), pool:
            for number in range(first_round, first_round + (policy.max_rounds if policy.budget_s else policy.rounds)):
                pending = self._progress.pending(number, self._left_s())
                # The first round begins in any case, for each of its cases to say why it was not measured.
                if self._progress.finished() or (number and self._progress.start_s + self._progress.cases_s(pending) > self._left_s()):
                    break
                # Where none is pending, all of this round is there already, from before the interruption.
                if pending and not self._measure_round(number, pending, pool):
                    break
        return Outcome(self._progress.rounds, self._quarantine.faults(), self._out_of_budget)

    def _read_idle(self) -> None:
        """Meter idle devices ahead of all rounds, where a step on them will be metered: no worker is alive meanwhile."""
        devices = {task.case.device for task in self.tasks if self._declared(task.case).is_sustained}
        if devices and not self._progress.finished() and self.monitor.meters(devices):
            for worker in self.first_workers.values():
                worker.end()
            self.first_workers = {}
            self.monitor.read_idle(devices, self.interruption.wait)

    def _declared(self, case: Case) -> Declaration:
        return signature.declared if (signature := self.signatures.get(case.workload)) else Declaration()

    def _left_s(self) -> float:
        """Return the rest of the budget."""
        return self.settings.budget_ends - time.monotonic()

    def _measure_round(self, number: int, tasks: Sequence[Task], pool: WorkerPool) -> bool:
        """Measure each task, and again what was held back. Return whether there was no interruption."""
        self.observer.round_started(number, [task.series for task in tasks])
        training = any("training" in self._declared(task.case).tags for task in tasks)
        ready = pool.round(number, tasks if self._left_s() > 0 else (), self._progress.certain(tasks), training=training)
        with ready, self.monitor.round(number, lambda state: self.save(state.to_json())) as read_state:
            self._progress.start_s = pool.start_s
            for attempt in self._retries.of_round(in_order(tasks, self.settings.policy, self.settings.seed, number)):
                try:
                    measured = self._measure_attempt(attempt, number, pool)
                except BudgetSpent:
                    self._leave_out(attempt)
                    continue
                if len(measured) < len(attempt.tasks) or self.interruption.requested is not None:
                    self._tries.end(attempt, measured)
                    self._tries.end_all()
                    return False
                self._save(attempt, measured)
            read_state()
        return True

    def _leave_out(self, attempt: Attempt) -> None:
        """Keep what an attempt would have repeated; where it is the first of its round, the case is left out of that."""
        if attempt.tries > 1:
            self._tries.end(attempt)
        else:
            for task in attempt.tasks:
                self.observer.case_left_out(task.series)

    def _measure_attempt(self, attempt: Attempt, number: int, pool: WorkerPool) -> list[Measurement]:
        """Measure a case on each of its sides, or until an interruption.

        Raises BudgetSpent where it is left without this attempt: one of a later round, or one that repeats another.
        """
        if attempt.tries > 1 and self._progress.cases_s(attempt.tasks) + attempt.pause_s > self._left_s():
            raise BudgetSpent("its turn")
        if number and len(attempt.tasks) > 1:
            self._require_time(attempt.tasks)  # one side alone would be in no pair
        if attempt.pause_s:
            self.interruption.wait(attempt.pause_s)
        measured: list[Measurement] = []
        for task in attempt.tasks:
            if (each := self._measure_side(task, number, attempt.tries, pool)) is None:
                break
            measured.append(each)
        return measured

    def _measure_side(self, task: Task, number: int, tries: int, pool: WorkerPool) -> Measurement | None:
        """Measure a case on one side, or say why not; None when interrupted. Raises BudgetSpent where it has a try or a round already."""
        placement = place_ranks(task.case, task.side.capacities(self.settings.threads))
        if out_of_reach := _out_of_reach(task, number, placement, self.settings):
            return out_of_reach
        if reason := self._quarantine.why_skipped(task, placement.devices[: placement.counts[0]]):
            return _unmeasured(task, number, placement, Status.SKIPPED, reason)
        try:
            self._require_time([task])
            self.observer.case_started(task.series, number)
            before = self.monitor.counters(task.case.device)
            ended = self._measured(task, number, placement, pool)
        except BudgetSpent as spent:
            if number or tries > 1:
                raise
            self._out_of_budget = True
            reason = f"the budget of {self.settings.policy.budget_s:g} s was spent before {spent}; give a larger --budget"
            return spent.so_far or _unmeasured(task, number, placement, Status.SKIPPED, reason)
        if ended is None:
            return None
        measurement, fault = ended
        if measurement.status is Status.OK:
            held_back = self.monitor.throttling(task.case.device, before, tries, measurement.throttling)
            measurement = replace(measurement, throttling=held_back)
        self._quarantine.note(task, fault, measurement.reason)
        return measurement

    def _measured(self, task: Task, number: int, placement: Placement, pool: WorkerPool) -> Measured | None:
        """Have a task measured, by a search where it stands for one; None when interrupted. Raises BudgetSpent."""

        def measure(case: Case, policy: Policy) -> Measured | None:
            self._require_time([task])
            placed = placement if case is task.case else place_ranks(case, task.side.capacities(self.settings.threads))
            here = task._replace(case=case)
            if out_of_reach := _out_of_reach(here, number, placed, self.settings):
                return out_of_reach, Fault.NONE
            try:
                request = self._request(here, number, self._progress.lengthened(task.case, policy), placed)
            except OSError as error:
                reason = f"no folder can be made in {error.filename}: {error.strerror}; name one that can be written"
                return _unmeasured(here, number, placed, Status.FAILED, reason), Fault.NONE
            began = time.monotonic()
            ended = _measure(request, task.side, placed, pool, self.monitor.window(case.device, self._declared(case)))
            # Of a search the last counts, which a further round only repeats.
            self._progress.took(task.series, time.monotonic() - began)
            return ended

        return self._searches.measure(task, number, measure)

    def _request(self, task: Task, number: int, policy: Policy, placement: Placement) -> MeasureRequest:
        """Return what to ask a process for. Raises OSError where no folder can be made in the place that the case names."""
        (case, side), scratch = task, self._scratch_of(task.case)
        available = available_memory()
        return MeasureRequest(
            plugins=side.plugins,
            not_from=str(side.not_from) if side.not_from else None,
            case=case,
            round=number,
            policy=policy,
            seed=zlib.crc32(f"{self.settings.seed}/{unsearched(case, self.signatures.get(case.workload)).key}".encode()),
            threads=placement.threads,
            device_name=placement.device_name,
            devices=placement.devices,
            memory_bytes=available and available // placement.counts[0],
            scratch=str(scratch) if scratch else None,
            cpus=cpus_of(placement.counts[0], placement.threads) if case.threads or case.instances else (),
            # Without isolation the process of an accelerator measures the CPU, too.
            hide_accelerators=case.device == "cpu" and (case.ranks is not None or self.settings.isolation != "none"),
        )

    def _require_time(self, tasks: Sequence[Task]) -> None:
        """Raise BudgetSpent where no budget is left, or where these would not be done within its grace, as far as is known."""
        left_s = self._left_s()
        if left_s <= 0 or self._progress.cases_s(tasks) > left_s + GRACE_S:
            raise BudgetSpent("its turn")

    def _scratch_of(self, case: Case) -> Path | None:
        """Return the folder that a case may write in; None where its workload declares that it writes nothing.

        Raises OSError where none can be made in the place that the case names; of a usual one only what needs it has to say so.
        """
        declared = self._declared(case)
        named = declared.parameter("scratch")
        if named is None and not declared.writes_files:
            return None
        if place := case.params.get(named or ""):
            return self._scratch.of(case.workload, Path(str(place)))
        with suppress(OSError):
            return self._scratch.of(case.workload)
        return None

    def _save_try(self, tried: Measurement) -> None:
        self.save(measurement_to_json(tried, "try"))
        self.observer.case_tried(tried)

    def _grant_retry(self, attempt: Attempt, measured: Sequence[Measurement]) -> bool:
        # One that did not go well would only end the same way, and its other side has nothing to be compared with.
        if any(each.status is not Status.OK for each in measured):
            return False
        left_s = self._left_s() - self._progress.cases_s(attempt.tasks)
        return self._retries.grant(attempt, [each.conditions for each in measured], left_s)

    def _save(self, attempt: Attempt, measured: Sequence[Measurement]) -> None:
        """Save a try, after which the case is tried again or has its result of this round."""
        if self._grant_retry(attempt, measured):
            self._tries.postpone(attempt, measured)
            for measurement in measured:
                self.observer.case_postponed(measurement)
        else:
            self._tries.end(attempt, measured)

    def _keep(self, measurement: Measurement) -> None:
        self.save(measurement_to_json(measurement))
        self._progress.add(measurement)
        self.observer.case_ended(measurement)


def _measure(request: MeasureRequest, side: Side, placement: Placement, pool: WorkerPool, window: Window) -> Measured | None:
    """Have a case measured in one round; None when interrupted. What comes with it tells of a device fault. Raises BudgetSpent."""
    row = Measurement(request.case, request.round, Status.FAILED, None, side.name, request.device_name, request.threads)
    kills = oom_kills()
    outcome = pool.ask(request, side, placement, window)
    reply, timed = outcome.reply, outcome.timed
    if outcome.how == "interrupted" and not timed:
        return None
    if outcome.how == "budget" and not timed:
        raise BudgetSpent("it was done")
    if reply and not reply.missing:
        measurement = reply.measurement or replace(row, reason=reply.error)
    else:
        status, reason = outcome.ending(request.policy.timeout_s, memory_ran_out=oom_kills() > kills)
        measurement = (timed and timed.cut_off(reason)) or replace(row, status=status, reason=reason)
    fault = Fault.UNKILLABLE if outcome.unkillable else Fault(bool(reply and reply.fault))
    return replace(window.added_to(measurement), side=side.name), fault


def _out_of_reach(task: Task, number: int, placement: Placement, settings: RunSettings) -> Measurement | None:
    """Return the row of a case that can't be measured on its side, for want of devices; None where it can."""
    case, side = task
    status, why = Status.UNSUPPORTED, refusal(case, placement, settings.threads, settings.logical_cpus)
    if case.device in side.unusable:
        status, why = Status.SKIPPED, f"{case.device} can't be used: {side.unusable[case.device]}"
    elif case.device not in side.devices:
        who = "this machine" if side.name is None else f"side {side.name}"
        status, why = Status.SKIPPED, f"{who} has no {case.device}; it has {', '.join(side.devices)}"
    return _unmeasured(task, number, placement, status, why) if why else None


def _unmeasured(task: Task, number: int, placement: Placement, status: Status, reason: str) -> Measurement:
    return Measurement(task.case, number, status, reason, task.side.name, placement.device_name, placement.threads)


def ask_hello(plugins: Sequence[str] = (), workloads: Sequence[str] = ()) -> dict[str, Any]:
    """Ask a worker of its own for devices, versions and workloads: see `serving.main.hello`. Raises what `handshake` raises."""
    with Interruption() as interruption, WorkerProcess("stay", 1, 0, interruption) as worker:
        return handshake(worker, plugins, workloads, 1)
