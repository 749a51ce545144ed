"""Device time against a made-up device: a queue that runs behind a host clock which only moves when told to."""

import math

import pytest

from dlbench.core.errors import Unavailable
from dlbench.core.measurement import Samples
from dlbench.core.model import Work
from dlbench.harness.worker.backends import base as device_time_module
from dlbench.harness.worker.backends.base import take_device_time

NOT_QUEUED = "the call itself waits for the device, or launches more kernels than a stream queues"


class QueuedDevice:
    """A host clock, a device that does what it was given in order, and the marks it notes: an EventTimer and a Clock in one."""

    def __init__(self, pace=1.0):
        self.host_s = self.busy_until_s = 0.0
        self.pace = pace
        self.delays = []

    def queue(self, device_s, host_s=0.0):
        self.host_s += host_s
        self.busy_until_s = max(self.busy_until_s, self.host_s) + device_s

    def host_now(self):
        return self.host_s

    def now(self):
        self.host_s = max(self.host_s, self.busy_until_s)
        return self.host_s

    def delay(self, seconds):
        self.delays.append(seconds)
        self.queue(seconds / self.pace)

    def mark(self):
        return max(self.busy_until_s, self.host_s)

    def seconds(self, start, end):
        return end - start


def device_time(device, call, before=None, call_s=1e-5, deadline=math.inf):
    """Read it after a block of 20 ms was timed at so many seconds a call."""
    samples = Samples(1 if before else max(1, math.ceil(0.02 / call_s)), (call_s,) * 3, call_s, 0.5, steady=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device_time_module, "perf_counter", device.host_now)
        return take_device_time(Work(call=call, before=before), samples, device, device, deadline)


def counting(device, device_s, host_s):
    """A call of one kernel, and a list of the calls that were made of it."""
    calls = []
    return lambda: (device.queue(device_s, host_s), calls.append(1)), calls


def test_a_kernel_shorter_than_its_launch_is_timed_without_the_launch():
    device = QueuedDevice()
    assert device_time(device, lambda: device.queue(device_s=2e-6, host_s=8e-6)) == pytest.approx(2e-6)
    assert device.delays[1:] == pytest.approx([1.5 * 125 * 8e-6] * 5)  # 125 launches in a millisecond


@pytest.mark.parametrize(
    ("device_s", "host_s", "calls"),
    [
        pytest.param(0.3, 2e-3, 1 + 1 * 1, id="a long kernel is timed alone, and spends the time"),
        pytest.param(22e-3, 1e-5, 1 + 5 * 1, id="a block is one call"),
        pytest.param(8e-3, 1e-5, 1 + 5 * 3, id="a block is three calls"),
        pytest.param(4.4, 1e-5, 1 + 1 * 1, id="one reading spends the time"),
    ],
)
def test_a_reading_of_slow_calls_has_no_more_of_them_than_a_block(device_s, host_s, calls):
    device = QueuedDevice()
    kernel, made = counting(device, device_s, host_s)  # in the last ones a hundred launches would take 1 ms
    assert (device_time(device, kernel, call_s=device_s), len(made)) == (pytest.approx(device_s), calls)


@pytest.mark.parametrize(("deadline", "calls"), [(19.0, 0), (20.0, 2)])
def test_two_calls_take_half_of_what_is_left_until_the_deadline_or_none_is_made(deadline, calls):
    device = QueuedDevice()
    kernel, made = counting(device, device_s=5.0, host_s=1e-5)
    try:
        assert device_time(device, kernel, call_s=5.0, deadline=deadline) == pytest.approx(5.0)
    except Unavailable as error:
        assert str(error).startswith("too little time was left until the deadline")
    assert len(made) == calls


def waits(device):
    device.queue(device_s=1e-3, host_s=1e-5)
    device.now()


def launches_too_many(device):  # the launch behind the last that fits waits until the device has begun
    device.host_s = max(device.host_s + 2e-3, device.busy_until_s)
    device.queue(device_s=1e-3)


@pytest.mark.parametrize(
    ("call", "delays"), [(waits, 1 + 4), (launches_too_many, 1 + 4), (lambda device: device.queue(device_s=1e-3, host_s=0.2), 1)]
)
def test_a_call_that_can_not_be_queued_ahead_of_the_longest_delay_has_no_device_time(call, delays):
    device = QueuedDevice()
    with pytest.raises(Unavailable, match=NOT_QUEUED):
        device_time(device, lambda: call(device))
    assert len(device.delays) == delays


@pytest.mark.parametrize(
    ("pace", "launches_s", "delays_s"),
    [
        pytest.param(1.0, [1e-3] + [1.2e-3] * 3 + [2e-3] * 9, [1.5e-3] * 4 + [3e-3] * 2, id="launches are slower now than before"),
        # The clock has doubled since the spinning kernel's pace was measured, so the first delay lasted 0.75 ms, and the launches 1 ms.
        pytest.param(2.0, [1e-3] * 9, [1.5e-3] + [3e-3] * 5, id="a delay was shorter than asked for"),
    ],
)
def test_a_delay_that_ends_before_the_launches_do_is_doubled(pace, launches_s, delays_s):
    device, launches = QueuedDevice(pace), iter(launches_s)
    assert device_time(device, lambda: device.queue(device_s=1e-4, host_s=next(launches))) == pytest.approx(1e-4)
    assert device.delays[1:] == pytest.approx(delays_s)


def test_what_comes_before_a_call_is_not_in_its_device_time():
    device, befores = QueuedDevice(), []
    time_s = device_time(device, lambda: device.queue(1e-5, 1e-6), before=lambda: (befores.append(1), device.queue(5e-3, 1e-6)))
    assert (time_s, len(befores), len(device.delays)) == (pytest.approx(1e-5), 6, 6)  # ahead of every single call
