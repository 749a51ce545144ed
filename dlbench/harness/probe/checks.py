"""Checks of a machine before anything is measured. They read, and never change a setting."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from dlbench.core.conditions import POWER_CAPS, SLOWDOWNS
from dlbench.core.machine import Finding, Fitness
from dlbench.core.units import byte_count
from dlbench.harness.probe import nvml, processor
from dlbench.harness.probe.devices import Accelerator, Devices, Processor, read_accelerators, unusable, usable_accelerators
from dlbench.harness.probe.fingerprint import read_state

_LEAST_MEMORY = 2 << 30
"""Bytes: the largest case of the suite `quick` takes one GiB, and its process and torch another."""
_HOT_C = 5
"""Degrees below the slow-down temperature from which on a load of some seconds gets there."""

State = Mapping[str, Any]
"""Readings of a device, by name."""
FIT, NOTE, UNFIT, UNKNOWN = Fitness.FIT, Fitness.NOTE, Fitness.UNFIT, Fitness.UNKNOWN


def examine(devices: Devices) -> list[Finding]:
    """Return the findings on these devices in their present state."""
    return list(_examine(devices))


def _examine(devices: Devices) -> Iterator[Finding]:
    accelerators = usable_accelerators(devices)
    state = read_state(devices)
    readings = read_accelerators(accelerators, nvml.HEALTH)
    for device in devices:
        if isinstance(device, Processor):
            yield from _cpu(device, state["cpu"], partial(_finding, "cpu"))
    for name, reason in unusable(devices).items():
        yield Finding("start", name, UNFIT, f"can't be used: {reason}", "mend that, or look at the others alone: --device cpu")
    for each in accelerators:
        yield from _accelerator(each, state["accelerators"][each.id], readings[each.id], partial(_finding, each.id))


def _finding(device: str, check: str, fitness: Fitness, found: str, advice: str = "", **values: float) -> Finding:
    """Return a finding, without the advice where the check found the device fit."""
    return Finding(check, device, fitness, found, "" if fitness is FIT else advice, values)


def _cpu(cpu: Processor, state: State, finding: Callable[..., Finding]) -> Iterator[Finding]:
    available = state["memory_available_bytes"]
    advice = "close what takes it, or cases end as oom or swap"
    fitness = FIT if available >= _LEAST_MEMORY else UNFIT
    yield finding("memory", fitness, f"{byte_count(available)} of memory left", advice, bytes=float(available))
    yield _governor(state["governor"], finding)
    yield _boost(state["boost"], finding)
    yield _quota(cpu, finding)
    yield _hypervisor(processor.is_virtual(), finding)


def _governor(governor: str | None, finding: Callable[..., Finding]) -> Finding:
    if governor is None:
        return finding("governor", UNKNOWN, "the operating system shows no frequency governor, as in a virtual machine")
    if governor == "performance":
        return finding("governor", FIT, governor)
    advice = "have performance set: as root, cpupower frequency-set -g performance"
    return finding("governor", NOTE, f"{governor}: the clock follows the load, and so do the times", advice)


def _boost(boost: bool | None, finding: Callable[..., Finding]) -> Finding:
    if boost is None:
        return finding("boost", UNKNOWN, "the operating system does not say whether clocks may rise above the nominal one")
    if not boost:
        return finding("boost", FIT, "off: clocks stay at the nominal one")
    advice = "leave it, and compare sides that were measured alternately: dlbench compare --by"
    return finding("boost", NOTE, "on: the clock depends on temperature and on how many cores are at work", advice)


def _quota(cpu: Processor, finding: Callable[..., Finding]) -> Finding:
    quota = cpu.cgroup_quota_cores
    if quota is None:
        return finding("quota", FIT, "nothing limits the CPU time")
    if quota < 1:
        fitness, advice = UNFIT, "have at least one CPU granted, or every case is stopped again and again"
    else:
        fitness = FIT if quota == int(quota) else NOTE
        advice = "have a whole number of CPUs granted: the rest is not used"
    return finding("quota", fitness, f"{quota:g} CPUs' time; dlbench computes with {cpu.usable_threads()} threads", advice, cpus=quota)


def _hypervisor(virtual: bool | None, finding: Callable[..., Finding]) -> Finding:
    if virtual is None:
        return finding("hypervisor", UNKNOWN, "this kind of processor does not tell")
    if not virtual:
        return finding("hypervisor", FIT, "none")
    found = "a virtual machine: what its neighbours do shows as noise, and little here reports it"
    return finding("hypervisor", NOTE, found, "compare sides that were measured alternately, with ten rounds or more")


def _accelerator(device: Accelerator, state: State, readings: nvml.Readings, finding: Callable[..., Finding]) -> Iterator[Finding]:
    if not readings.values:
        reason = next(iter(readings.reasons.values()), "nothing is known of it")
        yield finding("driver", UNKNOWN, reason, "watch its temperature and what else runs on it yourself")
        return
    if device.mig:
        found = "this is a MIG slice; processes, temperature, clocks and power are those of the whole card, and free memory is unknown"
        yield finding("partition", NOTE, found, "see what runs on the other parts: nvidia-smi")
    yield _processes(state, finding)
    yield from _temperature(readings.values, finding)
    yield from _clocks(state.get("throttle_reasons"), finding)
    yield from _settings(device, finding)
    free, total = readings.values.get("memory_free_bytes"), device.memory_bytes
    if isinstance(free, int) and total and not device.mig:  # of a MIG slice NVML gives the free memory of the whole card
        fitness = NOTE if free < total / 2 else FIT
        advice = "stop what takes it, or large cases end as oom"
        yield finding("memory", fitness, f"{byte_count(free)} of {byte_count(total)} free", advice, bytes=float(free))
    # The generation of the link is no finding: an idle link slows down, and is fast again when it is used.
    lanes, most = device.pcie_width, device.pcie_width_max
    if lanes is not None and most is not None:
        found, fitness = (f"{lanes} of {most}", NOTE) if lanes < most else (f"{lanes}", FIT)
        advice = "see that the card sits well, in a slot with all its lanes: copies are slower so"
        yield finding("link", fitness, f"{found} PCIe lanes", advice, lanes=lanes)


def _processes(state: State, finding: Callable[..., Finding]) -> Finding:
    others, drawing = state.get("other_processes"), state.get("graphics_processes")
    if others is None:
        return finding("processes", UNKNOWN, state["reasons"]["other_processes"], "look yourself: nvidia-smi")
    if others:
        found = f"{others} other process{'' if others == 1 else 'es'} on it"
        return finding("processes", UNFIT, found, "stop them; nvidia-smi shows which", processes=others)
    if drawing:
        found = f"{drawing} process{'' if drawing == 1 else 'es'} drawing on it, such as a desktop"
        return finding("processes", NOTE, found, "measure without a desktop, or on a card without a screen")
    return finding("processes", FIT, "no other process on it")


def _temperature(readings: State, finding: Callable[..., Finding]) -> Iterator[Finding]:
    now, limit = readings.get("temperature_c"), readings.get("temperature_slowdown_c")
    if now is None:
        return
    if limit is None:
        yield finding("temperature", UNKNOWN, f"{now} °C; it does not tell at which it slows down", celsius=now)
    elif now >= limit - _HOT_C:
        yield finding("temperature", UNFIT, f"{now} °C, and it slows down at {limit} °C", "let it cool, or cool it better", celsius=now)
    else:
        yield finding("temperature", FIT, f"{now} °C; it slows down at {limit} °C", celsius=now)


def _clocks(reasons: list[str] | None, finding: Callable[..., Finding]) -> Iterator[Finding]:
    if reasons is None:
        return
    if slowed := SLOWDOWNS.intersection(reasons):
        found = f"held down now ({', '.join(sorted(slowed))})"
        yield finding("clocks", UNFIT, found, "find out why before measuring: nvidia-smi -q -d PERFORMANCE")
    elif POWER_CAPS.intersection(reasons):
        yield finding("clocks", NOTE, "held down now by the power limit", "see what else runs on it: nvidia-smi")
    elif "applications_clocks_setting" in reasons:
        yield finding("clocks", NOTE, "set by hand", "compare only with runs at the same setting: nvidia-smi -q -d CLOCK")
    else:
        yield finding("clocks", FIT, "nothing holds them down")


def _settings(device: Accelerator, finding: Callable[..., Finding]) -> Iterator[Finding]:
    now, usual = device.power_limit_w, device.power_limit_default_w
    if now is not None and usual is not None:
        found, advice = f"{now:.0f} W", "compare only with runs under the same limit, or have it raised"
        less = now < usual
        yield finding("power limit", NOTE if less else FIT, f"{found}, usual are {usual:.0f} W" if less else found, advice, watts=now)
    if device.persistence is not None:
        found = "on" if device.persistence else "off: the driver starts the device anew for each process"
        yield finding("persistence", FIT if device.persistence else NOTE, found, "have it switched on: as root, nvidia-smi -pm 1")
