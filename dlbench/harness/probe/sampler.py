"""Monitor of the machine: what devices and CPUs do while a case runs, what held it back, and what other processes used in a round."""

import math
import statistics
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self, get_args

from dlbench.core.conditions import POWER_CAPS, SLOWDOWNS, RoundState, Throttling
from dlbench.core.declarations import Declaration, Telemetry
from dlbench.core.errors import Reason, Unknown
from dlbench.core.measurement import Measurement, MeteredWindow
from dlbench.core.stats import known
from dlbench.harness.probe import linux, nvml, processor
from dlbench.harness.probe.devices import Device, usable_accelerators
from dlbench.harness.probe.energy import CounterMeter, meter_of_card, meter_of_processors, no_meter
from dlbench.harness.probe.fingerprint import read_state

LEAST_S = 20.0
"""Shorter windows have no energy: a card's counter is refreshed up to ten times a second, and its readings lag as much
(Yang, Adamek and Armour, Part-time Power Measurements, SC 2024)."""
TIMED_S = 0.1
"""Between two readings while blocks are timed: about as often as drivers refresh what they tell."""
AT_POWER_LIMIT, SLOWED_DOWN = 1.0, 2.0
"""Points of the series of throttling; 0: nothing held the clock down."""
Telling = Mapping[Telemetry, float | None]
"""What a device tells now, None where it does not."""
IDLE_S = 10.0
"""To meter an idle device for."""
IDLE_READINGS = 10
"""Meanwhile: power alone is integrated over them."""
_SHORTEST_S = 1.0  # the kernel counts CPU time in ticks of 10 ms, so of a shorter round it says too little
Counters = Mapping[str, float]
"""Seconds so far in which something held a device back, and the time, as ``at``; without what nothing counts."""
_THERMAL = "thermal/"
"""Begins the name of each counter of heat: a processor has one for each core and package."""


class Monitor:
    """Watches cases and rounds. Use as a context manager: NVML is opened once, as that takes longer than a short case."""

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
        """Return what has held the device back so far."""
        now_s, quota = time.monotonic(), linux.cpu_throttling()
        values: Mapping[str, Any] = self.ask[device](nvml.SLOWDOWN).values if device in self.ask else {}
        thermal_s = processor.thermal_throttle_s() if device == "cpu" else {}
        found = {
            "at": now_s,
            "quota": quota and quota["throttled_s"],
            "power_cap": values.get("power_violation_s"),
            f"{_THERMAL}gpu": values.get("thermal_violation_s"),
        }
        return _known(found) | {f"{_THERMAL}{name}": hot_s for name, hot_s in thermal_s.items()}

    def throttling(self, device: str, before: Counters, tries: int, lost: Throttling | None = None) -> Throttling | None:
        """Return what held a case on the device back since ``before``; None where nothing tells of anything.

        ``lost`` is what the case's own process saw of its CPUs, with what a card told under its load.
        """
        after = self.counters(device)
        seconds = max(after["at"] - before["at"], 1e-9)
        # The kernel adds up the quota over CPUs, and the case's threads are what it can have stopped.
        most_s = {name: seconds * (self._threads if name == "quota" else 1) for name in after.keys() & before.keys()}
        # Counters of the driver and the clock here are not read at the same instant.
        shares = {name: min(1.0, max(0.0, after[name] - before[name]) / each) for name, each in most_s.items()}
        found = replace(
            lost or Throttling(),
            thermal=max((share for name, share in shares.items() if name.startswith(_THERMAL)), default=None),
            quota=shares.get("quota"),
            power_cap=shares.get("power_cap"),
            tries=tries,
        )
        return found if replace(found, tries=1) != Throttling() else None

    def window(self, device: str, declared: Declaration) -> "Window":
        """Return what reads a device, and the host's processors, during one case on it."""
        return Window(self, device, declared)

    def meter(self, device: str) -> CounterMeter:
        """Return what meters a device."""
        if device == "cpu":
            return meter_of_processors()
        found = next((each for each in usable_accelerators(self._devices) if each.id == device), None)
        if found is None or not found.is_nvidia:
            return no_meter(Unknown.NO_METER_OF_KIND, kind=found.kind if found else "unknown")
        if found.mig:
            return no_meter(Unknown.NO_METER_OF_INSTANCE)
        return meter_of_card(self.ask[device]) if device in self.ask else no_meter(Unknown.NO_METER)

    def meters(self, devices: Collection[str]) -> dict[str, CounterMeter]:
        """Return what meters each of these devices and the host's processors, of those that are metered, each read once."""
        found, now_s = {device: self.meter(device) for device in {*devices, "cpu"}}, time.monotonic()
        for meter in found.values():
            meter.read(now_s)
        return {device: meter for device, meter in found.items() if not meter.refused}

    def read_idle(self, devices: Collection[str], wait: Callable[[float], object]) -> None:
        """Meter devices and the host's processors for `IDLE_S`, a second at a time, which ``wait`` lets pass."""
        meters, begun_s = self.meters(devices), time.monotonic()
        for _ in range(IDLE_READINGS):
            wait(IDLE_S / IDLE_READINGS)
            for meter in meters.values():
                meter.read(time.monotonic())
        seconds = time.monotonic() - begun_s
        joules = {device: meter.joules() for device, meter in meters.items()}
        self.idle = {device: each / seconds for device, each in joules.items() if each is not None}

    @contextmanager
    def round(self, number: int, save: Callable[[RoundState], None]) -> Iterator[Callable[[], None]]:
        """Watch one round: the state before it, right after its last case, and what others used meanwhile. Save that at the end.

        Yields what reads the state after its last case, to be called while the measuring processes still hold their devices at the clocks
        that they ran at.
        """
        before, after = self.state(), dict[str, Any]()
        begun_s, machine, own_s = time.monotonic(), processor.cpu_time(), processor.own_cpu_s()
        try:
            yield lambda: after.update(self.state())
        finally:
            seconds, machine_now, own_now_s = time.monotonic() - begun_s, processor.cpu_time(), processor.own_cpu_s()
            others = stolen = None
            if machine is not None and machine_now is not None and seconds >= _SHORTEST_S:
                others = max(0.0, machine_now.busy_s - machine.busy_s - (own_now_s - own_s)) / seconds
                stolen = max(0.0, machine_now.stolen_s - machine.stolen_s) / seconds
            save(RoundState(number, seconds, others, stolen, before, after or self.state()))

    def state(self) -> dict[str, Any]:
        """Return the state without what is unknown, whose reasons the header has."""
        state = read_state(self._devices)
        accelerators = {device: _known({**each, "reasons": None}) for device, each in state["accelerators"].items()}
        return _known({"cpu": _known(state["cpu"]), "accelerators": accelerators or None})


