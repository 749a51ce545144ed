"""Measured ceilings: the most that a device reached in any of its rows, and the share of it that each row reaches."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from dlbench.analysis.read.header import Environments
from dlbench.core.declarations import Ceiling
from dlbench.core.precision import PRECISIONS
from dlbench.core.rows.columns import MeasuredCeiling, Rates
from dlbench.core.rows.row import Row

RATES: Mapping[Ceiling, str] = {
    "arithmetic": "flops_per_s",
    "memory": "bytes_per_s",
    "launch": "items_per_s",
    "synchronisation": "items_per_s",
}
"""The rate whose highest number is the ceiling. Copies have more than one: of each direction, size and kind of memory."""
_MOVES = "memory"
"""Tag of work that moves each of its stated bytes once a call, so that no cache has them where they are many."""


Machine = tuple[object, ...]
"""Key that is equal for rows with the same ceilings: see `machine`."""
Ceilings = Mapping[tuple[Ceiling, str], MeasuredCeiling]
"""Those of one device, by kind and precision."""


def machine(row: Row, environments: Environments) -> Machine:
    """Return the device, its name, on a CPU the threads, and the machine, or the file if it does not record that."""
    threads = row.case.threads if row.is_on_cpu else None
    machine_key = environments.get(row.case.run, {}).get("machine_key") or row.case.run
    return row.case.device, row.case.device_name, threads, str(machine_key)


def measured(rows: Iterable[Row], environments: Environments) -> Mapping[Machine, Ceilings]:
    """Return the ceilings of each machine: the highest rates of all sound rows whose calls copy nothing to the device.

    A ceiling, of arithmetic in a precision or of memory, exists only if a row was measured that declares it: compared with itself alone,
    a step would be bound by whatever it does. Then any faster row raises it, as a convolution may beat the best product. Only rows tagged
    `_MOVES` that move as many bytes raise that of memory: caches may hold what the layers of a network move.
    """
    groups: dict[Machine, dict[tuple[Ceiling, str], list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in filter(_can_have_ceiling, rows):
        for kind in RATES:
            precision = computed_in(row) if kind == "arithmetic" else ""
            may_raise = row.declared.ceiling == kind or kind == "arithmetic" or (kind == "memory" and _MOVES in row.declared.tags)
            if may_raise and precision is not None and _rate(row, kind):
                groups[machine(row, environments)][kind, precision].append(row)
    found: dict[Machine, dict[tuple[Ceiling, str], MeasuredCeiling]] = {}
    for where, rows_by_kind in groups.items():
        for (kind, precision), alike in rows_by_kind.items():
            best = _best(kind, precision, alike)
            if best:
                found.setdefault(where, {})[kind, precision] = best
    return found


def _can_have_ceiling(row: Row) -> bool:
    """Whether a row may have a ceiling: it is sound, and neither it nor its calls copy over a link."""
    return row.is_sound and row.declared.ceiling != "copy" and not row.copies_within_calls


def _best(kind: Ceiling, precision: str, rows: Sequence[Row]) -> MeasuredCeiling | None:
    """Return the highest rate of rows as a ceiling, on a tie that of a row that declares it; None if no row declares it."""
    declaring = [row for row in rows if row.declared.ceiling == kind]
    if not declaring:
        return None
    least = min(map(_moved, declaring))
    candidates = [*declaring, *(row for row in rows if kind != "memory" or _moved(row) >= least)]
    best = max(candidates, key=lambda row: _rate(row, kind))
    return MeasuredCeiling(kind, precision, _rate(best, kind), best.case.id, least)


def reached_by(ceiling: MeasuredCeiling, rows: Iterable[Row]) -> Row:
    """Return the row that reached a ceiling; ``rows`` are those of its machine."""
    return max((row for row in rows if row.case.id == ceiling.case), key=lambda row: _rate(row, ceiling.kind))


def computed_in(row: Row) -> str | None:
    """Return the precision in which a row's products are computed, bf16 for autocast to it; None if its dtype is no precision."""
    named = PRECISIONS.get(str(row.case.dtype))
    return named.arithmetic if named else None


def with_ceilings(rows: Sequence[Row], environments: Environments) -> list[Row]:
    """Return the rows with the ceiling of their machine that bounds them, and the share of it that each reaches.

    With more operations a byte than the ratio of the ceilings, arithmetic bounds a row, with fewer memory (the roofline of Williams and
    others, 2009, https://doi.org/10.1145/1498765.1498785); without a measured ceiling of memory it is arithmetic. The rate is that of one
    rank. A row that moves its bytes faster than memory has them from a cache, so arithmetic bounds it. A row that memory would bound has
    no ceiling if a call moves fewer bytes than those measured for that ceiling, as they may come from a cache. The row that reached a
    ceiling, copies, which go over a link, and implausible rows have none either.
    """
    known = measured(rows, environments)
    if not known:
        return list(rows)
    return [
        replace(row, rate=_rates_with_ceiling(row, known.get(machine(row, environments), {}))) if _can_have_ceiling(row) else row
        for row in rows
    ]


def _rates_with_ceiling(row: Row, ceilings: Ceilings) -> Rates:
    arithmetic = ceilings.get(("arithmetic", computed_in(row) or ""))
    memory = ceilings.get(("memory", ""))
    flops_per_s, bytes_per_s = _rate(row, "arithmetic"), _rate(row, "memory")
    if memory and from_caches(row, memory):
        memory = None
    shares = [(rate / each.per_s, each) for rate, each in ((flops_per_s, arithmetic), (bytes_per_s, memory)) if rate and each]
    share, nearest = max(shares, key=lambda each: each[0], default=(0.0, None))
    reached_it = nearest is not None and share == 1 and nearest.case == row.case.id
    if nearest is None or reached_it or (nearest is memory and _moved(row) < memory.least_bytes):
        return row.rate
    return replace(row.rate, ceiling_fraction=share, ceiling=nearest)


def from_caches(row: Row, memory: MeasuredCeiling) -> bool:
    """Whether a row moves its stated bytes faster than memory was measured to, so that caches have some of them."""
    return _rate(row, "memory") > memory.per_s


def _moved(row: Row) -> float:
    """Return the bytes that a call moves on each device."""
    return _rate(row, "memory") * (row.time.median_s or 0.0)


def _rate(row: Row, kind: Ceiling) -> float:
    """Return the rate of one rank; 0 if there is none."""
    rate = row.per_rank(getattr(row.rate, RATES[kind]) or 0.0)
    return rate if math.isfinite(rate) else 0.0
