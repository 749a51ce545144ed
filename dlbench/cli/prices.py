"""Prices on the command line and among its defaults: read, checked against what was measured, and refused where they would do nothing."""

from collections.abc import Iterable
from dataclasses import replace

from dlbench.cli.terminal import write_notes
from dlbench.core.errors import UsageError
from dlbench.core.model import kind_of
from dlbench.core.prices import KWH, PerDevice, Price, Prices
from dlbench.core.reference.peaks import card_of


def made(price: tuple[Price, ...], samples: int | None, epochs: int | None, on: tuple[str, ...]) -> Prices:
    """Return the prices that options give.

    Raises UsageError for a price that is given twice, for two currencies, and for a card without published peaks.
    """
    figures: dict[tuple[str, bool], float] = {}
    for each in price:
        if (each.of, each.rent) in figures:
            what = "an hour of " if each.rent else ""
            raise UsageError(f"--price: {what}{each.of or 'all devices'} has two prices; give one")
        figures[each.of, each.rent] = each.amount
    currencies = list(dict.fromkeys(each.currency for each in price if each.currency))
    if len(currencies) > 1:
        raise UsageError(f"--price: amounts are in {' and '.join(currencies)}, which dlbench can't convert; give all in one")
    per_kwh = next((amount for (of, _), amount in figures.items() if of.lower() == KWH), None)
    return replace(
        training(samples, epochs),
        per_hour=PerDevice({of: amount for (of, rent), amount in figures.items() if rent}),
        per_kwh=per_kwh,
        price=PerDevice({of: amount for (of, rent), amount in figures.items() if not rent and of.lower() != KWH}),
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
    """Raise UsageError for a price that was ``typed``, of a device that no row has; of a default a note says it.

    A file of defaults may have the prices of several machines.
    """
    there = list(dict.fromkeys(devices))
    known = {*there, *map(kind_of, there)}
    for name in dict.fromkeys((*prices.per_hour.named, *prices.price.named)):
        if name in known:
            continue
        absent = f"--price {name}=: no row of these files is of {name}; they have {', '.join(there) or 'none'}"
        if typed:
            raise UsageError(absent)
        write_notes([absent])