@dataclass
class Window:
    """What is read of a device during one case, whose worker says by messages when it is timed, or metered."""

    monitor: Monitor
    device: str
    declared: Declaration
    """Of the case's workload: its values have the names of the series."""
    now: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._on_host = self.device == "cpu"
        self._ask = self.monitor.ask.get(self.device)
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

    def mark(self, message: Mapping[str, float]) -> None:
        """Begin to meter, at a message with ``interval_s`` between two readings, or end, at one with the ``items`` that were processed.

        Blocks are ``timed`` from one message to the next; a window within takes the place of these readings.
        """
        if "interval_s" in message:
            self._begin(message["interval_s"], {"": self.device} if self._on_host else {"": self.device, "host": "cpu"})
        elif "items" in message:
            self._end(message["items"], message["seconds"])
        elif message["timed"] and self._ask:
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

    def _begin(self, interval_s: float, metered: Mapping[str, str]) -> None:
        self._clear()
        self._metered = metered
        self._meters = {part: self.monitor.meter(device) for part, device in metered.items()}
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
        return self._card(self._ask(nvml.TELEMETRY).values) if self._ask else {}

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

    def _points(self, role: Telemetry) -> list[float | None]:
        return [each.get(role) for each in self._series]

    def _under_load(self, lost: Throttling | None) -> Throttling | None:
        """Return what the case's process saw of its CPUs, with what a card told meanwhile."""
        if self._on_host or not self._series:
            return lost
        clock, power = known(self._points("clock")), known(self._points("power"))
        return replace(
            lost or Throttling(),
            reasons=tuple(sorted(self._slowed_by)) if known(self._points("throttle")) else None,
            clock_hz=statistics.median(clock) if clock else None,
            power_w=statistics.median(power) if power else None,
        )

    def _telemetry(self) -> tuple[dict[str, tuple[float, ...]], list[Reason]]:
        """Return the series that the machine tells, and why it does not tell the others."""
        found = {role: self._points(role) for role in get_args(Telemetry)}
        series = {role: tuple(map(float, known(points))) for role, points in found.items() if points and None not in points}
        if not series:
            virtual = self._on_host and processor.is_virtual()
            return {}, [(Unknown.NOTHING_TOLD_IN_VM if virtual else Unknown.NOTHING_TOLD).reason()]
        return series, [{"part": role, **Unknown.NOT_TOLD.reason()} for role in found if role not in series]

    def _energy(self) -> tuple[MeteredWindow, list[Reason]]:
        """Return the energy, and why there is none of the device or of the host."""
        short = Unknown.SHORT_WINDOW.reason(seconds=self._seconds) if self._seconds < LEAST_S else None
        missing = {part: meter.refused or short or meter.missing() for part, meter in self._meters.items()}
        joules = {part: meter.joules() for part, meter in self._meters.items() if not missing[part]}
        idle = {part: self.monitor.idle.get(meter) for part, meter in self._metered.items()}
        if "" in joules and idle[""] is None:
            missing["idle"] = Unknown.NO_IDLE.reason()
        source = self._meters[""].name if "" in joules else None
        window = MeteredWindow(self._seconds, self._items, source, joules.get(""), idle[""], joules.get("host"), idle.get("host"))
        return window, [{**({"part": part} if part else {}), **reason} for part, reason in missing.items() if reason]


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
