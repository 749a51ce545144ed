"""The harness against a clock that only moves when a call says so: every number is exact. And the limit that a case computes within."""

import gc
import random
from contextlib import nullcontext
from itertools import combinations
from types import SimpleNamespace

import pytest
import torch

from dlbench.core.declarations import Declaration
from dlbench.core.errors import Unavailable, explained
from dlbench.core.measurement import Measurement, Samples, Transfer
from dlbench.core.model import Case, Policy, Status, Work
from dlbench.harness.probe import linux
from dlbench.harness.worker import parent
from dlbench.harness.worker.backends.base import Backend, find
from dlbench.harness.worker.backends.builtin import CpuBackend
from dlbench.harness.worker.checking.correctness import Subject
from dlbench.harness.worker.failures import Unmeasurable
from dlbench.harness.worker.measuring import measure
from dlbench.harness.worker.measuring.measure import (
    has_enough_blocks,
    is_steady,
    median_time,
    memory_limit,
    take_pinned_transfer,
    take_samples,
    take_transfer,
)
from dlbench.harness.worker.serving import main
from dlbench.testing import ManualClock

CPU = SimpleNamespace(block_s=0.002, warmup_s=0.2, warmup_calls=2)
"""What timing asks of a backend."""
CARD = SimpleNamespace(block_s=0.02, warmup_s=0.5, warmup_calls=10)
US, MS = 2**-16, 2**-10
"""About 15 µs and 1 ms, exact as floats."""


@pytest.fixture(autouse=True)
def nothing_to_collect(monkeypatch):
    """Spare each test the second that collecting all garbage of the test process takes."""
    monkeypatch.setattr(gc, "collect", lambda: 0)


def calls_taking(clock, *seconds):
    """A call that takes the given times, one after the other, and then the last for ever; it counts itself."""

    def call():
        clock.advance(seconds[min(call.count, len(seconds) - 1)])
        call.count += 1

    call.count = 0
    return call


def sampled(times, *, backend=CPU, before=None, deadline=60.0, waits=None, **policy):
    """Samples of a call that takes these times, with how often it was called and when the last block ended."""
    clock = ManualClock()
    call = calls_taking(clock, *times)
    samples = take_samples(Work(call=call, before=before), clock, backend, Policy(**policy), deadline=deadline, waits=waits)
    return samples, call.count, clock.now()


