"""Forecast of how long a case takes, by the same work of smaller sizes: one that is far too slow ends before it starts."""

import math
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from dlbench.core.model import Clock, ParamValue, Policy, Status, Work, settings_text
from dlbench.core.units import seconds as seconds_text
from dlbench.harness.process.wire import Reader, send
from dlbench.harness.worker.failures import Unmeasurable
from dlbench.harness.worker.registry import Workload
from dlbench.harness.worker.stages import restart_deadline, tell_parent

SHARES = (8, 4, 2)
"""What the sizes are divided by, one probe after the other."""
PARTS_OF_DEADLINE = 30
"""The next probe, of twice the size, is made while a call takes less than one of so many parts of the deadline, or is short."""
MOST_PARTS = 3
"""So many of these parts a call of a probe may take until it is ended, and counts as having taken so long."""
SHORT_CALL_S = 0.2
"""A shorter call is made three times, and the quickest counts: the first one loads code. The next probe follows, whatever the deadline."""
SMALLEST = 64
"""Sizes below it stay as they are in a probe: they have no eighth that tells anything. Without a larger one there is none."""
TOLD_FROM_S = 1e-3
"""Two probes tell how time grows if the smaller took that long: of a shorter one an interruption would."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A call of a smaller size."""

    size: Mapping[str, int]
    seconds: float
    power: float
    """Of the size that its operations grow by: 3 of matrix products, 1 where its workload states none."""


def refuse_too_slow(workload: Workload, params: Mapping[str, ParamValue], policy: Policy, device: Any, clock: Clock) -> None:
    """Raise Unmeasurable, a timeout, where a round of the case would not end before its deadline, by what probes of smaller sizes took.

    They run in a fork, so that they warm nothing that the case measures: for a process that has computed nothing yet. The round has its
    deadline after them. Where a workload declares no such sizes, or a probe fails, nothing is told, and the deadline itself ends the case.
    """
    probed = {name: int(params[name]) for name in workload.signature.declared.having("probed") if name in params}
    full = {name: size for name, size in probed.items() if size >= SMALLEST}
    if not full:
        return
    sizes = [{name: size // share for name, size in full.items()} for share in SHARES]
    wanted_s = max(policy.timeout_s / PARTS_OF_DEADLINE, SHORT_CALL_S)
    found = in_fork(lambda: _probes(workload, params, sizes, wanted_s, device, clock), MOST_PARTS * wanted_s)
    restart_deadline()
    calls = calls_of_round(policy)
    if (forecast_s := forecast(found)) is None or calls * forecast_s <= policy.timeout_s:
        return
    last = found[-1]
    taken = f"by {seconds_text(last.seconds)} at {settings_text(last.size)} a call is forecast to take {seconds_text(forecast_s)}"
    late = f"the {calls} of a round would end behind the deadline of {policy.timeout_s:g} s"
    raise Unmeasurable(Status.TIMEOUT, f"{taken}, so {late}; raise --timeout, or measure a smaller size")


def calls_of_round(policy: Policy) -> int:
    """Return how many calls a round makes of the slowest cases: the first, and those that are timed, two at least."""
    return 1 + max(2, policy.min_blocks)


def forecast(probes: Sequence[Probe]) -> float | None:
    """Return the seconds of a call of the full size: by its operations, or by how time grew last where that is steeper. None of no probe.

    A probe is half of the next one, so that of three the last is half of the full size.
    """
    if not probes:
        return None
    last, power = probes[-1], probes[-1].power
    if len(probes) > 1 and probes[-2].seconds >= TOLD_FROM_S:
        power = max(power, math.log2(last.seconds / probes[-2].seconds))
    return last.seconds * math.pow(SHARES[len(probes) - 1], power)


def in_fork(probes: Callable[[], Iterator[Mapping[str, Any]]], patience_s: float) -> list[Probe]:
    """Return what probes in a fork of this process gave, until one failed, or took longer than ``patience_s`` and was ended."""
    readable, writable = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            tell_parent(lambda _: None)  # what it is at is not what the case is at
            for message in probes():
                send(writable, message)
        finally:
            os._exit(0)
    os.close(writable)
    messages, found = Reader(readable), list[Probe]()
    try:
        while True:
            begun = messages.read()  # set-up: the deadline of the case ends it
            started = time.monotonic()
            try:
                taken_s = messages.read(started + patience_s)["seconds"]
            except TimeoutError:
                found.append(Probe(**begun, seconds=time.monotonic() - started))
                return found
            found.append(Probe(**begun, seconds=taken_s))
    except EOFError:
        return found
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(readable)


def _probes(
    workload: Workload,
    params: Mapping[str, ParamValue],
    sizes: Sequence[Mapping[str, ParamValue]],
    wanted_s: float,
    device: Any,
    clock: Clock,
) -> Iterator[Mapping[str, Any]]:
    """Yield of each size what it is, and then what a call took, until one takes longer than wanted; nothing of an experiment."""
    first, second = (workload.set_up(device, {**params, **size}) for size in sizes[:2])
    power = math.log2(second.flops / first.flops) if first.flops and second.flops else 1.0
    for at, size in enumerate(sizes):
        work = (first, second)[at] if at < 2 else workload.set_up(device, {**params, **size})
        if work.call is None:
            return
        yield {"size": size, "power": power}
        taken_s = _time(work, clock)
        if taken_s < SHORT_CALL_S:
            taken_s = min(taken_s, _time(work, clock), _time(work, clock))
        yield {"seconds": taken_s}
        if taken_s >= wanted_s:
            return


def _time(work: Work, clock: Clock) -> float:
    if work.before:
        work.before()
    begun = clock.now()
    work.call()  # type: ignore[misc]  # has a call
    return clock.now() - begun
