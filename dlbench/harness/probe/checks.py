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
    """Return what is found in these devices, as they are now."""
    return [*_examine(devices)]


def _examine(devices: Devices) -> Iterator[Finding]:
    accelerators, state = usable_accelerators(devices), read_state(devices)
    readings = read_accelerators(accelerators, nvml.HEALTH)
    for device in devices:
        if isinstance(device, Processor):
            yield from _cpu(device, state["cpu"], partial(_finding, "cpu"))
    for name, reason in unusable(devices).items():
        yield Finding("start", name, UNFIT, f"can't be used: {reason}", "mend that, or look at the others alone: --device cpu")
    for each in accelerators:
        yield from _accelerator(each, state["accelerators"][each.id], readings[each.id], partial(_finding, each.id))


def _finding(device: str, check: str, fitness: Fitness, found: str, advice: str = "", **values: float) -> Finding:
    """Return a finding, whose advice only those need that are not fit."""
    return Finding(check, device, fitness, found, "" if fitness is FIT else advice, values)


def _cpu(cpu: Processor, state: State, finding: Callable[..., Finding]) -> Iterator[Finding]:
    available, governor, boost = state["memory_available_bytes"], state["governor"], state["boost"]
    quota, virtual = cpu.cgroup_quota_cores, processor.is_virtual()
    fitness, close = FIT if available >= _LEAST_MEMORY else UNFIT, "close what takes it, or cases end as oom or swap"
    yield finding("memory", fitness, f"{byte_count(available)} of memory left", close, bytes=float(available))

    if governor is None:
        yield finding("governor", UNKNOWN, "the operating system shows no frequency governor, as in a virtual machine")
    elif governor == "performance":
        yield finding("governor", FIT, governor)
    else:
        advice = "have performance set: as root, cpupower frequency-set -g performance"
        yield finding("governor", NOTE, f"{governor}: the clock follows the load, and so do the times", advice)

    if boost is None:
        yield finding("boost", UNKNOWN, "the operating system does not say whether clocks may rise above the nominal one")
    elif boost:
        advice = "leave it, and compare sides that were measured alternately: dlbench compare --by"
        yield finding("boost", NOTE, "on: the clock depends on temperature and on how many cores are at work", advice)
    else:
        yield finding("boost", FIT, "off: clocks stay at the nominal one")

    if quota is None:
        yield finding("quota", FIT, "nothing limits the CPU time")
    else:
        whole = "have a whole number of CPUs granted: the rest is not used"
        advice = "have at least one CPU granted, or every case is stopped again and again" if quota < 1 else whole
        fitness = UNFIT if quota < 1 else FIT if quota == int(quota) else NOTE
        yield finding("quota", fitness, f"{quota:g} CPUs' time; dlbench computes with {cpu.usable_threads()} threads", advice, cpus=quota)

    if virtual is None:
        yield finding("hypervisor", UNKNOWN, "this kind of processor does not tell")
    elif virtual:
        found = "a virtual machine: what its neighbours do shows as noise, and little here reports it"
        yield finding("hypervisor", NOTE, found, "compare sides that were measured alternately, with ten rounds or more")
    else:
        yield finding("hypervisor", FIT, "none")


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
    free = readings.values.get("memory_free_bytes")
    if isinstance(free, int) and device.memory_bytes and not device.mig:  # NVML's is that of the whole card, and the other of the part
        found, fitness = f"{byte_count(free)} of {byte_count(device.memory_bytes)} free", NOTE if free < device.memory_bytes / 2 else FIT
        yield finding("memory", fitness, found, "stop what takes it, or large cases end as oom", bytes=float(free))
    # Not the generation: an idle link slows down, and is fast again when it is used.
    if (now := device.pcie_width) is not None and (most := device.pcie_width_max) is not None:
        found, advice = (
            f"{now} of {most}" if now < most else f"{now}",
            "see that the card sits well, in a slot with all its lanes: copies are slower so",
        )
        yield finding("link", NOTE if now < most else FIT, f"{found} PCIe lanes", advice, lanes=now)


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
