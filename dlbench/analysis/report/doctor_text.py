"""Findings on a machine as text for people, and as data."""

from collections.abc import Sequence

import pandas as pd

from dlbench.analysis.presentation.columns import cells
from dlbench.analysis.read.table import as_frame
from dlbench.analysis.report.screen import ScreenColumn, ScreenTable
from dlbench.core.machine import Finding
from dlbench.core.units import Column, Unit

COLUMNS = (
    Column("doctor.check", Unit.TEXT, "what was looked at"),
    Column("doctor.device", Unit.TEXT, "where"),
    Column("doctor.case", Unit.TEXT, "the case that was measured for it; null where none was", of=lambda found: found.case or None),
    Column("doctor.fitness", Unit.TEXT, "unfit, note, unknown or fit", of=lambda found: found.fitness.value),
    Column("doctor.found", Unit.TEXT, "what was found"),
    Column("doctor.advice", Unit.TEXT, "what to do next; null where there is nothing to do", of=lambda found: found.advice or None),
)


def as_table(findings: Sequence[Finding]) -> pd.DataFrame:
    """Return a row a finding, columns as in `COLUMNS`, then ``value.*`` with the figures in base units."""
    values = [{f"value.{name}": float(value) for name, value in each.values.items()} for each in findings]
    return as_frame([row | more for row, more in zip(cells(COLUMNS, findings), values, strict=True)], COLUMNS)


def table(findings: Sequence[Finding]) -> ScreenTable:
    """Return a row a finding, with what to do; its columns need no headings."""
    advised = [f"{each.found}; {each.advice}" if each.advice else each.found for each in findings]
    return ScreenTable(
        [
            ScreenColumn("", [each.fitness.value for each in findings], priority=0),
            ScreenColumn("", [each.check for each in findings]),
            ScreenColumn("", [each.device for each in findings], priority=2),
            ScreenColumn("", advised, priority=0),
        ]
    )
