"""Rounds over cases: who is measured next, in which process, and when it is enough. Each result is handed on the moment it exists."""

import math
import random
import statistics
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any

from dlbench.core.model import Measurement, Policy, Series, Status
from dlbench.core.records import measurement_from_json, measurement_to_json
from dlbench.harness.host import Host, greet
from dlbench.harness.hosts import Hosts, Isolation, lane_of
from dlbench.harness.interruption import Interruption
from dlbench.harness.layout import kind_of, lay_out
from dlbench.harness.probes import available_memory, oom_kills
from dlbench.harness.retirement import Retirement
from dlbench.harness.side import Task
from dlbench.harness.stopping import EnoughRounds
from dlbench.harness.turns import Turns
from dlbench.harness.watch import Watch


@dataclass(frozen=True, slots=True)
class Settings:
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
    settings: Settings,
    interruption: Interruption,
    save: Callable[[dict[str, Any]], None],
    observer: Observer,
    watch: Watch,
    done: Sequence[Measurement] = (),
    first_hosts: Mapping[str | None, Host] = MappingProxyType({}),
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
    progress, turns, retirement = _Progress(tasks, settings, done), Turns(settings.policy.tries), Retirement()
    policy = settings.policy
    budget_s = policy.budget_s or math.inf
    started = time.monotonic()
    most = policy.max_rounds if policy.budget_s else policy.rounds
    for number in range(first_round, first_round + most):
        pending = progress.pending(number)
        if progress.finished() or time.monotonic() - started + progress.expected_s(pending) > budget_s:
            break
        if not pending:  # all of this round is there already, from before the interruption
            continue
        observer.round_started(number, len(pending))
        with watch.round(number, lambda state: save(state.to_json())) as around, _hosts(settings, interruption, number) as hosts:
            for side, host in first_hosts.items():
                hosts.adopt(side, host)
            first_hosts = {}
            for turn in turns.of_round(_in_turn(pending, settings, number)):
                if turn.pause_s:
                    (pause or interruption.wait)(turn.pause_s)
                measured: list[Measurement] = []
                for task in turn.tasks:
                    why_skipped = retirement.why_skipped(task, _used_here(task, settings))
                    if number == first_round == 0 and turn.tries == 1 and time.monotonic() - started > budget_s:
                        why_skipped = f"the budget of {budget_s:g} s was spent before its turn; give a larger --budget"
                    if why_skipped:
                        measured.append(Measurement(task.case, number, Status.SKIPPED, why_skipped, task.side.name))
                        continue
                    observer.case_started(task.series, number)
                    began = time.monotonic()
                    ended = _watched(task, turn.tries, number, settings, hosts, watch)
                    if ended is None:
                        break
                    measurement, fault = ended
                    retirement.note(task, fault, measurement.reason)
                    measured.append(measurement)
                    progress.took_s[task.series] = time.monotonic() - began
                interrupted = len(measured) < len(turn.tasks)
                # One that did not go well would only end the same way, and its other side has nothing to be compared with.
                if not interrupted and all(each.status is Status.OK for each in measured):
                    left_s = budget_s - (time.monotonic() - started) - progress.expected_s(turn.tasks)
                    if turns.again(turn, [each.throttling for each in measured], left_s):
                        for measurement in measured:
                            save(measurement_to_json(measurement) | {"kind": "discarded"})
                            observer.case_postponed(measurement)
                        continue
                for measurement in measured:
                    save(measurement_to_json(measurement))
                    progress.add(measurement)
                    observer.case_ended(measurement)
                if interrupted:
                    return Outcome(progress.rounds, retirement.faults())
            around.cases_ended()
    return Outcome(progress.rounds, retirement.faults())


def _used_here(task: Task, settings: Settings) -> tuple[str, ...]:
    """Return the devices of this machine that a case computes on."""
    where = lay_out(task.case, task.side.rooms(settings.threads))
    return where.devices[: where.counts[0]]


