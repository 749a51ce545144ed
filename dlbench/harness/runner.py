"""Rounds over cases: who is measured next, in which process, and when it is enough. Each result is handed on the moment it exists."""

import math
import random
import statistics
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from dlbench.core.model import Measurement, Policy, Series, Status
from dlbench.core.records import measurement_to_json
from dlbench.harness.pool import Isolation, WorkerPool, lane_of
from dlbench.harness.probe.memory import available_memory, oom_kills
from dlbench.harness.probe.monitor import Watch
from dlbench.harness.process.interrupt import Interruption
from dlbench.harness.process.wire import MeasureRequest
from dlbench.harness.process.worker_process import Ending, WorkerProcess, handshake
from dlbench.harness.ranks.placement import Placement, kind_of, place_ranks
from dlbench.harness.schedule import Attempt, Retirement, Retries, Task
from dlbench.harness.worker.stopping import EnoughRounds


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What a run needs to know beside what there is to measure."""

    policy: Policy
    seed: int
    isolation: Isolation
    threads: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the rounds came to."""

    rounds: int
    """That the file has by then."""
    faults: tuple[str, ...]
    """A sentence for each device that failed until it was left alone."""


class Observer:
    """Is told what happens; does nothing itself."""

    def round_started(self, number: int, tasks: int) -> None:
        """Round ``number`` (from 0) begins with so many cases, each counted on each side."""

    def case_started(self, series: Series, number: int) -> None:
        """A case is about to be measured."""

    def case_postponed(self, measurement: Measurement) -> None:
        """A case was measured but held back, or its other side was, so it gets another turn in this round."""

    def case_ended(self, measurement: Measurement) -> None:
        """A case was measured, or ended otherwise."""


def run_rounds(
    tasks: Sequence[Task],
    settings: RunSettings,
    interruption: Interruption,
    save: Callable[[dict[str, Any]], None],
    observer: Observer,
    watch: Watch,
    done: Sequence[Measurement] = (),
    first_workers: Mapping[str | None, WorkerProcess] = MappingProxyType({}),
    first_round: int = 0,
    pause: Callable[[float], object] | None = None,
) -> Outcome:
    """Measure the tasks, round after round, until each has enough.

    ``save`` is handed the lines of the result file: a measurement a task, and the machine's state around the round. A case that was
    throttled or disturbed on one side gets further turns at the end of its round, on each side; where it was throttled, each after
    a longer ``pause`` (default: wait that many seconds). ``done`` holds what an earlier, interrupted run measured: it is not measured
    again. ``first_hosts`` are those that said hello, by side. Stops early, with everything saved, when ``interruption`` is requested.
    A device that fails twice in a row is left alone from then on: its remaining cases are skipped. Raises DeviceFault where a whole
    machine of several is gone.
    """
    progress = _Progress(tasks, settings, done)
    run = _Run(
        settings,
        interruption,
        save,
        observer,
        watch,
        progress,
        dict(first_workers),
        pause or interruption.wait,
        Retries(settings.policy.tries),
    )
    most = settings.policy.max_rounds if settings.policy.budget_s else settings.policy.rounds
    for number in range(first_round, first_round + most):
        pending = progress.pending(number)
        if progress.finished() or progress.expected_s(pending) > run.left_s():
            break
        # Where none is pending, all of this round is there already, from before the interruption.
        if pending and not run.measure_round(number, pending):
            break
    return Outcome(progress.rounds, run.retirement.faults())


