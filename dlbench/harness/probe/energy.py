"""Energy of a device from its counters: NVML's total since the driver was loaded, or RAPL's of each package by /sys/class/powercap."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from dlbench.core.unknown import Unavailable, Unknown
from dlbench.harness.probe import cgroup, nvml, processor

MOST_WATTS = 2000.0
"""No package or card takes more, so a counter that would have gained more, by wrapping around, has jumped back instead."""
_MICRO = 1e-6
_ZONES = "sys/class/powercap/intel-rapl:*"
"""AMD's processors have the same names (docs.kernel.org: power/powercap)."""
_MEMORY = "dram"
_COUNTED = ("package", _MEMORY)
"""Zones that are no part of another: memory is below its package there, and not in it. ``psys`` would count both again."""


class Meter(Protocol):
    """What meters one device, read again and again; the first reading is the beginning."""

    name: str

    def read(self, at_s: float) -> None:
        """Take a reading, at that time. Raises Unavailable where the device does not tell any more."""

    def joules(self) -> float:
        """Return the energy between the first reading and the last. Raises Unavailable where the readings do not tell."""


@dataclass
class CounterMeter:
    """A meter by counters of energy that only grow, until they wrap around."""

    name: str
    count: Callable[[], Mapping[str, float]]
    """Reads each counter, in J."""
    wraps_at: Mapping[str, float] = field(default_factory=dict)
    """What a counter holds at most, of those that wrap around."""
    may_rest: Collection[str] = ()
    """Counters that may stand still, as a memory's that is not metered."""

    def __post_init__(self) -> None:
        self._gained = dict[str, float]()
        self._last: tuple[float, Mapping[str, float]] | None = None
        self._fell = False

    def read(self, at_s: float) -> None:
        """Take a reading; at least one is needed between two wraps, which lie a minute or more apart."""
        counts = self.count()
        if self._last:
            before_s, before = self._last
            for name, count in counts.items():
                self._gained[name] = self._gained.get(name, 0.0) + self._gain(name, before[name], count, at_s - before_s)
        self._last = at_s, counts

    def _gain(self, name: str, before: float, count: float, seconds: float) -> float:
        if count >= before:
            return count - before
        gained = self.wraps_at.get(name, 0.0) - before + count
        if name not in self.wraps_at or not 0 <= gained <= MOST_WATTS * max(seconds, 1.0):
            self._fell = True
        return gained

    def joules(self) -> float:
        """Return what all counters gained. Raises Unavailable where one jumped back or stood still."""
        if self._fell:
            raise Unavailable(Unknown.METER_JUMPED)
        if not all(gained or name in self.may_rest for name, gained in self._gained.items()) or not self._gained:
            raise Unavailable(Unknown.METER_STOOD_STILL)
        return sum(self._gained.values())


@dataclass
class PowerMeter:
    """A meter by power alone, integrated by trapezoids."""

    name: str
    power: Callable[[], float]
    """Reads it, in W."""

    def __post_init__(self) -> None:
        self._last: tuple[float, float] | None = None
        self._joules = 0.0

    def read(self, at_s: float) -> None:
        """Take a reading, at that time."""
        watts = self.power()
        if self._last:
            before_s, before_watts = self._last
            self._joules += (at_s - before_s) * (watts + before_watts) / 2
        self._last = at_s, watts

    def joules(self) -> float:
        """Return the integral. Raises Unavailable where no power was read."""
        if not self._joules:
            raise Unavailable(Unknown.METER_STOOD_STILL)
        return self._joules


def meter_of_card(ask: Callable[[tuple[str, ...]], nvml.Readings]) -> Meter:
    """Return what meters a device of NVML: its counter, and where it has none its power. Raises Unavailable where it tells neither."""

    def value(name: str) -> float:
        found = ask((name,)).values.get(name)
        if not isinstance(found, int | float):
            raise Unavailable(Unknown.NO_METER)
        return float(found)

    try:
        value("energy_j")
    except Unavailable:
        value("power_w")
        return PowerMeter("nvml_power", lambda: value("power_w"))
    return CounterMeter("nvml_counter", lambda: {"card": value("energy_j")})


def meter_of_processors() -> Meter:
    """Return what meters the machine's processors. Raises Unavailable where nothing does, or for root alone."""
    zones = {zone: name for zone in cgroup.matching(_ZONES) if (name := cgroup.read_text(zone / "name") or "").startswith(_COUNTED)}
    if not zones:
        raise Unavailable(Unknown.NO_POWERCAP_IN_VM if processor.is_virtual() else Unknown.NO_POWERCAP)
    most = {zone.name: found for zone in zones if (found := _joules(zone / "max_energy_range_uj")) is not None}
    rests = [zone.name for zone, name in zones.items() if name == _MEMORY]

    def count() -> dict[str, float]:
        found = {zone.name: _joules(zone / "energy_uj") for zone in zones}
        if None in found.values():
            raise Unavailable(Unknown.POWERCAP_REFUSED)
        return {zone: joules for zone, joules in found.items() if joules is not None}

    count()
    return CounterMeter("rapl", count, most, rests)


def _joules(file: Path) -> float | None:
    text = cgroup.read_text(file)
    return int(text) * _MICRO if text and text.isdecimal() else None
