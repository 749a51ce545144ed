"""Sampling of the machine during cases and rounds: clocks, temperature, power, energy, throttling, and what other programs take."""

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple, get_args

from dlbench.core.conditions import POWER_CAPS, SLOWDOWNS, RoundState, Throttling
from dlbench.core.declarations import Declaration, Telemetry
from dlbench.core.errors import Reason, Unavailable, Unknown
from dlbench.core.measurement import Measurement, MeteredWindow
from dlbench.core.model import Status, kind_of
from dlbench.core.stats import known, known_median
from dlbench.harness.probe import linux, nvml, processor
from dlbench.harness.probe.devices import Device, usable_accelerators
from dlbench.harness.probe.fingerprint import read_state

LEAST_S = 20.0
"""Shorter windows have no energy: a card's counter is refreshed up to ten times a second, and its readings lag as much
(Yang, Adamek and Armour, Part-time Power Measurements, SC 2024)."""
TIMED_S = 0.1
"""Time between two samples while blocks are timed: about as long as drivers take to refresh their readings."""
AT_POWER_LIMIT, SLOWED_DOWN = 1.0, 2.0
"""Values in the series of throttling for a clock that the power limit, or heat, held down; 0: nothing did."""
IDLE_S = 10.0
"""Time for which an idle device is metered."""
MOST_WATTS = 2000.0
"""No package or card takes more, so a counter that would have gained more, by wrapping around, has jumped back instead."""
_ZONES = "sys/class/powercap/intel-rapl:*"
"""AMD's processors have the same names (docs.kernel.org: power/powercap)."""
_COUNTED = ("package", "dram")
"""Zones that are no part of another: memory is below its package there, and not in it. ``psys`` would count both again."""

Counters = Mapping[str, float]
"""Seconds so far in which heat, the power limit or a quota held a device back, by name, and the time, as ``at``."""


@dataclass
class CounterMeter:
    """A meter of energy by counters, in J, which only grow until they wrap around; it meters from its first reading on."""

    name: str
    count: Callable[[], Mapping[str, float]]
    """Reads each counter. Raises Unavailable if it can't be read, or not any more."""
    wraps_at: Mapping[str, float] = field(default_factory=dict)
    """The most that a counter holds, for each counter that wraps around."""
    refused: Reason | None = None
    """Why it can't be read."""

    def __post_init__(self) -> None:
        self._gained_j = 0.0
        self._last_counts: Mapping[str, float] | None = None
        self._last_s = time.monotonic()

    def read(self) -> None:
        """Read the counters and add what each has gained since the last reading.

        If they can't be read, or one has jumped back, ``refused`` gets the reason. A counter wraps around after a minute or more, and has
        to be read more often than that.
        """
        if self.refused:
            return
        try:
            counts = self.count()
        except Unavailable as unavailable:
            self.refused = unavailable.reason
            return
        at_s = time.monotonic()
        counts_before = self._last_counts or counts  # the first reading gains nothing
        for name, before in counts_before.items():
            gained_j = counts[name] - before
            if gained_j < 0:  # it has wrapped around, or jumped back
                gained_j += self.wraps_at.get(name, 0.0)
                # At least a second is taken to have passed: a counter is refreshed in steps.
                if not 0 <= gained_j <= MOST_WATTS * max(at_s - self._last_s, 1.0):
                    self.refused = Unknown.METER_JUMPED.reason()
            self._gained_j += gained_j
        self._last_counts, self._last_s = counts, at_s

    def missing(self) -> Reason | None:
        """Return why there is no energy: it can't be read, or its counters jumped back or stood still; None if there is."""
        return self.refused or (None if self._gained_j else Unknown.METER_STOOD_STILL.reason())

    def joules(self) -> float | None:
        """Return the energy between the first reading and the last; None where it is missing."""
        return None if self.missing() else self._gained_j


def _no_meter(unknown: Unknown, **figures: str) -> CounterMeter:
    return CounterMeter("", dict, refused=unknown.reason(**figures))


def _meter_of_card(ask: nvml.Reader) -> CounterMeter:
    """Return the meter of a card: by its counter of energy, or by its power where it has no such counter (before Volta)."""

    def read_field(name: str) -> float:
        value: float | None = ask((name,)).values.get(name)
        if value is None:
            raise Unavailable(Unknown.NO_METER)
        return value

    if "energy_j" in ask(("energy_j",)).values:
        return CounterMeter("nvml_counter", lambda: {"card": read_field("energy_j")})
    power_readings: list[tuple[float, float]] = []

    def integrate() -> Mapping[str, float]:
        """Take a reading of the power, and return the energy since the first one, by trapezoids between readings."""
        power_readings.append((time.monotonic(), read_field("power_w")))
        trapezoids_j = ((end - begin) * (before + after) / 2 for (begin, before), (end, after) in pairwise(power_readings))
        return {"card": sum(trapezoids_j)}

    return CounterMeter("nvml_power", integrate)


