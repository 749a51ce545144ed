"""Monitor of the machine: what held a case back, and what other processes used in a round."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Self

from dlbench.core.conditions import RoundState, Throttling
from dlbench.core.declarations import Declaration
from dlbench.core.unknown import Unknown
from dlbench.harness.probe import cgroup, nvml, processor
from dlbench.harness.probe.devices import Device, usable_accelerators
from dlbench.harness.probe.energy import CounterMeter, meter_of_card, meter_of_processors, no_meter
from dlbench.harness.probe.fingerprint import read_state
from dlbench.harness.probe.window import Idle, Window

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
        self._ask: dict[str, Callable[[tuple[str, ...]], nvml.Readings]] = {}
        """By device, what asks NVML about it."""
        self._idle: dict[str, float] = {}
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
                    self._ask[each.id] = partial(opened.read, handle)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def counters(self, device: str) -> Counters:
        """Return what has held the device back so far."""
        now_s, quota = time.monotonic(), cgroup.cpu_throttling()
        values: Mapping[str, Any] = self._ask[device](nvml.SLOWDOWN).values if device in self._ask else {}
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

    def window(self, device: str, declared: Declaration) -> Window:
        """Return what reads a device, and the host's processors, during one case on it."""
        on_host = device == "cpu"
        idle = Idle(self._idle.get(device), None if on_host else self._idle.get("cpu"))
        return Window(
            declared=declared,
            ask=self._ask.get(device),
            make_meter=partial(self._meter, device),
            make_host_meter=None if on_host else meter_of_processors,
            idle=idle,
        )

    def _meter(self, device: str) -> CounterMeter:
        """Return what meters a device."""
        if device == "cpu":
            return meter_of_processors()
        found = next((each for each in usable_accelerators(self._devices) if each.id == device), None)
        if found is None or not found.is_nvidia:
            return no_meter(Unknown.NO_METER_OF_KIND, kind=found.kind if found else "unknown")
        if found.mig:
            return no_meter(Unknown.NO_METER_OF_INSTANCE)
        return meter_of_card(self._ask[device]) if device in self._ask else no_meter(Unknown.NO_METER)

    def meters(self, devices: Collection[str]) -> dict[str, CounterMeter]:
        """Return what meters each of these devices and the host's processors, of those that are metered, each read once."""
        found, now_s = {device: self._meter(device) for device in {*devices, "cpu"}}, time.monotonic()
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
        self._idle = {device: each / seconds for device, each in joules.items() if each is not None}

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


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