@pytest.mark.parametrize(
    ("times", "policy", "expected"),
    {
        # 2 ms / 15.26 µs, rounded up; the first ten of the fifty are the last of the warm-up's.
        "a steady fast call in blocks of the least length": ((0.5, US), {}, {"calls": 132, "block_s": (US,) * 50, "steady": True}),
        "the blocks that showed it to be steady are the first": (
            (0.9, 0.05, *(steady := (0.021, 0.02, 0.019, 0.02, 0.02, 0.02, 0.021, 0.02, 0.019, 0.02)), 0.01, 0.03),
            {"round_s": 0.235, "warmup_s": 0.0},
            {"calls": 1, "block_s": (*steady, 0.01, 0.03), "warmup_s": 0.95},
        ),
        "a round of few blocks has the last of them": (
            (0.9, 0.05, *[0.02] * 8, 0.021, 0.019),
            {"min_blocks": 2, "max_blocks": 3, "warmup_s": 0.19},
            {"block_s": (0.02, 0.021, 0.019)},
        ),
        # The second call took 2 ms, so the first block was of two; 2 ms / 0.244 ms, rounded up.
        "blocks that turn out short get more calls, and do not count": (
            (0.9, 2**-9, *[2**-12] * 40), {"warmup_s": 0.0}, {"calls": 9, "block_s": (2**-12,) * 50, "warmup_s": 0.9 + 2**-9 + 2 * 2**-12},
        ),
        "three quarters of the least length are enough": ((0.9, 0.002, 0.0016), {}, {"calls": 1}),
        "lazy initialisation does not set the length": ((3.0, 0.002, 2**-20), {}, {"calls": 2098}),
        "a slow call is warm after one where two agree": (
            (0.9, 0.418, 0.4),
            {},
            {"first_call_s": 0.9, "calls": 1, "block_s": (0.418, 0.4, 0.4), "warmup_s": 0.9, "steady": None, "count": 4},
        ),
        "and after two where they do not": ((0.9, 0.424, 0.4), {}, {"block_s": (0.4, 0.4, 0.4), "warmup_s": 1.324, "count": 5}),
        "a round of one slow call takes the third": ((0.9, 0.41, 0.4), {"min_blocks": 1, "round_s": 0.3}, {"block_s": (0.4,)}),
        "the third call is the first block, until a second is over": (
            (0.9, 0.5, 0.4, 0.3, 0.2), {}, {"block_s": (0.4, 0.3, 0.2, 0.2), "warmup_s": 1.4},
        ),
        "a slow second call alone makes none slow": (
            (3.0, 15.0, MS), {}, {"first_call_s": 3.0, "calls": 3, "block_s": (MS,) * 50, "steady": True},
        ),
        "neither does a slow third": ((3.0, MS, 0.2, MS), {"warmup_s": 0.3}, {"calls": 3, "block_s": (MS,) * 50}),
        # Behind the first call, of which the last ends at 3.2 s, 2 s or 1.6 s.
        "a long round": ((0.4,), {"round_s": 2.5, "deadline": 9.0}, {"block_s": (0.4,) * 7}),
        "a long round before a deadline": ((0.4,), {"round_s": 2.5, "deadline": 2.1}, {"block_s": (0.4,) * 4}),
        "a long round before an early one": ((0.4,), {"round_s": 2.5, "deadline": 1.7}, {"block_s": (0.4,) * 3}),
        # Three to look whether it is slow, and eleven blocks, of which the last six count.
        "calls made to look count as warm-up": (
            (0.09, 0.5, 0.09),
            {"backend": SimpleNamespace(block_s=0.02, warmup_s=0.0, warmup_calls=14), "round_s": 0.27},
            {"count": 14, "warmup_s": 0.09 + 0.5 + 6 * 0.09},
        ),
        "an accelerator has longer blocks, and ten calls of warm-up": (
            (0.09,), {"backend": CARD, "round_s": 0.27}, {"calls": 1, "block_s": (0.09,) * 6, "count": 10},
        ),
        "noise never gets more than the most blocks": (
            (0.01, 0.03) * 500, {"round_s": 1e9, "max_blocks": 25, "max_warmup_s": 0.3}, {"blocks": 25},
        ),
    }.values(),
)  # fmt: skip
def test_a_call_is_warmed_up_and_timed(times, policy, expected):
    samples, count, _ = sampled(times, **policy)
    found = {"count": count, "blocks": len(samples.block_s)}
    for name, value in expected.items():
        assert found.get(name, getattr(samples, name, None)) == (value if value is None else pytest.approx(value)), name


def test_warm_up_takes_a_fifth_of_a_second_with_the_blocks_that_count():
    samples, _, ended_s = sampled((0.5, US))
    assert samples.warmup_s == pytest.approx(0.7 - 1320 * US, abs=0.004)
    assert ended_s == pytest.approx(samples.warmup_s + 50 * 132 * US)


@pytest.mark.parametrize(("times", "behind"), [((0.5, US), 0.2), ((9.0, 0.2), 9.4)])
def test_the_parent_hears_when_warm_up_is_over_and_when_the_blocks_are(monkeypatch, times, behind):
    clock, messages = ManualClock(), []
    monkeypatch.setattr(parent, "_tell", lambda message: messages.append((clock.now(), message)))
    take_samples(Work(call=calls_taking(clock, *times)), clock, CPU, Policy(min_blocks=5))
    (begun, first), (ended, last) = messages
    assert (first, last, ended) == ({"window": {"timed": True}}, {"window": {"timed": False}}, clock.now())
    assert begun > behind - 1e-9


