"""Native or emulated: whether a device has instructions for the precision of a row, and rows of a file whose speed contradicts that."""

import math
import re
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dlbench.core import units
from dlbench.core.precision import PRECISIONS, Precision
from dlbench.core.rank_test import shift_interval
from dlbench.core.rows.rates import together
from dlbench.core.rows.row import WORK, Row, Setting

_PLAIN = PRECISIONS["fp32"]
_MARGIN = math.log(1.1)
"""How much faster or slower than the plain one a precision must be at least: kernels of equal rates differ by some percent."""
_LEAST_S = 1e-3
"""Shorter calls of the plain one say nothing: what a library does ahead of a product takes as long there."""
_DTYPE = WORK[1]
_FREE = frozenset((_DTYPE, Setting("case", "math")))


def with_arithmetic(row: Row, device: Mapping[str, Any]) -> Row:
    """Return the row with whether its arithmetic is native, by what the header says of its device; of one that states its operations."""
    precision = PRECISIONS.get(str(row.case.dtype))
    native = _is_native(precision, device, on_cpu=row.is_on_cpu) if precision and row.rate.flops_per_s is not None else None
    return row if native is None else replace(row, case=replace(row.case, arithmetic="native" if native else "emulated"))


def _is_native(precision: Precision, device: Mapping[str, Any], *, on_cpu: bool) -> bool | None:
    """Return whether a device has instructions for the products of a precision; None where its record does not say."""
    has, capability = device.get("instructions"), re.fullmatch(r"(\d{1,3})\.(\d{1,3})", str(device.get("compute_capability")))
    if on_cpu and isinstance(has, list):
        return precision.instructions is None or not set(precision.instructions).isdisjoint(map(str, has))
    if device.get("vendor") == "nvidia" and capability:
        return (int(capability[1]), int(capability[2])) >= precision.compute_capability
    return None


def flag_unexpected(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of a file, those flagged whose speed against fp32 is not that of their arithmetic: native and slower, or emulated
    and faster, beyond the interval of their ratio, which takes four rounds a side.

    Compared are rows that say what a machine can do at most, and that are equal in all but their precision: a step has other work as well.
    """
    groups: dict[Hashable, list[Row]] = defaultdict(list)
    for row in rows:
        if row.case.arithmetic and row.has_times and row.declared.ceiling == "arithmetic" and not row.copies_within_calls:
            groups[row.differing_from(_FREE)].append(row)
    doubts: dict[Row, tuple[bool, str | None]] = {}
    for group in groups.values():
        plain = next((row for row in group if row.case.dtype == _PLAIN.name), None)
        if plain and (plain.time.median_s or 0.0) >= _LEAST_S:
            narrower = [row for row in group if PRECISIONS[str(row.case.dtype)].roundoff > _PLAIN.roundoff]
            doubts |= {row: _contradiction(plain, row) for row in narrower}
    return [_flagged(row, *doubts[row]) if row in doubts else row for row in rows]


def _contradiction(plain: Row, row: Row) -> tuple[bool, str | None]:
    """Return whether the speed of a row against the plain one contradicts its arithmetic, and the sentence that says so."""
    base, own = ([-math.log(seconds) for seconds in each.rounds.median_s] for each in (plain, row))
    shift, interval = shift_interval(base, own)
    native = row.case.arithmetic == "native"
    if interval is None or not (interval.high < -_MARGIN if native else interval.low > _MARGIN):
        return False, None
    runs = f"here, yet runs at {units.three_digits(math.exp(shift))} × {plain.case.dtype}"
    if native:
        return True, f"{row.case.dtype} has instructions {runs}: torch does not seem to use them"
    return True, f"{row.case.dtype} is emulated {runs}: the table of precisions may lack an instruction set"


def _flagged(row: Row, unexpected: bool, sentence: str | None) -> Row:
    told = [each for each in (row.flag.reason, sentence) if each]
    return replace(row, flag=replace(row.flag, unexpected=unexpected, reason=together(told)))
