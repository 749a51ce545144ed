"""Checks of a machine before anything is measured. They read, and never change a setting."""

from collections.abc import Iterator, Mapping
from typing import Any

from dlbench.core.conditions import POWER_CAPS, SLOWDOWNS
from dlbench.core.machine import Finding, Fitness
from dlbench.core.units import byte_count
from dlbench.harness.probe import nvml, processor
from dlbench.harness.probe.devices import Accelerator, Devices, Processor, usable_accelerators
from dlbench.harness.probe.fingerprint import read_state

_LEAST_MEMORY = 2 << 30
"""Bytes: the largest case of the suite `quick` takes one GiB, and its process and torch another."""
_HOT_C = 5
"""A card that is hotter than this many degrees below its slow-down temperature gets there under a load of some seconds."""

State = Mapping[str, Any]
"""Readings of a device, by name."""
Checked = tuple[str, Fitness, str, str]
"""Result of a check: its name, the fitness of the device, a sentence that says why, and advice for a device that is not fit."""
FIT, NOTE, UNFIT, UNKNOWN = Fitness.FIT, Fitness.NOTE, Fitness.UNFIT, Fitness.UNKNOWN


def examine(devices: Devices) -> list[Finding]:
    """Return the findings on these devices in their present state."""
    state = read_state(devices)
    checked: list[tuple[str, Checked]] = []
    for device in devices:
        if isinstance(device, Processor):
            checked += [(device.id, each) for each in _cpu(device, state["cpu"])]
        elif device.unusable:
            found = f"can't be used: {device.unusable}"
            checked.append((device.id, ("start", UNFIT, found, "mend that, or look at the others alone: --device cpu")))
    for card in usable_accelerators(devices):
        checked += [(card.id, each) for each in _accelerator(card, state["accelerators"][card.id])]
    return [Finding(check, device, fitness, found, "" if fitness is FIT else advice) for device, (check, fitness, found, advice) in checked]


def _cpu(cpu: Processor, state: State) -> Iterator[Checked]:
    available = state["memory_available_bytes"]
    advice = "close what takes it, or cases end as oom or swap"
    yield "memory", FIT if available >= _LEAST_MEMORY else UNFIT, f"{byte_count(available)} of memory left", advice
    yield _governor(state["governor"])
    yield _quota(cpu)
    yield _hypervisor(processor.is_virtual())


def _governor(governor: str | None) -> Checked:
    if governor is None:
        return "governor", UNKNOWN, "the operating system shows no frequency governor, as in a virtual machine", ""
    if governor == "performance":
        return "governor", FIT, governor, ""
    advice = "have performance set: as root, cpupower frequency-set -g performance"
    return "governor", NOTE, f"{governor}: the clock follows the load, and so do the times", advice


def _quota(cpu: Processor) -> Checked:
    quota = cpu.cgroup_quota_cores
    if quota is None:
        return "quota", FIT, "nothing limits the CPU time", ""
    found = f"{quota:g} CPUs' time; dlbench computes with {cpu.usable_threads()} threads"
    if quota < 1:
        return "quota", UNFIT, found, "have at least one CPU granted, or every case is stopped again and again"
    return "quota", FIT if quota == int(quota) else NOTE, found, "have a whole number of CPUs granted: the rest is not used"


def _hypervisor(virtual: bool | None) -> Checked:
    if virtual is None:
        return "hypervisor", UNKNOWN, "this kind of processor does not tell", ""
    if not virtual:
        return "hypervisor", FIT, "none", ""
    found = "a virtual machine: what its neighbours do shows as noise, and little here reports it"
    return "hypervisor", NOTE, found, "compare sides that were measured alternately, with ten rounds or more"


