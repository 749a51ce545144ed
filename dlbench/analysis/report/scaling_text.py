"""Tables of several devices that are shown where they are asked for: projections, and bandwidths of collectives."""

from collections.abc import Sequence

from dlbench.analysis.answers.base import PLACE, Columns, Table, placed
from dlbench.analysis.answers.devices import WHAT
from dlbench.analysis.read.table import Results
from dlbench.analysis.scaling.speedup import COLUMNS
from dlbench.analysis.wording import number, plural
from dlbench.core import units
from dlbench.core.model import ParamValue
from dlbench.core.rows.summary import Row
from dlbench.core.schema import BY_NAME, Column, Unit

_ASSUMPTIONS = (
    "Assumed: gradients go around a ring, whose latency grows with the ranks; every link is as fast as those measured, between machines "
    "too; as much communication hides behind the same computing as on the fewest ranks measured; inputs are on the devices already."
)
_COPIES = (
    "Copies: what sending each device its inputs would add if nothing hid it, all at once and as fast as on the fewest ranks measured."
)
_PROJECTED: Columns = (
    *WHAT,
    ("step, projected", COLUMNS["scaling.projected_s"]),
    ("copies, projected", COLUMNS["scaling.projected_copies_s"]),
    ("items/s, projected", COLUMNS["scaling.projected_items_per_s"]),
    ("step, measured", COLUMNS["scaling.step_s"]),
    ("error", COLUMNS["scaling.projection_error"]),
)
_WHERE = ("param.ranks", "param.bytes", "case.dtype", "case.device", "case.run")
"""What tells a line of the table of collectives from another."""


def projection(rows: Sequence[Row]) -> Table:
    """Return the table of what was projected, with what was measured where it was; no rows where there is nothing."""
    known = [row for row in rows if row["scaling.projected_s"] is not None]
    return Table(
        "Projection, not measured: a data-parallel step on more devices", _PROJECTED, placed(known, "scaling"), _assumptions(known)
    )


def bandwidths(results: Results) -> Table:
    """Return the table of collectives: bus bandwidth by ranks, size and operation; no rows where there is nothing."""

    def operation(row: Row) -> str:
        return str(row[f"param.{results.parallel(row).collective}"])

    known = [row for row in results.rows if row["rate.bus_bytes_per_s"] is not None and type(row.get("param.bytes")) is int]
    lines: dict[tuple[ParamValue | None, ...], Row] = {}
    for row in sorted(known, key=lambda row: [number(row[f"param.{name}"]) for name in ("ranks", "bytes")]):
        lines.setdefault(tuple(row[name] for name in _WHERE), {**row})[operation(row)] = row["rate.bus_bytes_per_s"]
    columns: Columns = (
        ("case", Column("param.bytes", Unit.BYTES, "size of the message")),
        PLACE,
        ("dtype", BY_NAME["case.dtype"]),
        ("ranks", Column("param.ranks", Unit.COUNT, "ranks that take part")),
    )
    columns += tuple((name, Column(name, Unit.BYTES_PER_S, "bus bandwidth", "higher")) for name in dict.fromkeys(map(operation, known)))
    return Table("Collectives: bus bandwidth by size", columns, placed(list(lines.values()), "case"))


def _assumptions(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return what the projection takes for granted, and how far off it was; nothing where there is none."""
    if not rows:
        return ()
    told = (_ASSUMPTIONS, *([_COPIES] if any(row["scaling.projected_copies_s"] is not None for row in rows) else []))
    errors = [abs(number(row["scaling.projection_error"])) for row in rows if row["scaling.projection_error"] is not None]
    if not errors:
        return *told, "No step of more ranks than it stands on was measured, so how far it is off is not known."
    steps = plural(len(errors), "measured step")
    return *told, f"Checked on {steps} of more ranks than it stands on: off by {units.percent(max(errors))} at most."
