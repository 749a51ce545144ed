"""State of the machine around cases and rounds, as the parent sees it, on made-up machines."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pynvml as real
import pytest
from machine_fake import write
from nvml_fake import H200, Card, FakeNvml

from dlbench.core.conditions import RoundState, Throttling
from dlbench.core.decoding import convert
from dlbench.harness.probe.devices import Accelerator, Processor
from dlbench.harness.probe.sampler import Monitor

UUID = "8d2a59f1-6c1f-4c4b-9a55-0123456789ab"
CARD = Accelerator(id="cuda:0", kind="cuda", uuid=UUID, vendor="nvidia")
THROTTLE = "sys/devices/system/cpu/cpu{}/thermal_throttle/{}_throttle_total_time_ms"


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def stat(busy: int, stolen: int) -> dict[str, str]:
    """/proc/stat with so many ticks on each of two CPUs; a third is not ours."""
    row = f"{busy} 0 0 1000 5 0 0 {stolen} 7 7"
    return {"proc/stat": f"cpu  {2 * busy} 0 0 2000 10 0 0 {2 * stolen} 14 14\ncpu0 {row}\ncpu1 {row}\ncpu2 9 9 9 9 9 9 9 9 9 9\nintr 1"}


def quota(throttled_us: int) -> dict[str, str]:
    mount = "31 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw"
    counters = f"nr_periods 9\nnr_throttled 4\nthrottled_usec {throttled_us}"
    return {"proc/self/cgroup": "0::/", "proc/self/mountinfo": mount, "sys/fs/cgroup/cpu.stat": counters}


def answers(thermal_ns: int, power_ns: int, reasons: int = 0) -> dict[str, Any]:
    counted = {
        real.NVML_PERF_POLICY_THERMAL: SimpleNamespace(violationTime=thermal_ns),
        real.NVML_PERF_POLICY_POWER: SimpleNamespace(violationTime=power_ns),
    }
    return {**H200, "nvmlDeviceGetViolationStatus": counted, "nvmlDeviceGetCurrentClocksEventReasons": reasons}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock that a watch goes by."""
    clock = Clock()
    monkeypatch.setattr("dlbench.harness.probe.sampler.time", SimpleNamespace(monotonic=clock))
    return clock


@pytest.fixture(autouse=True)
def _two_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)


def test_a_machine_that_counts_nothing_tells_nothing(tmp_path: Path) -> None:
    with Monitor([Processor()], 2) as watch:
        assert watch.throttling("cpu", watch.counters("cpu"), 1) is None


def test_a_quota_counts_against_the_time_of_all_threads(clock: Clock, tmp_path: Path) -> None:
    write(tmp_path, quota(1_000_000))
    with Monitor([Processor()], 2) as watch:
        before = watch.counters("cpu")
        clock.now_s += 5
        write(tmp_path, quota(1_400_000))
        found = watch.throttling("cpu", before, 2)
    assert found is not None
    assert (found.quota, found.thermal, found.tries, found.throttled) == (pytest.approx(0.04), None, 2, True)


def test_what_the_process_saw_of_its_cpus_is_told_with_what_its_parent_saw(clock: Clock, tmp_path: Path) -> None:
    lost = Throttling(waiting=0.25, stolen=0.0)
    with Monitor([Processor()], 2) as watch:
        assert watch.throttling("cpu", watch.counters("cpu"), 3, lost) == Throttling(waiting=0.25, stolen=0.0, tries=3)
        assert watch.throttling("cpu", watch.counters("cpu"), 1, Throttling()) is None
        write(tmp_path, quota(0))
        before = watch.counters("cpu")
        clock.now_s += 5
        write(tmp_path, quota(1_000_000))
        assert watch.throttling("cpu", before, 1, lost) == Throttling(quota=0.1, waiting=0.25, stolen=0.0)


def test_the_hottest_core_counts(clock: Clock, tmp_path: Path) -> None:
    write(tmp_path, {THROTTLE.format(0, "core"): "500", THROTTLE.format(1, "core"): "0", THROTTLE.format(1, "package"): "40"})
    with Monitor([Processor()], 2) as watch:
        before = watch.counters("cpu")
        clock.now_s += 2
        write(tmp_path, {THROTTLE.format(0, "core"): "510", THROTTLE.format(1, "package"): "240"})
        found = watch.throttling("cpu", before, 1)
    assert found is not None
    assert (found.thermal, found.quota, found.throttled) == (pytest.approx(0.1), None, True)


