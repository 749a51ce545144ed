"""Tables shown on request: projections, bandwidths of collectives, and the values of workloads that report many."""

from collections.abc import Sequence

from dlbench.analysis.answers.base import DEVICE, Columns, Table, with_device
from dlbench.analysis.answers.devices import WHAT
from dlbench.analysis.ratios import grouped
from dlbench.analysis.read.table import Results
from dlbench.analysis.scaling.speedup import COLUMNS
from dlbench.analysis.wording import cell, key, number, plural, value_name
from dlbench.core import units
from dlbench.core.model import ParamValue
from dlbench.core.rows.row import BY_NAME
from dlbench.core.rows.row import Cells as Row
from dlbench.core.schema import Column, Unit

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
_FEW = 3
"""Values that stand in the notes of a case; where there are more, all stand in a table of their own."""


def projection(rows: Sequence[Row]) -> Table:
    """Return the table of what was projected, with what it assumes and how far off it was; no rows where nothing was."""
    known = [row for row in rows if row["scaling.projected_s"] is not None]
    notes = [_ASSUMPTIONS] if known else []
    if any(row["scaling.projected_copies_s"] is not None for row in known):
        notes.append(_COPIES)
    errors = [abs(number(row["scaling.projection_error"])) for row in known if row["scaling.projection_error"] is not None]
    if errors:
        steps = plural(len(errors), "measured step")
        notes.append(f"Checked on {steps} of more ranks than it stands on: off by {units.percent(max(errors))} at most.")
    elif known:
        notes.append("No step of more ranks than it stands on was measured, so how far it is off is not known.")
    title = "Projection, not measured: a data-parallel step on more devices"
    return Table(title, _PROJECTED, with_device(known, "scaling"), tuple(notes))


def bandwidths(results: Results) -> Table:
    """Return the table of collectives: bus bandwidth by ranks, size and operation; no rows where there is nothing."""

    def operation(row: Row) -> str:
        return str(row[f"param.{results.declaration(row).parallel.collective}"])

    known = [row for row in results.rows if row["rate.bus_bytes_per_s"] is not None and type(row.get("param.bytes")) is int]
    same_line = ("param.ranks", "param.bytes", "case.dtype", "case.device", "case.run")
    lines: dict[tuple[ParamValue | None, ...], Row] = {}
    for row in sorted(known, key=lambda row: [number(row[f"param.{name}"]) for name in ("ranks", "bytes")]):
        lines.setdefault(tuple(row[name] for name in same_line), {**row})[operation(row)] = row["rate.bus_bytes_per_s"]
    columns: Columns = (
        ("case", Column("param.bytes", Unit.BYTES, "size of the message")),
        DEVICE,
        ("dtype", BY_NAME["case.dtype"]),
        ("ranks", Column("param.ranks", Unit.COUNT, "ranks that take part")),
    )
    columns += tuple((name, Column(name, Unit.BYTES_PER_S, "bus bandwidth", "higher")) for name in dict.fromkeys(map(operation, known)))
    return Table("Collectives: bus bandwidth by size", columns, with_device(list(lines.values()), "case"))


def value_notes(columns: Sequence[Column], row: Row) -> list[str]:
    """Return for example ``p99_s 12.3 ms``, of the values that its workload declares first, and how many there are besides."""
    more = [f"{len(columns) - _FEW} more with --details"] if len(columns) > _FEW else []
    return [f"{value_name(each)} {cell(row[each.name], each)}" for each in columns[:_FEW]] + more


def values(results: Results) -> list[Table]:
    """Return a table of the values of each workload that reports many, one for each set of them."""
    many = [row for row in results.rows if len(results.declared(row)) > _FEW]
    groups = grouped(many, lambda row: (str(row["case.workload"]), results.declared(row)))
    return [
        Table(
            f"Values of {workload}",
            (("case", BY_NAME["case.id"]), DEVICE, *((value_name(each), each) for each in columns)),
            with_device([{**row, "case.id": key(row)} for row in rows], "case"),
            tuple(units.one_line(f"{value_name(each)}: {each.meaning}") for each in columns),
        )
        for (workload, columns), rows in groups.items()
    ]
