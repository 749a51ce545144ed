"""Tables shown on request: projections, bandwidths of collectives, and the values of workloads that report many."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dlbench.analysis.answers.base import Columns, Table, table, with_device
from dlbench.analysis.answers.devices import WHAT
from dlbench.analysis.fields import Field, Fields, of_row, place, value_field
from dlbench.analysis.pairing import grouped
from dlbench.analysis.read import declared
from dlbench.analysis.read.table import Results
from dlbench.analysis.scaling.speedup import COLUMNS
from dlbench.analysis.wording import cell, number, plural, value_name
from dlbench.core import units
from dlbench.core.rows.row import Cells, Row
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


def projection(rows: Sequence[Cells]) -> Table:
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

    known = [row for row in results.rows if row.rate.bus_bytes_per_s is not None and row.count("bytes")]
    in_order = sorted(known, key=lambda row: (row.ranks or 0, row.count("bytes") or 0))
    same_line = grouped(in_order, lambda row: (row.ranks, row.count("bytes"), row.case.dtype, row.case.device, row.case.run))
    lines = [{_operation(row): row for row in reversed(found)} for found in same_line.values()]
    firsts = [found[0] for found in same_line.values()]
    of_line = {id(row): line for row, line in zip(firsts, lines, strict=True)}
    fields: Fields[Row] = (
        ("case", Field(Column("param.bytes", Unit.BYTES, "size of the message"), lambda row: row.count("bytes"))),
        place(firsts, lambda row: row),
        ("dtype", of_row(lambda row: row.case.dtype)),
        ("ranks", Field(Column("param.ranks", Unit.COUNT, "ranks that take part"), lambda row: row.ranks)),
    )
    fields += tuple((name, _bandwidth(name, of_line)) for name in dict.fromkeys(map(_operation, known)))
    return table("Collectives: bus bandwidth by size", fields, firsts)


def _operation(row: Row) -> str:
    return str(row.params[row.declared.parallel.collective or ""])


def _bandwidth(operation: str, lines: Mapping[int, Mapping[str, Row]]) -> Field[Row]:
    """Return the bandwidth of an operation in the line that a row is the first of."""
    column = Column(operation, Unit.BYTES_PER_S, "bus bandwidth", "higher")
    return Field(column, lambda row: found.rate.bus_bytes_per_s if (found := lines[id(row)].get(operation)) else None)


def value_notes(columns: Sequence[Column], row: Row) -> list[str]:
    """Return for example ``p99_s 12.3 ms``, of the values that its workload declares first, and how many there are besides."""
    more = [f"{len(columns) - _FEW} more with --details"] if len(columns) > _FEW else []
    return [f"{value_name(each)} {cell(row.values[value_name(each)], each)}" for each in columns[:_FEW]] + more


def values(results: Results) -> list[Table]:
    """Return a table of the values of each workload that reports many, one for each set of them."""
    many = [row for row in results.rows if len(declared.columns(row)) > _FEW]
    groups = grouped(many, lambda row: (row.case.workload, declared.columns(row)))
    case = replace(of_row(lambda row: row.case.id), of=lambda row: row.key)
    return [
        table(
            f"Values of {workload}",
            (("case", case), place(rows, lambda row: row), *((value_name(each), value_field(each)) for each in columns)),
            rows,
            [units.one_line(f"{value_name(each)}: {each.meaning}") for each in columns],
        )
        for (workload, columns), rows in groups.items()
    ]
