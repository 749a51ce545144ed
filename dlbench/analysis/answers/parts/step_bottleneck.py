"""Bottleneck of a step, by rules on its measured parts: which of them takes most of its time, and what would help most."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from dlbench.core.declarations import Part
from dlbench.core.rows.row import Row
from dlbench.core.units import item_rate

Resource = Literal["arithmetic", "memory", "launch", "transfer", "input", "host", "step"]
_WORK: tuple[Resource, ...] = ("arithmetic", "memory", "step")
REPORTED: tuple[Part, ...] = ("transfer", "input", "host")
"""Parts whose time workloads report."""

LEAST_WORK = 1 / 3
"""Share of the device's time that its operations or bytes have to explain, at the measured ceilings, before they are said to bound it.
Large kernels reach half of a ceiling or more; what holds up those that reach less than a third is not measured."""
LEAST_STEP = 1 / 2
"""The same of the step by itself: where it takes twice as long beside its loader, that is what holds it up."""
BUSY = 0.9
"""Share of a step from which on a device that computes is what sets the pace."""
ADDS_UP = 0.1
"""How far the parts may be off the whole, relative, before a verdict says so: they are measured in other calls than the whole."""

REMEDIES: dict[Resource, str] = {
    "arithmetic": "a narrower precision where that is faster, or a faster device",
    "memory": "a narrower precision, or operations fused by torch.compile",
    "launch": "a larger batch, CUDA graphs or torch.compile",
    "transfer": "data kept on the device, or copied from page-locked memory meanwhile",
    "input": "data prepared beforehand or kept on the device, or more loader workers",
    "host": "less Python between operations, and no .item() that waits",
}


@dataclass(frozen=True, slots=True)
class Alone:
    """What a loader of the user's gives by itself, and what the step takes that it feeds."""

    loader: str
    supply_per_s: float
    """Samples that it gives in a second where no step is made."""
    need_per_s: float
    """Samples that the step takes in a second of batches that are there."""

    @property
    def rates(self) -> str:
        """Both, as a sentence."""
        return f"Alone, {self.loader} gives {item_rate(self.supply_per_s)}, and the step takes {item_rate(self.need_per_s)}."


def alone(row: Row) -> Alone | None:
    """Return what loader and step come to alone; None where that was not measured, as of data that is no user's."""
    input_s, step_s = row.in_role("input_alone"), row.in_role("step_alone")
    if not input_s or not step_s:
        return None
    ways = (row.params.get(name) for name in row.declared.having("feeding"))
    items = row.throughput * (row.time.median_s or 0.0)
    return Alone(" ".join(way for way in ways if isinstance(way, str)) or "the loader", items / input_s, items / step_s)


@dataclass(frozen=True, slots=True)
class Parts:
    """A step and what was measured of it, in seconds a call."""

    whole_s: float
    known: Mapping[Resource, float]
    """Arithmetic and memory: its operations and bytes at the measured ceilings. Launch: its launches, one behind the other, at the
    measured latency of one. Transfer: copying its batch, alone. Input: waiting for its batch on the host. Host: code on the host that
    reported its own time. Step, in place of arithmetic, memory and launches: all of it on a batch that is there already."""
    device_s: float | None = None
    """The device's own time, copies in its queue included; None on a CPU, which has none, and where it is not known."""
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

    An accelerator computes while the host goes on. Where it does nothing for longer than it works, or the host's own parts take longer
    than it works, the host sets the pace: with its input, its launches, or code that is neither. Else the device does, and the host
    counts as far as the device does nothing meanwhile. On a CPU, and where the device's own time was not read, all parts are taken to
    take turns.

    The device's time is bound by arithmetic or by memory, whichever takes longer at its ceiling (Williams, Waterman and Patterson,
    Roofline, CACM 52(4), 2009), if that explains enough of it.
    """
    known, whole_s = parts.known, parts.whole_s
    seconds: dict[Resource, float] = {name: known[name] for name in REPORTED if name in known}
    work = max((name for name in _WORK if name in known), key=known.__getitem__, default=None)
    paced_by_host = False
    if parts.on_host or parts.device_s is None:
        if "launch" in known:
            seconds["launch"] = min(known["launch"], max(0.0, whole_s - sum(seconds.values())))
        device_s = max(0.0, whole_s - sum(seconds.values()))
    else:
        busy_s = min(parts.device_s, whole_s)
        host_s = known.get("input", 0.0) + known.get("host", 0.0) + known.get("launch", 0.0)
        paced_by_host = busy_s < BUSY * whole_s and busy_s <= max(whole_s - busy_s, host_s)
        _of_host(parts, whole_s - busy_s, paced_by_host, seconds)
        device_s = max(0.0, parts.device_s - known.get("transfer", 0.0))
    if work:
        seconds[work] = known[work]
    of_host: tuple[Resource, ...] = ("input", "launch", "host") if paced_by_host else ("input", "launch", "host", "transfer")
    bound = max((name for name in of_host if name in seconds), key=seconds.__getitem__, default=None)
    if not paced_by_host and (bound is None or device_s >= seconds[bound]):
        bound = work if work and known[work] >= (LEAST_STEP if work == "step" else LEAST_WORK) * device_s else None
    found = sum(seconds.values())
    return Diagnosis(bound, seconds, max(0.0, whole_s - found), max(0.0, found - whole_s))


def _of_host(parts: Parts, idle_s: float, paced_by_host: bool, seconds: dict[Resource, float]) -> None:
    """Set what the host's parts count: launches by their number, and other code by what is left."""
    if not paced_by_host:
        for name in ("input", "host"):
            if name in seconds:
                seconds[name] = min(seconds[name], idle_s)
    known_s = seconds.get("input", 0.0) + seconds.get("host", 0.0)
    left_s = max(0.0, idle_s - known_s)
    room_s = max(0.0, parts.whole_s - known_s) if paced_by_host else left_s
    seconds["launch"] = min(parts.known["launch"], room_s) if "launch" in parts.known else left_s
    seconds["host"] = seconds.get("host", 0.0) + max(0.0, left_s - seconds["launch"])