def _accelerator(device: Accelerator, state: State) -> Iterator[Checked]:
    """Yield the results of the checks of a card. If NVML tells nothing of it, there is only one result.

    ``state`` is what `read_state` has of this card.
    """
    values, reasons = device.nvml_reader()(nvml.HEALTH)
    if not values:
        # A field without a value has a reason. It is mostly the same for all: NVML is missing, or knows no such device.
        first_reason = next(iter(reasons.values()))
        yield "driver", UNKNOWN, first_reason, "watch its temperature and what else runs on it yourself"
        return
    if device.mig:
        found = "this is a MIG slice; processes, temperature, clocks and power are those of the whole card, and free memory is unknown"
        yield "partition", NOTE, found, "see what runs on the other parts: nvidia-smi"
    yield _processes(state)
    yield from _temperature(values)
    yield from _clocks(state.get("throttle_reasons"))
    yield from _settings(device)
    free, total = values.get("memory_free_bytes"), device.memory_bytes
    if free is not None and total and not device.mig:  # for a MIG slice NVML gives the free memory of the whole card
        fitness = NOTE if free < total / 2 else FIT
        yield "memory", fitness, f"{byte_count(free)} of {byte_count(total)} free", "stop what takes it, or large cases end as oom"
    # The generation of the link is not checked: an idle link slows down, and is fast again when it is used.
    lanes, most_lanes = device.pcie_width, device.pcie_width_max
    if lanes is not None and most_lanes is not None:
        fitness = NOTE if lanes < most_lanes else FIT
        width = f"{lanes} of {most_lanes}" if lanes < most_lanes else f"{lanes}"
        advice = "see that the card sits well, in a slot with all its lanes: copies are slower so"
        yield "link", fitness, f"{width} PCIe lanes", advice


def _processes(state: State) -> Checked:
    others, drawing = state.get("other_processes"), state.get("graphics_processes")
    if others is None:
        return "processes", UNKNOWN, state["reasons"]["other_processes"], "look yourself: nvidia-smi"
    if others:
        found = f"{others} other process{'' if others == 1 else 'es'} on it"
        return "processes", UNFIT, found, "stop them; nvidia-smi shows which"
    if drawing:
        found = f"{drawing} process{'' if drawing == 1 else 'es'} drawing on it, such as a desktop"
        return "processes", NOTE, found, "measure without a desktop, or on a card without a screen"
    return "processes", FIT, "no other process on it", ""


def _temperature(readings: State) -> Iterator[Checked]:
    now, limit = readings.get("temperature_c"), readings.get("temperature_slowdown_c")
    if now is None:
        return
    if limit is None:
        yield "temperature", UNKNOWN, f"{now} °C; it does not tell at which it slows down", ""
    elif now >= limit - _HOT_C:
        yield "temperature", UNFIT, f"{now} °C, and it slows down at {limit} °C", "let it cool, or cool it better"
    else:
        yield "temperature", FIT, f"{now} °C; it slows down at {limit} °C", ""


def _clocks(reasons: list[str] | None) -> Iterator[Checked]:
    if reasons is None:
        return
    if slowed := SLOWDOWNS.intersection(reasons):
        found = f"held down now ({', '.join(sorted(slowed))})"
        yield "clocks", UNFIT, found, "find out why before measuring: nvidia-smi -q -d PERFORMANCE"
    elif POWER_CAPS.intersection(reasons):
        yield "clocks", NOTE, "held down now by the power limit", "see what else runs on it: nvidia-smi"
    elif "applications_clocks_setting" in reasons:
        yield "clocks", NOTE, "set by hand", "compare only with runs at the same setting: nvidia-smi -q -d CLOCK"
    else:
        yield "clocks", FIT, "nothing holds them down", ""


def _settings(device: Accelerator) -> Iterator[Checked]:
    now, usual = device.power_limit_w, device.power_limit_default_w
    if now is not None and usual is not None:
        less = now < usual
        found = f"{now:.0f} W, usual are {usual:.0f} W" if less else f"{now:.0f} W"
        yield "power limit", NOTE if less else FIT, found, "compare only with runs under the same limit, or have it raised"
    if device.persistence is not None:
        found = "on" if device.persistence else "off: the driver starts the device anew for each process"
        yield "persistence", FIT if device.persistence else NOTE, found, "have it switched on: as root, nvidia-smi -pm 1"
