"""Findings on a machine as text for people, and as data."""

import textwrap
from collections.abc import Sequence

import pandas as pd

from dlbench.analysis.read.table import as_frame
from dlbench.analysis.report.text_table import LEAST_WIDTH, padded
from dlbench.core.finding import Finding
from dlbench.core.rows.row import Cells
from dlbench.core.schema import Column, Unit
from dlbench.core.units import one_line

COLUMNS = (
    Column("doctor.check", Unit.TEXT, "what was looked at"),
    Column("doctor.device", Unit.TEXT, "where"),
    Column("doctor.case", Unit.TEXT, "the case that was measured for it; null where none was"),
    Column("doctor.fitness", Unit.TEXT, "unfit, note, unknown or fit"),
    Column("doctor.found", Unit.TEXT, "what was found"),
    Column("doctor.advice", Unit.TEXT, "what to do next; null where there is nothing to do"),
)


def as_table(findings: Sequence[Finding]) -> pd.DataFrame:
    """Return a row a finding, columns as in `COLUMNS`, then ``value.*`` with the figures in base units."""
    rows: list[Cells] = [
        {
            "doctor.check": each.check,
            "doctor.device": each.device,
            "doctor.case": each.case or None,
            "doctor.fitness": each.fitness.value,
            "doctor.found": each.found,
            "doctor.advice": each.advice or None,
            **{f"value.{name}": float(value) for name, value in each.values.items()},
        }
        for each in findings
    ]
    return as_frame(rows, COLUMNS)


def lines(findings: Sequence[Finding], width: int | None = None) -> list[str]:
    """Return the findings one below the other, each folded to so many columns, or on a line of its own where there is no width."""
    sentences = [one_line(f"{each.found}; {each.advice}" if each.advice else each.found) for each in findings]
    whole = padded([(each.fitness.value, each.check, each.device, of) for each, of in zip(findings, sentences, strict=True)])
    if width is None:
        return whole
    indent = len(whole[0]) - len(sentences[0])
    return [part for line in whole for part in textwrap.wrap(line, max(indent + LEAST_WIDTH, width), subsequent_indent=" " * indent)]
