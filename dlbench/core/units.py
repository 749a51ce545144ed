"""Numbers: their bounds in a result file, the base units and columns they have inside, and their text with prefixes at the edge."""

import math
import re
import textwrap
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import Annotated, Any, Literal

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)?")
_AMOUNT = re.compile(r"(?<![\w=.])([\d.,…–+-]*\d) (?=(?:[%×]|[a-zA-Zµ/]{1,7}(?![\w=])))")
"""A number and the blank before its unit."""
_KWH = 3.6e6
"""Joules of a kilowatt-hour."""
_DURATION_UNITS = {"ms": 1e-3, "s": 1.0, None: 1.0, "m": 60.0, "h": 3600.0}


def parse_duration(text: str) -> float:
    """Read ``90``, ``90s``, ``1.5m``, ``500ms`` or ``2h`` as seconds.

    Raises ValueError, with a sentence, for anything else and for zero.
    """
    match = _DURATION.fullmatch(text.strip())
    seconds = float(match[1]) * _DURATION_UNITS[match[2]] if match else 0.0
    if not 0 < seconds < math.inf:
        raise ValueError(f"'{text}' is not a duration; write for example 90s, 1.5m, 500ms or 2h")
    return seconds


def parse_fraction(text: str) -> float:
    """Read ``5%`` or ``0.05`` as 0.05; from 1 on it must be a percentage, as 5 may be meant as 5 %.

    Raises ValueError, with a sentence, for anything else, below 0.01 % and above 1000 %.
    """
    match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)\s*(%)?", text.strip())
    value = float(match[1]) / (100 if match[2] else 1) if match else 0.0
    if not 1e-4 <= value <= 10 or (match and not match[2] and value >= 1):
        raise ValueError(f"'{text}' is not a fraction; write for example 5% or 0.05")
    return value


def three_digits(value: float) -> str:
    """Three significant digits without an exponent: ``1.23``, ``12.3``, ``123``."""
    # Rounding first, so that 9.996 gives 10.0 and not 10.00; of the largest floats it makes infinity.
    value = float(f"{value:.3g}")
    if value == 0 or not math.isfinite(value):
        return f"{value:.0f}"
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{decimals}f}"


def seconds(value: float) -> str:
    """``1.23 ns`` to ``12.3 s``; whole minutes from 10 minutes on, ``5 h 20 min`` from 2 hours, ``3 days 4 h`` from 2 days, then days."""
    if 600 <= value < math.inf:
        return _minutes_up(value)
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if abs(value) >= factor * 0.9995:
            return f"{three_digits(value / factor)} {unit}"
    return f"{three_digits(value / 1e-9)} ns"


def _minutes_up(value: float) -> str:
    minutes, hours = round(value / 60), round(value / 3600)
    if minutes < 120:
        return f"{minutes} min"
    if hours < 48:
        return f"{minutes // 60} h {minutes % 60} min" if minutes % 60 else f"{minutes // 60} h"
    if hours < 240:
        return f"{hours // 24} days {hours % 24} h" if hours % 24 else f"{hours // 24} days"
    return f"{value / 86400:.0f} days"


def _prefixed(value: float, step: float, prefixes: str, unit: str) -> str:
    index = 0
    while abs(value) >= step * 0.9995 and index < len(prefixes):
        value /= step
        index += 1
    return f"{three_digits(value)} {prefixes[index - 1] if index else ''}{unit}"


def _decimal(unit: str) -> Callable[[float], str]:
    """Return a function that writes a number of that unit with its prefix."""
    return partial(_prefixed, step=1e3, prefixes="kMGTPE", unit=unit)


flop_rate = _decimal("FLOP/s")
"""``340 GFLOP/s``."""
integer_rate = _decimal("OP/s")
"""``838 TOP/s``: operations on integers."""
byte_rate = _decimal("B/s")
"""``12.5 GB/s``, decimal as bandwidths are quoted."""
item_rate = _decimal("/s")
"""``1.23 k/s``: items a second."""
hertz = _decimal("Hz")
"""``1.98 GHz``."""


def byte_count(value: float) -> str:
    """``1.50 GiB``, binary as memory is sold."""
    if abs(value) < 1023.5:
        return f"{value:.0f} B"
    return _prefixed(value, 1024.0, "KMGTPE", "iB")


def percent(value: float) -> str:
    """``12.3 %`` of a fraction."""
    return f"{value * 100:.1f} %"


def relative_change(value: float) -> str:
    """``+12.3 %`` of a fraction, and from ten times on ``12.3 ×``."""
    return f"{three_digits(1 + value)} ×" if value >= 9 else f"{value * 100:+.1f} %"


def money(value: float) -> str:
    """``1,234.50``, to the cent; three digits below a tenth, where cents say nothing: ``0.00123``."""
    if value >= 0.0995 or not value:
        return f"{value:,.2f}"
    return f"{value:.{2 - math.floor(math.log10(value))}f}"


