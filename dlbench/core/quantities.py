"""Numbers that a result file can hold: their bounds, and the words for them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Bounds of a number or of a length, and the words for what is within them."""

    ge: float | None = None
    le: float | None = None
    min_length: int | None = None
    description: str


MOST = 1e100
"""Nothing that is measured comes near, and squares and sums of such numbers are still finite."""
_LARGEST = 2**63 - 1
"""Whole number that a column of a table holds."""
_WITHIN = f"a number from {-MOST:g} to {MOST:g}"

Count = Annotated[int, Bounds(ge=0, le=_LARGEST, description="a whole number of at least 0, below 2**63")]
PositiveCount = Annotated[int, Bounds(ge=1, le=_LARGEST, description="a whole number of at least 1, below 2**63")]
Quantity = Annotated[float, Bounds(ge=0, le=MOST, description=f"a number from 0 to {MOST:g}")]
"""Seconds, shares, and all else that can't be negative."""
Amount = Count | Quantity
"""The same; a whole number stays one."""
_Integer = Annotated[int, Bounds(ge=-_LARGEST, le=_LARGEST, description=_WITHIN)]
Number = _Integer | Annotated[float, Bounds(ge=-MOST, le=MOST, description=_WITHIN)]
BlockTimes = Annotated[tuple[Quantity, ...], Bounds(min_length=1, description="a list of one number or more")]
Json = Mapping[str, Any]
"""Object of JSON, decoded."""
