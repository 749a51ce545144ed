"""Readings of a device under load: what a card tells while blocks are timed; of a step without a pause energy and series, too."""

import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, get_args

from dlbench.core.conditions import POWER_CAPS, SLOWDOWNS, Throttling
from dlbench.core.declarations import Declaration, Telemetry
from dlbench.core.measurement import Measurement, MeteredWindow
from dlbench.core.unknown import Reason, Unknown
from dlbench.harness.probe import nvml, processor
from dlbench.harness.probe.energy import CounterMeter

LEAST_S = 20.0
"""Shorter windows have no energy: a card's counter is refreshed up to ten times a second, and its readings lag as much
(Yang, Adamek and Armour, Part-time Power Measurements, SC 2024)."""
TIMED_S = 0.1
"""Between two readings while blocks are timed: about as often as drivers refresh what they tell."""
AT_POWER_LIMIT, SLOWED_DOWN = 1.0, 2.0
"""Points of the series of throttling; 0: nothing held the clock down."""
Telling = Mapping[Telemetry, float | None]
"""What a device tells now, None where it does not."""


class Idle(NamedTuple):
    """Power before the first round, in W; None where it was not metered."""

    watts: float | None = None
    host_watts: float | None = None


@dataclass
class Window:
    """What is read of a device during one case, whose worker says by messages when it is timed, or metered."""

    declared: Declaration
    """Of the case's workload: its values have the names of the series."""
    ask: Callable[[tuple[str, ...]], nvml.Readings] | None
    """Asks NVML; None where it can't be."""
    make_meter: Callable[[], CounterMeter]
    make_host_meter: Callable[[], CounterMeter] | None
    """None of a case on the host itself."""
    idle: Idle
    now: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._begun_s = self._seconds = self._items = 0.0
        self._interval_s = math.inf
        self._meters: dict[str, CounterMeter] = {}
        self._series: list[Telling] = []
        self._slowed_by: set[str] = set()
        """NVML's reasons for a low clock so far, of `SLOWDOWNS` and `POWER_CAPS`."""
        self._hot_s: Mapping[str, float] = {}
        self._power_since: tuple[float, float] | None = None
        """When the host's energy was read last, and what it was."""

    @property
    def due_s(self) -> float:
        """When to read next, on the scale of `time.monotonic`; infinite where nothing is timed or metered."""
        return self._begun_s + (len(self._series) + 1) * self._interval_s

    @property
    def _on_host(self) -> bool:
        return self.make_host_meter is None

    def mark(self, message: Mapping[str, float]) -> None:
        """Begin to meter, at a message with ``interval_s`` between two readings, or end, at one with the ``items`` that were processed.

        Blocks are ``timed`` from one message to the next; a window within takes the place of these readings.
        """
        if "interval_s" in message:
            self._begin(message["interval_s"], {"": self.make_meter, "host": self.make_host_meter})
        elif "items" in message:
            self._end(message["items"], message["seconds"])
        elif message["timed"] and self.ask:
            self._begin(TIMED_S, {})
            self._begun_s -= TIMED_S  # so that the first reading is due at once
            self.read()
        else:
            self._interval_s = math.inf

    def _end(self, items: float, seconds: float) -> None:
        """End the window. The worker's series have a point for each whole interval of its ``seconds``, and these get as many."""
        at_s, points = self._read_meters(), max(1, int(seconds / self._interval_s + 1e-9))
        if len(self._series) < points:  # the worker's clock began first, by as long as its message took
            self._series += [self._tell(at_s)] * (points - len(self._series))
        del self._series[points:]
        self._seconds, self._items, self._interval_s = at_s - self._begun_s, items, math.inf

    def _begin(self, interval_s: float, kinds: Mapping[str, Callable[[], CounterMeter] | None]) -> None:
        self._clear()
        self._meters = {part: make() for part, make in kinds.items() if make}
        self._begun_s, self._interval_s = self._read_meters(), interval_s
        self._hot_s = processor.thermal_throttle_s() if self._on_host else {}
        self._tell(self._begun_s)

    def read(self) -> None:
        """Take the reading that is due. One that comes late stands for those that it missed, so that points keep their time."""
        at_s = self._read_meters()
        told = self._tell(at_s)
        while self.due_s <= at_s:
            self._series.append(told)

    def _read_meters(self) -> float:
        at_s = self.now()
        for meter in self._meters.values():
            meter.read(at_s)
        return at_s

    def _tell(self, at_s: float) -> Telling:
        """Return what the device tells, at that time; the first time is the beginning."""
        if self._on_host:
            return self._processor(at_s)
        return self._card(self.ask(nvml.TELEMETRY).values) if self.ask else {}

    def _card(self, values: Mapping[str, Any]) -> Telling:
        reasons = values.get("throttle_reasons")
        held = None if reasons is None else SLOWDOWNS.union(POWER_CAPS).intersection(reasons)
        self._slowed_by |= held or set()
        throttle = None if held is None else SLOWED_DOWN if SLOWDOWNS & held else AT_POWER_LIMIT if held else 0.0
        clock, temperature, power = (values.get(name) for name in ("clock_sm_hz", "temperature_c", "power_w"))
        return {"clock": clock, "temperature": temperature, "power": power, "throttle": throttle}

    def _processor(self, at_s: float) -> Telling:
        hot_s, before_s = processor.thermal_throttle_s(), self._hot_s
        self._hot_s = hot_s
        slowed = any(hot_s[name] > before_s.get(name, 0.0) for name in hot_s)
        return {
            # A hypervisor shows the nominal clock.
            "clock": None if processor.is_virtual() else processor.clock_hz(),
            "temperature": processor.temperature_c(),
            "power": self._power(at_s),
            "throttle": (SLOWED_DOWN if slowed else 0.0) if hot_s else None,
        }

    def _power(self, at_s: float) -> float | None:
        """Return the mean power since the last reading; None where its meter does not tell."""
        joules = self._meters[""].joules() if self._power_since else 0.0  # the first reading is the beginning
        if joules is None:
            return None
        since, self._power_since = self._power_since, (at_s, joules)
        return (joules - since[1]) / (at_s - since[0]) if since and at_s > since[0] else None

    def added_to(self, measurement: Measurement) -> Measurement:
        """Return a measurement with its energy, with the series that its workload declares, and with the reasons for what is null."""
        measurement = replace(measurement, throttling=self._under_load(measurement.throttling))
        if not self._seconds:
            return measurement
        names = {each.role: each.name for each in self.declared.values}
        series, untold = self._telemetry()
        values = {**measurement.values, **{names[role]: points for role, points in series.items() if role in names}}
        energy, reasons = self._energy()
        added = replace(measurement, values=values, energy=energy).with_reasons("energy", *reasons)
        return added.with_reasons("telemetry", *untold)

    def _under_load(self, lost: Throttling | None) -> Throttling | None:
        """Return what the case's process saw of its CPUs, with what a card told meanwhile."""
        if self._on_host or not self._series:
            return lost
        clock, power, throttle = (
            [each for told in self._series if (each := told.get(role)) is not None] for role in ("clock", "power", "throttle")
        )
        return replace(
            lost or Throttling(),
            reasons=tuple(sorted(self._slowed_by)) if throttle else None,
            clock_hz=statistics.median(clock) if clock else None,
            power_w=statistics.median(power) if power else None,
        )

    def _telemetry(self) -> tuple[dict[str, tuple[float, ...]], list[Reason]]:
        """Return the series that the machine tells, and why it does not tell the others."""
        found = {role: [each.get(role) for each in self._series] for role in get_args(Telemetry)}
        series = {role: tuple(map(float, points)) for role, points in found.items() if points and None not in points}  # type: ignore[arg-type]  # no None
        if not series:
            virtual = self._on_host and processor.is_virtual()
            return {}, [(Unknown.NOTHING_TOLD_IN_VM if virtual else Unknown.NOTHING_TOLD).reason()]
        return series, [{"part": role, **Unknown.NOT_TOLD.reason()} for role in found if role not in series]

    def _energy(self) -> tuple[MeteredWindow, list[Reason]]:
        """Return the energy, and why there is none of the device or of the host."""
        short = Unknown.SHORT_WINDOW.reason(seconds=self._seconds) if self._seconds < LEAST_S else None
        missing = {part: meter.refused or short or meter.missing() for part, meter in self._meters.items()}
        joules = {part: meter.joules() for part, meter in self._meters.items() if not missing[part]}
        if "" in joules and self.idle.watts is None:
            missing["idle"] = Unknown.NO_IDLE.reason()
        source, of_device, of_host = self._meters[""].name if "" in joules else None, joules.get(""), joules.get("host")
        window = MeteredWindow(self._seconds, self._items, source, of_device, self.idle.watts, of_host, self.idle.host_watts)
        return window, [{**({"part": part} if part else {}), **reason} for part, reason in missing.items() if reason]
