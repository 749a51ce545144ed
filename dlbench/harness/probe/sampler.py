"""One sampler of the machine: what a device and the CPUs do while a case runs, what held them back, and what other programs take."""

import math
import statistics
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, Self, get_args

from dlbench.core.conditions import POWER_CAPS, SLOWDOWNS, RoundState, Throttling
from dlbench.core.declarations import Declaration, Telemetry
from dlbench.core.errors import Reason, Unavailable, Unknown
from dlbench.core.measurement import Measurement, MeteredWindow
from dlbench.core.model import Status
from dlbench.core.stats import known
from dlbench.harness.probe import linux, nvml, processor
from dlbench.harness.probe.devices import Device, usable_accelerators
from dlbench.harness.probe.fingerprint import read_state

LEAST_S = 20.0
"""Shorter windows have no energy: a card's counter is refreshed up to ten times a second, and its readings lag as much
(Yang, Adamek and Armour, Part-time Power Measurements, SC 2024)."""
TIMED_S = 0.1
"""Between two samples while blocks are timed: about as often as drivers refresh their readings."""
AT_POWER_LIMIT, SLOWED_DOWN = 1.0, 2.0
"""Points of the series of throttling; 0: nothing held the clock down."""
IDLE_S, IDLE_READINGS = 10.0, 10
"""To meter an idle device for, and the readings meanwhile, over which power alone is integrated."""
MOST_WATTS = 2000.0
"""No package or card takes more, so a counter that would have gained more, by wrapping around, has jumped back instead."""
_ZONES = "sys/class/powercap/intel-rapl:*"
"""AMD's processors have the same names (docs.kernel.org: power/powercap)."""
_MEMORY = "dram"
_COUNTED = ("package", _MEMORY)
"""Zones that are no part of another: memory is below its package there, and not in it. ``psys`` would count both again."""

Counters = Mapping[str, float]
"""Seconds so far in which something held a device back, and the time, as ``at``; without what nothing counts."""
_THERMAL = "thermal/"
"""Begins the name of each counter of heat: a processor has one for each core and package."""


@dataclass
class CounterMeter:
    """A meter by counters of energy, in J, which only grow until they wrap around, or by power; its first reading is the beginning."""

    name: str
    count: Callable[[], Mapping[str, float]]
    """Reads each counter. Raises Unavailable if it can't be read, or not any more."""
    wraps_at: Mapping[str, float] = field(default_factory=dict)
    """The most that a counter holds, of those that wrap around."""
    may_rest: Collection[str] = ()
    """Counters that may stand still, as a memory's that is not metered."""
    by_power: bool = False
    """Whether it reads W, which are integrated by trapezoids."""
    refused: Reason | None = None
    """Why it can't be read."""

    def __post_init__(self) -> None:
        self._gained = dict[str, float]()
        self._last: tuple[float, Mapping[str, float]] | None = None
        self._fell = False

    def read(self, at_s: float) -> None:
        """Take a reading at that time. A counter wraps around after a minute or more, and has to be read more often than that."""
        if self.refused:
            return
        try:
            counts = self.count()
        except Unavailable as unavailable:
            self.refused = unavailable.reason
            return
        before_s, before = self._last or (at_s, counts)
        for name, count in counts.items():
            gained_j = (at_s - before_s) * (count + before[name]) / 2 if self.by_power else count - before[name]
            if gained_j < 0:
                gained_j += self.wraps_at.get(name, 0.0)
                self._fell |= not 0 <= gained_j <= MOST_WATTS * max(at_s - before_s, 1.0)
            self._gained[name] = self._gained.get(name, 0.0) + gained_j
        self._last = at_s, counts

    def missing(self) -> Reason | None:
        """Return why there is no energy: it can't be read, or a counter jumped back or stood still; None if there is."""
        if self.refused:
            return self.refused
        if self._fell:
            return Unknown.METER_JUMPED.reason()
        if not self._gained or any(not gained and name not in self.may_rest for name, gained in self._gained.items()):
            return Unknown.METER_STOOD_STILL.reason()
        return None

    def joules(self) -> float | None:
        """Return the energy between the first reading and the last; None where it is missing."""
        return None if self.missing() else sum(self._gained.values())


def _no_meter(unknown: Unknown, **figures: str) -> CounterMeter:
    return CounterMeter("", dict, refused=unknown.reason(**figures))


