"""Timing of one case in one round: warm-up, calibration, blocks, copies. Only the harness has the clock (``observe`` is handed it)."""

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import combinations, repeat
from typing import Any

from dlbench.core.conditions import undisturbed
from dlbench.core.errors import Unavailable, Unknown
from dlbench.core.measurement import STEADY_SHIFT, Samples, Transfer
from dlbench.core.model import Clock, Policy, Status, Work
from dlbench.harness.probe.linux import too_much_to_lock
from dlbench.harness.worker.backends.base import Backend
from dlbench.harness.worker.failures import Unmeasurable, first_line
from dlbench.harness.worker.parent import timed_part
from dlbench.harness.worker.usage import BlockWaits

WINDOW, SHORT_WINDOW = 5, 3
"""Blocks in each of the two windows that must agree before measuring starts; the short ones are for long blocks."""
STEADY_TREND = {WINDOW: 0.6, SHORT_WINDOW: 0.85}
"""Kendall's tau over both windows from which on their order counts as a trend, with p = 0.017 in either size."""


def is_steady(blocks: Sequence[float], window: int = WINDOW) -> bool:
    """Whether block times have stopped moving: the last two windows of them agree in level and show no trend."""
    before, after = blocks[-2 * window : -window], blocks[-window:]
    if len(before) < window:
        return False
    level = statistics.median(before)
    pairs = list(combinations((*before, *after), 2))
    kendall_tau = sum((b > a) - (b < a) for a, b in pairs) / len(pairs)  # tau-a of the values against their order
    return abs(statistics.median(after) - level) <= STEADY_SHIFT * level and abs(kendall_tau) < STEADY_TREND[window]


def has_enough_blocks(blocks: Sequence[float], waits: Sequence[float] | None, calls: int, policy: Policy) -> bool:
    """Whether a round has the blocks it needs, of so many calls: the least, and all its time or its most of those that nobody disturbed.

    ``waits``: the longest of each block for a CPU.
    """
    if len(blocks) < policy.min_blocks:
        return False
    if calls * sum(blocks) >= policy.round_s:
        return True
    # Asked after each block: those that nobody disturbed are no more than all, so there is nothing to count before.
    return len(blocks) >= policy.max_blocks and len(undisturbed(blocks, waits, calls)) >= policy.max_blocks


SLOW_CALL_S = 0.1
"""A call whose second and third time take longer is warm after two; blocks of one call, and their least number, carry the round."""
WARM_CALLS_AGREE = 0.05
"""Within what share of each other a slow call's second and third time both count: as far as two warm ones are mostly apart."""
LONG_BLOCK_S = 0.05
"""Six such blocks, and not ten, have to be steady: they last as long as a hundred and fifty short ones."""
_SHORT = 0.75
"""Of the least length of a block: one that is shorter gets more calls."""
MOST_CALLS = 10**6
"""In a block: enough for an empty call on an accelerator, and a bound where a clock stands still."""
_LOOKED_AT = 20
"""Windows of blocks among which undisturbed ones may show that a call is steady."""
_TIMES, _ENOUGH_S = 5, 0.5
"""An action is timed for `median_time`, or until that took so long: a gigabyte takes 0.8 s into fresh memory on the host of an H100."""


class DeviceClock:
    """Host time between synchronisations: one clock for every device."""

    def __init__(self, synchronize: Callable[[], None]) -> None:
        self._synchronize = synchronize

    def now(self) -> float:
        """Wait for the device, then return seconds from an arbitrary start."""
        self._synchronize()
        return time.perf_counter()

    def stamp(self) -> float:
        """Return the host's time, without waiting."""
        return time.perf_counter()


@dataclass(frozen=True, slots=True)
class BlockTimer:
    """Times blocks of a call, and reads outside of them how long its threads waited for a CPU."""

    work: Work
    clock: Clock
    waits: BlockWaits | None
    _wait_s: list[float] = field(default_factory=list)

    def __call__(self, calls: int) -> float:
        """Time a block of calls, in seconds a call."""
        call, before, now = self.work.call, self.work.before, self.clock.now
        if before is not None:
            before()
            if self.waits:
                self.waits.restart()
        start = now()
        for _ in repeat(None, calls):
            call()  # type: ignore[misc]  # what is timed has a call
        block_s = now() - start
        if self.waits:
            self._wait_s.append(self.waits.longest_s(block_s))
        return block_s / calls

    def last_waits(self, count: int) -> tuple[float, ...] | None:
        """Return the longest wait in each of the last so many blocks; None where nothing tells."""
        return tuple(self._wait_s[-count:]) if self._wait_s else None


