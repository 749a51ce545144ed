"""The harness against a clock that only moves when a call says so: every number is exact."""

import gc
from types import SimpleNamespace

import pytest

from dlbench.core.errors import Unavailable
from dlbench.core.measurement import Transfer
from dlbench.core.model import Policy, Status, Work
from dlbench.harness.probe import linux
from dlbench.harness.worker import parent
from dlbench.harness.worker.failures import Unmeasurable
from dlbench.harness.worker.measuring.measure import median_time, take_pinned_transfer, take_samples, take_transfer
from dlbench.testing import ManualClock

CPU = SimpleNamespace(block_s=0.002, warmup_s=0.2, warmup_calls=2)
"""What timing asks of a backend."""


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


def test_a_steady_fast_call_is_timed_in_blocks_of_the_least_length():
    clock = ManualClock()
    samples = take_samples(Work(call=calls_taking(clock, 0.5, 2**-16)), clock, CPU, Policy())
    assert samples.first_call_s == 0.5
    assert samples.calls == 132  # 2 ms / 15.26 µs, rounded up
    # The first ten are the last of the warm-up's.
    assert samples.block_s == (2**-16,) * 50
    assert samples.steady
    timed_s = 50 * 132 * 2**-16
    assert samples.warmup_s - samples.first_call_s + timed_s / 5 == pytest.approx(0.2, abs=0.0021)  # 0.2 s in blocks of 2 ms
    assert clock.now() == samples.warmup_s + timed_s


@pytest.mark.parametrize(("times", "behind"), [((0.5, 2**-16), 0.2), ((9.0, 0.2), 9.4)])
def test_the_parent_is_told_when_warm_up_is_over_and_when_the_blocks_are(monkeypatch, times, behind):
    clock, said = ManualClock(), []
    monkeypatch.setattr(parent, "_tell", lambda message: said.append((clock.now(), message)))
    take_samples(Work(call=calls_taking(clock, *times)), clock, CPU, Policy(min_blocks=5))
    (begun, first), (ended, last) = said
    assert (first, last, ended) == ({"window": {"timed": True}}, {"window": {"timed": False}}, clock.now())
    assert begun > behind - 1e-9


def test_the_blocks_that_showed_a_call_to_be_steady_are_the_first_of_its_round():
    clock = ManualClock()
    steady, later = [0.021, 0.02, 0.019, 0.02, 0.02, 0.02, 0.021, 0.02, 0.019, 0.02], [0.01, 0.03]
    samples = take_samples(Work(call=calls_taking(clock, 0.9, 0.05, *steady, *later)), clock, CPU, Policy(round_s=0.235, warmup_s=0.0))
    assert samples.calls == 1
    assert samples.block_s == pytest.approx([*steady, *later])
    assert samples.warmup_s == pytest.approx(0.9 + 0.05)


def test_a_round_of_few_blocks_gets_the_last_of_them():
    clock = ManualClock()
    samples = take_samples(
        Work(call=calls_taking(clock, 0.9, 0.05, *[0.02] * 8, 0.021, 0.019)), clock, CPU, Policy(min_blocks=2, max_blocks=3, warmup_s=0.19)
    )
    assert samples.block_s == pytest.approx((0.02, 0.021, 0.019))


def test_blocks_that_turn_out_short_get_more_calls_and_the_short_ones_do_not_count():
    clock = ManualClock()
    samples = take_samples(Work(call=calls_taking(clock, 0.9, 2**-9, *[2**-12] * 40)), clock, CPU, Policy(warmup_s=0.0))
    assert samples.calls == 9  # 2 ms / 0.244 ms, rounded up
    assert samples.block_s == pytest.approx((2**-12,) * 50)
    assert samples.warmup_s == 0.9 + 2**-9 + 2 * 2**-12  # the second call took 2 ms, so the first block was of two


def test_a_block_of_three_quarters_of_the_least_length_is_long_enough():
    clock = ManualClock()
    samples = take_samples(Work(call=calls_taking(clock, 0.9, 0.002, 0.0016)), clock, CPU, Policy())
    assert samples.calls == 1


def test_lazy_initialisation_in_the_first_call_does_not_set_the_block_length():
    clock = ManualClock()
    samples = take_samples(Work(call=calls_taking(clock, 3.0, 0.002, 2**-20)), clock, CPU, Policy())
    assert samples.calls == 2098  # 2 ms / 0.9537 µs, rounded up


def test_a_slow_call_is_warm_after_the_first_where_the_next_two_agree():
    clock = ManualClock()
    call = calls_taking(clock, 0.9, 0.418, 0.4)
    samples = take_samples(Work(call=call), clock, CPU, Policy())
    assert samples.first_call_s == 0.9
    assert samples.calls == 1
    assert samples.block_s == pytest.approx((0.418, 0.4, 0.4))
    assert samples.warmup_s == pytest.approx(0.9)
    assert samples.steady is None  # so few calls tell nothing of that
    assert call.count == 4