def energy(value: float) -> str:
    """``312 J``, ``31.2 kJ`` and, from 3.6 MJ on, ``3.71 kWh`` as energy is sold."""
    if abs(value) >= _KWH * 0.9995:
        return f"{three_digits(value / _KWH)} kWh"
    return _prefixed(value, 1e3, "kM", "J")


def ratio(value: float) -> str:
    """``41.2 ×``."""
    return f"{three_digits(value)} ×"


def fraction(value: float) -> str:
    """``12.3 %`` of a fraction; from 0.1 % down ``0.02 %``, and ``3.1e-07`` of one that even this would show as nothing."""
    if abs(value) >= 0.00095 or not value:
        return percent(value)
    return f"{value * 100:.2f} %" if abs(value) >= 0.000095 else f"{value:.1e}"


def clock_time(value: float) -> str:
    """``1:05`` for 65 seconds, ``1:02:05`` from an hour on."""
    whole = max(0, round(value))
    hours, rest = divmod(whole, 3600)
    minutes, secs = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{secs:02d}" if hours else f"{minutes}:{secs:02d}"


def one_line(text: str) -> str:
    """Text from a file, fit for a screen: one line, without the control characters that would steer a terminal."""
    joined = " ".join(text.split())
    return joined if joined.isprintable() else "".join(c for c in joined if c.isprintable())


def fold(text: str, width: int, *, cell: bool = False) -> list[str]:
    """Break a line between words, never between a number and its unit, into lines so wide at most; further ones are indented by two more.

    A word that is wider, such as a path to be copied, stays whole; in a ``cell`` it is broken, and nothing is indented.
    """
    if not text.isascii() and any(unicodedata.east_asian_width(sign) in "WF" for sign in text):
        width //= 2  # as each of these takes two columns
    indent = "" if cell else " " * (len(text) - len(text.lstrip()) + 2)
    glued = _AMOUNT.sub("\\1\N{NO-BREAK SPACE}", text)
    lines = textwrap.wrap(glued, max(1, width), subsequent_indent=indent, break_long_words=cell, break_on_hyphens=False)
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]


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
"""A quantity in which a whole number stays one."""
_Integer = Annotated[int, Bounds(ge=-_LARGEST, le=_LARGEST)]
Number = _Integer | Annotated[float, Bounds(ge=-MOST, le=MOST)]
BlockTimes = Annotated[Sequence[Quantity], Bounds(min_length=1)]
Json = Mapping[str, Any]
"""Object of JSON, decoded."""


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
        return f"{three_digits(value)} {unit.value}"
    return _TEXTS.get(unit, three_digits)(value)


_TEXTS: Mapping[Unit, Callable[[float], str]] = {
    Unit.SECONDS: seconds,
    Unit.BYTES: byte_count,
    Unit.PER_S: item_rate,
    Unit.ITEMS_PER_S: item_rate,
    Unit.FLOPS_PER_S: flop_rate,
    Unit.BYTES_PER_S: byte_rate,
    Unit.FRACTION: fraction,
    Unit.RATIO: ratio,
    Unit.HERTZ: hertz,
    Unit.JOULES: energy,
    Unit.MONEY: money,
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
    """The smallest change of a value that matters, if it declares one."""
    of: Callable[[Any], object] | None = field(default=None, compare=False, repr=False)
    """Returns the value of a record; None: the value is the property named after the last dot of its name."""
    heading: str = field(default="", compare=False)
    """Title of the column in a table, and of the axis in a figure."""
    priority: int = field(default=1, compare=False)
    """On a narrow screen the column with the greatest goes first. One of 0 is what the table is about: it stays, and sentences say it."""
    ends: tuple["Column", "Column"] | None = field(default=None, compare=False, repr=False)
    """The lower and the upper end of its interval, which files have as columns of their own."""

    def value(self, record: Any) -> object:
        """Return the value that a record has in this column."""
        return self.of(record) if self.of else getattr(record, self.attribute)

    @property
    def attribute(self) -> str:
        """Its name behind the last dot."""
        return self.name.rpartition(".")[2]

    def by(self, of: Callable[[Any], object], heading: str = "") -> "Column":
        """Return the same column with another function for its value: ``CASE.by(lambda family: family.middle.case)``."""
        return replace(self, of=of, heading=heading or self.heading)

    def on(self, part: Callable[[Any], Any]) -> "Column":
        """Return the same column for a part of a record: ``TIME.on(lambda pair: pair.base)``."""
        ends = self.ends and (self.ends[0].on(part), self.ends[1].on(part))
        return replace(self, of=lambda record: self.value(part(record)), ends=ends)

    def headed(self, heading: str, priority: int | None = None) -> "Column":
        """Return the same column under another heading, and with another priority if one is given."""
        return replace(self, heading=heading, priority=self.priority if priority is None else priority)


def column(
    unit: Unit, meaning: str, better: Direction | None = None, *, default: object = None, factory: Callable[[], object] | None = None
) -> Any:
    """Return the field of a data class that is a column, named as the class's place in the row and the field."""
    described = {"column": (unit, meaning, better)}
    return field(default_factory=factory, metadata=described) if factory else field(default=default, metadata=described)
