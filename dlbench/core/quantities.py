"""Numbers that a result file can hold, and their bounds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Bounds of a number or of a length."""

    ge: float | None = None
    le: float | None = None
    min_length: int | None = None


MOST = 1e100
"""Nothing that is measured comes near, and squares and sums of such numbers are still finite."""
_LARGEST = 2**63 - 1
"""Whole number that a column of a table holds."""

Count = Annotated[int, Bounds(ge=0, le=_LARGEST)]
PositiveCount = Annotated[int, Bounds(ge=1, le=_LARGEST)]
Quantity = Annotated[float, Bounds(ge=0, le=MOST)]
"""Seconds, shares, and all else that can't be negative."""
Amount = Count | Quantity
"""The same; a whole number stays one."""
_Integer = Annotated[int, Bounds(ge=-_LARGEST, le=_LARGEST)]
Number = _Integer | Annotated[float, Bounds(ge=-MOST, le=MOST)]
BlockTimes = Annotated[Sequence[Quantity], Bounds(min_length=1)]
Json = Mapping[str, Any]
"""Object of JSON, decoded."""
