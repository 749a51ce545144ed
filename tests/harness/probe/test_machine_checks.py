"""Findings on what may make a machine unfit, on made-up machines."""

import os

import pynvml as real
import pytest
from machine_fake import two_sockets, write
from nvml_fake import H200, UUID, Card, FakeNvml

from dlbench.core.machine import Fitness
from dlbench.harness.probe import linux
from dlbench.harness.probe.checks import examine
from dlbench.harness.probe.devices import Accelerator, Processor, describe_cpu

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


def found(device):
    """The fitness and the words of each check of a device."""
    findings = examine([device])
    assert {each.device for each in findings} == {device.id}
    assert [each.check for each in findings if each.advice and each.fitness is Fitness.FIT] == []
    return {each.check: (each.fitness, each.found) for each in findings}


def found_on_card(*, mig=False, **changes):
    card = Card(f"GPU-{UUID}", "0000:3b:00.0", {**IDLE, **changes})
    device = Accelerator(
        id="cuda:0",
        kind="cuda",
        vendor="nvidia",
        uuid=UUID,
        power_limit_w=card.answers["nvmlDeviceGetEnforcedPowerLimit"] / 1e3,
        power_limit_default_w=700.0,
        persistence=bool(card.answers["nvmlDeviceGetPersistenceMode"]),
        pcie_width=card.answers["nvmlDeviceGetCurrPcieLinkWidth"],
        pcie_width_max=16,
        memory_bytes=140 * GIB,
        mig=mig,
    )
    with FakeNvml(card).imported():
        return found(device)


def test_a_server_and_the_same_at_its_best(root):
    server = {
        "memory": ("fit", "8.00 GiB of memory left"),
        "governor": ("note", "performance, powersave: the clock follows the load, and so do the times"),
        "quota": ("fit", "nothing limits the CPU time"),
        "hypervisor": ("fit", "none"),
    }
    assert found(describe_cpu()) == server
    write(root, {"sys/devices/system/cpu/cpu7/cpufreq/scaling_governor": "performance"})
    assert found(describe_cpu()) == server | {"governor": ("fit", "performance")}


def test_a_virtual_machine_that_tells_nothing_of_its_clocks(tmp_path, monkeypatch):
    monkeypatch.setattr(linux, "ROOT", tmp_path / "virtual")
    write(linux.ROOT, {"proc/cpuinfo": "processor : 0\nflags : fpu hypervisor", "proc/meminfo": "MemTotal: 9 kB\nMemAvailable: 1048576 kB"})
    assert found(describe_cpu()) == {
        "memory": ("unfit", "1.00 GiB of memory left"),
        "governor": ("unknown", "the operating system shows no frequency governor, as in a virtual machine"),
        "quota": ("fit", "nothing limits the CPU time"),
        "hypervisor": ("note", "a virtual machine: what its neighbours do shows as noise, and little here reports it"),
    }


@pytest.mark.parametrize(("quota", "fitness"), [(0.5, "unfit"), (2.5, "note"), (2.0, "fit")])
def test_a_quota(quota, fitness):
    words = f"{quota:g} CPUs' time; dlbench computes with {max(1, int(quota))} threads"
    assert found(Processor(threads=8, cgroup_quota_cores=quota))["quota"] == (fitness, words)


def test_an_idle_card_and_a_part_of_it():
    idle = {
        "processes": ("fit", "no other process on it"),
        "temperature": ("fit", "34 °C; it slows down at 90 °C"),
        "clocks": ("fit", "nothing holds them down"),
        "power limit": ("fit", "700 W"),
        "persistence": ("fit", "on"),
        "memory": ("fit", "139 GiB of 140 GiB free"),
        "link": ("fit", "16 PCIe lanes"),
    }
    assert found_on_card() == idle
    del idle["memory"]
    slice_of_it = "this is a MIG slice; processes, temperature, clocks and power are those of the whole card, and free memory is unknown"
    assert found_on_card(mig=True) == idle | {"partition": ("note", slice_of_it)}


@pytest.mark.parametrize(
    ("query", "answer", "check", "fitness", "words"),
    [
        ("ComputeRunningProcesses", H200["nvmlDeviceGetComputeRunningProcesses"], "processes", "unfit", "2 other processes on it"),
        (
            "GraphicsRunningProcesses",
            H200["nvmlDeviceGetGraphicsRunningProcesses"],
            "processes",
            "note",
            "1 process drawing on it, such as a desktop",
        ),
        ("Temperature", {real.NVML_TEMPERATURE_GPU: 85}, "temperature", "unfit", "85 °C, and it slows down at 90 °C"),
        ("TemperatureThreshold", [], "temperature", "unknown", "34 °C; it does not tell at which it slows down"),
        ("CurrentClocksEventReasons", 0x48, "clocks", "unfit", "held down now (hw_slowdown, hw_thermal_slowdown)"),
        ("CurrentClocksEventReasons", 0x4, "clocks", "note", "held down now by the power limit"),
        ("CurrentClocksEventReasons", 0x2, "clocks", "note", "set by hand"),
        ("EnforcedPowerLimit", 450_000, "power limit", "note", "450 W, usual are 700 W"),
        ("PersistenceMode", 0, "persistence", "note", "off: the driver starts the device anew for each process"),
        ("MemoryInfo", type("Memory", (), {"free": 20 * GIB}), "memory", "note", "20.0 GiB of 140 GiB free"),
        ("CurrPcieLinkWidth", 8, "link", "note", "8 of 16 PCIe lanes"),
    ],
)
def test_a_card_in_trouble(query, answer, check, fitness, words):
    assert found_on_card(**{f"nvmlDeviceGet{query}": answer})[check] == (fitness, words)


def test_a_card_of_another_maker_is_unknown_and_a_broken_one_unfit():
    amd = Accelerator(id="cuda:0", kind="cuda", vendor="amd")
    assert found(amd) == {"driver": ("unknown", "NVML reads NVIDIA devices only")}
    assert found(Accelerator(id="cuda:0", kind="cuda", unusable="it is lost")) == {"start": ("unfit", "can't be used: it is lost")}
