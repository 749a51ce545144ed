"""Money: what an hour of the devices of a row costs, rented or bought, and from how many hours of use on buying is cheaper."""

from dataclasses import dataclass
from enum import StrEnum

from dlbench.core.model import kind_of
from dlbench.core.prices import Prices
from dlbench.core.rows.row import Row


class Payment(StrEnum):
    """How devices are paid for."""

    RENTED = "rented"
    BOUGHT = "bought"
    POWERED = "electricity"
    """Where nothing is known but that."""


@dataclass(frozen=True, slots=True)
class Hour:
    """What an hour of devices costs together, each part None where it is not known."""

    rent: float | None = None
    """It includes electricity."""
    spread: float | None = None
    """Of the price to buy them, over the hours of their planned use."""
    electricity: float | None = None
    price: float | None = None
    """To buy them."""

    @property
    def ways(self) -> dict[Payment, float]:
        """What it costs each way that is known: rented; bought, with electricity where that is known; else electricity alone."""
        found = {}
        if self.rent is not None:
            found[Payment.RENTED] = self.rent
        if self.spread is not None:
            found[Payment.BOUGHT] = self.spread + (self.electricity or 0.0)
        return found or ({} if self.electricity is None else {Payment.POWERED: self.electricity})

    @property
    def saved(self) -> float | None:
        """What an hour of owning saves: its rent, less the electricity that an owner pays, where that is known."""
        return None if self.rent is None else self.rent - (self.electricity or 0.0)

    @property
    def hours(self) -> float | None:
        """Hours of use until the rent saved has earned the price; None where something is not known, or it never does."""
        if self.price is None or self.saved is None or self.saved <= 0:
            return None
        return self.price / self.saved

    @property
    def share(self) -> float | None:
        """The share of the planned use that these are: below 1 buying is cheaper."""
        if self.spread is None or self.saved is None or self.saved <= 0:
            return None
        return self.spread / self.saved  # the price over both, so that devices of several plans count by what they cost

    @property
    def cheaper(self) -> str | None:
        """What costs less over the planned use, ``buying`` or ``renting``; None where they cost the same, or something is not known."""
        if self.price is None or self.saved is None:
            return None
        if self.saved <= 0:
            return "renting" if self.price or self.saved else None
        return None if self.share is None else "buying" if self.share < 1 else "renting"


def devices_of(row: Row) -> tuple[str, ...]:
    """Return the devices that a row took: on a CPU one, whose ranks share it; of ranks on accelerators the first so many of their kind."""
    if row.is_on_cpu or row.is_single_rank or not row.ranks:
        return (row.case.device,)
    return tuple(f"{kind_of(row.case.device)}:{rank}" for rank in range(row.ranks))


def hour_of(row: Row, prices: Prices) -> Hour:
    """Return what an hour of the devices of a row costs at these prices."""
    devices = devices_of(row)
    watts = row.energy.watts if len(devices) == 1 else None  # what is metered is the first of several
    return Hour(prices.rent(devices), prices.spread(devices), prices.electricity(watts), prices.to_buy(devices))
