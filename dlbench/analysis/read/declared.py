"""Declarations of the workloads of a result file: from its header, or for files from before declarations from ``undeclared.toml``."""

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from dlbench.analysis.read.header import Sides, run_name
from dlbench.core.declarations import Declaration
from dlbench.core.declared_json import from_json
from dlbench.core.former import by_workload
from dlbench.core.reference.collectives import OPERATIONS, bus_factor
from dlbench.core.rows.row import Row
from dlbench.core.schema import Column, Unit
from dlbench.core.store import RunFile

_FORMER = ("sweep", "feeding", "switches", "search", "learning", "scratch", "supply")
"""What headers named parameters and values in, before those had roles."""
_UNUSED = "that is not used, and another version of dlbench may read it"


@cache
def undeclared() -> Mapping[str, Declaration]:
    """Return what dlbench's own workloads declare where a header does not."""
    text = Path(__file__).with_name("undeclared.toml").read_text(encoding="utf-8")
    return {workload: from_json(payload)[0] for workload, payload in tomllib.loads(text).items()}


def declarations(run: RunFile, name: str, sides: Sides) -> tuple[dict[str, Mapping[str, Declaration]], list[str]]:
    """Return what workloads declare, by ``case.run``, and a sentence on each part of it that this dlbench can't read.

    A side has declarations of its own, as its code may be another.
    """
    found: dict[str, Mapping[str, Declaration]] = {}
    notes: list[str] = []
    for side, of_side in sides.items():
        own = {**undeclared()}
        for workload, payload in by_workload(of_side.get("workloads", run.header.get("workloads", {}))).items():
            own[workload], doubts = declaration_of(workload, payload)
            notes += [f"{run.path}: of {workload}, {doubt}; {_UNUSED}" for doubt in doubts]
        found[run_name(name, side)] = own
    return found, list(dict.fromkeys(notes))


def declaration_of(workload: str, payload: object) -> tuple[Declaration, list[str]]:
    """Read what a header says of a workload, and a sentence on each part that makes no sense.

    Where it was written before parameters and values had roles, or a role stood at ``optimizer``, one of dlbench's own has those of today.
    """
    found, doubts = from_json(payload)
    if not isinstance(payload, Mapping) or ("parameters" in payload and "optimizer" not in found.parameters):
        return found, doubts
    if known := undeclared().get(workload):
        roles = {each.name: each.role for each in known.values}
        return replace(known, values=tuple(replace(each, role=roles.get(each.name)) for each in found.values)), doubts
    former = ", ".join(name for name in _FORMER if payload.get(name))
    return found, [*doubts, *([f"{former}: roles stand at parameters and values now"] if former else [])]


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
