"""Measured ceilings: the most that a device reached in rows that are there to tell it, and the share of it that each row reaches."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dlbench.core import units
from dlbench.core.declarations import Ceiling, Declaration
from dlbench.core.model import Status
from dlbench.core.precision import PRECISIONS
from dlbench.core.rows.summary import Row

RATES: Mapping[Ceiling, str] = {
    "arithmetic": "rate.flops_per_s",
    "memory": "rate.bytes_per_s",
    "launch": "rate.items_per_s",
    "synchronisation": "rate.items_per_s",
}
"""The column whose highest number is the ceiling. Copies have more than one: of each way, size and kind of memory."""


@dataclass(frozen=True, slots=True)
class MeasuredCeiling:
    """The best of the rows that tell what a device can do at most."""

    kind: Ceiling
    precision: str
    """That products are computed in; empty for what is no arithmetic."""
    per_s: float
    row: Row = field(repr=False)
    least_bytes: float
    """That a call moves of any row that it is the best of."""

    def __str__(self) -> str:
        rate = f"{units.flop_rate(self.per_s)} in {self.precision}" if self.kind == "arithmetic" else units.byte_rate(self.per_s)
        return f"{self.kind}: {rate}, {str(self.row['case.id']).rpartition('@')[0]}"


Machine = tuple[object, ...]
"""What rows share that are held against one ceiling: see `machine`."""
Ceilings = Mapping[tuple[Ceiling, str], MeasuredCeiling]
"""Those of one device, by kind and precision."""


def machine(row: Row, environments: Mapping[str, Mapping[str, Any]]) -> Machine:
    """Return the device, its name, on a CPU the threads, and which machine it is in as far as the row's file knows."""
    threads = row["case.threads"] if row["case.device"] == "cpu" else None
    return row["case.device"], row["case.device_name"], threads, str(environments.get(str(row["case.run"]), {}).get("machine_key"))


def measured(
    rows: Iterable[Row], declaration: Callable[[Row], Declaration], environments: Mapping[str, Mapping[str, Any]]
) -> dict[Machine, Ceilings]:
    """Return the ceilings of each machine, of sound rows alone whose calls copy nothing to the device."""
    groups: dict[Machine, dict[tuple[Ceiling, str], list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        declared = declaration(row)
        kind = declared.ceiling
        if (
            declared.copies_within_calls(row)
            or kind is None
            or kind not in RATES
            or row["case.status"] != Status.OK
            or row["flag.implausible"]
        ):
            continue
        precision = computed_in(row) if kind == "arithmetic" else ""
        if precision is not None and _rate(row, RATES[kind]):
            groups[machine(row, environments)][kind, precision].append(row)
    return {where: {(kind, of): _best(kind, of, found) for (kind, of), found in kinds.items()} for where, kinds in groups.items()}


def _best(kind: Ceiling, precision: str, rows: Sequence[Row]) -> MeasuredCeiling:
    best = max(rows, key=lambda row: _rate(row, RATES[kind]))
    return MeasuredCeiling(kind, precision, _rate(best, RATES[kind]), best, min(map(_moved, rows)))


def computed_in(row: Row) -> str | None:
    """Return the precision that a row's products are computed in, bf16 for autocast to it; None where it names none."""
    named = PRECISIONS.get(str(row["case.dtype"]))
    return named.arithmetic if named else None


def with_ceilings(
    rows: Sequence[Row], declaration: Callable[[Row], Declaration], environments: Mapping[str, Mapping[str, Any]]
) -> list[Row]:
    """Return the rows with the share that each reaches of the ceiling of its machine that bounds it, and which that is.

    That is arithmetic above as many operations a byte as both ceilings have, and memory below (the roofline of Williams and others, 2009,
    https://doi.org/10.1145/1498765.1498785); without a measured ceiling of memory, arithmetic. Of several ranks, what each reaches. A call
    that moves fewer bytes than those that the ceiling of memory was measured with may have them from a cache, so nothing is said of one
    that memory would bound; nor of copies, which go over a link.
    """
    known = measured(rows, declaration, environments)
    if not known:
        return list(rows)
    held = [declaration(row).ceiling != "copy" and not declaration(row).copies_within_calls(row) for row in rows]
    return [
        {**row, **_share(row, known.get(machine(row, environments), {}))} if compared else row
        for row, compared in zip(rows, held, strict=True)
    ]


def _share(row: Row, ceilings: Ceilings) -> Row:
    if row["case.status"] != Status.OK:
        return {}
    arithmetic, memory = ceilings.get(("arithmetic", computed_in(row) or "")), ceilings.get(("memory", ""))
    flops_per_s, bytes_per_s = _rate(row, RATES["arithmetic"]), _rate(row, RATES["memory"])
    shares = [(rate / each.per_s, each) for rate, each in ((flops_per_s, arithmetic), (bytes_per_s, memory)) if rate and each]
    share, nearest = max(shares, key=lambda each: each[0], default=(0.0, None))
    if nearest is None or (nearest is memory and _moved(row) < memory.least_bytes):
        return {}
    return {"rate.ceiling_fraction": share, "rate.ceiling": str(nearest)}


def _moved(row: Row) -> float:
    """Return the bytes that a call moves on each device."""
    return _rate(row, RATES["memory"]) * _number(row["time.median_s"])


def _rate(row: Row, column: str) -> float:
    """Return a rate of each device that takes part, 0 where there is none."""
    ranks = row.get("param.ranks")
    rate = _number(row[column]) / (ranks if isinstance(ranks, int) and 0 < ranks < 2**31 else 1)
    return rate if math.isfinite(rate) else 0.0


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
