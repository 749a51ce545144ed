"""Checks of a machine before anything is measured. They read, and never change a setting."""

from collections.abc import Iterator, Mapping
from typing import Any

from dlbench.core.conditions import POWER_CAPS, SLOWDOWNS
from dlbench.core.machine import Finding, Fitness
from dlbench.core.units import byte_count
from dlbench.harness.probe import nvml, processor
from dlbench.harness.probe.devices import Accelerator, Devices, Processor, read_accelerators, unusable, usable_accelerators
from dlbench.harness.probe.fingerprint import read_state

State = Mapping[str, Any]
"""What was read of a device, by name."""
_LEAST_MEMORY = 2 << 30
"""Bytes: the largest case of the suite `quick` takes one GiB, and its process and torch another."""
_HOT_C = 5
"""Degrees below the slow-down temperature from which on a load of some seconds gets there."""


def examine(devices: Devices) -> list[Finding]:
    """Return what is found in these devices, as they are now."""
    return [*_examine(devices)]


def _examine(devices: Devices) -> Iterator[Finding]:
    accelerators, state = usable_accelerators(devices), read_state(devices)
    readings = read_accelerators(accelerators, nvml.HEALTH)
    for device in devices:
        if isinstance(device, Processor):
            yield from _cpu(device, state["cpu"])
    for name, reason in unusable(devices).items():
        yield Finding("start", name, Fitness.UNFIT, f"can't be used: {reason}", "mend that, or look at the others alone: --device cpu")
    for each in accelerators:
        yield from _accelerator(each, state["accelerators"][each.id], readings[each.id])


def _cpu(cpu: Processor, state: State) -> Iterator[Finding]:
    available = state["memory_available_bytes"]
    enough = available >= _LEAST_MEMORY
    advice = "" if enough else "close what takes it, or cases end as oom or swap"
    found, values = f"{byte_count(available)} of memory left", {"bytes": float(available)}
    yield Finding("memory", "cpu", Fitness.FIT if enough else Fitness.UNFIT, found, advice, values)
    yield _governor(state["governor"])
    yield _boost(state["boost"])
    yield _quota(cpu)
    yield _virtual(processor.is_virtual())


def _governor(governor: str | None) -> Finding:
    if governor is None:
        return Finding("governor", "cpu", Fitness.UNKNOWN, "the operating system shows no frequency governor, as in a virtual machine")
    if governor == "performance":
        return Finding("governor", "cpu", Fitness.FIT, governor)
    advice = "have performance set: as root, cpupower frequency-set -g performance"
    return Finding("governor", "cpu", Fitness.NOTE, f"{governor}: the clock follows the load, and so do the times", advice)


def _boost(boost: bool | None) -> Finding:
    if boost is None:
        return Finding("boost", "cpu", Fitness.UNKNOWN, "the operating system does not say whether clocks may rise above the nominal one")
    if not boost:
        return Finding("boost", "cpu", Fitness.FIT, "off: clocks stay at the nominal one")
    found = "on: the clock depends on temperature and on how many cores are at work"
    return Finding("boost", "cpu", Fitness.NOTE, found, "leave it, and compare sides that were measured alternately: dlbench compare --by")


def _quota(cpu: Processor) -> Finding:
    quota = cpu.cgroup_quota_cores
    if quota is None:
        return Finding("quota", "cpu", Fitness.FIT, "nothing limits the CPU time")
    found, values = f"{quota:g} CPUs' time; dlbench computes with {cpu.usable_threads()} threads", {"cpus": quota}
    if quota < 1:
        advice = "have at least one CPU granted, or every case is stopped again and again"
        return Finding("quota", "cpu", Fitness.UNFIT, found, advice, values)
    if quota != int(quota):
        return Finding("quota", "cpu", Fitness.NOTE, found, "have a whole number of CPUs granted: the rest is not used", values)
    return Finding("quota", "cpu", Fitness.FIT, found, values=values)


def _virtual(virtual: bool | None) -> Finding:
    if virtual is None:
        return Finding("hypervisor", "cpu", Fitness.UNKNOWN, "this kind of processor does not tell")
    if not virtual:
        return Finding("hypervisor", "cpu", Fitness.FIT, "none")
    found = "a virtual machine: what its neighbours do shows as noise, and little here reports it"
    return Finding("hypervisor", "cpu", Fitness.NOTE, found, "compare sides that were measured alternately, with ten rounds or more")


def _accelerator(device: Accelerator, state: State, readings: nvml.Readings) -> Iterator[Finding]:
    if not readings.values:
        reason = next(iter(readings.reasons.values()), "nothing is known of it")
        yield Finding("driver", device.id, Fitness.UNKNOWN, reason, "watch its temperature and what else runs on it yourself")
        return
    if device.mig:
        found = "this is a MIG slice; processes, temperature, clocks and power are those of the whole card, and free memory is unknown"
        yield Finding("partition", device.id, Fitness.NOTE, found, "see what runs on the other parts: nvidia-smi")
    yield from _processes(device.id, state)
    yield from _temperature(device.id, readings.values)
    yield from _clocks(device.id, state)
    yield from _power_limit(device)
    yield from _persistence(device)
    yield from _device_memory(device, readings.values)
    yield from _link(device)