def processor_meter() -> CounterMeter:
    """Return the meter of the machine's processors by Linux's powercap; most virtual machines lack it, and often only root may read it."""
    zones = [zone for zone in linux.matching(_ZONES) if (linux.read_text(zone / "name") or "").startswith(_COUNTED)]
    if not zones:
        return _no_meter(Unknown.NO_POWERCAP_IN_VM if processor.is_virtual() else Unknown.NO_POWERCAP)

    def read_joules(file: str) -> dict[str, float]:
        # Returns what this file of each zone has, by the name of its folder, in J. A zone whose file can't be read is left out.
        texts = {zone.name: linux.read_text(zone / file) or "" for zone in zones}
        return {name: int(text) / 1e6 for name, text in texts.items() if text.isdecimal()}

    def read_counters() -> dict[str, float]:
        joules = read_joules("energy_uj")
        if len(joules) < len(zones):  # the sum of some zones would pass for that of all
            raise Unavailable(Unknown.POWERCAP_REFUSED)
        return joules

    # Another file of each zone has the most that its counter holds before it wraps around.
    return CounterMeter("rapl", read_counters, read_joules("max_energy_range_uj"))


class Monitor:
    """Samples cases and rounds."""

    def __init__(self, devices: Sequence[Device], threads: int) -> None:
        self._devices = devices
        self._threads = threads
        self._cards = {each.id: each for each in usable_accelerators(devices) if each.is_nvidia}
        self.ask = {device: card.nvml_reader() for device, card in self._cards.items()}
        """Reader of each card of NVIDIA."""
        self.idle: dict[str, float] = {}
        """Power of each device that was metered before the first round."""

    def counters(self, device: str) -> Counters:
        """Return the seconds that something has held the device back so far."""
        found: dict[str, Any] = {"at": time.monotonic()}
        if quota := linux.cpu_throttling():
            found["quota"] = quota["throttled_s"]
        if device == "cpu":
            found |= {f"thermal {name}": seconds for name, seconds in processor.thermal_throttle_s().items()}
        elif device in self.ask:
            found |= self.ask[device](nvml.SLOWDOWN).values
        return found

    def throttling(self, device: str, before: Counters, seen: Throttling) -> Throttling | None:
        """Return what held a case back since ``before``, added to what was ``seen`` meanwhile; None if nothing is known."""
        after = self.counters(device)
        seconds = max(after["at"] - before["at"], 1e-9)
        shares: dict[str, float] = {}
        for name in after.keys() & before.keys():
            # The kernel adds up the quota over CPUs, and the case's threads are what it can have stopped.
            most_s = seconds * self._threads if name == "quota" else seconds
            # Limited, as counters of the driver and the clock here are not read at the same instant.
            shares[name] = min(1.0, max(0.0, after[name] - before[name]) / most_s)
        thermal = max((share for name, share in shares.items() if name.startswith("thermal")), default=None)
        found = replace(seen, thermal=thermal, quota=shares.get("quota"), power_cap=shares.get("power_violation_s"))
        return None if found == Throttling() else found

    def meter(self, device: str) -> CounterMeter:
        """Return the meter of a device."""
        if device == "cpu":
            return processor_meter()
        if device not in self.ask:
            return _no_meter(Unknown.NO_METER_OF_KIND, kind=kind_of(device))
        return _no_meter(Unknown.NO_METER_OF_INSTANCE) if self._cards[device].mig else _meter_of_card(self.ask[device])

    def meters(self, devices: Collection[str]) -> dict[str, CounterMeter]:
        """Return the meters of these devices that can be read, each after its first reading."""
        meters = {device: self.meter(device) for device in devices}
        for meter in meters.values():
            meter.read()
        return {device: meter for device, meter in meters.items() if not meter.refused}

    def read_idle(self, devices: Collection[str], wait: Callable[[float], object]) -> None:
        """Note the idle power of devices, metered for `IDLE_S`; ``wait`` waits so many seconds."""
        meters = self.meters(devices)
        begun_s = time.monotonic()
        wait(IDLE_S)
        seconds = time.monotonic() - begun_s
        for device, meter in meters.items():
            meter.read()
            if (joules := meter.joules()) is not None:
                self.idle[device] = joules / seconds

    @contextmanager
    def round(self, number: int, save: Callable[[RoundState], None]) -> Iterator[Callable[[], None]]:
        """Watch one round, and save at its end the state before and after it and the CPU time that other programs took meanwhile.

        Yields a function that reads the state after the last case. Call it while the measuring processes still hold their devices, at the
        clocks that they ran at. If it was not called, as after an interruption, the state at the end is read here.
        """
        before = self.state()
        after: dict[str, Any] = {}
        begin = processor.CpuUse(time.monotonic(), processor.cpu_time(), processor.own_cpu_s())
        try:
            yield lambda: after.update(self.state())
        finally:
            end = processor.CpuUse(time.monotonic(), processor.cpu_time(), processor.own_cpu_s())
            seconds = end.at_s - begin.at_s
            # The kernel counts CPU time in ticks, which are too coarse for a round of less than `TICKS_S`.
            cpus_taken = end.others_since(begin) if seconds >= processor.TICKS_S else None
            by_others, stolen = cpus_taken or (None, None)
            save(RoundState(number, seconds, by_others, stolen, before, after or self.state()))

    def state(self) -> dict[str, Any]:
        """Return the known part of the state; the header has the reasons for the rest."""
        state = read_state(self._devices)
        accelerators = {device: _known({**each, "reasons": None}) for device, each in state["accelerators"].items()}
        return _known({"cpu": _known(state["cpu"]), "accelerators": accelerators or None})


