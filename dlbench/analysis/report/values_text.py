"""Values that workloads report, as text: notes beside a case, and where they are many tables of their own."""

from collections.abc import Sequence

from dlbench.analysis.answers.base import PLACE, Table, placed
from dlbench.analysis.read.table import Results
from dlbench.analysis.wording import cell, key, value_name
from dlbench.core.rows.summary import Row
from dlbench.core.schema import BY_NAME, Column
from dlbench.core.units import one_line

_FEW = 3
"""Values that stand in the notes of a case; where there are more, all stand in a table of their own."""


def notes(columns: Sequence[Column], row: Row) -> list[str]:
    """Return for example ``p99_s 12.3 ms``, of the values that its workload declares first, and how many there are besides."""
    more = [f"{len(columns) - _FEW} more with --details"] if len(columns) > _FEW else []
    return [f"{value_name(each)} {cell(row[each.name], each)}" for each in columns[:_FEW]] + more


def tables(results: Results) -> list[Table]:
    """Return a table of the values of each workload that reports many, one for each set of them."""
    groups: dict[tuple[str, tuple[Column, ...]], list[Row]] = {}
    for row in results.rows:
        if len(columns := results.declared(row)) > _FEW:
            groups.setdefault((str(row["case.workload"]), columns), []).append(row)
    return [
        Table(
            f"Values of {workload}",
            (("case", BY_NAME["case.id"]), PLACE, *((value_name(each), each) for each in columns)),
            placed([{**row, "case.id": key(row)} for row in rows], "case"),
            tuple(one_line(f"{value_name(each)}: {each.meaning}") for each in columns),
        )
        for (workload, columns), rows in groups.items()
    ]
