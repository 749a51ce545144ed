"""Prices of devices and of electricity, and a training of one's own: what a user says beside results, never measured and never stored."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dlbench.core.model import kind_of
from dlbench.core.units import money, one_line

DAYS_A_YEAR = 365
"""Days of use, each of as many hours as a user says."""
MOST_OF_LABEL = 8
"""Characters of a currency: as long as a code with a prefix, and short enough for a headline."""
_ALL = ""
_NUMBER = re.compile(r"(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_DEVICE = re.compile(r"[a-z]\w*(:\d+)?", re.ASCII | re.IGNORECASE)
_SHOWN = 40
"""Characters that a sentence repeats of what makes no sense."""


class Range(NamedTuple):
    """Which numbers make sense of a figure, in words, and one of them."""

    most: float
    zero: bool
    words: str
    example: str


AMOUNT = Range(1e12, True, "an amount of money from 0 to 1e12", "2.50")
YEARS = Range(100, False, "a number of years above 0, up to 100", "4")
HOURS = Range(24, False, "a number of hours above 0, up to 24", "8")


@dataclass(frozen=True, slots=True)
class PerDevice:
    """A figure for all devices, or for some of them."""

    figures: Mapping[str, float] = field(default_factory=dict)
    """By device (``cuda:0``), by kind (``cuda``), and by an empty text for all."""

    @property
    def named(self) -> tuple[str, ...]:
        """The devices and kinds that have a figure of their own."""
        return tuple(name for name in self.figures if name != _ALL)

    def of(self, device: str) -> float | None:
        """Return the most specific figure that holds for a device; None where none does."""
        return next((self.figures[name] for name in (device, kind_of(device), _ALL) if name in self.figures), None)


NONE = PerDevice()


@dataclass(frozen=True, slots=True)
class Prices:
    """What devices and electricity cost, how long they are used, and a training that is asked for."""

    per_hour: PerDevice = NONE
    """Rent of a device for an hour."""
    per_kwh: PerDevice = NONE
    """Electricity."""
    price: PerDevice = NONE
    """To buy a device."""
    years: PerDevice = NONE
    """Over which a device that was bought is used."""
    hours_per_day: PerDevice = NONE
    """In which it is used on each day of these."""
    currency: str = ""
    """A label behind amounts; empty: none."""
    samples: int | None = None
    """Samples of the user's own training, in addition to the published ones; None without one."""
    epochs: int = 1
    """How often that training passes over them."""
    cards: tuple[str, ...] = ()
    """Cards that are not here, of which answers say what they would bring."""

    @property
    def has_amounts(self) -> bool:
        """Whether any amount of money is given."""
        return any(each.figures for each in (self.per_hour, self.per_kwh, self.price))

    @property
    def heading(self) -> str:
        """What stands behind the title of a table of amounts: ``, in EUR``."""
        return f", in {self.currency}" if self.currency else ""

    def money(self, value: float) -> str:
        """``53.33 EUR``: see `units.money`."""
        return f"{money(value)} {self.currency}".rstrip()

    def rent(self, devices: Sequence[str]) -> float | None:
        """Return the rent of devices together for an hour; None where one has none."""
        return _total([self.per_hour.of(each) for each in devices])

    def to_buy(self, devices: Sequence[str]) -> float | None:
        """Return what devices together cost to buy; None where one has no price."""
        return _total([self.price.of(each) for each in devices])

    def spread(self, devices: Sequence[str]) -> float | None:
        """Return their price spread over the hours of their planned use, years × 365 × hours a day; None where a part is not said."""
        hourly = 0.0
        for device in devices:
            price, years, hours = self.price.of(device), self.years.of(device), self.hours_per_day.of(device)
            if price is None or years is None or hours is None:
                return None
            hourly += price / (years * DAYS_A_YEAR * hours)
        return hourly

    def electricity(self, devices: Sequence[str], watts: float | None) -> float | None:
        """Return what devices that take so many watts together pay for an hour; None where their power or its price is not known.

        Of devices with prices of their own each takes the same share.
        """
        per_kwh = _total([self.per_kwh.of(each) for each in devices])
        return None if watts is None or per_kwh is None else watts / 1000 * per_kwh / len(devices)


NO_PRICES = Prices()


def parse_figure(text: str, range_: Range) -> tuple[str, float]:
    """Read ``2.50``, ``cuda=2.50`` or ``cuda:0=2.50``: the device, an empty text for all, and the number.

    Raises ValueError, with a sentence, for anything else.
    """
    device, equals, number = (part.strip() for part in text.rpartition("="))
    like = f"write for example {range_.example}, cuda={range_.example} or cuda:0={range_.example}"
    if equals and not _DEVICE.fullmatch(device):
        raise ValueError(f"'{_shown(text)}' names no device in front of its =; {like}")
    if equals and not number:
        raise ValueError(f"'{_shown(text)}' has no number behind its =; {like}")
    value = float(number) if _NUMBER.fullmatch(number) else math.nan
    if not (0 <= value <= range_.most and (value or range_.zero)):
        raise ValueError(f"'{_shown(text)}' is not {range_.words}; {like}")
    return device, value


def parse_currency(text: str) -> str:
    """Read the label of a currency. Raises ValueError, with a sentence, for what is empty, long, or has what is no printable character."""
    label = text.strip()
    if not label or len(label) > MOST_OF_LABEL or not label.isprintable() or " " in label:
        raise ValueError(f"'{_shown(text)}' is no label of a currency: 1 to {MOST_OF_LABEL} printable characters, such as EUR")
    return label


def _shown(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"


def _total(figures: Sequence[float | None]) -> float | None:
    known = [each for each in figures if each is not None]
    return sum(known) if len(known) == len(figures) else None