def _meter_of_card(ask: Callable[[tuple[str, ...]], nvml.Readings]) -> CounterMeter:
    """Return the meter of a device of NVML: its counter of energy, or else its power."""

    def value(name: str) -> Mapping[str, float]:
        found = ask((name,)).values.get(name)
        if not isinstance(found, int | float):
            raise Unavailable(Unknown.NO_METER)
        return {"card": found}

    if "energy_j" in ask(("energy_j",)).values:
        return CounterMeter("nvml_counter", partial(value, "energy_j"))
    return CounterMeter("nvml_power", partial(value, "power_w"), by_power=True)


def processor_meter() -> CounterMeter:
    """Return the meter of the machine's processors; most virtual machines have none, and often only root may read it."""
    names = {zone: linux.read_text(zone / "name") or "" for zone in linux.matching(_ZONES)}
    zones = {zone: name for zone, name in names.items() if name.startswith(_COUNTED)}
    if not zones:
        return _no_meter(Unknown.NO_POWERCAP_IN_VM if processor.is_virtual() else Unknown.NO_POWERCAP)

    def read_joules(file: str) -> dict[str, float]:
        texts = {zone.name: linux.read_text(zone / file) or "" for zone in zones}
        return {name: int(text) / 1e6 for name, text in texts.items() if text.isdecimal()}

    def count() -> dict[str, float]:
        joules = read_joules("energy_uj")
        if len(joules) < len(zones):
            raise Unavailable(Unknown.POWERCAP_REFUSED)
        return joules

    return CounterMeter("rapl", count, read_joules("max_energy_range_uj"), [zone.name for zone, name in zones.items() if name == _MEMORY])