@pytest.mark.parametrize(("call_s", "calls"), [pytest.param(16.0, 3, id="three would end later"), pytest.param(25.0, 2, id="one would")])
def test_a_call_that_cannot_be_done_by_the_deadline_says_so_and_does_not_wait(call_s, calls):
    clock = ManualClock()
    call = calls_taking(clock, call_s)
    late = rf"one call takes {call_s:.3g} s, so 3 timed ones would end behind the deadline of 60 s; raise --timeout"
    with pytest.raises(Unmeasurable, match=late) as error:
        take_samples(Work(call=call), clock, CPU, Policy(), deadline=60.0)
    assert (error.value.status, call.count) == (Status.TIMEOUT, calls)


def test_a_call_that_never_settles_is_measured_and_flagged_and_noise_until_its_time_is_spent():
    samples, *_ = sampled([1e-3 * 1.01**i for i in range(400)], max_warmup_s=0.5)
    assert (samples.steady, samples.warmup_s, len(samples.block_s) >= 3) == (False, pytest.approx(0.5, abs=0.05), True)
    samples, *_ = sampled((0.01, 0.03) * 500, round_s=0.3, max_warmup_s=0.3)
    assert (samples.calls, sum(samples.block_s)) == (1, pytest.approx(0.3, abs=0.03))


def test_before_runs_untimed_ahead_of_every_single_call_and_without_the_garbage_collector():
    clock, enabled = ManualClock(), set()
    call, before = calls_taking(clock, 0.001), calls_taking(clock, 0.05)
    work = Work(call=lambda: (enabled.add(gc.isenabled()), call()), before=before)
    samples = take_samples(work, clock, CPU, Policy(round_s=3.0, max_blocks=500))
    assert (samples.calls, samples.block_s) == (1, pytest.approx([0.001] * 50))  # not 500, each with what runs ahead of it
    assert (before.count, enabled, gc.isenabled()) == (call.count, {False}, True)


class Copying:
    """A backend whose copies take what is written down for them: an untimed one, and then five."""

    kind = "pretend"

    def __init__(self, clock, pin=lambda tensors: tensors):
        self.clock, self.pin, self.copied = clock, pin, []
        self.seconds = {
            "to_device": [9.0, 0.05, 0.01, 0.02, 0.03, 0.04],
            "to_host": [0.0, 9.0, 0.2, 0.02],  # ahead of all, the inputs are brought back
            "pinned_to_device": [9.0, 0.005, 0.001, 0.002, 0.003, 0.004],
            "to_pinned": [9.0, 0.2, 0.002],
        }

    def copy(self, what, tensors):
        times = self.seconds[what]
        self.clock.advance(times.pop(0) if len(times) > 1 else times[0])
        self.copied.append((what, [tensor.nbytes for tensor in tensors]))
        return tensors

    def to_device(self, tensors, device, *, non_blocking=False):
        return self.copy("pinned_to_device" if non_blocking else "to_device", tensors)

    def to_host(self, tensors):
        return self.copy("to_host", tensors)

    def to_pinned(self, tensors, pinned):
        assert [tensor.nbytes for tensor in tensors] == [tensor.nbytes for tensor in pinned]
        self.copy("to_pinned", pinned)


INPUTS, OUTPUTS = [SimpleNamespace(nbytes=100), SimpleNamespace(nbytes=20)], [SimpleNamespace(nbytes=8)]
PAGEABLE = Transfer(120, 0.3, 8, 0.02)


def test_copies_are_timed_both_ways_and_their_medians_kept():
    clock = ManualClock()
    transfer = take_transfer(INPUTS, OUTPUTS, Copying(clock), None, clock)
    assert transfer == Transfer(120, pytest.approx(0.03), 8, pytest.approx(0.02))


def test_pinned_copies_are_timed_likewise_and_memory_is_locked_once():
    clock, pins = ManualClock(), []
    backend = Copying(clock, lambda tensors: pins.append(tensors) or tensors)
    transfer = take_pinned_transfer(PAGEABLE, INPUTS, OUTPUTS, backend, None, clock)
    assert transfer == Transfer(120, 0.3, 8, 0.02, pytest.approx(0.003), pytest.approx(0.002))
    assert pins == [INPUTS + OUTPUTS]
    timed = backend.copied[1:]  # after what to lock was brought to the host
    assert timed == [("pinned_to_device", [100, 20])] * 6 + [("to_pinned", [8])] * 6


