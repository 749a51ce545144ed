"""Prices of devices and of electricity, and a training of the user's own: given with results, never measured and never stored."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dlbench.core.model import kind_of
from dlbench.core.units import money, one_line

DAYS_A_YEAR = 365
"""Days of use, each of as many hours as a user says."""
KWH = "kwh"
"""Names electricity in place of a device."""
_ALL = ""
_LARGEST = {"amount": 1e12, "years": 100.0, "hours": 24.0}
"""Largest number that each part of a price may have."""
_NUMBER = r"(?:\d+(?:\.\d*)?|\.\d+)"
_CURRENCY = r"[^\s\d./=+-]{0,8}"
_PRICE = re.compile(
    rf"(?:(?P<of>[a-z]\w*(?::\d+)?)=)?(?P<before>{_CURRENCY})(?P<amount>{_NUMBER})(?P<after>{_CURRENCY})"
    rf"(?:(?P<rent>/h)|/(?P<years>{_NUMBER})y/(?P<hours>{_NUMBER})h)?",
    re.ASCII | re.IGNORECASE,
)
_EXAMPLES = "write for example cuda=2.50/h for rent, kwh=0.30, cuda=1600 to buy, or cuda=1600/4y/8h for its use: 4 years, 8 hours a day"


class Price(NamedTuple):
    """One price as a user gives it."""

    of: str
    """A device, a kind of devices, ``kwh``, or an empty text: all devices."""
    amount: float
    rent: bool
    """Whether for an hour, electricity in it; else to buy, or of a kWh."""
    use_hours: float | None
    """Hours of use of a device that is bought."""
    currency: str


@dataclass(frozen=True, slots=True)
class PerDevice:
    """A figure for all devices, or for some of them."""

    figures: Mapping[str, float] = field(default_factory=dict)
    """Figures by device (``cuda:0``), by kind (``cuda``), and by an empty text for all."""

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
    """Prices of devices and electricity, hours of use, and a training of the user's own."""

    per_hour: PerDevice = NONE
    """Rent of a device for an hour."""
    per_kwh: float | None = None
    """Electricity."""
    price: PerDevice = NONE
    """Price to buy a device."""
    use_hours: PerDevice = NONE
    """Over which a device that was bought is used."""
    currency: str = ""
    """A label behind amounts; empty: none."""
    samples: int | None = None
    """Samples of the user's own training, in addition to the published ones; None without one."""
    epochs: int = 1
    """How often that training passes over them."""
    cards: tuple[str, ...] = ()
    """Cards that are not here; answers estimate what they would bring."""

    @property
    def has_amounts(self) -> bool:
        """Whether any amount of money is given."""
        return bool(self.per_hour.figures or self.price.figures) or self.per_kwh is not None

    @property
    def heading(self) -> str:
        """End of the title of a table of amounts: ``, in EUR``."""
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
        """Return their price spread over the hours of their planned use, years × 365 × hours a day; None where a part is not given."""
        of_each = [(self.price.of(each), self.use_hours.of(each)) for each in devices]
        return _total([None if price is None or hours is None else price / hours for price, hours in of_each])

    def electricity(self, watts: float | None) -> float | None:
        """Return what so many watts cost for an hour; None where they or their price are not known."""
        return None if watts is None or self.per_kwh is None else watts / 1000 * self.per_kwh


NO_PRICES = Prices()


def parse_price(text: str) -> Price:
    """Read ``2.50/h``, ``cuda=2.50EUR/h``, ``kwh=0.30``, ``cuda:0=1600`` or ``cuda=1600/4y/8h``.

    Raises ValueError, with a sentence, for anything else.
    """
    parts = _PRICE.fullmatch(text.strip())
    if not parts or (parts["before"] and parts["after"]):  # a currency stands on one side of the amount
        raise ValueError(f"'{one_line(text)}' is no price; {_EXAMPLES}")
    for name, most in _LARGEST.items():
        if not parts[name]:
            continue
        number = float(parts[name])
        may_be_zero = name == "amount"
        if not 0 <= number <= most or (number == 0 and not may_be_zero):
            least = "from 0" if may_be_zero else "above 0,"
            raise ValueError(f"'{one_line(text)}': {name} must be {least} up to {most:g}")
    priced = parts["of"] or _ALL
    use_hours = float(parts["years"]) * DAYS_A_YEAR * float(parts["hours"]) if parts["years"] else None
    is_rent = bool(parts["rent"])
    is_electricity = priced.lower() == KWH
    if is_electricity and (is_rent or use_hours is not None):
        raise ValueError(f"'{one_line(text)}': a kWh is neither rented nor used for years; write kwh=0.30")
    return Price(KWH if is_electricity else priced, float(parts["amount"]), is_rent, use_hours, currency=parts["before"] or parts["after"])


def _total(figures: Sequence[float | None]) -> float | None:
    known = [each for each in figures if each is not None]
    return sum(known) if len(known) == len(figures) else None
