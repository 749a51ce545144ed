"""One case in one round: the limit and the peaks of its memory, and its timing: warm-up, calibration, blocks, copies.

Only the harness, and an ``observe``, read the clock."""

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import combinations, repeat
from typing import Any

import torch

from dlbench.core.conditions import undisturbed
from dlbench.core.declarations import Declaration
from dlbench.core.errors import Unavailable, Unknown
from dlbench.core.measurement import STEADY_SHIFT, Memory, Samples, Transfer
from dlbench.core.model import Clock, Params, Policy, Status, Work
from dlbench.core.units import byte_count
from dlbench.harness.probe.linux import added_memory, too_much_to_lock
from dlbench.harness.worker.backends.base import Backend
from dlbench.harness.worker.failures import NO_ENGINE, Unmeasurable, first_line
from dlbench.harness.worker.parent import limit_memory, memory_in_force, timed_part
from dlbench.harness.worker.usage import ThreadWaits, read_status

SAFE_SHARE = 0.8
"""Share of the host's free memory that a search may take, as other processes may take more meanwhile."""


class DeviceMemory:
    """Peaks of one case on its device, without tensors that earlier cases of its process have left there."""

    def __init__(self, backend: Backend, device: torch.device) -> None:
        """Begin with nothing cached."""
        self._backend, self._device = backend, device
        backend.reset_peak(device)
        self.left_bytes, self._left_reserved = self._held()
        """Bytes that earlier cases have left, which count in no peak."""

    def _held(self) -> tuple[int, int]:
        """Return the bytes of live tensors and of what the allocator has reserved, 0 where torch does not count them."""
        held = self._backend.held(self._device)
        return held.peak_bytes or 0, held.reserved_bytes or 0

    def forget_set_up(self) -> None:
        """Reset the peak of live tensors, so that what only set-up used does not count: workspaces that cuDNN tried, for example.

        The peak of reserved memory still counts them, as the allocator holds that.
        """
        self._backend.restart_peak(self._device)
        # Set-up may have freed something that earlier cases had left.
        self.left_bytes, self._left_reserved = map(min, (self.left_bytes, self._left_reserved), self._held())

    def peaks(self) -> Memory:
        """Return the device's peaks so far; None if torch does not count them."""
        peak = self._backend.peak(self._device)
        if peak.peak_bytes is None or peak.reserved_bytes is None:
            return Memory()
        return Memory(peak.peak_bytes - self.left_bytes, peak.reserved_bytes - self._left_reserved)


@contextmanager
def name_out_of_memory(backend: Backend, device: torch.device) -> Iterator[None]:
    """Turn torch's error that cuDNN has no plan for a convolution into MemoryError if its allocator refused memory meanwhile.

    torch catches the allocator's error of each plan that it tries, and its last error does not mention memory:
    https://github.com/pytorch/pytorch/issues/108645.
    """
    refused = backend.failed_allocations(device)
    try:
        yield
    except RuntimeError as error:
        if NO_ENGINE in str(error) and backend.failed_allocations(device) > refused:
            raise MemoryError(str(error)) from error
        raise


@contextmanager
def memory_limit(
    declared: Declaration, params: Params, backend: Backend, device: torch.device, free_bytes: int | None
) -> Iterator[int | None]:
    """Limit the memory of a case while entered, and yield the limit in bytes. Beyond it torch raises its own error.

    The parameter with the role ``limit`` gives the limit in GiB. If it has no value, the limit is the available memory: a safe share of
    the host's ``free_bytes``, or all that is free on an accelerator, where the device itself enforces that.

    Yields None if the workload has no such parameter, or if the available memory is unknown. Without such a parameter a case on the host
    is limited to ``free_bytes`` all the same; where these are unknown (None), nothing limits it.

    Raises Unmeasurable, for a case to be skipped, if the parameter is more than the available memory, and NotImplementedError if the
    device takes no limits or has less memory in all.
    """
    limit_parameter = declared.parameter("limit")
    gibibytes = params.get(limit_parameter or "")  # None without such a parameter, too
    wanted_bytes = None if gibibytes is None else max(1, int(float(gibibytes) * 2**30))
    used_bytes = read_status("VmData") or 0  # of this process on the host, counted as RLIMIT_DATA counts
    available_bytes = free_bytes
    with ExitStack() as limits:
        if not backend.is_host:
            if wanted_bytes is not None:
                backend.limit_memory(device, wanted_bytes)
                limits.callback(_lift, backend, device)
            available_bytes = backend.free_memory(device) if limit_parameter else None
        elif limit_parameter:
            available_bytes = _safe_memory(free_bytes, used_bytes)
        limit_bytes = available_bytes if wanted_bytes is None else wanted_bytes
        if limit_bytes is not None and available_bytes is not None and limit_bytes > available_bytes:
            free, limit = byte_count(available_bytes), byte_count(limit_bytes)
            reason = f"the device has {free} left, and the limit is {limit}; free its memory, or give less"
            if backend.is_host:
                more = f"{limit_parameter}={limit_bytes / 2**30:g} is more than the {free} that this process can be given"
                reason = f"{more}; give less, or free some memory and go on with --resume"
            raise Unmeasurable(Status.SKIPPED, reason)
        if backend.is_host and limit_bytes is not None:
            limits.enter_context(limit_memory(limit_bytes, used_bytes))
        yield limit_bytes if limit_parameter else None


