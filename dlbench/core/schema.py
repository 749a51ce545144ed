"""Columns: their units, meanings and directions, and how a number of a unit is written."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Literal

from dlbench.core import units


class Unit(Enum):
    """Base unit of a column; the edge turns it into text."""

    TEXT = "text"
    COUNT = "count"
    NUMBER = "number"
    SECONDS = "s"
    BYTES = "bytes"
    PER_S = "1/s"
    ITEMS_PER_S = "items/s"
    FLOPS_PER_S = "FLOP/s"
    BYTES_PER_S = "bytes/s"
    FRACTION = "fraction"
    RATIO = "ratio"
    JOULES = "J"
    WATTS = "W"
    HERTZ = "Hz"
    CELSIUS = "°C"
    MONEY = "money"
    FLAG = "flag"


Direction = Literal["lower", "higher"]
"""Which change of a number is an improvement."""


def text(value: float, unit: Unit) -> str:
    """Return a number of that unit as text: ``12.3 ms``, ``1.50 GiB``, ``83.1 %``."""
    if unit is Unit.COUNT and value == int(value):
        return f"{value:,.0f}"
    if unit in (Unit.WATTS, Unit.CELSIUS):
        return f"{units.three_digits(value)} {unit.value}"
    return _TEXTS.get(unit, units.three_digits)(value)


_TEXTS: Mapping[Unit, Callable[[float], str]] = {
    Unit.SECONDS: units.seconds,
    Unit.BYTES: units.byte_count,
    Unit.PER_S: units.item_rate,
    Unit.ITEMS_PER_S: units.item_rate,
    Unit.FLOPS_PER_S: units.flop_rate,
    Unit.BYTES_PER_S: units.byte_rate,
    Unit.FRACTION: units.fraction,
    Unit.RATIO: units.ratio,
    Unit.HERTZ: units.hertz,
    Unit.JOULES: units.energy,
    Unit.MONEY: units.money,
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the table."""

    name: str
    unit: Unit
    meaning: str
    better: Direction | None = None
    series: bool = False
    """Whether a cell holds a series, as a JSON list."""
    points: tuple[str, ...] = ()
    """Names of the points of a series; empty where they are only numbered."""
    declared: bool = True
    """False for a value where only the name is known."""
    margin: float | None = None
    """Of a value, the smallest change that matters, where it declares one."""
    of: Callable[[Any], object] | None = field(default=None, compare=False, repr=False)
    """How a record has it; None: by the property that is called as what stands behind the last dot of its name."""
    heading: str = field(default="", compare=False)
    """What stands above it in a table, and along it in a figure."""
    priority: int = field(default=1, compare=False)
    """The greatest goes first where a screen is too narrow. 0 is what a table is about: it stays, and sentences say it."""
    ends: tuple["Column", "Column"] | None = field(default=None, compare=False, repr=False)
    """The lower and the upper end of its interval, which files have as columns of their own."""

    def value(self, record: Any) -> object:
        """Return what a record has of it."""
        return self.of(record) if self.of else getattr(record, self.attribute)

    @property
    def attribute(self) -> str:
        """Its name behind the last dot."""
        return self.name.rpartition(".")[2]

    def by(self, of: Callable[[Any], object], heading: str = "") -> "Column":
        """Return the same as a record has it in another way: ``CASE.by(lambda family: family.middle.case)``."""
        return replace(self, of=of, heading=heading or self.heading)

    def on(self, part: Callable[[Any], Any]) -> "Column":
        """Return the same of a part of a record: ``TIME.on(lambda pair: pair.base)``."""
        ends = self.ends and (self.ends[0].on(part), self.ends[1].on(part))
        return replace(self, of=lambda record: self.value(part(record)), ends=ends)

    def headed(self, heading: str, priority: int | None = None) -> "Column":
        """Return the same under another heading, and with another priority where one is given."""
        return replace(self, heading=heading, priority=self.priority if priority is None else priority)


def column(
    unit: Unit, meaning: str, better: Direction | None = None, *, default: object = None, factory: Callable[[], object] | None = None
) -> Any:
    """Return the field of a data class that is a column, named as the class's place in the row and the field."""
    described = {"column": (unit, meaning, better)}
    return field(default_factory=factory, metadata=described) if factory else field(default=default, metadata=described)
