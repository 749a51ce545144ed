"""Energy of a device from its counters: NVML's total since the driver was loaded, or RAPL's of each package by /sys/class/powercap."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dlbench.core.errors import Reason, Unavailable, Unknown
from dlbench.harness.probe import linux, nvml, processor

MOST_WATTS = 2000.0
"""No package or card takes more, so a counter that would have gained more, by wrapping around, has jumped back instead."""
_MICRO = 1e-6
_ZONES = "sys/class/powercap/intel-rapl:*"
"""AMD's processors have the same names (docs.kernel.org: power/powercap)."""
_MEMORY = "dram"
_COUNTED = ("package", _MEMORY)
"""Zones that are no part of another: memory is below its package there, and not in it. ``psys`` would count both again."""


@dataclass
class CounterMeter:
    """A meter by counters of energy that only grow, until they wrap around; the first of its readings is the beginning."""

    name: str
    count: Callable[[], Any]
    """Reads each counter, in J. Raises Unavailable where the device does not tell, or not any more."""
    wraps_at: Mapping[str, float] = field(default_factory=dict)
    """What a counter holds at most, of those that wrap around."""
    may_rest: Collection[str] = ()
    """Counters that may stand still, as a memory's that is not metered."""
    refused: Reason | None = None
    """Why it can't be read."""

    def __post_init__(self) -> None:
        self._gained = dict[str, float]()
        self._last: tuple[float, Mapping[str, float]] | None = None
        self._fell = False

    def read(self, at_s: float) -> None:
        """Take a reading, at that time; at least one is needed between two wraps, which lie a minute or more apart."""
        if self.refused:
            return
        try:
            counts = self._counts()
        except Unavailable as unavailable:
            self.refused = unavailable.reason
            return
        if self._last:
            before_s, before = self._last
            for name, count in counts.items():
                self._gained[name] = self._gained.get(name, 0.0) + self._gain(name, before[name], count, at_s - before_s)
        self._last = at_s, counts

    def _counts(self) -> Mapping[str, float]:
        return self.count()  # type: ignore[no-any-return]  # what it reads

    def _gain(self, name: str, before: float, count: float, seconds: float) -> float:
        if count >= before:
            return count - before
        gained = self.wraps_at.get(name, 0.0) - before + count
        if name not in self.wraps_at or not 0 <= gained <= MOST_WATTS * max(seconds, 1.0):
            self._fell = True
        return gained

    def missing(self) -> Reason | None:
        """Return why there is no energy: it can't be read, or a counter jumped back or stood still."""
        if self._fell and not self.refused:
            return Unknown.METER_JUMPED.reason()
        moved = self._gained and all(gained or name in self.may_rest for name, gained in self._gained.items())
        return self.refused or (None if moved else Unknown.METER_STOOD_STILL.reason())

    def joules(self) -> float | None:
        """Return the energy between the first reading and the last; None where it is missing."""
        return None if self.missing() else sum(self._gained.values())


class PowerMeter(CounterMeter):
    """A meter by power alone, integrated by trapezoids: what it reads is in W."""

    def _counts(self) -> Mapping[str, float]:
        return {"": self.count()}

    def _gain(self, name: str, before: float, count: float, seconds: float) -> float:
        return seconds * (count + before) / 2


def no_meter(unknown: Unknown, **figures: str) -> CounterMeter:
    """Return what meters nothing, for that reason."""
    return CounterMeter("", dict, refused=unknown.reason(**figures))


def meter_of_card(ask: Callable[[tuple[str, ...]], nvml.Readings]) -> CounterMeter:
    """Return what meters a device of NVML: its counter, and where it has none its power."""

    def value(name: str) -> float:
        found = ask((name,)).values.get(name)
        if not isinstance(found, int | float):
            raise Unavailable(Unknown.NO_METER)
        return float(found)

    if "energy_j" in ask(("energy_j",)).values:
        return CounterMeter("nvml_counter", lambda: {"card": value("energy_j")})
    return PowerMeter("nvml_power", lambda: value("power_w"))


def meter_of_processors() -> CounterMeter:
    """Return what meters the machine's processors: nothing in most virtual machines, and often for root alone."""
    zones = {zone: name for zone in linux.matching(_ZONES) if (name := linux.read_text(zone / "name") or "").startswith(_COUNTED)}
    if not zones:
        return no_meter(Unknown.NO_POWERCAP_IN_VM if processor.is_virtual() else Unknown.NO_POWERCAP)
    most = {zone.name: found for zone in zones if (found := _joules(zone / "max_energy_range_uj")) is not None}
    rests = [zone.name for zone, name in zones.items() if name == _MEMORY]

    def count() -> dict[str, float]:
        found = {zone.name: joules for zone in zones if (joules := _joules(zone / "energy_uj")) is not None}
        if len(found) < len(zones):
            raise Unavailable(Unknown.POWERCAP_REFUSED)
        return found

    return CounterMeter("rapl", count, most, rests)


def _joules(file: Path) -> float | None:
    text = linux.read_text(file)
    return int(text) * _MICRO if text and text.isdecimal() else None