def _safe_memory(free_bytes: int | None, used_bytes: int) -> int | None:
    """Return how many more bytes of the host a search may take: a share of the free ones, and no more than a limit in force allows."""
    if free_bytes is None:  # a hypervisor may add more on demand, and a search would take it all
        free_bytes = added_memory()
    allowed = memory_in_force(used_bytes)
    if free_bytes is None:
        return allowed
    safe = int(SAFE_SHARE * free_bytes)
    return safe if allowed is None else min(safe, allowed)


def _lift(backend: Backend, device: torch.device) -> None:
    with suppress(RuntimeError):  # a device that has failed meanwhile has raised already
        backend.limit_memory(device, None)


WINDOW, SHORT_WINDOW = 5, 3
"""Blocks in each of the two windows that must agree before measuring starts; the short ones are for long blocks."""
STEADY_TREND = {WINDOW: 0.6, SHORT_WINDOW: 0.85}
"""Kendall's tau over both windows from which on their order counts as a trend, with p = 0.017 in either size."""


def is_steady(blocks: Sequence[float], window: int = WINDOW) -> bool:
    """Return whether block times have settled: the medians of the last two windows agree, and the blocks in them show no trend."""
    before = blocks[-2 * window : -window]
    after = blocks[-window:]
    if len(before) < window:
        return False
    level = statistics.median(before)
    if abs(statistics.median(after) - level) > STEADY_SHIFT * level:
        return False
    pairs = list(combinations((*before, *after), 2))
    kendall_tau = sum((b > a) - (b < a) for a, b in pairs) / len(pairs)  # tau-a of the values against their order
    return abs(kendall_tau) < STEADY_TREND[window]


def has_enough_blocks(blocks: Sequence[float], waits: Sequence[float] | None, calls: int, policy: Policy) -> bool:
    """Return whether a round has enough blocks of so many calls: at least the policy's minimum, and then either the time of a round, or
    the policy's maximum of undisturbed blocks.

    ``blocks`` are seconds a call, and ``waits`` for each block the longest that a thread waited for a CPU, None if unknown.
    """
    if len(blocks) < policy.min_blocks:
        return False
    if calls * sum(blocks) >= policy.round_s:
        return True
    # This runs after each block, so the undisturbed ones are counted only when there are blocks enough in all.
    return len(blocks) >= policy.max_blocks and len(undisturbed(blocks, waits, calls)) >= policy.max_blocks


SLOW_CALL_S = 0.1
"""A call whose second and third time are longer counts as warm after two, and a round has the fewest blocks, of one call each."""
WARM_CALLS_AGREE = 0.05
"""Relative difference of a slow call's second and third time within which both count: two warm calls rarely differ by more."""
LONG_BLOCK_S = 0.05
"""Six blocks of at least that length have to be steady instead of ten: they last as long as 150 short ones."""
_SHORT = 0.75
"""A block that is shorter than this share of the least length gets more calls."""
MOST_CALLS = 10**6
"""Calls in a block: enough for an empty call on an accelerator, and a bound if a clock does not move."""
_WINDOWS_KEPT = 20
"""Windows of blocks that a warm-up keeps, to find undisturbed ones that are steady."""
_TIMES, _ENOUGH_S = 5, 0.5
"""`median_time` repeats an action so often, or until so long has passed: 1 GB into fresh memory takes 0.8 s on an H100's host."""


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
    """Times blocks of a call, and reads between them how long its threads waited for a CPU."""

    work: Work
    clock: Clock
    waits: ThreadWaits | None
    _wait_s: list[float] = field(default_factory=list)

    def __call__(self, calls: int) -> float:
        """Run a block of calls, and return its time in seconds a call."""
        call, before, now = self.work.call, self.work.before, self.clock.now
        if before:
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
        """Return the longest wait in each of the last ``count`` blocks; None if nothing counts waits."""
        return tuple(self._wait_s[-count:]) if self._wait_s else None


