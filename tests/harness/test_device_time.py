"""Device time against a made-up device: a queue that runs behind a host clock which only moves when told to."""

import pytest

from dlbench.core.model import Work
from dlbench.harness.device_time import take_device_time


class QueuedDevice:
    """A host clock, a device that does what it was given in order, and the marks it notes: an EventTimer and a Clock in one."""

    def __init__(self):
        self.host_s = self.busy_until_s = 0.0
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
        self.queue(seconds)

    def mark(self):
        return max(self.busy_until_s, self.host_s)

    def seconds(self, start, end):
        return end - start


def device_time(device, call, before=None):
    return take_device_time(Work(call=call, before=before), device, device, device.host_now)


def test_a_kernel_shorter_than_its_launch_is_timed_without_the_launch():
    device = QueuedDevice()
    assert device_time(device, lambda: device.queue(device_s=2e-6, host_s=8e-6)) == pytest.approx(2e-6)
    assert device.delays[1:] == pytest.approx([1.5 * 125 * 8e-6] * 5)  # 125 launches in a millisecond


def test_a_long_kernel_is_timed_alone():
    device = QueuedDevice()
    assert device_time(device, lambda: device.queue(device_s=0.3, host_s=2e-3)) == pytest.approx(0.3)
    assert len(device.delays) == 2  # after one reading the time is spent


def test_a_call_that_waits_for_the_device_has_no_device_time():
    device = QueuedDevice()

    def call():
        device.queue(device_s=1e-3, host_s=1e-5)
        device.now()

    assert device_time(device, call) is None
    assert len(device.delays) == 1 + 4


def test_launches_that_are_slower_now_than_before_get_a_longer_delay():
    device = QueuedDevice()
    calls = iter([1e-3] + [1.2e-3] * 3 + [2e-3] * 100)
    assert device_time(device, lambda: device.queue(device_s=1e-4, host_s=next(calls))) == pytest.approx(1e-4)
    assert device.delays[1:] == pytest.approx([1.5e-3] * 4 + [3e-3] * 2)


def test_a_call_whose_launches_take_longer_than_any_delay_has_no_device_time():
    device = QueuedDevice()
    assert device_time(device, lambda: device.queue(device_s=1e-3, host_s=0.2)) is None
    assert device.delays == [0.0]


def test_what_comes_before_a_call_is_not_in_its_device_time():
    device = QueuedDevice()
    befores = []
    time_s = device_time(device, lambda: device.queue(1e-5, 1e-6), before=lambda: (befores.append(1), device.queue(5e-3, 1e-6)))
    assert time_s == pytest.approx(1e-5)
    assert len(befores) == len(device.delays) == 6  # ahead of every single call