@dataclass(slots=True)
class _Run:
    """What all rounds share, and how one goes."""

    settings: RunSettings
    interruption: Interruption
    save: Callable[[dict[str, Any]], None]
    observer: Observer
    watch: Watch
    progress: "_Progress"
    first_workers: dict[str | None, WorkerProcess]
    pause: Callable[[float], object]
    turns: Retries
    started: float = field(default_factory=time.monotonic)
    retirement: Retirement = field(default_factory=Retirement)

    def left_s(self) -> float:
        """Return what is left of the budget."""
        return (self.settings.policy.budget_s or math.inf) - (time.monotonic() - self.started)

    def measure_round(self, number: int, tasks: Sequence[Task]) -> bool:
        """Measure each task, and again what was held back. Return whether it came to its end, without an interruption."""
        self.observer.round_started(number, len(tasks))
        with self.watch.round(number, lambda state: self.save(state.to_json())) as around, self._hosts(number) as hosts:
            for turn in self.turns.of_round(_in_turn(tasks, self.settings, number)):
                if turn.pause_s:
                    self.pause(turn.pause_s)
                measured = self._measure_turn(turn, number, hosts)
                interrupted = len(measured) < len(turn.tasks)
                if not interrupted and self._another_turn(turn, measured):
                    self._discard(measured)
                else:
                    self._keep(measured)
                if interrupted:
                    return False
            around.cases_ended()
        return True

    @contextmanager
    def _hosts(self, number: int) -> Iterator[WorkerPool]:
        hosts = WorkerPool(self.settings.isolation, self.settings.seed, self.settings.threads, self.interruption, number)
        while self.first_workers:
            hosts.adopt(*self.first_workers.popitem())
        try:
            yield hosts
        finally:
            hosts.end()

    def _measure_turn(self, turn: Attempt, number: int, hosts: WorkerPool) -> list[Measurement]:
        """Measure a case on each of its sides, or until an interruption."""
        measured: list[Measurement] = []
        for task in turn.tasks:
            if reason := self._why_skipped(task, turn, number):
                measured.append(Measurement(task.case, number, Status.SKIPPED, reason, task.side.name))
                continue
            self.observer.case_started(task.series, number)
            began, before = time.monotonic(), self.watch.counters(task.case.device)
            ended = _measure(task, number, self.settings, hosts)
            if ended is None:
                break
            measurement, fault = ended
            if measurement.status is Status.OK:
                held_back = self.watch.throttling(task.case.device, before, turn.tries, measurement.throttling)
                measurement = replace(measurement, throttling=held_back)
            self.retirement.note(task, fault, measurement.reason)
            self.progress.took_s[task.series] = time.monotonic() - began
            measured.append(measurement)
        return measured

    def _why_skipped(self, task: Task, turn: Attempt, number: int) -> str | None:
        if number == 0 and turn.tries == 1 and self.left_s() < 0:
            return f"the budget of {self.settings.policy.budget_s:g} s was spent before its turn; give a larger --budget"
        where = place_ranks(task.case, task.side.rooms(self.settings.threads))
        return self.retirement.why_skipped(task, where.devices[: where.counts[0]])

    def _another_turn(self, turn: Attempt, measured: Sequence[Measurement]) -> bool:
        # One that did not go well would only end the same way, and its other side has nothing to be compared with.
        if any(each.status is not Status.OK for each in measured):
            return False
        return self.turns.again(turn, [each.throttling for each in measured], self.left_s() - self.progress.expected_s(turn.tasks))

    def _discard(self, measured: Sequence[Measurement]) -> None:
        for measurement in measured:
            self.save(measurement_to_json(measurement) | {"kind": "discarded"})
            self.observer.case_postponed(measurement)

    def _keep(self, measured: Sequence[Measurement]) -> None:
        for measurement in measured:
            self.save(measurement_to_json(measurement))
            self.progress.add(measurement)
            self.observer.case_ended(measurement)


def _in_turn(tasks: Sequence[Task], settings: RunSettings, number: int) -> list[Task]:
    """Return a round's cases in random order, those that share a launch of ranks next to each other and behind all others."""
    shuffled = in_random_order(tasks, random.Random(f"{settings.seed}/{number}"))
    turn: dict[str, int] = {}
    for task in shuffled:
        turn.setdefault(lane_of(task.case, settings.isolation), len(turn))
    # Ranks that wait for their next case would only disturb those of one process, and take memory from them.
    return sorted(shuffled, key=lambda task: turn[lane_of(task.case, settings.isolation)] + 1 if task.case.ranks else 0)


def in_random_order(tasks: Sequence[Task], chance: random.Random) -> list[Task]:
    """Return the cases in random order; the sides of each, and copies, in random order next to each other, as they share disturbances."""
    shuffled = list(tasks)
    chance.shuffle(shuffled)
    turn: dict[str, int] = {}
    for task in shuffled:
        turn.setdefault(task.case.copied, len(turn))
    return sorted(shuffled, key=lambda task: turn[task.case.copied])


