"""Prices on the command line and among its defaults: read, and refused where two contradict each other."""

from collections.abc import Sequence
from dataclasses import replace

from dlbench.core.errors import UsageError
from dlbench.core.prices import KWH, PerDevice, Price, Prices
from dlbench.core.reference.peaks import card_of


def from_options(price: tuple[Price, ...], samples: int | None, epochs: int | None, on: tuple[str, ...]) -> Prices:
    """Return the prices that --price gives, the training of --samples and --epochs, and the cards that --on names.

    Raises UsageError for a price that is given twice, two currencies, epochs without samples, and a card without published peaks.
    """
    per_hour = _amounts([each for each in price if each.rent], "an hour of ")
    # What is no rent is the price of a device to buy, or that of electricity, which stands under a name of its own.
    to_buy = _amounts([each for each in price if not each.rent], "")
    per_kwh = to_buy.pop(KWH, None)
    use_hours = {each.of: each.use_hours for each in price if each.use_hours is not None}  # of a device to buy, as in 1600/4y/8h
    currency = _currency(price)
    return replace(
        training(samples, epochs),
        per_hour=PerDevice(per_hour),
        per_kwh=per_kwh,
        price=PerDevice(to_buy),
        use_hours=PerDevice(use_hours),
        currency=currency,
        cards=tuple(dict.fromkeys(card_of(name).name for name in on)),
    )


def _amounts(prices: Sequence[Price], unit: str) -> dict[str, float]:
    """Return the amount of each device, or of all under an empty name.

    Raises UsageError where one has two. Its text has the ``unit`` before the device: ``an hour of cuda has two prices``.
    """
    amounts: dict[str, float] = {}
    for price in prices:
        if price.of in amounts:
            raise UsageError(f"--price: {unit}{price.of or 'all devices'} has two prices; give one")
        amounts[price.of] = price.amount
    return amounts


def _currency(prices: Sequence[Price]) -> str:
    """Return the currency of the prices; empty if none names one. Raises UsageError for two."""
    currencies = list(dict.fromkeys(price.currency for price in prices if price.currency))
    if len(currencies) > 1:
        raise UsageError(f"--price: amounts are in {' and '.join(currencies)}, which dlbench can't convert; give all in one")
    return "".join(currencies)


def training(samples: int | None, epochs: int | None) -> Prices:
    """Return a training of the user's own, without prices. Raises UsageError for epochs of no samples."""
    if epochs is not None and samples is None:
        raise UsageError("--epochs says how often a training passes over --samples; give that, too")
    return Prices(samples=samples, epochs=epochs or 1)