class Sample(NamedTuple):
    """Readings of a device at a time; None where they are missing."""

    at_s: float
    readings: Mapping[Telemetry, float | None]


class Window:
    """Samples of a device during one case; messages of its worker say when the case is timed or metered.

    While it is metered its step is repeated without a pause, so that its energy can be read: that time is the metered window.
    """

    def __init__(self, monitor: Monitor, device: str, declared: Declaration) -> None:
        self._monitor, self._device, self._on_host = monitor, device, device == "cpu"
        self._name_of_role = {each.role: each.name for each in declared.values}
        self._ask = monitor.ask.get(device)
        self._before = monitor.counters(device)
        self._samples: list[Sample] = []
        self._items: float | None = None
        """Items that were processed while the case was metered; None before the end of that."""
        self.due_s = math.inf
        """When to read next, on the scale of `time.monotonic`; infinite where nothing is timed or metered."""

    def mark(self, message: Mapping[str, float]) -> None:
        """Begin or end sampling, as a message of the worker says.

        A message with ``interval_s``, the time between two samples, begins a metered window. One with ``items``, the number that was
        processed, and ``seconds``, its length by the worker's clock, ends it. One with ``timed`` says whether timed blocks begin or end. A
        metered window within timed blocks replaces their samples.
        """
        if "interval_s" in message:
            # Maps each part of the energy to the device whose meter counts it. The part of the case's own device is called "".
            metered = {"": self._device}
            if not self._on_host:
                metered["host"] = "cpu"
            self._begin(message["interval_s"], metered)
            self.due_s += self._interval_s  # the first sample is due after one interval: a sample stands for the interval before it
        elif "items" in message:
            self._end(message["items"], message["seconds"])
        elif message["timed"] and self._ask:  # only NVIDIA's cards are read while blocks are timed
            self._begin(TIMED_S, {})
            self.read()
        else:
            self.due_s = math.inf

    def _begin(self, interval_s: float, metered: Mapping[str, str]) -> None:
        self._samples, self._interval_s = [], interval_s
        self._meters = {part: self._monitor.meter(device) for part, device in metered.items()}
        self.due_s = self._begun_s = self._read_meters()
        self._slowed_by = set[str]()
        """NVML's reasons for a low clock so far, of `SLOWDOWNS` and `POWER_CAPS`."""
        self._energy = self._begun_s, 0.0
        """When the processors' energy was read last, and what it was."""

    def read(self) -> None:
        """Take the sample that is due."""
        at_s = self._read_meters()
        self._samples.append(Sample(at_s, self._processor(at_s) if self._on_host else self._card()))
        while self.due_s <= at_s:
            self.due_s += self._interval_s

    def _read_meters(self) -> float:
        at_s = time.monotonic()
        for meter in self._meters.values():
            meter.read()
        return at_s

    def _end(self, items: float, seconds: float) -> None:
        """End the metered window, and keep one sample for each whole interval of its ``seconds``, as the worker's series have.

        That is the first sample after the end of the interval, so that points keep their time even if a sample came late. The last interval
        may have none, as the worker's clock began earlier: its message took a while. It gets the last sample.
        """
        self.read()
        last = self._samples[-1]
        self._items = items
        self._seconds = last.at_s - self._begun_s
        self.due_s = math.inf
        intervals = max(1, int(seconds / self._interval_s + 1e-9))
        ends_s = [self._begun_s + number * self._interval_s for number in range(1, intervals + 1)]
        self._samples = [next((each for each in self._samples if each.at_s > end_s - 1e-6), last) for end_s in ends_s]

    def _card(self) -> Mapping[Telemetry, float | None]:
        values = self._ask(nvml.TELEMETRY).values if self._ask else {}
        clock, temperature, power, reasons = (values.get(name) for name in nvml.TELEMETRY)
        throttle = None
        if reasons is not None:
            held = SLOWDOWNS.union(POWER_CAPS).intersection(reasons)
            self._slowed_by |= held
            throttle = AT_POWER_LIMIT if held else 0.0
            if SLOWDOWNS & held:  # it counts where both hold the clock down
                throttle = SLOWED_DOWN
        return {"clock": clock, "temperature": temperature, "power": power, "throttle": throttle}

    def _processor(self, at_s: float) -> Mapping[Telemetry, float | None]:
        since_s, before_j = self._energy
        joules = self._meters[""].joules()
        self._energy = at_s, joules or 0.0
        return {
            # A hypervisor shows the nominal clock.
            "clock": None if processor.is_virtual() else processor.clock_hz(),
            "temperature": processor.temperature_c(),
            "power": None if joules is None or at_s <= since_s else (joules - before_j) / (at_s - since_s),
        }

    def add_samples(self, measurement: Measurement) -> Measurement:
        """Return an ok measurement with the throttling of its device and, if a window was metered, its telemetry and energy.

        What is missing has a reason. A measurement that is not ok is returned as it is.
        """
        if measurement.status is not Status.OK:
            return measurement
        seen_meanwhile = self._under_load(measurement.throttling or Throttling())
        measurement = replace(measurement, throttling=self._monitor.throttling(self._device, self._before, seen_meanwhile))
        if self._items is None:  # no window was metered
            return measurement
        values, missing = dict(measurement.values), list[Reason]()
        for role in get_args(Telemetry):
            points = known(self._points(role))
            if len(points) < len(self._samples):  # a series with gaps is left out
                missing.append({"part": role, **Unknown.NOT_TOLD.reason()})
            elif role in self._name_of_role:  # the workload declares a value for this series
                values[self._name_of_role[role]] = tuple(map(float, points))
        if len(missing) == len(get_args(Telemetry)):  # no series is known: one reason stands for all
            virtual = self._on_host and processor.is_virtual()
            missing = [(Unknown.NOTHING_TOLD_IN_VM if virtual else Unknown.NOTHING_TOLD).reason()]
        energy, reasons = self._metered_energy(self._items)
        measurement = replace(measurement, values=values, energy=energy)
        return measurement.with_reasons("energy", *reasons).with_reasons("telemetry", *missing)

    def _points(self, role: Telemetry) -> list[float | None]:
        return [each.readings.get(role) for each in self._samples]

    def _under_load(self, lost: Throttling) -> Throttling:
        """Return what the case's process ``lost``, with the readings of a card meanwhile."""
        if self._on_host:
            return lost
        reasons = tuple(sorted(self._slowed_by)) if known(self._points("throttle")) else None
        return replace(lost, reasons=reasons, clock_hz=known_median(self._points("clock")), power_w=known_median(self._points("power")))

    def _metered_energy(self, items: float) -> tuple[MeteredWindow, list[Reason]]:
        """Return the energy of the device and of the host in the metered window, and the reasons for what is missing."""
        short = Unknown.SHORT_WINDOW.reason(seconds=self._seconds) if self._seconds < LEAST_S else None
        missing = {part: meter.refused or short or meter.missing() for part, meter in self._meters.items()}
        joules = {part: meter.joules() for part, meter in self._meters.items() if not missing[part]}
        idle_w = self._monitor.idle.get(self._device)
        if "" in joules and idle_w is None:
            missing["idle"] = Unknown.NO_IDLE.reason()
        source = self._meters[""].name if "" in joules else None
        window = MeteredWindow(self._seconds, items, source, joules.get(""), idle_w, joules.get("host"))
        return window, [{"part": part, **reason} if part else reason for part, reason in missing.items() if reason]


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