class _Progress:
    """Which tasks still want a round."""

    def __init__(self, tasks: Sequence[Task], settings: RunSettings, done: Sequence[Measurement]) -> None:
        self._tasks = tasks
        self._enough = {task.series: EnoughRounds(settings.policy) for task in tasks}
        self._ended: set[Series] = set()
        self.took_s: dict[Series, float] = {}
        """Of each, when it was last measured here."""
        self.rounds = 0
        """Rounds that measured anything, those of the earlier run included."""
        self._measured: set[tuple[Series, int]] = set()
        for measurement in done:
            # A case left out for want of a device or of time gets its chance now.
            if measurement.series in self._enough and measurement.status is not Status.SKIPPED:
                self.add(measurement)

    def add(self, measurement: Measurement) -> None:
        series = measurement.series
        self._measured.add((series, measurement.round))
        self.rounds = max(self.rounds, measurement.round + 1)
        if measurement.status is not Status.OK:
            # It would only end the same way, and take its deadline again.
            self._ended.add(series)
        else:
            samples = measurement.samples
            self._enough[series].add(statistics.median(samples.block_s) if samples else None)

    def pending(self, number: int) -> list[Task]:
        return [task for task in self._tasks if self._wanted(task) and (task.series, number) not in self._measured]

    def expected_s(self, tasks: Sequence[Task]) -> float:
        """Return how long a round of these will take, as far as is known."""
        return sum(self.took_s.get(task.series, 0.0) for task in tasks)

    def finished(self) -> bool:
        return not any(self._wanted(task) for task in self._tasks)

    def _wanted(self, task: Task) -> bool:
        return task.series not in self._ended and not self._enough[task.series].done()


def _measure(task: Task, number: int, settings: RunSettings, hosts: WorkerPool) -> tuple[Measurement, bool] | None:
    """Have a task measured in one round; None when interrupted. The flag tells of a device fault."""
    case, side = task
    where = place_ranks(case, side.rooms(settings.threads))
    row = Measurement(case, number, Status.SKIPPED, side=side.name, device_name=where.device_name, threads=where.threads)
    if out_of_reach := _out_of_reach(task, where):
        status, reason = out_of_reach
        return replace(row, status=status, reason=reason), False
    kills = oom_kills()
    ending = hosts.ask(_request(task, number, settings, where), side, case, settings.policy.timeout_s)
    if ending.how == "interrupted":
        return None
    reply = ending.reply
    if reply is None:
        status, reason = _without_reply(ending, settings.policy.timeout_s, memory_ran_out=oom_kills() > kills)
        return replace(row, status=status, reason=reason), False
    measurement = reply.measurement or replace(row, status=Status.FAILED, reason=reply.error)
    return replace(measurement, side=side.name), reply.fault


def _out_of_reach(task: Task, where: Placement) -> tuple[Status, str] | None:
    """Say why a case can't be measured on its side, where its devices are not there to compute on."""
    case, side = task
    if case.device in side.unusable:
        return Status.SKIPPED, f"{case.device} can't be used: {side.unusable[case.device]}"
    if case.device not in side.devices:
        who = "this machine" if side.name is None else f"side {side.name}"
        return Status.SKIPPED, f"{who} has no {case.device}; it has {', '.join(side.devices)}"
    if case.ranks and len(where.devices) < case.ranks:
        what = "cores" if case.device == "cpu" else f"{kind_of(case.device)} devices"
        return Status.UNSUPPORTED, f"{case.ranks} ranks need as many {what}, and there are {len(where.devices)} to use"
    return None


def _request(task: Task, number: int, settings: RunSettings, where: Placement) -> MeasureRequest:
    case, side = task
    available = available_memory() if settings.isolation != "none" else None
    return MeasureRequest(
        plugins=side.plugins,
        not_from=str(side.not_from) if side.not_from else None,
        case=case,
        round=number,
        policy=settings.policy,
        seed=zlib.crc32(f"{settings.seed}/{case.key}".encode()),  # the same numbers on every device and in every round
        threads=where.threads,
        device_name=where.device_name,
        devices=where.devices,
        memory_bytes=available and available // where.counts[0],
    )


def _without_reply(ending: Ending, timeout_s: float, *, memory_ran_out: bool) -> tuple[Status, str]:
    """Say what became of a case whose process was killed or died."""
    if ending.how == "deadline":
        doing = f" ({ending.sentence})" if ending.sentence else ""
        return Status.TIMEOUT, f"not done within {timeout_s:g} s{doing}; raise --timeout"
    if memory_ran_out:
        return Status.OOM, f"the kernel ended {ending.who} for want of memory"
    return Status.CRASHED, f"{ending.who} {ending.sentence}"


def ask_hello(plugins: Sequence[str] = (), workloads: Sequence[str] = ()) -> dict[str, Any]:
    """Start a measuring process only to ask what there is: devices, versions, workloads. See `worker.hello` for the shape.

    Raises WorkerError, in that process's words, where torch or a plugin does not import.
    """
    threads = 1
    with Interruption() as interruption, WorkerProcess("stay", threads, 0, interruption) as host:
        return handshake(host, plugins, workloads, threads)
