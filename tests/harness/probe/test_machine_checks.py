"""Findings on what may make a machine unfit, on made-up machines."""

import os

import pynvml as real
from machine_fake import two_sockets, write
from nvml_fake import H200, UUID, Card, FakeNvml

from dlbench.harness.probe import linux
from dlbench.harness.probe.checks import examine
from dlbench.harness.probe.devices import Accelerator, Processor, describe_cpu

GIB = 2**30
IDLE = {
    "EnforcedPowerLimit": 700_000,
    "CurrPcieLinkWidth": 16,
    "CurrentClocksEventReasons": 0x1,
    "ComputeRunningProcesses": [],
    "GraphicsRunningProcesses": [],
    "PersistenceMode": 1,
    "TemperatureThreshold": {real.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN: 90},
    "MemoryInfo": type("Memory", (), {"free": 139 * GIB}),
}
TROUBLES = {
    "computed on": {"ComputeRunningProcesses": H200["nvmlDeviceGetComputeRunningProcesses"]},
    "drawn on": {"GraphicsRunningProcesses": H200["nvmlDeviceGetGraphicsRunningProcesses"]},
    "hot": {"Temperature": {real.NVML_TEMPERATURE_GPU: 85}},
    "of unknown limits": {"TemperatureThreshold": []},
    "slowed down": {"CurrentClocksEventReasons": 0x48},
    "at its power limit": {"CurrentClocksEventReasons": 0x4},
    "at a clock set by hand": {"CurrentClocksEventReasons": 0x2},
    "of less power, lanes, memory and persistence": {"EnforcedPowerLimit": 450_000, "CurrPcieLinkWidth": 8, "PersistenceMode": 0}
    | {"MemoryInfo": type("Memory", (), {"free": 20 * GIB})},
}


def lines(device):
    """A line a finding on a device."""
    findings = examine([device])
    assert {each.device for each in findings} == {device.id}
    return [f"{each.fitness:7} {each.check}: {each.found}{f' -> {each.advice}' if each.advice else ''}" for each in findings]


def lines_of_card(mig=False, **changes):
    """Those on a card by what the library answers."""
    answers = {**IDLE, **changes}
    facts = {"power_limit_w": answers["EnforcedPowerLimit"] / 1e3, "power_limit_default_w": 700.0, "pcie_width_max": 16, "mig": mig}
    facts |= {"persistence": bool(answers["PersistenceMode"]), "pcie_width": answers["CurrPcieLinkWidth"], "memory_bytes": 140 * GIB}
    with FakeNvml(Card(f"GPU-{UUID}", "", {**H200, **{f"nvmlDeviceGet{name}": each for name, each in answers.items()}})).imported():
        return lines(Accelerator(id="cuda:0", kind="cuda", vendor="nvidia", uuid=UUID, **facts))


def test_findings(snapshot, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    write(two_sockets(tmp_path), {"sys/devices/system/cpu/cpu7/cpufreq/scaling_governor": "performance"})
    scenes = {"a server at its best": lines(describe_cpu())}
    write(tmp_path, {"sys/devices/system/cpu/cpu7/cpufreq/scaling_governor": "powersave"})
    scenes |= {f"a quota of {quota} CPUs": lines(Processor(threads=8, cgroup_quota_cores=quota))[1:3] for quota in (0.5, 2.5, 2.0)}
    monkeypatch.setattr(linux, "ROOT", tmp_path / "virtual")
    write(linux.ROOT, {"proc/cpuinfo": "processor : 0\nflags : fpu hypervisor", "proc/meminfo": "MemTotal: 9 kB\nMemAvailable: 1048576 kB"})
    idle = lines_of_card()
    scenes |= {"a virtual machine": lines(describe_cpu()), "an idle card": idle, "a slice of it": lines_of_card(mig=True)}
    scenes |= {f"a card {name}": [each for each in lines_of_card(**changes) if each not in idle] for name, changes in TROUBLES.items()}
    scenes["a card of AMD"] = lines(Accelerator(id="cuda:0", kind="cuda", vendor="amd"))
    scenes["a lost card"] = lines(Accelerator(id="cuda:0", kind="cuda", unusable="it is lost"))
    snapshot("machine-checks", "\n\n".join("\n  ".join([scene, *told]) for scene, told in scenes.items()) + "\n")
