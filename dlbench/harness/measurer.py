"""Measurement of one task in one round, by a search if its case leaves parameters open; each row of a task is made here."""

import math
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from dlbench.core.declarations import Declaration
from dlbench.core.measurement import Measurement
from dlbench.core.model import Case, Policy, Signature, Status, settings_text
from dlbench.harness.plan.adaptive import AdaptivePlan, policy_of_tries, unsearched
from dlbench.harness.plan.rate_search import RateSearch
from dlbench.harness.pool import WorkerPool
from dlbench.harness.probe.linux import available_memory, oom_kills
from dlbench.harness.probe.processor import cpus_of
from dlbench.harness.probe.sampler import Monitor, Window
from dlbench.harness.process.folders import ScratchFolders
from dlbench.harness.process.wire import MeasureRequest
from dlbench.harness.progress import Progress
from dlbench.harness.ranks.placement import Placement, place_ranks, reason_to_refuse
from dlbench.harness.schedule import GRACE_S, BudgetSpent, DeviceQuarantine, Fault, Observer, RunSettings, Task

Measured = tuple[Measurement, Fault]
"""A measurement, and whether the device is at fault."""


@dataclass
class Measurer:
    """Measures tasks in the processes of a pool, or says why not.

    A case that leaves parameters open is measured by tries, once, and one that looks for the fastest then by what was found, in each round.
    """

    settings: RunSettings
    signatures: Mapping[str, Signature]
    """The signatures of the workloads, by name."""
    observer: Observer
    monitor: Monitor
    pool: WorkerPool
    progress: Progress
    scratch: ScratchFolders
    save_try: Callable[[Measurement], object]
    """Takes each try of a search that counts as soon as it was made."""
    tried: list[Measurement]
    """The tries of the file so far; each that is made is added."""

    def __post_init__(self) -> None:
        self.quarantine = DeviceQuarantine()
        self.out_of_budget = False
        """Whether a case has no row but that of the spent budget."""

    def left_s(self) -> float:
        """Return the rest of the budget."""
        return self.settings.budget_ends - time.monotonic()

    def is_base(self, case: Case) -> bool:
        """Whether the others of its workload say nothing without it, as trainings without one in fp32: no budget leaves it out."""
        return self.declared(case).stands_out("format", case.params)

    def require_time(self, tasks: Sequence[Task]) -> None:
        """Raise BudgetSpent where no budget is left, or where these would not be done within its grace, as far as is known."""
        left_s = self.left_s()
        if (left_s <= 0 or self.progress.cases_s(tasks) > left_s + GRACE_S) and not self.is_base(tasks[0].case):
            raise BudgetSpent("its turn")

    def measure(self, task: Task, number: int, again: bool) -> Measurement | None:
        """Measure a case on one side, and return its row, which may say why it was not measured; None when interrupted.

        Raises BudgetSpent if no budget is left for it and it has a row already: of an earlier round, or of this one if tried ``again``.
        """
        placement = self._place(task)
        if refused := self._refusal(task, placement):
            return _unmeasured(task, number, placement, *refused)
        try:
            self.require_time([task])
            self.observer.case_started(task.series, number)
            measured = self._measure_by_plan(task, number)
        except BudgetSpent as spent:
            if number or again:
                raise
            self.out_of_budget = True
            reason = f"the budget of {self.settings.policy.budget_s:g} s was spent before {spent}; give a larger --budget"
            return spent.so_far or _unmeasured(task, number, placement, Status.SKIPPED, reason)
        if measured is None:
            return None
        measurement, fault = measured
        self.quarantine.note(task, fault, measurement.reason)
        return measurement

    def _measure_by_plan(self, task: Task, number: int) -> Measured | None:
        """Measure a task, by a search if its case leaves parameters open; None when interrupted.

        A search for the largest size or the highest rate ends with its last try; one for the fastest then measures what it found.
        Raises BudgetSpent if the budget leaves no time for that or for a try, with a row of what was found so far.
        """
        policy = self.settings.policy
        plan = AdaptivePlan.of(task.case, self.signatures.get(task.case.workload))
        if plan is None:
            return self._measure_case(task, task.case, number, policy)
        tries = [each for each in self.tried if each.side == task.side.name and plan.is_try(each.case)]
        try:
            while (case := plan.next(tries)) is not None:
                when = f"after {len(tries)} {'try' if len(tries) == 1 else 'tries'}"
                measured = self._measure_case(task, case, number, policy_of_tries(policy))
                if measured is None:
                    return None
                tried, fault = measured
                if fault or tried.status is Status.SKIPPED:  # it shows nothing about the case, which can still be tried
                    reason = f"{settings_text(plan.values(tried.case))}: {tried.reason}"
                    return plan.unfinished(replace(tried, case=task.case, round=number, reason=reason), tries), fault
                self.save_try(tried)
                self.tried.append(tried)
                tries.append(tried)
            outcome = plan.outcome(tries, number)
            if outcome.status is not Status.OK or isinstance(plan, RateSearch) or plan.for_largest:
                return outcome, Fault.NONE
            when = "before that was measured"
            measured = self._measure_case(task, plan.with_values(outcome.found), number, policy)
        except BudgetSpent as spent:
            if not tries:
                raise
            reason = f"the budget ran out {when}; go on with --resume and a larger --budget"
            row = Measurement(task.case, number, Status.SKIPPED, reason, task.side.name)
            raise BudgetSpent(str(spent), plan.unfinished(row, tries)) from None
        if measured is None:
            return None
        measurement, fault = measured
        return replace(measurement, case=task.case, round=number, found=outcome.found), fault

    def _measure_case(self, task: Task, case: Case, number: int, policy: Policy) -> Measured | None:
        """Measure the case of a task, or one that its search tries; None when interrupted. Raises BudgetSpent."""
        self.require_time([task])
        here = task._replace(case=case)
        placement = self._place(here)
        if refused := self._refusal(here, placement):
            return _unmeasured(here, number, placement, *refused), Fault.NONE
        try:
            request = self._request(here, number, self.progress.lengthened(task.case, policy), placement)
        except OSError as error:
            reason = f"no folder can be made in {error.filename}: {error.strerror}; name one that can be written"
            return _unmeasured(here, number, placement, Status.FAILED, reason), Fault.NONE
        window = Window(self.monitor, case.device, self.declared(case))
        kills_before = oom_kills()
        began_s = time.monotonic()
        run_ends = math.inf if self.is_base(case) else self.settings.budget_ends + GRACE_S
        outcome = self.pool.ask(request, task.side, placement, window, run_ends)
        # For a search the time of the last try counts, as a further round repeats only that.
        self.progress.took(task.series, time.monotonic() - began_s)
        reply, timed = outcome.reply, outcome.timed
        if outcome.how == "interrupted" and not timed:
            return None
        if outcome.how == "budget" and not timed:
            raise BudgetSpent("it was done")
        if reply and not reply.missing:
            measurement = reply.measurement or _unmeasured(here, number, placement, Status.FAILED, str(reply.error))
        else:
            status, reason = outcome.ending(policy.timeout_s, memory_ran_out=oom_kills() > kills_before)
            measurement = (timed and timed.cut_off(reason)) or _unmeasured(here, number, placement, status, reason)
        fault = Fault.UNKILLABLE if outcome.unkillable else Fault(bool(reply and reply.fault))
        return replace(window.add_samples(measurement), side=task.side.name), fault

    def declared(self, case: Case) -> Declaration:
        """Return what the workload of a case declares; nothing where it is unknown."""
        return signature.declared if (signature := self.signatures.get(case.workload)) else Declaration()

    def _place(self, task: Task) -> Placement:
        return place_ranks(task.case, task.side.capacities(self.settings.threads))

    def _refusal(self, task: Task, placement: Placement) -> tuple[Status, str] | None:
        """Return status and reason of a case that can't be measured on its side; None if it can."""
        case, side = task
        if case.device in side.unusable:
            return Status.SKIPPED, f"{case.device} can't be used: {side.unusable[case.device]}"
        if case.device not in side.devices:
            who = "this machine" if side.name is None else f"side {side.name}"
            return Status.SKIPPED, f"{who} has no {case.device}; it has {', '.join(side.devices)}"
        if why := reason_to_refuse(case, placement, self.settings.threads, self.settings.logical_cpus):
            return Status.UNSUPPORTED, why
        why = self.quarantine.why_skipped(task, placement.devices[: placement.counts[0]])
        return (Status.SKIPPED, why) if why else None

    def _request(self, task: Task, number: int, policy: Policy, placement: Placement) -> MeasureRequest:
        """Return the request for a process. Raises OSError if no folder can be made in the place that the case names."""
        case, side = task
        scratch = self._scratch_of(case)
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

    def _scratch_of(self, case: Case) -> Path | None:
        """Return the folder that a case may write in; None if its workload writes no files, or no usual folder can be made.

        Raises OSError if none can be made in the place that the case names.
        """
        declared = self.declared(case)
        named = declared.parameter("scratch")
        if named is None and not declared.writes_files:
            return None
        if place := case.params.get(named or ""):
            return self.scratch.of(case.workload, Path(str(place)))
        with suppress(OSError):
            return self.scratch.of(case.workload)
        return None


def _unmeasured(task: Task, number: int, placement: Placement, status: Status, reason: str) -> Measurement:
    return Measurement(task.case, number, status, reason, task.side.name, placement.device_name, placement.threads)
