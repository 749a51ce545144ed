"""Checks of a machine before anything is measured: a module of this folder each. They read, and never change a setting."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dlbench.core import files
from dlbench.core.machine import Finding
from dlbench.harness.probe import nvml
from dlbench.harness.probe.devices import Devices, read_accelerators, usable_accelerators
from dlbench.harness.probe.fingerprint import read_state

State = Mapping[str, Any]
"""What was read of all devices, or of one of them, by name."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What was read of a machine."""

    devices: Devices
    state: State
    """As `fingerprint.read_state` returns it."""
    readings: Mapping[str, nvml.Readings]
    """Of each accelerator that can be used."""


def examine(devices: Devices) -> list[Finding]:
    """Return what all checks find in these devices, as they are now."""
    readings = read_accelerators(usable_accelerators(devices), nvml.HEALTH)
    seen = Seen(devices, read_state(devices), readings)
    return [finding for check in files.ordered(__name__) for finding in check.findings(seen)]
