"""Rounds over cases: who is measured next, in which process, and when it is enough. Each result is handed on the moment it exists."""

import math
import random
import statistics
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from dlbench.core.errors import DeviceFault
from dlbench.core.model import Case, Measurement, Policy, Status
from dlbench.harness.host import Ending, Host, Mode, greet
from dlbench.harness.interruption import Interruption
from dlbench.harness.probes import available_memory, oom_kills
from dlbench.harness.stopping import EnoughRounds

Isolation = Literal["fork", "spawn", "none"]
Lane = Literal["cpu", "accelerator"]
"""A round has at most two measuring processes: one that forks for the CPU's cases, one that does the accelerators'."""


def default_isolation() -> Isolation:
    """Return fork where it is safe and known to be: on Linux."""
    return "fork" if sys.platform == "linux" else "spawn"


_FAULTS_TO_STOP = 2
"""Device faults in a row, each in a new process, after which the device itself is taken to be at fault."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a run needs to know beside its cases."""

    policy: Policy
    seed: int
    isolation: Isolation
    threads: int
    devices: Mapping[str, str | None]
    """Devices of this machine: id to name."""
    plugins: tuple[str, ...] = ()


class Observer:
    """Is told what happens; does nothing itself."""

    def round_started(self, number: int, cases: int) -> None:
        """Round ``number`` (from 0) begins with so many cases."""

    def case_started(self, case: Case, number: int) -> None:
        """A case is about to be measured."""

    def case_ended(self, measurement: Measurement) -> None:
        """A case was measured, or ended otherwise."""


def layout_seed(seed: int, number: int) -> int:
    """Return what decides the hash seed and environment of a round's processes."""
    return seed * 1_000_003 + number


class Hosts:
    """The measuring processes of one round: made when first needed, replaced when spent, gone at the end."""

    def __init__(self, settings: Settings, interruption: Interruption, number: int) -> None:
        self._settings = settings
        self._interruption = interruption
        self._seed = layout_seed(settings.seed, number)
        self._hosts: dict[Lane, Host] = {}

    def adopt(self, host: Host) -> None:
        """Take over the process that said what there is, which has met the accelerators: the first round need not start another."""
        self._hosts["accelerator"] = host

    def ask(self, request: dict[str, Any], device: str, deadline_s: float) -> Ending:
        """Have one request done in the process that fits the device and the isolation."""
        isolation = self._settings.isolation
        lane: Lane = "cpu" if device == "cpu" and isolation != "none" else "accelerator"
        host = self._hosts.get(lane)
        if host is None or not host.usable:
            mode: Mode = "fork" if lane == "cpu" and isolation == "fork" else "stay"
            host = self._hosts[lane] = Host(mode, self._settings.threads, self._seed, self._interruption)
        ending = host.ask(request, deadline_s)
        fault = ending.reply is not None and ending.reply.get("fault")
        if fault or (lane == "cpu" and isolation == "spawn"):
            host.end()
        return ending

    def end(self) -> None:
        """End them all."""
        for host in self._hosts.values():
            host.end()


def run_rounds(
    cases: Sequence[Case],
    settings: Settings,
    interruption: Interruption,
    save: Callable[[Measurement], None],
    observer: Observer,
    done: Sequence[Measurement] = (),
    first_host: Host | None = None,
) -> int:
    """Measure the cases, round after round, until each has enough; return how many rounds the file has by then.

    ``done`` holds what an earlier, interrupted run measured: it is not measured again. Stops early, with everything saved, when
    ``interruption`` is requested. Raises DeviceFault where a device fails twice in a row.
    """
    progress = _Progress(cases, settings, done)
    policy = settings.policy
    budget_s = policy.budget_s or math.inf
    started, faults = time.monotonic(), Counter[str]()
    most = policy.max_rounds if policy.budget_s else policy.rounds
    for number in range(most):
        pending = progress.pending(number)
        if progress.finished() or time.monotonic() - started + progress.expected_s(pending) > budget_s:
            break
        random.Random(f"{settings.seed}/{number}").shuffle(pending)
        observer.round_started(number, len(pending))
        with _hosts(settings, interruption, number) as hosts:
            if first_host is not None:
                hosts.adopt(first_host)
                first_host = None
            for case in pending:
                if number == 0 and time.monotonic() - started > budget_s:
                    reason = f"the budget of {budget_s:g} s was spent before its turn; give a larger --budget"
                    measurement, fault = Measurement(case, number, Status.SKIPPED, reason), False
                else:
                    observer.case_started(case, number)
                    began = time.monotonic()
                    ended = _measured(case, number, settings, hosts)
                    if ended is None:
                        return progress.rounds
                    measurement, fault = ended
                    progress.took_s[case.id] = time.monotonic() - began
                save(measurement)
                progress.add(measurement)
                observer.case_ended(measurement)
                faults[case.device] = faults[case.device] + 1 if fault else 0
                if faults[case.device] >= _FAULTS_TO_STOP:
                    raise DeviceFault(
                        f"{case.device} failed in {_FAULTS_TO_STOP} processes in a row ({measurement.reason}); check it, then run again"
                    )
    return progress.rounds


