"""Prices on the command line and among its defaults: read, checked against what was measured, and refused where they would do nothing."""

from collections.abc import Iterable
from dataclasses import replace

import click

from dlbench.cli.terminal import write_notes
from dlbench.core.errors import UsageError
from dlbench.core.model import kind_of
from dlbench.core.prices import PerDevice, Prices
from dlbench.core.reference.peaks import card_of

Figures = tuple[tuple[str, float], ...]
PER_DEVICE = ("price_per_hour", "price_per_kwh", "price", "years", "hours_per_day")
"""Parameters of a command that hold a figure for each of several devices."""
_OTHERS = ("currency", "samples", "epochs", "on")


def made(
    price_per_hour: Figures,
    price_per_kwh: Figures,
    price: Figures,
    years: Figures,
    hours_per_day: Figures,
    currency: str | None,
    samples: int | None,
    epochs: int | None,
    on: tuple[str, ...],
) -> Prices:
    """Return the prices that options give.

    Raises UsageError for a figure that is given twice for one device, for a card without published peaks, and where an option that was
    typed would do nothing.
    """
    found = replace(
        training(samples, epochs),
        per_hour=_by_device("--price-per-hour", price_per_hour),
        per_kwh=_by_device("--price-per-kwh", price_per_kwh),
        price=_by_device("--price", price),
        years=_by_device("--years", years),
        hours_per_day=_by_device("--hours-per-day", hours_per_day),
        currency=currency or "",
        cards=tuple(dict.fromkeys(card_of(each).name for each in on)),
    )
    typed = typed_prices()
    spread = next((name for name in ("--years", "--hours-per-day") if name in typed), None)
    if spread and not found.price.figures:
        raise UsageError(f"{spread} spreads what a device costs to buy over its use; give --price, too")
    if "--currency" in typed and not found.has_amounts:
        raise UsageError("--currency is a label of amounts; give --price-per-hour, --price-per-kwh or --price, too")
    return found


def training(samples: int | None, epochs: int | None) -> Prices:
    """Return a training of the user's own, without prices. Raises UsageError for epochs of no samples."""
    if epochs is not None and samples is None:
        raise UsageError("--epochs says how often a training passes over --samples; give that, too")
    return Prices(samples=samples, epochs=epochs or 1)


def _by_device(option: str, figures: Figures) -> PerDevice:
    found: dict[str, float] = {}
    for device, value in figures:
        if device in found:
            raise UsageError(f"{option}: {device or 'a number for all devices'} is given twice; give it once")
        found[device] = value
    return PerDevice(found)


def typed_prices() -> list[str]:
    """Return those of these options that the command line gives, and no file of defaults."""
    context = click.get_current_context()
    sources = {name: context.get_parameter_source(name) for name in (*PER_DEVICE, *_OTHERS)}
    return [_option(name) for name, source in sources.items() if source is click.core.ParameterSource.COMMANDLINE]


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def check_devices(prices: Prices, devices: Iterable[str]) -> None:
    """Raise UsageError for a figure, typed with the command, of a device that no row has; of a default a note says it.

    A file of defaults may have the prices of several machines.
    """
    there = list(dict.fromkeys(devices))
    known, typed = {*there, *map(kind_of, there)}, typed_prices()
    figures = (prices.per_hour, prices.per_kwh, prices.price, prices.years, prices.hours_per_day)
    for option, each in zip(map(_option, PER_DEVICE), figures, strict=True):
        for name in each.named:
            if name in known:
                continue
            absent = f"{option} {name}={each.figures[name]:g}: no row of these files is of {name}; they have {', '.join(there) or 'none'}"
            if option in typed:
                raise UsageError(absent)
            write_notes([absent])