def take_samples(
    work: Work,
    clock: Clock,
    backend: Backend,
    policy: Policy,
    deadline: float = math.inf,
    least_block_s: float = 0.0,
    waits: ThreadWaits | None = None,
) -> Samples:
    """Warm ``work.call`` up and time it, in blocks that last at least ``least_block_s`` and the device's own least time.

    Blocks are timed until `has_enough_blocks`. A call that takes more than `SLOW_CALL_S` is alone in its block, and warm after two calls.
    Raises Unmeasurable, a timeout, as soon as its blocks can't end before the deadline, which is on the clock's own scale. ``waits`` reads
    in each block how long threads wait for a CPU; None if nothing counts that.
    """
    time_block = BlockTimer(work, clock, waits)

    def refuse_behind_deadline(call_s: float, more_calls: int) -> None:
        """Raise Unmeasurable if so many more calls would end too late."""
        if clock.now() + call_s * more_calls > deadline:
            late = f"one call takes {call_s:.3g} s, so {policy.min_blocks} timed ones would end behind the deadline"
            raise Unmeasurable(Status.TIMEOUT, f"{late} of {policy.timeout_s:g} s; raise --timeout")

    with without_collection():
        begun_s = clock.now()
        first_call_s = time_block(1)
        blocks = [time_block(1)]  # seconds a call of each block that may count; the very first call never does
        calls = 1  # in a block
        is_settled: bool | None = None  # unknown for a slow call, which is not repeated until it is steady
        if blocks[0] > SLOW_CALL_S:
            # The second call may still wait for a cold disk or a compiler, so a third one decides.
            refuse_behind_deadline(blocks[0], 1)
            blocks.append(time_block(1))
        fastest_s = min(blocks)
        is_slow = fastest_s > SLOW_CALL_S
        if is_slow:
            # Where one block is wanted, or the second call was not warm yet, the third call alone counts.
            if policy.min_blocks == 1 or max(blocks) - fastest_s > WARM_CALLS_AGREE * fastest_s:
                del blocks[0]
            refuse_behind_deadline(fastest_s, policy.min_blocks - len(blocks))
        else:
            # A `before` has to run ahead of each call, so each block then has one call, however short it is.
            least_s = 0.0 if work.before else max(backend.block_s, least_block_s)
            calls, blocks, is_settled = _warm_up(time_block, blocks, least_s, backend, policy, clock)
        # The blocks so far are warm and count as timed ones, so that their time is not the warm-up's.
        warmup_s = clock.now() - begun_s - calls * sum(blocks)
        if work.before:  # its time is not in that of blocks, so a round may last longer than `round_s`: no more blocks than by default
            policy = replace(policy, max_blocks=min(policy.max_blocks, Policy().max_blocks))
        with timed_part():
            # A warm-up that never got steady leaves no blocks.
            while not (blocks and has_enough_blocks(blocks, time_block.last_waits(len(blocks)), calls, policy)):
                if is_slow and len(blocks) >= policy.min_blocks and clock.now() + fastest_s > deadline:
                    break  # fewer blocks than wanted, but enough for a result
                blocks.append(time_block(calls))
    wait_s = time_block.last_waits(len(blocks))
    min_blocks = policy.min_blocks if is_slow and wait_s else None  # so few undisturbed blocks of a slow call are enough to count alone
    return Samples(calls, tuple(blocks), first_call_s, warmup_s, is_settled, wait_s=wait_s, min_blocks=min_blocks)