def refused(tensors):
    raise RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be reported later")


@pytest.mark.parametrize(
    ("left", "pin", "sentence"),
    [
        (1000, lambda tensors: None, "dlbench locks no host memory for pretend devices"),
        (1000, refused, "no page-locked memory: CUDA error: out of memory"),
        (511, list, "128 B of page-locked memory would be too much of the 511 B that the host has left"),
        (512, list, None),  # a quarter
        (None, list, None),  # unknown is enough
    ],
)
def test_where_no_memory_can_be_locked_a_sentence_says_why(monkeypatch, left, pin, sentence):
    monkeypatch.setattr(linux, "available_memory", lambda: left)
    clock = ManualClock()
    try:
        found = take_pinned_transfer(PAGEABLE, INPUTS, OUTPUTS, Copying(clock, pin), None, clock).pinned_h2d_s
    except Unavailable as error:
        found = str(error)
    assert found == (sentence or pytest.approx(0.003))


@pytest.mark.parametrize(
    ("seconds", "median"),
    [
        pytest.param([9.0, 1 / 64, 5 / 64, 2 / 64, 4 / 64, 3 / 64], 3 / 64, id="of five"),
        pytest.param([9.0, 0.25, 0.75], 0.5, id="until they took half a second"),
        pytest.param([9.0, 8.0], 8.0, id="of one that takes longer"),
    ],
)
def test_an_action_takes_the_median_of_a_few_behind_the_first(seconds, median):
    clock, taken = ManualClock(), iter(seconds)
    assert median_time(lambda: clock.advance(next(taken)), clock) == median
    assert next(taken, None) is None


class Waits:
    """Scripted waits: of each block a share of its length, and one share of all behind the last."""

    def __init__(self, *shares, then=0.0):
        self._shares, self._then = iter(shares), then
        self.restarts = 0

    def restart(self):
        self.restarts += 1

    def longest_s(self, block_s):
        return next(self._shares, self._then) * block_s


DISTURBED = {"warmup_s": 0.0, "max_warmup_s": 0.0, "round_s": 1.0, "max_blocks": 10}


@pytest.mark.parametrize(
    ("times", "shares", "policy", "blocks", "undisturbed", "warmup_s"),
    [
        pytest.param(
            [0.01] * 10 + [0.05, 0.01] * 50, [0.0] * 10 + [0.8, 0.0] * 50, {"max_blocks": 12}, 14, [*range(10), 11, 13], 0.95,
            id="undisturbed ones end the round",
        ),
        # Of no warm-up; three blocks take 0.1 s, so the tenth undisturbed one, which is the last, ends in time.
        pytest.param([0.04, 0.04, 0.02] * 40, [0.5, 0.5, 0.0] * 40, DISTURBED, 29, [*range(1, 29, 3)], 0.99, id="few go on in its time"),
        pytest.param([0.04] * 120, [0.5] * 120, DISTURBED, 25, None, 0.99, id="none end with its time, and all count"),
        pytest.param(
            [0.01, 0.03, 0.02] * 40, [0.0, 0.5, 0.3] * 40, {"round_s": 0.545}, 28, [*range(0, 28, 3)], 0.95,
            id="undisturbed ones alone show that it is steady, from the first of ten on",
        ),
    ],
)  # fmt: skip
def test_every_block_has_its_wait_and_undisturbed_ones_count(times, shares, policy, blocks, undisturbed, warmup_s):
    samples, *_ = sampled((0.9, 0.05, *times), waits=Waits(0.0, 0.0, *shares), **{"warmup_s": 0.0, **policy})
    first = round((warmup_s - 0.95) / 0.04)  # the first block was the warm-up of those without any
    assert samples.block_s == pytest.approx(times[first : first + blocks])
    assert samples.wait_s == pytest.approx([share * seconds for share, seconds in zip(shares[first:], samples.block_s, strict=False)])
    assert (samples.undisturbed, samples.warmup_s, samples.min_blocks) == (undisturbed, pytest.approx(warmup_s), None)