def _processes(device: str, state: State) -> Iterator[Finding]:
    others, drawing = state.get("other_processes"), state.get("graphics_processes")
    if others is None:
        yield Finding("processes", device, Fitness.UNKNOWN, state["reasons"]["other_processes"], "look yourself: nvidia-smi")
    elif others:
        found = f"{others} other process{'' if others == 1 else 'es'} on it"
        yield Finding("processes", device, Fitness.UNFIT, found, "stop them; nvidia-smi shows which", {"processes": others})
    elif drawing:
        found = f"{drawing} process{'' if drawing == 1 else 'es'} drawing on it, such as a desktop"
        yield Finding("processes", device, Fitness.NOTE, found, "measure without a desktop, or on a card without a screen")
    else:
        yield Finding("processes", device, Fitness.FIT, "no other process on it")


def _temperature(device: str, readings: State) -> Iterator[Finding]:
    now, limit = readings.get("temperature_c"), readings.get("temperature_slowdown_c")
    if now is None:
        return
    if limit is None:
        yield Finding("temperature", device, Fitness.UNKNOWN, f"{now} °C; it does not tell at which it slows down", values={"celsius": now})
    elif now >= limit - _HOT_C:
        found = f"{now} °C, and it slows down at {limit} °C"
        yield Finding("temperature", device, Fitness.UNFIT, found, "let it cool, or cool it better", {"celsius": now})
    else:
        yield Finding("temperature", device, Fitness.FIT, f"{now} °C; it slows down at {limit} °C", values={"celsius": now})


def _clocks(device: str, state: State) -> Iterator[Finding]:
    reasons = state.get("throttle_reasons")
    if reasons is None:
        return
    slowed, capped = SLOWDOWNS.intersection(reasons), POWER_CAPS.intersection(reasons)
    if slowed:
        found = f"held down now ({', '.join(sorted(slowed))})"
        yield Finding("clocks", device, Fitness.UNFIT, found, "find out why before measuring: nvidia-smi -q -d PERFORMANCE")
    elif capped:
        yield Finding("clocks", device, Fitness.NOTE, "held down now by the power limit", "see what else runs on it: nvidia-smi")
    elif "applications_clocks_setting" in reasons:
        yield Finding("clocks", device, Fitness.NOTE, "set by hand", "compare only with runs at the same setting: nvidia-smi -q -d CLOCK")
    else:
        yield Finding("clocks", device, Fitness.FIT, "nothing holds them down")


def _power_limit(device: Accelerator) -> Iterator[Finding]:
    now, usual = device.power_limit_w, device.power_limit_default_w
    if now is None or usual is None:
        return
    less, found = now < usual, f"{now:.0f} W, usual are {usual:.0f} W" if now < usual else f"{now:.0f} W"
    yield _noted_if(less, "power limit", device.id, found, "compare only with runs under the same limit, or have it raised", {"watts": now})


def _persistence(device: Accelerator) -> Iterator[Finding]:
    if device.persistence is False:
        found = "off: the driver starts the device anew for each process"
        yield Finding("persistence", device.id, Fitness.NOTE, found, "have it switched on: as root, nvidia-smi -pm 1")
    elif device.persistence:
        yield Finding("persistence", device.id, Fitness.FIT, "on")


def _device_memory(device: Accelerator, readings: State) -> Iterator[Finding]:
    free = readings.get("memory_free_bytes")
    if free is None or not device.memory_bytes or device.mig:  # NVML's is that of the whole card, and the other that of the part
        return
    found, values = f"{byte_count(free)} of {byte_count(device.memory_bytes)} free", {"bytes": float(free)}
    less = free < device.memory_bytes / 2
    yield _noted_if(less, "memory", device.id, found, "stop what takes it, or large cases end as oom", values)


def _link(device: Accelerator) -> Iterator[Finding]:
    # Not the generation: an idle link slows down, and is fast again when it is used.
    now, most = device.pcie_width, device.pcie_width_max
    if now is None or most is None:
        return
    less, found = now < most, f"{now} of {most} PCIe lanes" if now < most else f"{now} PCIe lanes"
    advice = "see that the card sits well, in a slot with all its lanes: copies are slower so"
    yield _noted_if(less, "link", device.id, found, advice, {"lanes": now})


def _noted_if(less: bool, check: str, device: str, found: str, advice: str, values: Mapping[str, float]) -> Finding:
    """Return a note with the advice where there is less than usual, else that it is fit."""
    return Finding(check, device, Fitness.NOTE if less else Fitness.FIT, found, advice if less else "", values)