def test_a_slow_call_is_warm_after_two_where_they_do_not_agree():
    clock = ManualClock()
    call = calls_taking(clock, 0.9, 0.424, 0.4)
    samples = take_samples(Work(call=call), clock, CPU, Policy())
    assert samples.block_s == pytest.approx((0.4, 0.4, 0.4))
    assert samples.warmup_s == pytest.approx(1.324)
    assert call.count == 5


def test_a_round_of_one_slow_call_takes_the_third():
    clock = ManualClock()
    samples = take_samples(Work(call=calls_taking(clock, 0.9, 0.41, 0.4)), clock, CPU, Policy(min_blocks=1, round_s=0.3))
    assert samples.block_s == pytest.approx((0.4,))


@pytest.mark.parametrize(("deadline", "blocks"), [(9.0, 7), (2.1, 4), (1.7, 3)])
def test_a_longer_round_has_more_slow_calls_that_end_before_the_deadline(deadline, blocks):
    """Behind the first call, of which the last ends at 3.2 s, 2 s or 1.6 s."""
    clock = ManualClock()
    samples = take_samples(Work(call=calls_taking(clock, 0.4)), clock, CPU, Policy(round_s=2.5), deadline=deadline)
    assert samples.block_s == pytest.approx((0.4,) * blocks)


def test_the_third_call_of_a_slow_one_is_its_first_block():
    clock = ManualClock()
    samples = take_samples(Work(call=calls_taking(clock, 0.9, 0.5, 0.4, 0.3, 0.2)), clock, CPU, Policy())
    assert samples.block_s == pytest.approx((0.4, 0.3, 0.2, 0.2))  # until a second is over
    assert samples.warmup_s == pytest.approx(1.4)


def test_a_slow_second_call_alone_does_not_make_a_call_slow():
    clock = ManualClock()
    call = calls_taking(clock, 3.0, 15.0, 2**-10)
    samples = take_samples(Work(call=call), clock, CPU, Policy(), deadline=60.0)
    assert (samples.first_call_s, samples.calls, samples.steady) == (3.0, 3, True)  # 2 ms / 0.98 ms, rounded up
    assert samples.block_s == (2**-10,) * 50
    # Both slow calls and all that follow until the times are steady, but the last ten: 0.2 s in blocks of 2.9 ms.
    assert samples.warmup_s - 18.0 + 10 * 3 * 2**-10 == pytest.approx(0.2, abs=0.004)


def test_a_slow_third_call_alone_does_not_either():
    clock = ManualClock()
    samples = take_samples(Work(call=calls_taking(clock, 3.0, 2**-10, 0.2, 2**-10)), clock, CPU, Policy(warmup_s=0.3))
    assert (samples.calls, samples.block_s) == (3, (2**-10,) * 50)


def test_calls_made_to_look_whether_a_call_is_slow_count_as_warm_up():
    clock = ManualClock()
    call = calls_taking(clock, 0.09, 0.5, 0.09)
    samples = take_samples(Work(call=call), clock, SimpleNamespace(block_s=0.02, warmup_s=0.0, warmup_calls=14), Policy(round_s=0.27))
    assert call.count == 14  # three to look, and eleven blocks, of which the last six count
    assert samples.warmup_s == pytest.approx(0.09 + 0.5 + 6 * 0.09)


@pytest.mark.parametrize(
    ("call_s", "calls"), [pytest.param(16.0, 3, id="three would end later"), pytest.param(25.0, 2, id="one would end later")]
)
def test_a_call_that_cannot_be_done_by_the_deadline_says_so_and_does_not_wait(call_s, calls):
    clock = ManualClock()
    call = calls_taking(clock, call_s)
    late = rf"one call takes {call_s:.3g} s, so 3 timed ones would end behind the deadline of 60 s; raise --timeout"
    with pytest.raises(Unmeasurable, match=late) as error:
        take_samples(Work(call=call), clock, CPU, Policy(), deadline=60.0)
    assert error.value.status is Status.TIMEOUT
    assert call.count == calls


def test_a_call_that_never_settles_is_measured_and_flagged():
    clock = ManualClock()
    times = [1e-3 * 1.01**i for i in range(400)]
    samples = take_samples(Work(call=calls_taking(clock, *times)), clock, CPU, Policy(max_warmup_s=0.5))
    assert not samples.steady
    assert samples.warmup_s == pytest.approx(0.5, abs=0.05)
    assert len(samples.block_s) >= 3


