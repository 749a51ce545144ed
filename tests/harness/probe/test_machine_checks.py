"""Findings on what may make a machine unfit, on made-up machines."""

import os
from typing import Any

import pynvml as real
import pytest
from machine_fake import two_sockets, write
from nvml_fake import H200, Card, FakeNvml

from dlbench.core.machine import Fitness
from dlbench.harness.probe import linux
from dlbench.harness.probe.checks import examine
from dlbench.harness.probe.devices import Accelerator, Processor, describe_cpu

UUID = "8d2a59f1-6c1f-4c4b-9a55-0123456789ab"
GIB = 2**30
IDLE = {
    **H200,
    "nvmlDeviceGetEnforcedPowerLimit": 700_000,
    "nvmlDeviceGetCurrPcieLinkWidth": 16,
    "nvmlDeviceGetCurrentClocksEventReasons": 0x1,
    "nvmlDeviceGetComputeRunningProcesses": [],
    "nvmlDeviceGetGraphicsRunningProcesses": [],
    "nvmlDeviceGetTemperatureThreshold": {real.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN: 90},
    "nvmlDeviceGetMemoryInfo": type("Memory", (), {"free": 139 * GIB}),
}


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    return two_sockets(tmp_path)


def of_cpu(cpu=None):
    findings = examine([cpu or describe_cpu()])
    assert {each.device for each in findings} == {"cpu"}
    return {each.check: (each.fitness, each.found, each.advice) for each in findings}


def of_card(*, mig=False, **changes):
    card = Card(f"GPU-{UUID}", "0000:3b:00.0", {**IDLE, **changes})
    facts: dict[str, Any] = {
        "power_limit_w": card.answers["nvmlDeviceGetEnforcedPowerLimit"] / 1e3,
        "power_limit_default_w": 700.0,
        "persistence": bool(card.answers["nvmlDeviceGetPersistenceMode"]),
        "pcie_width": card.answers["nvmlDeviceGetCurrPcieLinkWidth"],
        "pcie_width_max": 16,
        "memory_bytes": 140 * GIB,
        "mig": mig,
    }
    device = Accelerator(id="cuda:0", kind="cuda", vendor="nvidia", uuid=UUID, **facts)
    with FakeNvml(card).imported():
        findings = examine([device])
    assert {each.device for each in findings} == {"cuda:0"}
    return {each.check: (each.fitness, each.found, each.advice) for each in findings}


def test_a_server(root):
    assert of_cpu() == {
        "memory": (Fitness.FIT, "8.00 GiB of memory left", ""),
        "governor": (
            Fitness.NOTE,
            "performance, powersave: the clock follows the load, and so do the times",
            "have performance set: as root, cpupower frequency-set -g performance",
        ),
        "boost": (
            Fitness.NOTE,
            "on: the clock depends on temperature and on how many cores are at work",
            "leave it, and compare sides that were measured alternately: dlbench compare --by",
        ),
        "quota": (Fitness.FIT, "nothing limits the CPU time", ""),
        "hypervisor": (Fitness.FIT, "none", ""),
    }


def test_a_machine_at_its_best(root):
    write(
        root, {"sys/devices/system/cpu/cpu7/cpufreq/scaling_governor": "performance", "sys/devices/system/cpu/intel_pstate/no_turbo": "1"}
    )
    assert {fitness for fitness, _, _ in of_cpu().values()} == {Fitness.FIT}


def test_a_virtual_machine_that_tells_nothing_of_its_clocks(tmp_path, monkeypatch):
    monkeypatch.setattr(linux, "ROOT", tmp_path / "virtual")
    write(linux.ROOT, {"proc/cpuinfo": "processor : 0\nflags : fpu hypervisor", "proc/meminfo": "MemTotal: 9 kB\nMemAvailable: 1048576 kB"})
    found = of_cpu()
    assert {check: fitness for check, (fitness, _, _) in found.items()} == {
        "memory": Fitness.UNFIT,
        "governor": Fitness.UNKNOWN,
        "boost": Fitness.UNKNOWN,
        "quota": Fitness.FIT,
        "hypervisor": Fitness.NOTE,
    }
    assert found["memory"][1:] == ("1.00 GiB of memory left", "close what takes it, or cases end as oom or swap")


