"""Header of a result file: where and how it was measured, and what its suites ask for."""

from collections.abc import Mapping, Sequence
from typing import Any

from dlbench.core.model import CONFIRMING, Measurement
from dlbench.core.reference.peaks import link_bytes_per_s
from dlbench.core.rows.summary import Row
from dlbench.core.store import RunFile
from dlbench.core.thresholds import ThresholdSettings


def run_name(file: str, side: str | None) -> str:
    """Return the ``case.run`` of a file, or of a side of it."""
    return file if side is None else f"{file}:{side}"


def of_sides(run: RunFile, cases: Sequence[Sequence[Measurement]]) -> dict[str | None, Mapping[str, Any]]:
    """Return what the header says of each side, which is None in a plain run; a side that was measured again is still that side."""
    sides = run.header.get("sides") or {}
    found = dict.fromkeys([*(sides or [None]), *(measurements[0].side for measurements in cases)])
    return {side: sides.get((side or "").removesuffix(CONFIRMING), {}) for side in found}


def environments(run: RunFile, name: str, sides: Mapping[str | None, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return where each ``case.run`` of a file was measured."""
    return {run_name(name, side): {**(run.header.get("environment") or {}), **told} for side, told in sides.items()}


def device_names(run: RunFile) -> dict[str, str]:
    """Return what the header calls each device, for cases that ended before they could say."""
    return {device["id"]: device["name"] for device in run.header.get("devices", ()) if device.get("name")}


_TIMING = ("round_s", "min_blocks", "max_blocks", "warmup_s", "max_warmup_s")
"""Of a policy what the time of a round depends on; how many rounds there are is no matter of theirs."""


def protocol(run: RunFile) -> Row:
    """Return how a file was measured, as far as its header says: isolation, and of the policy what a time depends on."""
    policy, isolation = run.header.get("policy") or {}, run.header.get("isolation")
    said: Row = {f"policy.{name}": "default" if policy[name] is None else str(policy[name]) for name in _TIMING if name in policy}
    return {**said, **({"isolation": isolation} if isinstance(isolation, str) else {})}


def link(row: Row, device: Mapping[str, Any]) -> Row:
    """Set the pinned copies against the PCIe link of the device, as the header describes it; say why that can't be done."""
    pinned, reason = row["transfer.pinned_h2d_bytes_per_s"], row["transfer.reason"]
    if pinned is None:
        return {}
    generation, lanes = device.get("pcie_generation_max"), device.get("pcie_width_max")
    if isinstance(generation, int) and isinstance(lanes, int) and (most := link_bytes_per_s(generation, lanes)):
        return {"transfer.link_bytes_per_s": most, "transfer.link_fraction": float(pinned) / most}
    reasons = device.get("reasons")
    told = reasons.get("pcie_generation_max") if isinstance(reasons, dict) else None
    why = f"link: {told or 'the file tells of no PCIe link of this device that dlbench knows'}"
    return {"transfer.reason": why if reason is None else f"{reason}; {why}"}


def thresholds(run: RunFile) -> dict[str, ThresholdSettings]:
    """Return the thresholds of each suite that sets any."""
    suites = [suite for suite in run.header.get("suites", ()) if isinstance(suite, dict)]
    return {str(suite.get("name")): suite["thresholds"] for suite in suites if suite.get("thresholds")}