def _in_turn(tasks: Sequence[Task], settings: Settings, number: int) -> list[Task]:
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

    def __init__(self, tasks: Sequence[Task], settings: Settings, done: Sequence[Measurement]) -> None:
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


@contextmanager
def _hosts(settings: Settings, interruption: Interruption, number: int) -> Iterator[Hosts]:
    hosts = Hosts(settings.isolation, settings.seed, settings.threads, interruption, number)
    try:
        yield hosts
    finally:
        hosts.end()


def _watched(task: Task, tries: int, number: int, settings: Settings, hosts: Hosts, watch: Watch) -> tuple[Measurement, bool] | None:
    """Measure as `_measured` does, and note what held it back meanwhile."""
    device = task.case.device
    before = watch.counters(device)
    ended = _measured(task, number, settings, hosts)
    if ended is None or ended[0].status is not Status.OK:
        return ended
    return replace(ended[0], throttling=watch.throttling(device, before, tries, ended[0].throttling)), ended[1]


def _measured(task: Task, number: int, settings: Settings, hosts: Hosts) -> tuple[Measurement, bool] | None:
    """Do one task in one round; None when interrupted. The flag tells of a device fault."""
    case, side = task
    where = lay_out(case, side.rooms(settings.threads))
    row = Measurement(case, number, Status.SKIPPED, side=side.name, device_name=where.device_name, threads=where.threads)
    who = "this machine" if side.name is None else f"side {side.name}"
    if case.device in side.unusable:
        return replace(row, reason=f"{case.device} can't be used: {side.unusable[case.device]}"), False
    if case.device not in side.devices:
        return replace(row, reason=f"{who} has no {case.device}; it has {', '.join(side.devices)}"), False
    if case.ranks and len(where.devices) < case.ranks:
        what = "cores" if case.device == "cpu" else f"{kind_of(case.device)} devices"
        reason = f"{case.ranks} ranks need as many {what}, and there are {len(where.devices)} to use"
        return replace(row, status=Status.UNSUPPORTED, reason=reason), False
    available = available_memory() if settings.isolation != "none" else None
    request = {
        "op": "measure",
        "plugins": side.plugins,
        "not_from": side.not_from and str(side.not_from),
        "case": asdict(case),
        "round": number,
        "policy": asdict(settings.policy),
        "seed": zlib.crc32(f"{settings.seed}/{case.key}".encode()),  # the same numbers on every device and in every round
        "threads": where.threads,
        "device_name": where.device_name,
        "devices": where.devices,
        "memory_bytes": available and available // where.counts[0],
    }
    timeout_s, kills = settings.policy.timeout_s, oom_kills()
    ending = hosts.ask(request, side, case, timeout_s)
    match ending.how:
        case "interrupted":
            return None
        case "deadline":
            doing = f" ({ending.sentence})" if ending.sentence else ""
            return replace(row, status=Status.TIMEOUT, reason=f"not done within {timeout_s:g} s{doing}; raise --timeout"), False
        case "died" if oom_kills() > kills:
            return replace(row, status=Status.OOM, reason=f"the kernel ended {ending.who} for want of memory"), False
        case "died":
            return replace(row, status=Status.CRASHED, reason=f"{ending.who} {ending.sentence}"), False
    assert ending.reply is not None  # noqa: S101  # how == "replied" says so
    if "error" in ending.reply:
        return replace(row, status=Status.FAILED, reason=ending.reply["error"]), False
    return replace(measurement_from_json(ending.reply["measurement"]), side=side.name), bool(ending.reply["fault"])


def ask_hello(plugins: Sequence[str] = (), workloads: Sequence[str] = ()) -> dict[str, Any]:
    """Start a measuring process only to ask what there is: devices, versions, workloads. See `worker.hello` for the shape.

    Raises WorkerError, in that process's words, where torch or a plugin does not import.
    """
    with ExitStack() as stack:
        interruption = stack.enter_context(Interruption())
        threads = 1
        host = stack.enter_context(Host("stay", threads, 0, interruption))
        return greet(host, plugins, workloads, threads)
