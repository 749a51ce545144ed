"""Order of the cases in a table: as a reader expects it, whatever the rounds shuffled."""

import re
from collections.abc import Iterable
from functools import cache
from typing import Any

from dlbench.core.measurement import Measurement
from dlbench.core.model import Case, ParamValue


def by_case(measurements: Iterable[Measurement]) -> list[list[Measurement]]:
    """Return the rounds of each case, on each side, in the order of the table: rounds shuffle them, so their order means nothing."""
    cases: dict[tuple[str | None, str], list[Measurement]] = {}
    for measurement in measurements:
        cases.setdefault((measurement.side, measurement.case.id), []).append(measurement)
    return sorted(cases.values(), key=lambda rounds: order_of(rounds[0].case, rounds[0].side))


def order_of(case: Case, side: str | None) -> tuple[Any, ...]:
    """Return what sorts cases as a reader expects: by work, 8 before 16, fp64 before fp32 before bf16, the CPU first, and by side."""
    work = (_natural(value, widest_first=name == "dtype") for name, value in case.params.items())
    return case.workload, tuple(work), case.device != "cpu", _natural(case.device), side or ""


@cache  # the values of parameters are few
def _natural(value: ParamValue, widest_first: bool = False) -> tuple[Any, ...]:
    if not isinstance(value, str):
        return 0, value
    parts = re.split(r"(\d+)", value)  # texts at even places, digits at odd ones
    numbers = [*map(int, parts[1::2]), 0]
    if widest_first:
        return 1, [("", -number) for number in numbers], value
    return 1, list(zip(parts[::2], numbers, strict=True)), value