def test_a_card_is_asked_in_one_session_for_its_violations(clock: Clock, tmp_path: Path) -> None:
    card = Card(f"GPU-{UUID}", "0000:3b:00.0", answers(10**9, 0))
    fake = FakeNvml(card)
    with fake.imported(), Monitor([Processor(), CARD], 2) as watch:
        assert fake.open == 1
        before = watch.counters("cuda:0")
        clock.now_s += 10
        card.answers = answers(3 * 10**9, 5 * 10**9, reasons=0x1 | 0x4 | 0x40)
        found = watch.throttling("cuda:0", before, 1)
        assert watch.throttling("cpu", watch.counters("cpu"), 1) is None
    assert fake.open == 0
    # It idles by then, so what holds its clock down now tells nothing of the case.
    assert found == Throttling(thermal=pytest.approx(0.2), power_cap=0.5)


@pytest.mark.parametrize("fake", [FakeNvml(init_error=real.NVML_ERROR_DRIVER_NOT_LOADED), FakeNvml()])
def test_a_card_that_nvml_does_not_know_tells_nothing(tmp_path: Path, fake: FakeNvml) -> None:
    with fake.imported(), Monitor([CARD], 2) as watch:
        assert watch.throttling("cuda:0", watch.counters("cuda:0"), 1) is None
    assert fake.open == 0


def test_a_card_is_seen_beside_one_that_nvml_does_not_know(tmp_path: Path) -> None:
    unknown = Accelerator(id="cuda:1", kind="cuda", uuid="11111111-2222-3333-4444-555555555555", vendor="nvidia")
    fake = FakeNvml(Card(f"GPU-{UUID}", "0000:3b:00.0", answers(0, 0)))
    with fake.imported(), Monitor([unknown, CARD], 2) as watch:
        assert watch.throttling("cuda:1", watch.counters("cuda:1"), 1) is None
        found = watch.throttling("cuda:0", watch.counters("cuda:0"), 1)
    assert found == Throttling(thermal=0.0, power_cap=0.0)


def test_a_round_tells_what_others_used(clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = list[RoundState]()
    ticks = os.sysconf("SC_CLK_TCK")
    own_s = iter((1.0, 7.0))
    monkeypatch.setattr("dlbench.harness.probe.processor.own_cpu_s", lambda: next(own_s))
    write(tmp_path, {**stat(0, 0), "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave"})
    card = Card(f"GPU-{UUID}", "0000:3b:00.0", answers(0, 0))
    with FakeNvml(card).imported(), Monitor([Processor(), CARD], 2) as watch, watch.round(3, saved.append) as read_state:
        clock.now_s += 4
        card.answers = {**card.answers, "nvmlDeviceGetTemperature": {real.NVML_TEMPERATURE_GPU: 71}}
        read_state()
        card.answers = answers(0, 0)
        clock.now_s += 1
        write(tmp_path, stat(5 * ticks, 2 * ticks))
    (state,) = saved
    # Ten seconds busy on two CPUs, six of them ours, four stolen; in five seconds.
    assert (state.round, state.seconds, state.other_cpus, state.stolen_cpus) == (3, 5.0, pytest.approx(0.8), pytest.approx(0.8))
    assert state.before["cpu"]["governor"] == "powersave"
    assert "cgroup_quota_cores" not in state.before["cpu"]
    assert [each["accelerators"]["cuda:0"]["temperature_c"] for each in (state.before, state.after)] == [34, 71]
    assert "reasons" not in state.after["accelerators"]["cuda:0"]
    assert convert(RoundState, state.to_json()) == state


def test_a_short_round_and_a_sandbox_tell_nothing_of_others(clock: Clock, tmp_path: Path) -> None:
    saved = list[RoundState]()
    write(tmp_path, stat(0, 0))
    with Monitor([Processor()], 2) as watch:
        with watch.round(0, saved.append):
            clock.now_s += 0.5
        write(tmp_path, {"proc/stat": "cpu 0 0 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0"})
        with watch.round(1, saved.append):
            clock.now_s += 5
    assert [(each.other_cpus, each.stolen_cpus) for each in saved] == [(None, None)] * 2


def test_process_ids_of_another_namespace_are_not_taken_for_others_while_ours_are_at_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Me:
        pid = 1

        def children(self, recursive: bool) -> list[Any]:
            return [SimpleNamespace(pid=2)]

    card = Card(f"GPU-{UUID}", "0000:3b:00.0", {**H200, "nvmlDeviceGetComputeRunningProcesses": [SimpleNamespace(pid=2**22 + 1)]})
    with FakeNvml(card).imported(), Monitor([CARD], 2) as watch:
        saved = list[RoundState]()
        with watch.round(0, saved.append) as read_state, monkeypatch.context() as patch:
            patch.setattr(psutil, "Process", Me)
            read_state()
    assert (saved[0].before["accelerators"]["cuda:0"]["other_processes"], saved[0].other_processes("cuda:0")) == (1, 1)
    assert "other_processes" not in saved[0].after["accelerators"]["cuda:0"]
