"""Declarations of the workloads of a result file, as its header has them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dlbench.core.declarations import Declaration
from dlbench.core.decoding import convert
from dlbench.core.errors import ResultFileError
from dlbench.core.reference.collectives import OPERATIONS, bus_factor
from dlbench.core.rows.row import Row
from dlbench.core.schema import Column, Unit
from dlbench.core.store import RunFile


def declarations(run: RunFile, side: Mapping[str, Any] | None = None) -> Mapping[str, Declaration]:
    """Return what each workload of a file declares, or of a ``side`` of it, whose code may be another.

    Raises ResultFileError for a declaration that makes no sense.
    """
    found = {}
    for workload, payload in ((side or {}).get("workloads") or run.header.get("workloads") or {}).items():
        try:
            found[workload] = declaration(payload)
        except ValueError as error:
            where = f"{run.path}, line 1: in the header, workloads.{workload}"
            raise ResultFileError(f"{where}: {error}; the file was edited or damaged") from error
    return found


def declaration(payload: object) -> Declaration:
    """Return what a header says of a workload. Raises ValueError with a sentence where that declares nothing, or makes no sense."""
    found = convert(Declaration, payload)
    if wrong := found.mistake():
        raise ValueError(wrong)
    return found


def columns(row: Row) -> tuple[Column, ...]:
    """Return the columns of the values that a row has: as declared, then as plain numbers those that nothing describes."""
    described = {each.name: each.column for each in row.described if each.name in row.values}
    about = "nothing is declared of it"
    others = (
        Column(f"value.{name}", Unit.NUMBER, about, series=not isinstance(value, int | float), declared=False)
        for name, value in row.values.items()
        if name not in described
    )
    return (*described.values(), *others)


def with_bus_rate(row: Row) -> Row:
    """Return the row of a collective with what goes over the slowest link in a second, where there is somebody to talk to."""
    ranks, bytes_per_s = row.ranks or 1, row.rate.bytes_per_s
    operation = row.params.get(row.declared.parameter("collective_op") or "")
    if operation not in OPERATIONS or ranks < 2 or bytes_per_s is None:
        return row
    return replace(row, rate=replace(row.rate, bus_bytes_per_s=bytes_per_s * bus_factor(str(operation), ranks)))
