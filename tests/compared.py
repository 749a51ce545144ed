"""Rows of made-up runs, as ``compare`` takes them: without files."""

from collections.abc import Mapping, Sequence
from typing import Any

import made_up

from dlbench.analysis.compare.sides import compare
from dlbench.analysis.compare.verdict import CaseVerdict
from dlbench.analysis.read.table import Results, by_case, named
from dlbench.core.measurement import Measurement
from dlbench.core.rows.summary import summarise

TEN = (1.00, 1.01, 0.99, 1.02, 0.98, 1.005, 0.995, 1.015, 0.985, 1.001)
"""Ten rounds around one second, 2 % to either side."""
ONE = made_up.case("matmul", n=1)


def timed(factor: float = 1.0, rounds: Sequence[float] = TEN, case: made_up.Case = ONE, **fields: Any) -> list[Measurement]:
    """Rounds of a case, each that many times as long."""
    return made_up.rounds_of(case, made_up.flat([factor * each for each in rounds]), **fields)


def runs(measurements: Mapping[str, Sequence[Measurement]], environments: Mapping[str, Mapping[str, Any]] | None = None) -> Results:
    """The results of several runs, by name."""
    cases = [(name, each) for name, some in measurements.items() for each in by_case(some)]
    rows = tuple(named(summarise(each), name) for name, each in cases)
    return Results(rows, (), environments or {name: {} for name in measurements})


def run(measurements: Sequence[Measurement], name: str = "run") -> Results:
    return runs({name: measurements})


def verdict(base: Sequence[Measurement], new: Sequence[Measurement], *arguments: Any, **options: Any) -> CaseVerdict:
    """The verdict of the only case of two runs; further arguments are those of `compare`."""
    (found,) = compare(run(base, "base"), run(new, "new"), *arguments, **options).cases
    return found
