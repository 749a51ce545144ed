"""Prices on the command line and among its defaults: read, checked against what was measured, and refused where they would do nothing."""

from collections.abc import Iterable
from dataclasses import replace

from dlbench.cli.terminal import write_notes
from dlbench.core.errors import UsageError
from dlbench.core.model import kind_of
from dlbench.core.prices import KWH, PerDevice, Price, Prices
from dlbench.core.reference.peaks import card_of


def from_options(price: tuple[Price, ...], samples: int | None, epochs: int | None, on: tuple[str, ...]) -> Prices:
    """Return the prices that --price, --samples, --epochs and --on give.

    Raises UsageError for a price that is given twice, for two currencies, and for a card without published peaks.
    """
    rents: dict[str, float] = {}
    purchases: dict[str, float] = {}
    for each in price:
        amounts = rents if each.rent else purchases
        if each.of in amounts:
            hour = "an hour of " if each.rent else ""
            raise UsageError(f"--price: {hour}{each.of or 'all devices'} has two prices; give one")
        amounts[each.of] = each.amount
    currencies = list(dict.fromkeys(each.currency for each in price if each.currency))
    if len(currencies) > 1:
        raise UsageError(f"--price: amounts are in {' and '.join(currencies)}, which dlbench can't convert; give all in one")
    return replace(
        training(samples, epochs),
        per_hour=PerDevice(rents),
        per_kwh=next((each.amount for each in price if each.of.lower() == KWH), None),
        price=PerDevice({of: amount for of, amount in purchases.items() if of.lower() != KWH}),
        use_hours=PerDevice({each.of: each.use_hours for each in price if each.use_hours is not None}),
        currency="".join(currencies),
        cards=tuple(dict.fromkeys(card_of(each).name for each in on)),
    )


def training(samples: int | None, epochs: int | None) -> Prices:
    """Return a training of the user's own, without prices. Raises UsageError for epochs of no samples."""
    if epochs is not None and samples is None:
        raise UsageError("--epochs says how often a training passes over --samples; give that, too")
    return Prices(samples=samples, epochs=epochs or 1)


def check_devices(prices: Prices, devices: Iterable[str], *, typed: bool) -> None:
    """Raise UsageError for a price of a device that no row has, or write a note where prices were not ``typed`` but are defaults.

    ``devices``: those of the rows. A file of defaults may have the prices of several machines.
    """
    measured = list(dict.fromkeys(devices))
    known = {*measured, *map(kind_of, measured)}
    for name in dict.fromkeys((*prices.per_hour.named, *prices.price.named)):
        if name in known:
            continue
        absent = f"--price {name}=: no row of these files is of {name}; they have {', '.join(measured) or 'none'}"
        if typed:
            raise UsageError(absent)
        write_notes([absent])