def take_samples(
    work: Work,
    clock: Clock,
    backend: Backend,
    policy: Policy,
    deadline: float = math.inf,
    least_block_s: float = 0.0,
    waits: BlockWaits | None = None,
) -> Samples:
    """Time ``work.call``, in blocks of ``least_block_s`` where the device's own least length is shorter.

    With ``waits`` a round goes on for undisturbed blocks while it has time. Raises Unmeasurable, a timeout, as soon as the blocks can't end
    before the deadline, which is on the clock's own scale.
    """
    block = BlockTimer(work, clock, waits)

    def refuse_behind_deadline(call_s: float, more: int) -> None:
        if clock.now() + call_s * more > deadline:
            late = f"one call takes {call_s:.3g} s, so {policy.min_blocks} timed ones would end behind the deadline"
            raise Unmeasurable(Status.TIMEOUT, f"{late} of {policy.timeout_s:g} s; raise --timeout")

    with without_collection():
        begun = clock.now()
        first_call_s = block(1)
        blocks, calls = [block(1)], 1
        settled: bool | None = None
        if blocks[0] > SLOW_CALL_S:
            # A cold disk or a compiler may be in the second as well, so a third decides.
            refuse_behind_deadline(blocks[0], 1)
            blocks.append(block(1))
        fastest_s = min(blocks)
        if slow := fastest_s > SLOW_CALL_S:
            if policy.min_blocks == 1 or max(blocks) - fastest_s > WARM_CALLS_AGREE * fastest_s:
                del blocks[0]  # the third alone counts
            refuse_behind_deadline(fastest_s, policy.min_blocks - len(blocks))
        else:
            least_s = max(backend.block_s, least_block_s) if work.before is None else 0.0
            calls, blocks, settled = _warm_up(block, blocks, least_s, backend, policy, clock)
        warmup_s = clock.now() - begun - calls * sum(blocks)
        if work.before is not None:  # which takes as long again for each block of a longer round
            policy = replace(policy, max_blocks=min(policy.max_blocks, Policy().max_blocks))
        with timed_part():
            while not (blocks and has_enough_blocks(blocks, block.last_waits(len(blocks)), calls, policy)):
                if slow and len(blocks) >= policy.min_blocks and clock.now() + fastest_s > deadline:
                    break
                blocks.append(block(calls))
    wait_s = block.last_waits(len(blocks))
    return Samples(
        calls, tuple(blocks), first_call_s, warmup_s, settled, wait_s=wait_s, min_blocks=policy.min_blocks if slow and wait_s else None
    )


def _warm_up(
    block: BlockTimer, warm: Sequence[float], least_s: float, backend: Backend, policy: Policy, clock: Clock
) -> tuple[int, list[float], bool]:
    """Run blocks until time and calls suffice and they are steady, all of the last ones or those of them that nobody disturbed.

    ``warm``: seconds of the calls so far, without the very first. Return the calls of a block, the last ones, which are as good as any
    behind them, and whether they were steady; none where they were not.
    """
    begun = clock.now()
    wanted_s = backend.warmup_s if policy.warmup_s is None else policy.warmup_s
    fastest_s, called = min(warm), 1 + len(warm)
    calls = _calls_for(fastest_s, least_s)
    blocks: list[float] = []
    window = SHORT_WINDOW if calls * fastest_s > LONG_BLOCK_S else WINDOW
    while True:
        seconds = block(calls)
        called += calls
        if seconds * calls < _SHORT * least_s and calls < MOST_CALLS:
            # The calls before were cold: with as many a block, the clock would show.
            calls, window, blocks = _calls_for(seconds, least_s), WINDOW, []
        else:
            blocks = [*blocks, seconds][-_LOOKED_AT * window :]
        places = undisturbed(blocks, block.last_waits(len(blocks)), calls)[-2 * window :] if blocks else ()
        spent_s, settled = clock.now() - begun, is_steady(blocks, window)
        if settled:
            blocks = blocks[-2 * window :]
        elif settled := is_steady([blocks[at] for at in places], window):
            blocks = blocks[places[0] :]
        if (settled and spent_s >= wanted_s and called >= backend.warmup_calls) or spent_s >= max(policy.max_warmup_s, wanted_s):
            return calls, blocks[-policy.max_blocks :] if settled else [], settled


def _calls_for(seconds: float, least_s: float) -> int:
    return min(MOST_CALLS, max(1, math.ceil(least_s / max(seconds, 1e-9))))


def take_transfer(inputs: Sequence[Any], outputs: Sequence[Any], backend: Backend, device: Any, clock: Clock) -> Transfer:
    """Time the copies that plain user code would make for one call: its inputs there, its output back."""
    on_host = backend.to_host(inputs)
    return Transfer(
        h2d_bytes=sum(tensor.nbytes for tensor in inputs),
        h2d_s=median_time(lambda: backend.to_device(on_host, device), clock),
        d2h_bytes=sum(tensor.nbytes for tensor in outputs),
        d2h_s=median_time(lambda: backend.to_host(outputs), clock),
    )


def take_pinned_transfer(
    transfer: Transfer, inputs: Sequence[Any], outputs: Sequence[Any], backend: Backend, device: Any, clock: Clock
) -> Transfer:
    """Time the same copies from and to page-locked memory. Raises Unavailable where it can't be had."""
    needed = transfer.h2d_bytes + transfer.d2h_bytes
    if (left := too_much_to_lock(needed)) is not None:
        raise Unavailable(Unknown.TOO_MUCH_TO_LOCK, bytes=needed, bytes_left=left)
    on_host = backend.to_host([*inputs, *outputs])
    try:
        pinned = backend.pin(on_host)
    except RuntimeError as error:  # torch's own kinds of it differ between versions
        raise Unavailable(Unknown.NOT_LOCKED, text=first_line(error)) from error
    if pinned is None:
        raise Unavailable(Unknown.NO_LOCKS, kind=backend.kind)
    sources, targets = pinned[: len(inputs)], pinned[len(inputs) :]
    return replace(
        transfer,
        pinned_h2d_s=median_time(lambda: backend.pinned_to_device(sources, device), clock),
        pinned_d2h_s=median_time(lambda: backend.to_pinned(outputs, targets), clock),
    )


@contextmanager
def without_collection() -> Iterator[None]:
    """Collect garbage now and none within: a collection takes milliseconds, of whichever call it happens in."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def median_time(action: Callable[[], object], clock: Clock) -> float:
    """Return the seconds that an action takes: the median of a few times after the first, which allocates."""
    action()
    times: list[float] = []
    while len(times) < _TIMES and sum(times) < _ENOUGH_S:
        start = clock.now()
        action()
        times.append(clock.now() - start)
    return statistics.median(times)