@pytest.mark.parametrize(
    ("shares", "most", "deadline", "blocks", "counted"),
    [
        pytest.param((0.0,) * 8, 50, 60.0, 8, 8, id="a second is its time"),
        pytest.param((0.5, 0.0, 0.5, 0.0, 0.0), 50, 60.0, 8, 6, id="two of which were disturbed"),
        pytest.param((0.0,) * 8, 3, 60.0, 3, 3, id="three are its most"),
        pytest.param((0.5, 0.0, 0.5, 0.0, 0.0), 3, 60.0, 5, 3, id="three undisturbed ones are its most"),
        pytest.param((0.5,) * 8, 3, 60.0, 8, 8, id="no undisturbed one within its time"),
        pytest.param((0.5, 0.0, 0.0, 0.0), 3, 0.9, 3, 3, id="no further one would end before the deadline"),
    ],
)
def test_a_slow_call_takes_further_blocks_for_disturbed_ones(shares, most, deadline, blocks, counted):
    samples, *_ = sampled((0.5, 0.125), max_blocks=most, deadline=deadline, waits=Waits(0.0, *shares))
    assert (len(samples.block_s), len(samples.counted_s), samples.min_blocks) == (blocks, counted, 3)


def test_waits_before_a_block_are_no_part_of_it():
    waits = Waits()
    samples, *_ = sampled((0.9, 0.05), before=lambda: None, warmup_s=0.0, waits=waits)
    assert waits.restarts == 2 + len(samples.block_s)


class Twin(Backend):
    """The CPU as an accelerator that can lock no memory."""

    kind = "twin"

    def count(self):
        return 1

    def describe(self, index):
        return {"name": "Twin"}


LockingTwin = type("LockingTwin", (Twin,), {"pin": lambda self, tensors: [tensor.clone() for tensor in tensors]})


def with_copies(backend, deadline=100.0, number=0):
    """The copies of a call that takes ten seconds, how often it was called for them, and why some are missing."""
    clock, calls = ManualClock(), []
    work = Work(call=lambda: (clock.advance(10.0), calls.append(1), torch.ones(2))[2], inputs=(torch.ones(3),))
    samples = Samples(1, (10.0,) * 3, 10.0, 0.0, steady=None)
    measured = Measurement(Case("a[]@twin:0", "s", "a", {}, "twin:0"), number, Status.OK, samples=samples)
    resident = SimpleNamespace(resident=lambda params: params)
    subject = Subject(measured, work, resident, {}, 1, backend, find("cpu")[1], 0.0, clock, deadline)
    found = main._with_extras(subject, ["transfer"]).measurement
    return found.transfer, len(calls), explained(found.missing_reasons.get("transfer", ()))


BOTH = Transfer(12, 0.0, 8, 0.0, 0.0, 0.0)
LATE = "one more call, for its output, would end behind the deadline; raise --timeout"


@pytest.mark.parametrize(
    ("backend", "deadline", "expected"),
    [
        pytest.param(LockingTwin(), 10.0, (BOTH, 1, ""), id="just in time"),
        pytest.param(LockingTwin(), 9.9, (None, 0, LATE), id="too late"),
        (Twin(), 100.0, (Transfer(12, 0.0, 8, 0.0), 1, "pinned: dlbench locks no host memory for twin devices")),
        (CpuBackend(), 100.0, (None, 0, "inputs and output are in host memory already")),
    ],
)
def test_copies_of_a_case_are_timed_or_a_reason_says_why_not(backend, deadline, expected):
    assert with_copies(backend, deadline) == expected


@pytest.mark.parametrize(("most", "rounds"), [(20, [0, 1, 2, 6]), (19, [0, 1])])
def test_copies_of_many_bytes_are_timed_in_the_first_rounds_alone(monkeypatch, most, rounds):
    """Twelve bytes go there and eight back."""
    monkeypatch.setattr(main, "_MOST_COPIED_BYTES", most)
    found = {number: with_copies(LockingTwin(), number=number) for number in (0, 1, 2, 6)}
    assert [number for number, (transfer, *_) in found.items() if transfer] == rounds
    assert {reason for *_, reason in found.values()} == {""}