def test_noise_gets_blocks_until_the_time_is_spent():
    clock = ManualClock()
    times = [0.01, 0.03] * 500
    samples = take_samples(Work(call=calls_taking(clock, *times)), clock, CPU, Policy(round_s=0.3, max_warmup_s=0.3))
    assert samples.calls == 1
    assert sum(samples.block_s) == pytest.approx(0.3, abs=0.03)


def test_noise_never_gets_more_than_the_most_blocks():
    clock = ManualClock()
    times = [0.01, 0.03] * 500
    samples = take_samples(Work(call=calls_taking(clock, *times)), clock, CPU, Policy(round_s=1e9, max_blocks=25, max_warmup_s=0.3))
    assert len(samples.block_s) == 25


def test_before_runs_untimed_ahead_of_every_single_call():
    clock = ManualClock()
    call = calls_taking(clock, 0.001)
    before = calls_taking(clock, 0.05)
    samples = take_samples(Work(call=call, before=before), clock, CPU, Policy(round_s=3.0, max_blocks=500))
    assert samples.calls == 1
    assert samples.block_s == pytest.approx([0.001] * 50)  # not 500, each with what runs ahead of it
    assert before.count == call.count


def test_an_accelerator_gets_longer_blocks_and_ten_calls_of_warm_up():
    clock = ManualClock()
    call = calls_taking(clock, 0.09)
    samples = take_samples(Work(call=call), clock, SimpleNamespace(block_s=0.02, warmup_s=0.5, warmup_calls=10), Policy(round_s=0.27))
    assert samples.calls == 1
    assert len(samples.block_s) == 6
    assert call.count == 10  # the last six of them, all of 0.09 s, are enough of a round, too


def test_the_garbage_collector_is_off_while_timing_and_back_on_afterwards():
    clock = ManualClock()
    seen = set()

    def call():
        seen.add(gc.isenabled())
        clock.advance(0.2)

    take_samples(Work(call=call), clock, CPU, Policy())
    assert seen == {False}
    assert gc.isenabled()


class _Tensor:
    def __init__(self, nbytes):
        self.nbytes = nbytes


class Copying:
    """A backend whose copies take what is written down for them: an untimed one, and then five."""

    kind = "pretend"

    def __init__(self, clock, pin=lambda tensors: tensors):
        self.clock = clock
        self.pin = pin
        self.copied = []
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

    def to_device(self, tensors, device):
        return self.copy("to_device", tensors)

    def to_host(self, tensors):
        return self.copy("to_host", tensors)

    def pinned_to_device(self, pinned, device):
        return self.copy("pinned_to_device", pinned)

    def to_pinned(self, tensors, pinned):
        assert [tensor.nbytes for tensor in tensors] == [tensor.nbytes for tensor in pinned]
        self.copy("to_pinned", pinned)


INPUTS, OUTPUTS = [_Tensor(100), _Tensor(20)], [_Tensor(8)]


def test_copies_are_timed_both_ways_and_their_medians_kept():
    clock = ManualClock()
    transfer = take_transfer(INPUTS, OUTPUTS, Copying(clock), None, clock)
    assert (transfer.h2d_bytes, transfer.d2h_bytes) == (120, 8)
    assert transfer.h2d_s == pytest.approx(0.03)
    assert transfer.d2h_s == pytest.approx(0.02)
    assert (transfer.pinned_h2d_s, transfer.pinned_d2h_s) == (None, None)


PAGEABLE = Transfer(120, 0.3, 8, 0.02)


def test_pinned_copies_are_timed_likewise_and_memory_is_locked_once():
    clock, pins = ManualClock(), []
    backend = Copying(clock, lambda tensors: pins.append(tensors) or tensors)
    transfer = take_pinned_transfer(PAGEABLE, INPUTS, OUTPUTS, backend, None, clock)
    assert transfer.pinned_h2d_s == pytest.approx(0.003)
    assert transfer.pinned_d2h_s == pytest.approx(0.002)
    assert (transfer.h2d_s, transfer.d2h_s) == (0.3, 0.02)
    assert pins == [INPUTS + OUTPUTS]
    timed = backend.copied[1:]  # after what to lock was brought to the host
    assert timed == [("pinned_to_device", [100, 20])] * 6 + [("to_pinned", [8])] * 6


def refused(tensors):
    raise RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be reported later")


