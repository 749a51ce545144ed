"""Entries for github-action-benchmark, which reads one direction a step: times, and throughputs."""

from collections.abc import Sequence
from typing import Any

from dlbench.analysis.export.cases import MS_PER_S, Timed, bounds
from dlbench.core.store import RunFile
from dlbench.core.units import one_line

NEEDS_NAME = "makes two files"


def document(_: RunFile, cases: Sequence[Timed]) -> dict[str, list[dict[str, Any]]]:
    """Return the entries of each direction, which make a file each.

    Times are milliseconds whatever their size, so that a case that grows past a second keeps its unit. The throughput is that
    of items, or of operations where a workload has no items; a case with neither has none.
    """
    smaller = [_entry(case, "ms", *case.time(MS_PER_S)) for case in cases]
    bigger = [_entry(case, "items/s" if case.items else "FLOP/s", *rate) for case in cases if (rate := case.items or case.flops)]
    return {"smaller-is-better": smaller, "bigger-is-better": bigger}


def _entry(case: Timed, unit: str, value: float, rounds: Sequence[float]) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": case.id, "unit": unit, "value": value}
    extra = [f"rounds: {len(rounds)}", f"device: {one_line(case.row.case.device_name or case.row.case.device)}"]
    if ends := bounds(rounds):
        low, high, meaning = ends
        entry["range"] = f"± {(high - low) / 2!r}"
        extra.append(f"range: half of the {meaning}")
    return {**entry, "extra": "\n".join(extra)}