LIMITED = Declaration(parameters={"memory_gib": {"limit": ""}})
LIMITED_CARD = SimpleNamespace(is_host=False, free_memory=lambda device: 3 * 2**30, limit_memory=lambda device, limit_bytes: None)


@pytest.fixture
def nothing_in_force(monkeypatch):
    monkeypatch.setattr(measure, "memory_in_force", lambda used: None)
    monkeypatch.setattr(measure, "limit_memory", lambda more, used: nullcontext())


def test_a_search_has_a_limit_where_memory_is_added_on_demand(monkeypatch, nothing_in_force):
    """Nothing tells how much it could be given in the end."""
    monkeypatch.setattr(measure, "added_memory", lambda: 10 * 2**30)
    sentence = "memory_gib=9 is more than the 8.00 GiB that this process can be given"
    with pytest.raises(Unmeasurable, match=sentence) as error, memory_limit(LIMITED, {"memory_gib": 9}, *find("cpu"), None):
        pass
    assert error.value.status is Status.SKIPPED


@pytest.mark.parametrize(
    ("backend", "own", "left", "limit"),
    [(None, 0.5, 2**31, 2**29), (None, None, 10 * 2**20, 8 * 2**20), (LIMITED_CARD, 0.5, 0, 2**29), (LIMITED_CARD, None, 0, 3 * 2**30)],
)
def test_the_limit_that_a_search_has_is_known(nothing_in_force, backend, own, left, limit):
    """Its own, or of the host four fifths of what is left, of a card all that is free."""
    host, device = find("cpu")
    for declared, expected in ((LIMITED, limit), (Declaration(), None)):
        with memory_limit(declared, {"memory_gib": own}, backend or host, device, left) as found:
            assert found == expected


def first(rule, values):
    """Return the first number of values that a rule holds for; None if it holds for none."""
    return next((count for count in range(1, len(values) + 1) if rule(values[:count])), None)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0] * 20, 10),
        ([1.0] * 9, None),
        ([2.0] * 5 + [1.0] * 10, 13),  # a step down: steady once both medians are behind it
        ([1.0 + 0.001 * i for i in range(50)], None),  # within 2 %, but a trend
        ([1.05**i for i in range(50)], None),
    ],
)
def test_steadiness(values, expected):
    assert first(is_steady, values) == expected


@pytest.mark.parametrize(("window", "blocks"), [(measure.WINDOW, 10), (measure.SHORT_WINDOW, 6)])
def test_chance_makes_a_trend_as_seldom_of_six_blocks_as_of_ten(window, blocks):
    assert first(lambda times: is_steady(times, window), [1.0] * 20) == blocks
    noise = random.Random(3)
    orders = [noise.sample(range(blocks), blocks) for _ in range(10000)]

    def trend(order):
        return abs(sum((b > a) - (b < a) for a, b in combinations(order, 2))) / (blocks * (blocks - 1) / 2)

    assert sum(trend(order) >= measure.STEADY_TREND[window] for order in orders) / 10000 == pytest.approx(0.017, abs=0.004)


@pytest.mark.parametrize(
    ("calls", "values", "count"),
    [
        pytest.param(1, [0.001] * 99, 50, id="blocks that agree end no round"),
        pytest.param(1, [0.001, 0.002] * 99, 50, id="the most blocks"),
        pytest.param(10, [0.005, 0.015] * 99, 10, id="a second"),
        pytest.param(1, [0.5, 0.7] * 99, 3, id="the least blocks"),
        pytest.param(1000, [1.0] * 99, 3, id="never fewer"),
        pytest.param(1, [0.001] * 49, None, id="too few"),
    ],
)
def test_a_round_ends_after_one_second_with_between_the_least_and_the_most_blocks(calls, values, count):
    assert first(lambda times: has_enough_blocks(times, None, calls, Policy()), values) == count
