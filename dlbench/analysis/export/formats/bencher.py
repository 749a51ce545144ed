"""Bencher Metric Format: latency in nanoseconds, throughput in items a second, peak memory in bytes."""

from collections.abc import Sequence
from typing import Any

from dlbench.analysis.export.cases import NS_PER_S, Timed, bounds
from dlbench.core.store import RunFile


def document(_: RunFile, cases: Sequence[Timed]) -> Any:
    """Return its content. The memory is the device's, or on a CPU the process's."""
    return {case.id: _measures(case) for case in cases}


def _measures(case: Timed) -> dict[str, dict[str, float]]:
    measures = {"latency": _metric(*case.time(NS_PER_S))}
    if items := case.items:
        measures["throughput"] = _metric(*items)
    if peak := case.row.memory.peak_bytes or case.row.memory.host_peak_bytes:
        measures["peak-memory"] = {"value": float(peak)}
    return measures


def _metric(value: float, rounds: Sequence[float]) -> dict[str, float]:
    if ends := bounds(rounds):
        return {"value": value, "lower_value": ends[0], "upper_value": ends[1]}
    return {"value": value}
