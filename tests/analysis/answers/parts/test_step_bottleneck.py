"""The rules for bottlenecks, on synthetic machines whose bottleneck is known."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.analysis.answers.parts.step_bottleneck import REMEDIES, Parts, diagnose


def step(whole_s, device_s=None, on_host=False, **parts_s):
    known = {name.removesuffix("_s"): seconds for name, seconds in parts_s.items() if seconds is not None}
    return Parts(whole_s, known, device_s, on_host)


GPU = {
    "arithmetic": step(whole_s=10, device_s=9.8, arithmetic_s=7, memory_s=3, launch_s=1, transfer_s=0.2, input_s=0.1),
    "memory": step(whole_s=10, device_s=9.8, arithmetic_s=1, memory_s=6, launch_s=1),
    "launch": step(whole_s=10, device_s=3, arithmetic_s=2, memory_s=1, launch_s=6),
    "host": step(whole_s=10, device_s=3, arithmetic_s=2, memory_s=1, launch_s=2),
    "transfer": step(whole_s=10, device_s=9, arithmetic_s=3, memory_s=1, launch_s=1, transfer_s=6, input_s=0.5),
    "input": step(whole_s=10, device_s=3, arithmetic_s=2, memory_s=1, launch_s=0.5, transfer_s=0.5, input_s=6),
}
CPU = {
    "arithmetic": step(whole_s=10, on_host=True, arithmetic_s=8, memory_s=3, launch_s=0.5),
    "memory": step(whole_s=10, on_host=True, arithmetic_s=0.1, memory_s=7, launch_s=0.5),
    "launch": step(whole_s=10, on_host=True, arithmetic_s=1, memory_s=0.5, launch_s=8),
    "input": step(whole_s=10, on_host=True, arithmetic_s=3, launch_s=0.5, input_s=6),
    "host": step(whole_s=10, on_host=True, arithmetic_s=1, launch_s=0.5, host_s=8),
    "transfer": step(whole_s=10, on_host=True, arithmetic_s=1, launch_s=0.5, transfer_s=8),
}


@pytest.mark.parametrize("bound", REMEDIES)
@pytest.mark.parametrize("machine", [GPU, CPU], ids=["gpu", "cpu"])
def test_each_bottleneck_is_found_on_a_machine_that_has_it(machine, bound):
    assert diagnose(machine[bound]).bound == bound


@pytest.mark.parametrize("of", GPU)
def test_the_parts_of_a_made_up_machine_add_up_to_the_whole(of):
    found = diagnose(GPU[of])
    assert sum(found.seconds.values()) + found.unexplained_s - found.over_s == pytest.approx(10)


def test_what_launches_do_not_need_of_the_idle_time_is_the_hosts():
    found = diagnose(GPU["host"])
    assert found.seconds == {"arithmetic": 2, "launch": 2, "host": 5}
    assert found.unexplained_s == 1  # kernels that took 3 s for what the ceiling does in 2


def test_without_a_launch_latency_all_idle_time_may_be_launches():
    assert diagnose(step(whole_s=10, device_s=3, arithmetic_s=2)).seconds == {"arithmetic": 2, "launch": 7, "host": 0}


def test_a_copy_in_the_devices_queue_counts_once():
    assert diagnose(GPU["transfer"]).seconds == {"arithmetic": 3, "transfer": 6, "input": 0.5, "launch": 0.5, "host": 0}


def test_kernels_far_below_the_ceilings_are_bound_by_nothing_that_was_measured():
    found = diagnose(step(whole_s=10, device_s=9.9, arithmetic_s=2, memory_s=1, launch_s=0.1))
    assert (found.bound, found.seconds["arithmetic"]) == (None, 2)
    assert found.unexplained_s == pytest.approx(7.9)


def test_without_ceilings_a_busy_device_says_nothing_more():
    assert diagnose(step(whole_s=10, device_s=9.9)).bound is None
    assert diagnose(step(whole_s=10, on_host=True)).seconds == {}


def test_what_the_host_does_beside_a_busy_device_bounds_nothing():
    found = diagnose(step(whole_s=10, device_s=9.5, arithmetic_s=8, launch_s=8, input_s=9))
    assert (found.bound, found.seconds) == ("arithmetic", {"arithmetic": 8, "input": 0.5, "launch": 0, "host": 0})


def test_a_host_that_is_busy_all_the_time_bounds_a_device_that_is_not():
    found = diagnose(step(whole_s=10, device_s=5, arithmetic_s=4, launch_s=5.5, input_s=4.5))
    assert (found.bound, found.seconds) == ("launch", {"arithmetic": 4, "input": 4.5, "launch": 5.5, "host": 0})
    assert found.over_s == 4  # what the device did meanwhile
    assert diagnose(step(whole_s=10, device_s=3.5, arithmetic_s=3.4, launch_s=2)).bound == "host"


def test_a_device_that_works_most_of_the_time_is_not_the_hosts_fault():
    assert diagnose(step(whole_s=10, device_s=8, arithmetic_s=5, launch_s=3)).bound == "arithmetic"


def test_a_step_faster_than_its_ceiling_is_more_than_the_whole():
    found = diagnose(step(whole_s=10, device_s=10, arithmetic_s=14))
    assert (found.bound, found.unexplained_s, found.over_s) == ("arithmetic", 0, 4)


def test_an_accelerator_whose_own_time_was_not_read_is_judged_by_the_rest():
    parts = step(whole_s=10, arithmetic_s=2, memory_s=1, launch_s=3, input_s=6)
    assert diagnose(parts).bound == "input"
    assert diagnose(step(whole_s=10, arithmetic_s=0.1, launch_s=8)).bound == "launch"


times = st.floats(0, 1e6) | st.none()


@given(st.floats(1e-9, 1e6), times, times, times, times, times, times, times, st.booleans())
def test_no_part_is_lost_or_negative(whole_s, device_s, arithmetic_s, memory_s, launch_s, transfer_s, input_s, host_s, on_host):
    found = diagnose(
        step(
            whole_s=whole_s,
            device_s=None if on_host else device_s,
            arithmetic_s=arithmetic_s,
            memory_s=memory_s,
            launch_s=launch_s,
            transfer_s=transfer_s,
            input_s=input_s,
            host_s=host_s,
            on_host=on_host,
        )
    )
    assert min([*found.seconds.values(), found.unexplained_s, found.over_s]) >= 0
    total = sum(found.seconds.values()) + found.unexplained_s - found.over_s
    assert math.isclose(total, whole_s, rel_tol=1e-9, abs_tol=1e-6 * max(found.seconds.values(), default=0))
    assert found.bound is None or found.bound in found.seconds
