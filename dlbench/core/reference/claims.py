"""Claims of others on what a GPU, a precision or a batch brings: who makes them, and the rows that test them."""

import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

from dlbench.core.decoding import convert
from dlbench.core.model import ParamValue
from dlbench.core.units import Unit

_TABLE = Path(__file__).with_name("claims.toml")
_UNITS: Mapping[str, tuple[str, float, Unit]] = {
    "x": ("×", 1, Unit.RATIO),
    "s": (" s", 1, Unit.SECONDS),
    "days": (" days", 86400, Unit.SECONDS),
    "GB": (" GB", 1e9, Unit.BYTES),
    "points": (" points", 0.01, Unit.FRACTION),
    "share": (" %", 0.01, Unit.FRACTION),
}
"""Text behind the number of a unit, how many base units it is, and the base unit."""


@dataclass(frozen=True, slots=True)
class ClaimTest:
    """Rows that test a claim, as data: the same work on two sides, or one row by itself."""

    measure: Literal["time", "throughput", "items_per_joule", "items_per_price", "training", "pass", "memory", "accuracy_gap", "products"]
    command: str
    """The command that measures these rows."""
    rows: tuple[Mapping[str, tuple[ParamValue, ...]], ...] = field(hash=False)
    """Alternatives: the values that a setting may have, by its name; none where a row must not have the setting."""
    by: str | None = None
    """The setting in which two sides differ; None where one row is enough."""
    base: str | None = None
    """Value of that setting on the base side, as text."""
    best: bool = False
    """Whether each side is taken at its own best batch and other settings."""
    split: str | None = None
    """The setting whose values are shown apart."""
    items: int = 1
    """Items of a pass."""
    largest: str | None = None
    """The parameter whose largest value counts, instead of the median case."""

    def is_of(self, setting: Callable[[str], object]) -> bool:
        """Whether a row takes part that has these settings by their names."""
        return any(all(setting(name) in (values or (None,)) for name, values in each.items()) for each in self.rows)


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim in our words, who makes it, and how it is tested."""

    id: str
    says: str
    unit: str
    who: str
    when: str
    low: float | None = None
    """The least of the number stated, in its unit; None where it states none."""
    high: float | None = None
    """The most of it; None where there is no upper end."""
    is_our_reading: bool = False
    """Whether they state no number, and ``low`` is how a word of theirs is read here."""
    test: ClaimTest | None = None
    """None where nothing measures it yet."""

    @property
    def stated(self) -> str | None:
        """The number stated: ``20×``, ``28 to 56×``, ``more than 1×``; None where there is none."""
        if self.low is None:
            return None
        least = "more than " if self.high is None else "" if self.high == self.low else f"{self.low:g} to "
        return f"{least}{self.high or self.low:g}{_UNITS[self.unit][0]}"

    @property
    def ends(self) -> tuple[float, float] | None:
        """The least and the most of it in base units, None where there is no number."""
        if self.low is None:
            return None
        scale = _UNITS[self.unit][1]
        return scale * self.low, math.inf if self.high is None else scale * self.high

    @property
    def measured_in(self) -> Unit:
        """Base unit of what tests it."""
        return _UNITS[self.unit][2] if self.unit in _UNITS else Unit.RATIO


@cache
def claims() -> tuple[Claim, ...]:
    """Return all of them, in the order in which they are shown."""
    return convert(tuple[Claim, ...], tomllib.loads(_TABLE.read_text(encoding="utf-8"))["claim"])
