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
"""The rate whose highest number is the ceiling. Copies have more than one: of each way, size and kind of memory."""
_MOVES = "memory"
"""Tag of work that moves each of its stated bytes once a call, so that no cache has them where they are many."""


Machine = tuple[object, ...]
"""What rows share that are held against one ceiling: see `machine`."""
Ceilings = Mapping[tuple[Ceiling, str], MeasuredCeiling]
"""Those of one device, by kind and precision."""


def machine(row: Row, environments: Environments) -> Machine:
    """Return the device, its name, on a CPU the threads, and which machine it is in, or the file where that does not say."""
    threads, run = row.case.threads if row.is_on_cpu else None, row.case.run
    return row.case.device, row.case.device_name, threads, str(environments.get(run, {}).get("machine_key") or run)


def measured(rows: Iterable[Row], environments: Environments) -> dict[Machine, Ceilings]:
    """Return the ceilings of each machine: the best of all sound rows whose calls copy nothing to the device.

    There is one of arithmetic in a precision, and one of memory, only where a row was measured that declares it: held against itself
    alone, a step would be bound by whatever it does. Where there is one, any row that beats those raises it: a convolution may beat the
    best product. Of memory only those with `_MOVES` do, and that move as many bytes: what the layers of a network state, caches may hold.
    """
    groups: dict[Machine, dict[tuple[Ceiling, str], list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in filter(_is_held, rows):
        for kind in RATES:
            precision = computed_in(row) if kind == "arithmetic" else ""
            raises = row.declared.ceiling == kind or kind == "arithmetic" or (kind == "memory" and _MOVES in row.declared.tags)
            if raises and precision is not None and _rate(row, kind):
                groups[machine(row, environments)][kind, precision].append(row)
    found = {where: {key: best for key, own in kinds.items() if (best := _best(*key, own))} for where, kinds in groups.items()}
    return {where: ceilings for where, ceilings in found.items() if ceilings}


def _is_held(row: Row) -> bool:
    """Whether ceilings say anything of a row: it is sound, and neither it nor its calls copy over a link."""
    return row.is_sound and row.declared.ceiling != "copy" and not row.copies_within_calls


def _best(kind: Ceiling, precision: str, rows: Sequence[Row]) -> MeasuredCeiling | None:
    """Return the ceiling that rows reach, None where no one declares it; on a tie it is that of one that does."""
    declaring = [row for row in rows if row.declared.ceiling == kind]
    if not declaring:
        return None
    least = min(map(_moved, declaring))
    best = max([*declaring, *(row for row in rows if kind != "memory" or _moved(row) >= least)], key=lambda row: _rate(row, kind))
    return MeasuredCeiling(kind, precision, _rate(best, kind), best.case.id, least)


def reached_by(ceiling: MeasuredCeiling, rows: Iterable[Row]) -> Row:
    """Return which of the rows of its machine reached a ceiling."""
    return max((row for row in rows if row.case.id == ceiling.case), key=lambda row: _rate(row, ceiling.kind))


def computed_in(row: Row) -> str | None:
    """Return the precision that a row's products are computed in, bf16 for autocast to it; None where it names none."""
    named = PRECISIONS.get(str(row.case.dtype))
    return named.arithmetic if named else None


def with_ceilings(rows: Sequence[Row], environments: Environments) -> list[Row]:
    """Return the rows with the share that each reaches of the ceiling of its machine that bounds it, and which that is.

    That is arithmetic above as many operations a byte as both ceilings have, and memory below (the roofline of Williams and others, 2009,
    https://doi.org/10.1145/1498765.1498785); without a measured ceiling of memory, arithmetic. Of several ranks, what each reaches. A call
    that moves fewer bytes than those that the ceiling of memory was measured with may have them from a cache, so nothing is said of one
    that memory would bound. One that moves them faster than memory does has them from a cache, so it is held against arithmetic. Nothing
    is said of the row that reached the ceiling, of copies, which go over a link, nor of what is implausible.
    """
    if not (known := measured(rows, environments)):
        return list(rows)
    return [replace(row, rate=_held_against(row, known.get(machine(row, environments), {}))) if _is_held(row) else row for row in rows]


def _held_against(row: Row, ceilings: Ceilings) -> Rates:
    arithmetic, memory = ceilings.get(("arithmetic", computed_in(row) or "")), ceilings.get(("memory", ""))
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
    """Return a rate of each device that takes part, 0 where there is none."""
    rate = row.per_rank(getattr(row.rate, RATES[kind]) or 0.0)
    return rate if math.isfinite(rate) else 0.0
