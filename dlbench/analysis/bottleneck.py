"""Bottleneck of a step, by rules on its measured parts: which of them takes most of its time, and what would help most."""

from dataclasses import dataclass
from typing import Literal

Resource = Literal["arithmetic", "memory", "launch", "transfer", "input", "host"]

LEAST_WORK = 1 / 3
"""Share of the device's time that its operations or bytes have to explain, at the measured ceilings, before they are said to bound it.
Large kernels reach half of a ceiling or more; what holds up those that reach less than a third is not measured."""
BUSY = 0.9
"""Share of a step from which on a device that computes is what sets the pace."""
ADDS_UP = 0.1
"""How far the parts may be off the whole, relative, before a verdict says so: they are measured in other calls than the whole."""

REMEDIES: dict[Resource, str] = {
    "arithmetic": "a device with more of it",
    "memory": "a narrower precision, or operations fused by torch.compile, so that fewer bytes move",
    "launch": "a larger batch, CUDA graphs or torch.compile, so that fewer launches do the same",
    "transfer": "data kept on the device, or copied from page-locked memory while the step before computes",
    "input": "data prepared beforehand or kept on the device, or more loader workers",
    "host": "less Python between operations, and none that waits for the device, such as .item()",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """A step and what was measured of it, in seconds a call; None where that is not known."""

    whole_s: float
    device_s: float | None = None
    """The device's own time, copies in its queue included; None on a CPU, which has none."""
    arithmetic_s: float | None = None
    """Its operations at the measured ceiling of that precision."""
    memory_s: float | None = None
    """Its bytes at the measured ceiling of memory."""
    launch_s: float | None = None
    """Its launches, one behind the other, at the measured latency of one."""
    transfer_s: float | None = None
    """Copying its batch, alone."""
    input_s: float | None = None
    """Waiting for its batch on the host."""
    host_s: float | None = None
    """Code on the host that reported its own time."""
    on_host: bool = False
    """Whether the device is the CPU: launching and computing then take turns."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What bounds a step, and how much of its time that is."""

    bound: Resource | None
    """None where the parts that are known don't tell."""
    seconds: dict[Resource, float]
    """Of the whole: each part that is known. Of arithmetic and memory, which go on at once, the longer."""
    unexplained_s: float
    """What is left of the whole: kernels below the ceilings, and what nobody measured."""
    over_s: float
    """What the parts have beyond the whole, because they overlap."""


def diagnose(parts: Parts) -> Diagnosis:
    """Return what bounds a step.

    An accelerator computes beside the host. Where it does nothing for longer than it works, or the host's own parts take longer than it
    works, the host sets the pace: with its input, its launches, or code that is neither. Else the device does, and the host counts as far
    as the device does nothing meanwhile. On a CPU, and where the device's own time was not read, all parts are taken to take turns.

    The device's time is bound by arithmetic or by memory, whichever takes longer at its ceiling (Williams, Waterman and Patterson,
    Roofline, CACM 52(4), 2009), if that explains enough of it.
    """
    reported: dict[Resource, float | None] = {"transfer": parts.transfer_s, "input": parts.input_s, "host": parts.host_s}
    seconds = {name: value for name, value in reported.items() if value is not None}
    work, paced_by_host = _longer(parts), False
    if parts.on_host or parts.device_s is None:
        if parts.launch_s is not None:
            seconds["launch"] = min(parts.launch_s, max(0.0, parts.whole_s - sum(seconds.values())))
        device_s = max(0.0, parts.whole_s - sum(seconds.values()))
    else:
        busy_s = min(parts.device_s, parts.whole_s)
        host_s = sum(part_s or 0.0 for part_s in (parts.input_s, parts.host_s, parts.launch_s))
        paced_by_host = busy_s < BUSY * parts.whole_s and busy_s <= max(parts.whole_s - busy_s, host_s)
        _of_host(parts, parts.whole_s - busy_s, paced_by_host, seconds)
        device_s = max(0.0, parts.device_s - (parts.transfer_s or 0.0))
    if work:
        seconds[work[0]] = work[1]
    of_host: tuple[Resource, ...] = ("input", "launch", "host") if paced_by_host else ("input", "launch", "host", "transfer")
    bound = max((name for name in of_host if name in seconds), key=seconds.__getitem__, default=None)
    if not paced_by_host and (bound is None or device_s >= seconds[bound]):
        bound = work[0] if work and work[1] >= LEAST_WORK * device_s else None
    found = sum(seconds.values())
    return Diagnosis(bound, seconds, max(0.0, parts.whole_s - found), max(0.0, found - parts.whole_s))


def _longer(parts: Parts) -> tuple[Resource, float] | None:
    """Return the longer of arithmetic and memory; None where neither is known."""
    known: list[tuple[Resource, float | None]] = [("arithmetic", parts.arithmetic_s), ("memory", parts.memory_s)]
    return max([(name, value) for name, value in known if value is not None], key=lambda each: each[1], default=None)


def _of_host(parts: Parts, idle_s: float, paced_by_host: bool, seconds: dict[Resource, float]) -> None:
    """Set what the host's parts count, of which launches are known by their number, and other code by what is left."""
    if not paced_by_host:
        for name in ("input", "host"):
            if name in seconds:
                seconds[name] = min(seconds[name], idle_s)
    known_s = seconds.get("input", 0.0) + seconds.get("host", 0.0)
    left_s = max(0.0, idle_s - known_s)
    room_s = max(0.0, parts.whole_s - known_s) if paced_by_host else left_s
    seconds["launch"] = left_s if parts.launch_s is None else min(parts.launch_s, room_s)
    seconds["host"] = seconds.get("host", 0.0) + max(0.0, left_s - seconds["launch"])