def _warm_up(
    time_block: BlockTimer, times_so_far: Sequence[float], least_s: float, backend: Backend, policy: Policy, clock: Clock
) -> tuple[int, list[float], bool]:
    """Run blocks until the warm-up has its time and calls, and the last blocks are steady; or until its longest time is over.

    Return how many calls a block has, the steady blocks at the end in seconds a call, and whether there are any. The steady blocks count as
    timed ones. ``times_so_far`` are the seconds of all calls but the very first, and ``least_s`` is the least time of a block.
    """
    begun_s = clock.now()
    wanted_s = backend.warmup_s if policy.warmup_s is None else policy.warmup_s
    fastest_s = min(times_so_far)
    calls_so_far = 1 + len(times_so_far)
    calls = _calls_for(fastest_s, least_s)
    blocks: list[float] = []
    window = SHORT_WINDOW if calls * fastest_s > LONG_BLOCK_S else WINDOW
    while True:
        call_s = time_block(calls)
        calls_so_far += calls
        steady: list[float] = []
        if call_s * calls < _SHORT * least_s and calls < MOST_CALLS:
            # The number of calls was computed from slower, cold calls, so now the block is too short: reading the clock takes too large a
            # part of its time. Start again with more calls a block, and with the window for short blocks.
            calls = _calls_for(call_s, least_s)
            window, blocks = WINDOW, []
        else:
            blocks = [*blocks, call_s][-_WINDOWS_KEPT * window :]
            steady = _steady_end(blocks, time_block.last_waits(len(blocks)), calls, window)
            blocks = steady or blocks  # what came before steady blocks was not warm
        elapsed_s = clock.now() - begun_s
        is_warm = steady and elapsed_s >= wanted_s and calls_so_far >= backend.warmup_calls
        if is_warm or elapsed_s >= max(policy.max_warmup_s, wanted_s):
            return calls, steady[-policy.max_blocks :], bool(steady)


def _steady_end(blocks: list[float], waits: Sequence[float] | None, calls: int, window: int) -> list[float]:
    """Return the last two windows of blocks if these, or so many undisturbed ones among the last, are steady; else none."""
    if is_steady(blocks, window):
        return blocks[-2 * window :]
    last_undisturbed = undisturbed(blocks, waits, calls)[-2 * window :]
    if is_steady([blocks[index] for index in last_undisturbed], window):
        return blocks[last_undisturbed[0] :]
    return []


def _calls_for(seconds: float, least_s: float) -> int:
    return min(MOST_CALLS, max(1, math.ceil(least_s / max(seconds, 1e-9))))


def take_transfer(inputs: Sequence[Any], outputs: Sequence[Any], backend: Backend, device: Any, clock: Clock) -> Transfer:
    """Time the copies that plain user code would make for one call: its inputs to the device, its output to the host."""
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
    """Return ``transfer`` with the times of the same copies in page-locked memory.

    Raises Unavailable if too little memory is left to lock so much, if the system refuses, or if dlbench locks none for such devices.
    """
    needed_bytes = transfer.h2d_bytes + transfer.d2h_bytes
    left_bytes = too_much_to_lock(needed_bytes)  # None if there are enough
    if left_bytes is not None:
        raise Unavailable(Unknown.TOO_MUCH_TO_LOCK, bytes=needed_bytes, bytes_left=left_bytes)
    on_host = backend.to_host([*inputs, *outputs])
    try:
        pinned = backend.pin(on_host)
    except RuntimeError as error:  # or a subclass, which depends on the version of torch
        raise Unavailable(Unknown.NOT_LOCKED, text=first_line(error)) from error
    if pinned is None:
        raise Unavailable(Unknown.NO_LOCKS, kind=backend.kind)
    sources, targets = pinned[: len(inputs)], pinned[len(inputs) :]
    return replace(
        transfer,
        pinned_h2d_s=median_time(lambda: backend.to_device(sources, device, non_blocking=True), clock),
        pinned_d2h_s=median_time(lambda: backend.to_pinned(outputs, targets), clock),
    )


@contextmanager
def without_collection() -> Iterator[None]:
    """Collect garbage once, and turn collection off within: it takes milliseconds of the call in which it happens."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def median_time(action: Callable[[], object], clock: Clock) -> float:
    """Return the seconds that an action takes: the median of a few runs after a first one, which allocates."""
    action()
    times: list[float] = []
    while len(times) < _TIMES and sum(times) < _ENOUGH_S:
        start = clock.now()
        action()
        times.append(clock.now() - start)
    return statistics.median(times)
