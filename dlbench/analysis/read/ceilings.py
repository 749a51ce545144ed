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
from dlbench.core.stats import known

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


def measured_ceilings(rows: Iterable[Row], environments: Environments) -> Mapping[Machine, Ceilings]:
    """Return the ceilings of each machine: the highest rates that its rows reached.

    A ceiling exists only if a sound row was measured whose workload declares it. Without such a row the fastest step would itself be the
    ceiling, and so reach it, however slow it is. Other rows may raise a ceiling that exists, see `_may_raise`.
    """
    # By machine, then by kind and precision of the ceiling.
    candidates: dict[Machine, dict[tuple[Ceiling, str], list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in filter(_can_have_ceiling, rows):
        for kind in RATES:
            precision = computed_in(row) if kind == "arithmetic" else ""
            if precision is not None and _may_raise(row, kind) and _rate(row, kind):
                candidates[machine(row, environments)][kind, precision].append(row)
    ceilings_of: dict[Machine, Ceilings] = {}
    for key, rows_of_ceiling in candidates.items():
        highest = known(_highest(kind, precision, alike) for (kind, precision), alike in rows_of_ceiling.items())
        if highest:
            ceilings_of[key] = {(each.kind, each.precision): each for each in highest}
    return ceilings_of


def _can_have_ceiling(row: Row) -> bool:
    """Whether a row may have a ceiling: it is sound, and neither it nor its calls copy over a link."""
    return row.is_sound and row.declared.ceiling != "copy" and not row.copies_within_calls


def _may_raise(row: Row, kind: Ceiling) -> bool:
    """Whether a row declares a ceiling of this kind, or may raise one that others declare.

    Any row may raise that of arithmetic, as a convolution may beat the best product. Only rows tagged `_MOVES` may raise that of memory:
    caches may hold what the layers of a network move.
    """
    if kind == "arithmetic" or row.declared.ceiling == kind:
        return True
    return kind == "memory" and _MOVES in row.declared.tags


def _highest(kind: Ceiling, precision: str, rows: Sequence[Row]) -> MeasuredCeiling | None:
    """Return the highest rate of rows as a ceiling, on a tie that of a row that declares it; None if no row declares it.

    A ceiling of memory is raised only by rows that move as many bytes a call as those that declare it: a cache may hold fewer.
    """
    declaring = [row for row in rows if row.declared.ceiling == kind]
    if not declaring:
        return None
    least_bytes = min(map(_moved, declaring))
    others = [row for row in rows if kind != "memory" or _moved(row) >= least_bytes]
    highest = max([*declaring, *others], key=lambda row: _rate(row, kind))  # `max` keeps the first of equals
    return MeasuredCeiling(kind, precision, _rate(highest, kind), highest.case.id, least_bytes)


def reached_by(ceiling: MeasuredCeiling, rows: Iterable[Row]) -> Row:
    """Return the row that reached a ceiling; ``rows`` are those of its machine."""
    return max((row for row in rows if row.case.id == ceiling.case), key=lambda row: _rate(row, ceiling.kind))


def computed_in(row: Row) -> str | None:
    """Return the precision in which a row's products are computed, bf16 for autocast to it; None if its dtype is no precision."""
    named = PRECISIONS.get(str(row.case.dtype))
    return named.arithmetic if named else None


def with_ceilings(rows: Sequence[Row], environments: Environments) -> list[Row]:
    """Return the rows with the ceiling of their machine that bounds them, and the share of it that each reaches.

    A machine may have a ceiling of arithmetic and one of memory. The one of which a row reaches the larger share bounds it (the roofline of
    Williams and others, 2009, https://doi.org/10.1145/1498765.1498785). Shares are by the rate of one rank. These rows have no ceiling:
    those that did not go well, are implausible or copy over a link, and those that `_rates_with_ceiling` leaves without one.
    """
    ceilings_of = measured_ceilings(rows, environments)
    if not ceilings_of:
        return list(rows)

    def bounded(row: Row) -> Row:
        if not _can_have_ceiling(row):
            return row
        return replace(row, rate=_rates_with_ceiling(row, ceilings_of.get(machine(row, environments), {})))

    return list(map(bounded, rows))


def _rates_with_ceiling(row: Row, ceilings: Ceilings) -> Rates:
    """Return the rates of a row with the ceiling that bounds it, if any.

    Memory does not bound a row that moves its bytes faster than memory can, as it has them from a cache. A row that memory would bound has
    no ceiling if a call moves fewer bytes than those measured for that ceiling, as they may come from a cache, too. The row whose rate is
    the ceiling has none, as it would be compared with itself.
    """
    arithmetic = ceilings.get(("arithmetic", computed_in(row) or ""))
    memory = ceilings.get(("memory", ""))
    if memory and from_caches(row, memory):
        memory = None
    rates_and_ceilings = (_rate(row, "arithmetic"), arithmetic), (_rate(row, "memory"), memory)
    shares = [(rate / ceiling.per_s, ceiling) for rate, ceiling in rates_and_ceilings if rate and ceiling]
    share, nearest = max(shares, key=lambda each: each[0], default=(0.0, None))
    if nearest is None:
        return row.rate
    reached_it = share == 1 and nearest.case == row.case.id
    may_be_cached = nearest is memory and _moved(row) < nearest.least_bytes
    return row.rate if reached_it or may_be_cached else replace(row.rate, ceiling_fraction=share, ceiling=nearest)


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