def test_memory_is_what_a_nested_control_group_leaves(root):
    group = "sys/fs/cgroup/batch/job"
    write(root, {"proc/self/cgroup": "0::/batch/job", "proc/self/mountinfo": "31 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw"})
    write(root, {f"{group}/memory.max": str(4 * GIB), f"{group}/memory.current": str(3 * GIB)})
    assert of_cpu()["memory"][:2] == (Fitness.UNFIT, "1.00 GiB of memory left")


@pytest.mark.parametrize(("quota", "fitness"), [(0.5, Fitness.UNFIT), (2.5, Fitness.NOTE), (2.0, Fitness.FIT)])
def test_a_quota(quota, fitness):
    found = of_cpu(Processor(threads=8, cgroup_quota_cores=quota))["quota"]
    assert found[:2] == (fitness, f"{quota:g} CPUs' time; dlbench computes with {max(1, int(quota))} threads")


def test_an_idle_card():
    assert of_card() == {
        "processes": (Fitness.FIT, "no other process on it", ""),
        "temperature": (Fitness.FIT, "34 °C; it slows down at 90 °C", ""),
        "clocks": (Fitness.FIT, "nothing holds them down", ""),
        "power limit": (Fitness.FIT, "700 W", ""),
        "persistence": (Fitness.FIT, "on", ""),
        "memory": (Fitness.FIT, "139 GiB of 140 GiB free", ""),
        "link": (Fitness.FIT, "16 PCIe lanes", ""),
    }


def test_a_part_of_a_card_says_what_is_that_of_the_whole():
    found = of_card(mig=True)
    said = "this is a MIG slice; processes, temperature, clocks and power are those of the whole card, and free memory is unknown"
    assert found["partition"][:2] == (Fitness.NOTE, said)
    assert found.keys() == {*of_card(), "partition"} - {"memory"}


@pytest.mark.parametrize(
    ("changes", "check", "fitness", "found"),
    [
        (
            {"nvmlDeviceGetComputeRunningProcesses": H200["nvmlDeviceGetComputeRunningProcesses"]},
            "processes",
            "unfit",
            "2 other processes on it",
        ),
        (
            {"nvmlDeviceGetGraphicsRunningProcesses": H200["nvmlDeviceGetGraphicsRunningProcesses"]},
            "processes",
            "note",
            "1 process drawing on it, such as a desktop",
        ),
        ({"nvmlDeviceGetTemperature": {real.NVML_TEMPERATURE_GPU: 85}}, "temperature", "unfit", "85 °C, and it slows down at 90 °C"),
        ({"nvmlDeviceGetTemperatureThreshold": []}, "temperature", "unknown", "34 °C; it does not tell at which it slows down"),
        ({"nvmlDeviceGetCurrentClocksEventReasons": 0x48}, "clocks", "unfit", "held down now (hw_slowdown, hw_thermal_slowdown)"),
        ({"nvmlDeviceGetCurrentClocksEventReasons": 0x4}, "clocks", "note", "held down now by the power limit"),
        ({"nvmlDeviceGetCurrentClocksEventReasons": 0x2}, "clocks", "note", "set by hand"),
        ({"nvmlDeviceGetEnforcedPowerLimit": 450_000}, "power limit", "note", "450 W, usual are 700 W"),
        ({"nvmlDeviceGetPersistenceMode": 0}, "persistence", "note", "off: the driver starts the device anew for each process"),
        ({"nvmlDeviceGetMemoryInfo": type("Memory", (), {"free": 20 * GIB})}, "memory", "note", "20.0 GiB of 140 GiB free"),
        ({"nvmlDeviceGetCurrPcieLinkWidth": 8}, "link", "note", "8 of 16 PCIe lanes"),
    ],
)
def test_a_card_in_trouble(changes, check, fitness, found):
    finding = of_card(**changes)[check]
    assert finding[:2] == (fitness, found)
    assert bool(finding[2]) == (fitness != "unknown")


def test_a_card_of_another_maker_is_unknown():
    (finding,) = examine([Accelerator(id="cuda:0", kind="cuda", vendor="amd")])
    assert (finding.check, finding.fitness, finding.found) == ("driver", Fitness.UNKNOWN, "NVML reads NVIDIA devices only")
