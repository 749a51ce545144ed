"""Open energy and money of trainings: why they are open, and the command or the options that would tell them."""

from collections.abc import Iterator, Sequence

from dlbench.analysis.answers.parts.money import devices_of
from dlbench.analysis.answers.parts.training_time import Estimate
from dlbench.analysis.presentation.names import device_label, several_runs
from dlbench.analysis.presentation.wording import few
from dlbench.analysis.ratios.pairing import grouped
from dlbench.core.prices import Prices

_NO_ENERGY = "energy is open, as nothing metered these steps: dlbench run sustained"
_NO_MONEY = "money is open: give --price-per-hour, or --price with --years and --hours-per-day"
_ONLY_DEVICES = "money is that of the devices: hosts that are paid for apart, storage, network, cooling and people are left out"
_IN_RENT = "--price-per-kwh changes no amount here, as rent includes electricity: give --price for what a bought device costs"
_UNMETERED = "nothing metered the power of these steps"
_Place = tuple[str, str]


def what_stays_open(found: Sequence[Estimate], prices: Prices) -> Iterator[str]:
    """Yield what stays open of energy and money, and the command or the options that would tell it."""
    if not any(each.joules is not None for each in found):
        tried = next(iter(_tried(found).values()), None)
        yield f"energy is open: {tried}" if tried else _NO_ENERGY
    if not prices.has_amounts:
        yield _NO_MONEY
        return
    yield _ONLY_DEVICES
    bought = [each for each in found if each.hour.price is not None]
    if unspread := dict.fromkeys(each.row.case.device for each in bought if each.hour.spread is None):
        some = any(each.hour.spread is not None for each in bought)
        what = f"{few(unspread, 3)}, bought," if some else "a device that is bought"
        yield f"what {what} costs an hour is open: give --years and --hours-per-day"
    yield from _electricity(found, prices)
    priced = (prices.per_hour, prices.per_kwh, prices.price)
    unpriced = dict.fromkeys(device for each in found for device in devices_of(each.row) if all(of.of(device) is None for of in priced))
    if unpriced:
        yield f"without a price: {few(unpriced, 3)}; give --price-per-hour {next(iter(unpriced))}=AMOUNT"


def _tried(found: Sequence[Estimate]) -> dict[_Place, str]:
    """Return by its place why the power of a step could not be metered, although it was sustained."""
    return {_place(each): each.row.energy.reason for each in found if each.sustained and each.row.energy.reason}


def _place(each: Estimate) -> _Place:
    return each.row.case.run, each.row.case.device


def _electricity(found: Sequence[Estimate], prices: Prices) -> Iterator[str]:
    """Yield which amounts are without electricity, and why."""
    owned = [each for each in found if each.hour.rent is None or each.hour.price is not None]
    if not prices.per_kwh.figures:
        if prices.price.figures:
            yield "electricity is left out of what a device that is bought costs: give --price-per-kwh"
        return
    if not owned:
        yield _IN_RENT
        return
    tried, several = _tried(found), several_runs(found)
    without = [each for each in owned if each.hour.electricity is None and (each.hour.price is not None or _has_price(each, prices))]
    for reason, alike in grouped(without, lambda each: _why(each, prices, tried)).items():
        networks = dict.fromkeys(f"{each.schedule.model} on {device_label(each, several)}" for each in alike)
        if len(alike) == len(owned):
            what, unmetered = "in no amount", _UNMETERED
        else:
            what, unmetered = f"left out for {few(networks, 2)}", "nothing metered these steps"
        models = dict.fromkeys(each.schedule.model for each in alike)
        chosen = f" --set model={','.join(models)}" if any(each.sustained for each in found) else ""
        because = f", as {unmetered}: dlbench run sustained{chosen}" if reason == _UNMETERED else f": {reason}"
        yield f"electricity is {what}{because}"


def _has_price(each: Estimate, prices: Prices) -> bool:
    return all(prices.per_kwh.of(device) is not None for device in devices_of(each.row))


def _why(each: Estimate, prices: Prices, tried: dict[_Place, str]) -> str:
    """Return why an estimate has no electricity."""
    if not _has_price(each, prices):
        return f"give --price-per-kwh {each.row.case.device}=AMOUNT"
    if each.devices > 1 and each.row.energy.watts is not None:
        return "of several devices only the first was metered"
    return tried.get(_place(each), _UNMETERED)