class Monitor:
    """Samples cases and rounds. Use as a context manager: NVML is opened once, as that takes longer than a short case."""

    def __init__(self, devices: Sequence[Device], threads: int) -> None:
        self._devices = devices
        self._threads = threads
        self._open = ExitStack()
        self.ask: dict[str, Callable[[tuple[str, ...]], nvml.Readings]] = {}
        """By device, what asks NVML about it."""
        self.idle: dict[str, float] = {}
        """Power of each device that was metered before the first round."""

    def __enter__(self) -> Self:
        accelerators = [device for device in usable_accelerators(self._devices) if device.is_nvidia]
        if not accelerators:
            return self
        # Where NVML or a device of it is not to be had, the header's environment says why.
        with suppress(nvml.NvmlUnavailable):
            opened = self._open.enter_context(nvml.session())
            for each in accelerators:
                with suppress(nvml.NvmlUnavailable):
                    handle = opened.find(nvml.Address(each.uuid, each.pci_bus_id))
                    self.ask[each.id] = partial(opened.read, handle)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def counters(self, device: str) -> Counters:
        """Return the seconds that something has held the device back so far."""
        at_s, quota = time.monotonic(), linux.cpu_throttling()
        values: Mapping[str, Any] = self.ask[device](nvml.SLOWDOWN).values if device in self.ask else {}
        hot_s: Mapping[str, Any] = processor.thermal_throttle_s() if device == "cpu" else {"gpu": values.get("thermal_violation_s")}
        found = {"at": at_s, "quota": quota and quota["throttled_s"], "power_cap": values.get("power_violation_s")}
        return _known(found | {f"{_THERMAL}{name}": seconds for name, seconds in hot_s.items()})

    def throttling(self, device: str, before: Counters, seen: Throttling) -> Throttling | None:
        """Return what held a case back since ``before``, added to what was ``seen`` meanwhile; None if nothing is known."""
        after = self.counters(device)
        seconds = max(after["at"] - before["at"], 1e-9)
        # The kernel adds up the quota over CPUs, and the case's threads are what it can have stopped.
        most_s = {name: seconds * (self._threads if name == "quota" else 1) for name in after.keys() & before.keys()}
        # Counters of the driver and the clock here are not read at the same instant.
        shares = {name: min(1.0, max(0.0, after[name] - before[name]) / each) for name, each in most_s.items()}
        thermal = max((share for name, share in shares.items() if name.startswith(_THERMAL)), default=None)
        found = replace(seen, thermal=thermal, quota=shares.get("quota"), power_cap=shares.get("power_cap"))
        return None if found == Throttling() else found

    def meter(self, device: str) -> CounterMeter:
        """Return the meter of a device."""
        if device == "cpu":
            return processor_meter()
        found = next((each for each in usable_accelerators(self._devices) if each.id == device), None)
        if found is None or not found.is_nvidia:
            return _no_meter(Unknown.NO_METER_OF_KIND, kind=found.kind if found else "unknown")
        if found.mig:
            return _no_meter(Unknown.NO_METER_OF_INSTANCE)
        return _meter_of_card(self.ask[device]) if device in self.ask else _no_meter(Unknown.NO_METER)

    def meters(self, devices: Collection[str]) -> dict[str, CounterMeter]:
        """Return the meters of these devices and of the host's processors that can be read, each after its first reading."""
        meters = {device: self.meter(device) for device in {*devices, "cpu"}}
        now_s = time.monotonic()
        for meter in meters.values():
            meter.read(now_s)
        return {device: meter for device, meter in meters.items() if not meter.refused}

    def read_idle(self, devices: Collection[str], wait: Callable[[float], object]) -> None:
        """Note the idle power of devices and of the host's processors, metered for `IDLE_S`; ``wait`` waits so many seconds."""
        meters = self.meters(devices)
        begun_s = time.monotonic()
        for _ in range(IDLE_READINGS):
            wait(IDLE_S / IDLE_READINGS)
            for meter in meters.values():
                meter.read(time.monotonic())
        seconds = time.monotonic() - begun_s
        self.idle = {device: joules / seconds for device, meter in meters.items() if (joules := meter.joules()) is not None}

    @contextmanager
    def round(self, number: int, save: Callable[[RoundState], None]) -> Iterator[Callable[[], None]]:
        """Watch one round, and save at its end the state before and after it and the CPU time that others used meanwhile.

        Yields a function that reads the state after the last case. Call it while the measuring processes still hold their devices, at the
        clocks that they ran at.
        """
        before = self.state()
        after: dict[str, Any] = {}
        begun = processor.CpuUse(time.monotonic(), processor.cpu_time(), processor.own_cpu_s())
        try:
            yield lambda: after.update(self.state())
        finally:
            ended = processor.CpuUse(time.monotonic(), processor.cpu_time(), processor.own_cpu_s())
            seconds = ended.at_s - begun.at_s
            used = ended.others_since(begun) if seconds >= processor.TICKS_S else None
            others, stolen = used or (None, None)
            save(RoundState(number, seconds, others, stolen, before, after or self.state()))

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
    """Samples of a device during one case; messages of its worker say when the case is timed or metered."""

    def __init__(self, monitor: Monitor, device: str, declared: Declaration) -> None:
        self._monitor, self._device, self._on_host = monitor, device, device == "cpu"
        self._names = {each.role: each.name for each in declared.values}
        self._ask = monitor.ask.get(device)
        self._before = monitor.counters(device)
        self._samples: list[Sample] = []
        self._items: float | None = None
        """Items that were processed while the case was metered; None before the end of that."""
        self.due_s = math.inf
        """When to read next, on the scale of `time.monotonic`; infinite where nothing is timed or metered."""

    def mark(self, message: Mapping[str, float]) -> None:
        """Begin or end to sample, by a message of the worker.

        ``interval_s``, the time between two samples, begins a metered window, and ``items``, the number that was processed, ends it.
        ``timed`` begins or ends the timed blocks; a metered window among these takes the place of their samples.
        """
        if "interval_s" in message:
            metered = {"": self._device}
            if not self._on_host:
                metered["host"] = "cpu"
            self._begin(message["interval_s"], metered)
            self.due_s += self._interval_s
        elif "items" in message:
            self._end(message["items"], message["seconds"])
        elif message["timed"] and self._ask:
            self._begin(TIMED_S, {})
            self.read()
        else:
            self.due_s = math.inf

    def _begin(self, interval_s: float, metered: Mapping[str, str]) -> None:
        self._samples, self._interval_s, self._metered = [], interval_s, metered
        self._meters = {part: self._monitor.meter(device) for part, device in metered.items()}
        self.due_s = self._begun_s = self._read_meters()
        self._slowed_by = set[str]()
        """NVML's reasons for a low clock so far, of `SLOWDOWNS` and `POWER_CAPS`."""
        self._hot_s = processor.thermal_throttle_s() if self._on_host else {}
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
            meter.read(at_s)
        return at_s

    def _end(self, items: float, seconds: float) -> None:
        """End the metered window, and keep one sample for each whole interval of its ``seconds``, as the worker's series have.

        That is the first sample after the end of the interval, so that points keep their time even if a sample came late. There may be
        none for the last interval, as the worker's clock began earlier: its message took a while. The last sample stands for it.
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
        values: Mapping[str, Any] = self._ask(nvml.TELEMETRY).values if self._ask else {}
        reasons = values.get("throttle_reasons")
        held = SLOWDOWNS.union(POWER_CAPS).intersection(reasons or ())
        self._slowed_by |= held
        throttle: float | None = 0.0
        if reasons is None:
            throttle = None
        elif held:
            throttle = SLOWED_DOWN if SLOWDOWNS & held else AT_POWER_LIMIT
        clock, temperature, power = (values.get(name) for name in ("clock_sm_hz", "temperature_c", "power_w"))
        return {"clock": clock, "temperature": temperature, "power": power, "throttle": throttle}

    def _processor(self, at_s: float) -> Mapping[Telemetry, float | None]:
        hot_before_s = self._hot_s
        self._hot_s = processor.thermal_throttle_s()
        slowed = any(seconds > hot_before_s.get(name, 0.0) for name, seconds in self._hot_s.items())
        since_s, before_j = self._energy
        joules = self._meters[""].joules()
        self._energy = at_s, joules or 0.0
        return {
            # A hypervisor shows the nominal clock.
            "clock": None if processor.is_virtual() else processor.clock_hz(),
            "temperature": processor.temperature_c(),
            "power": None if joules is None or at_s <= since_s else (joules - before_j) / (at_s - since_s),
            "throttle": (SLOWED_DOWN if slowed else 0.0) if self._hot_s else None,
        }

    def add_samples(self, measurement: Measurement) -> Measurement:
        """Return an ok measurement with the samples taken meanwhile and the reasons for missing ones; any other as it is."""
        if measurement.status is not Status.OK:
            return measurement
        seen = self._under_load(measurement.throttling or Throttling())
        measurement = replace(measurement, throttling=self._monitor.throttling(self._device, self._before, seen))
        if self._items is None:
            return measurement
        points = {role: self._points(role) for role in get_args(Telemetry)}
        series = {role: tuple(map(float, known(each))) for role, each in points.items() if None not in each}
        values = {self._names[role]: each for role, each in series.items() if role in self._names}
        missing: list[Reason] = [{"part": role, **Unknown.NOT_TOLD.reason()} for role in points if role not in series]
        if not series:
            virtual = self._on_host and processor.is_virtual()
            missing = [(Unknown.NOTHING_TOLD_IN_VM if virtual else Unknown.NOTHING_TOLD).reason()]
        energy, reasons = self._metered_energy(self._items)
        measurement = replace(measurement, values={**measurement.values, **values}, energy=energy)
        return measurement.with_reasons("energy", *reasons).with_reasons("telemetry", *missing)

    def _points(self, role: Telemetry) -> list[float | None]:
        return [each.readings.get(role) for each in self._samples]

    def _under_load(self, lost: Throttling) -> Throttling:
        """Return what the case's process ``lost``, with the readings of a card meanwhile."""
        if self._on_host or not self._samples:
            return lost
        reasons = tuple(sorted(self._slowed_by)) if known(self._points("throttle")) else None
        clock_hz, power_w = (statistics.median(points) if (points := known(self._points(role))) else None for role in ("clock", "power"))
        return replace(lost, reasons=reasons, clock_hz=clock_hz, power_w=power_w)

    def _metered_energy(self, items: float) -> tuple[MeteredWindow, list[Reason]]:
        """Return the energy of the device and of the host, and the reasons for what is missing."""
        short = Unknown.SHORT_WINDOW.reason(seconds=self._seconds) if self._seconds < LEAST_S else None
        missing = {part: meter.refused or short or meter.missing() for part, meter in self._meters.items()}
        joules = {part: meter.joules() for part, meter in self._meters.items() if not missing[part]}
        idle = {part: self._monitor.idle.get(device) for part, device in self._metered.items()}
        if "" in joules and idle[""] is None:
            missing["idle"] = Unknown.NO_IDLE.reason()
        source = self._meters[""].name if "" in joules else None
        window = MeteredWindow(self._seconds, items, source, joules.get(""), idle[""], joules.get("host"), idle.get("host"))
        return window, [{**({"part": part} if part else {}), **reason} for part, reason in missing.items() if reason]


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