class _Progress:
    """Which cases still want a round."""

    def __init__(self, cases: Sequence[Case], settings: Settings, done: Sequence[Measurement]) -> None:
        self._cases = cases
        self._enough = {case.id: EnoughRounds(settings.policy) for case in cases}
        self._ended: set[str] = set()
        self.took_s: dict[str, float] = {}
        """Of each case, when it was last measured here."""
        self.rounds = 0
        """Rounds that measured anything, those of the earlier run included."""
        self._measured: set[tuple[str, int]] = set()
        for measurement in done:
            # A case left out for want of a device or of time gets its chance now.
            if measurement.case.id in self._enough and measurement.status is not Status.SKIPPED:
                self.add(measurement)

    def add(self, measurement: Measurement) -> None:
        case_id = measurement.case.id
        self._measured.add((case_id, measurement.round))
        self.rounds = max(self.rounds, measurement.round + 1)
        if measurement.status is not Status.OK:
            # It would only end the same way, and take its deadline again.
            self._ended.add(case_id)
        else:
            samples = measurement.samples
            self._enough[case_id].add(statistics.median(samples.block_s) if samples else None)

    def pending(self, number: int) -> list[Case]:
        return [case for case in self._cases if self._wanted(case) and (case.id, number) not in self._measured]

    def expected_s(self, cases: Sequence[Case]) -> float:
        """Return how long a round of these will take, as far as is known."""
        return sum(self.took_s.get(case.id, 0.0) for case in cases)

    def finished(self) -> bool:
        return not any(self._wanted(case) for case in self._cases)

    def _wanted(self, case: Case) -> bool:
        return case.id not in self._ended and not self._enough[case.id].done()


@contextmanager
def _hosts(settings: Settings, interruption: Interruption, number: int) -> Iterator[Hosts]:
    hosts = Hosts(settings, interruption, number)
    try:
        yield hosts
    finally:
        hosts.end()


def _measured(case: Case, number: int, settings: Settings, hosts: Hosts) -> tuple[Measurement, bool] | None:
    """Measure one case in one round; None when interrupted. The flag tells of a device fault."""
    row = Measurement(case, number, Status.SKIPPED, device_name=settings.devices.get(case.device), threads=settings.threads)
    if case.device not in settings.devices:
        return replace(row, reason=f"this machine has no {case.device}; it has {', '.join(settings.devices)}"), False
    request = {
        "op": "measure",
        "plugins": settings.plugins,
        "case": asdict(case),
        "round": number,
        "policy": asdict(settings.policy),
        "seed": zlib.crc32(f"{settings.seed}/{case.key}".encode()),  # the same numbers on every device and in every round
        "threads": settings.threads,
        "device_name": settings.devices[case.device],
        "memory_bytes": available_memory() if settings.isolation != "none" else None,
    }
    timeout_s, kills = settings.policy.timeout_s, oom_kills()
    ending = hosts.ask(request, case.device, timeout_s)
    match ending.how:
        case "interrupted":
            return None
        case "deadline":
            return replace(row, status=Status.TIMEOUT, reason=f"not done within {timeout_s:g} s; raise --timeout"), False
        case "died" if oom_kills() > kills:
            return replace(row, status=Status.OOM, reason="the kernel ended its process for want of memory"), False
        case "died":
            return replace(row, status=Status.CRASHED, reason=f"its process {ending.sentence}"), False
    assert ending.reply is not None  # noqa: S101  # how == "replied" says so
    if "error" in ending.reply:
        return replace(row, status=Status.FAILED, reason=ending.reply["error"]), False
    return Measurement.from_json(ending.reply["measurement"]), bool(ending.reply["fault"])


def ask_hello(plugins: Sequence[str] = (), workloads: Sequence[str] = ()) -> dict[str, Any]:
    """Start a measuring process only to ask what there is: devices, versions, workloads. See `worker.hello` for the shape.

    Raises WorkerError, in that process's words, where torch or a plugin does not import.
    """
    with ExitStack() as stack:
        interruption = stack.enter_context(Interruption())
        threads = 1
        host = stack.enter_context(Host("stay", threads, 0, interruption))
        return greet(host, plugins, workloads, threads)
