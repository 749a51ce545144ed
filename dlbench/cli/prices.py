"""Prices on the command line and among its defaults: read, and refused where two contradict each other."""

from dataclasses import replace

from dlbench.core.errors import UsageError
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