@pytest.mark.parametrize(
    ("left", "pin", "sentence"),
    [
        pytest.param(1000, lambda tensors: None, "dlbench locks no host memory for pretend devices", id="no such memory"),
        pytest.param(1000, refused, "no page-locked memory: CUDA error: out of memory", id="refused"),
        pytest.param(511, list, "128 B of page-locked memory would be too much of the 511 B that the host has left", id="too much"),
    ],
)
def test_where_no_memory_can_be_locked_a_sentence_says_why(monkeypatch, left, pin, sentence):
    monkeypatch.setattr(linux, "available_memory", lambda: left)
    with pytest.raises(Unavailable) as error:
        take_pinned_transfer(PAGEABLE, INPUTS, OUTPUTS, Copying(ManualClock(), pin), None, ManualClock())
    assert str(error.value) == sentence


def test_a_quarter_of_what_the_host_has_left_may_be_locked_and_unknown_is_enough(monkeypatch):
    for left in (512, None):
        monkeypatch.setattr(linux, "available_memory", lambda left=left: left)
        clock = ManualClock()
        assert take_pinned_transfer(PAGEABLE, INPUTS, OUTPUTS, Copying(clock), None, clock).pinned_h2d_s == pytest.approx(0.003)


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
    """Scripted waits: of each block a share of its length, and of those behind the last what is told then."""

    def __init__(self, *shares, then=0.0):
        self._shares, self._then = iter(shares), then
        self.restarts = 0

    def restart(self):
        self.restarts += 1

    def longest_s(self, block_s):
        return next(self._shares, self._then) * block_s


def test_every_block_stays_with_its_wait_and_undisturbed_ones_end_the_round():
    clock = ManualClock()
    times, shares = [0.01] * 10 + [0.05, 0.01] * 50, [0.0] * 10 + [0.8, 0.0] * 50
    work = Work(call=calls_taking(clock, 0.9, 0.05, *times))
    policy = Policy(warmup_s=0.0, max_blocks=12)
    samples = take_samples(work, clock, CPU, policy, waits=Waits(0.0, 0.0, *shares))
    assert samples.block_s == pytest.approx(times[:14])
    assert samples.wait_s == pytest.approx([share * seconds for share, seconds in zip(shares, times[:14], strict=False)])
    assert (samples.undisturbed, samples.min_blocks) == ([*range(10), 11, 13], None)
    assert samples.counted_s == pytest.approx([0.01] * 12)


def test_a_round_with_few_undisturbed_blocks_goes_on_within_its_time():
    clock = ManualClock()
    times, shares = [0.04, 0.04, 0.02] * 40, [0.5, 0.5, 0.0] * 40
    policy = Policy(warmup_s=0.0, max_warmup_s=0.0, round_s=1.0, max_blocks=10)
    # No warm-up counts; three blocks take 0.1 s, so the tenth undisturbed one, which is the last, ends in time.
    samples = take_samples(Work(call=calls_taking(clock, 0.9, 0.05, *times)), clock, CPU, policy, waits=Waits(0.0, 0.0, *shares))
    assert len(samples.block_s) == 30 - 1
    assert (len(samples.undisturbed), samples.counted_s) == (10, pytest.approx([0.02] * 10))
    # One that is disturbed throughout ends with its time, of 25 blocks, and all of it counts.
    clock = ManualClock()
    work = Work(call=calls_taking(clock, 0.9, 0.05, 0.04))
    samples = take_samples(work, clock, CPU, policy, waits=Waits(then=0.5))
    assert (len(samples.block_s), samples.undisturbed, samples.waiting) == (25, None, None)


def test_undisturbed_blocks_alone_may_show_that_a_call_is_steady():
    clock = ManualClock()
    times, shares = [0.01, 0.03, 0.02] * 40, [0.0, 0.5, 0.3] * 40
    work = Work(call=calls_taking(clock, 0.9, 0.05, *times))
    samples = take_samples(work, clock, CPU, Policy(warmup_s=0.0, round_s=0.545), waits=Waits(0.0, 0.0, *shares))
    assert (samples.steady, samples.warmup_s) == (True, pytest.approx(0.95))
    assert samples.block_s == pytest.approx(times[:28])  # from the first of ten undisturbed ones on
    assert samples.undisturbed == [*range(0, 28, 3)]


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
    clock = ManualClock()
    work = Work(call=calls_taking(clock, 0.5, 0.125))
    samples = take_samples(work, clock, CPU, Policy(max_blocks=most), deadline=deadline, waits=Waits(0.0, *shares))
    assert (len(samples.block_s), len(samples.counted_s), samples.min_blocks) == (blocks, counted, 3)


def test_waits_before_a_block_are_no_part_of_it():
    clock = ManualClock()
    waits = Waits()
    work = Work(call=calls_taking(clock, 0.9, 0.05), before=lambda: None)
    samples = take_samples(work, clock, CPU, Policy(warmup_s=0.0), waits=waits)
    assert waits.restarts == 2 + len(samples.block_s)
