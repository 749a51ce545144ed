"""Tables of what training costs: its time and energy, its money, and whether to rent or to buy."""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import NamedTuple

from dlbench.analysis.answers.parts.base import Table, table
from dlbench.analysis.answers.parts.money import Hour, Payment, devices_of
from dlbench.analysis.answers.parts.training_time import IMAGENET, THOUSAND, Cost, Estimate, dataset, words
from dlbench.analysis.presentation.fields import Fields, Headed, own, place, whole_row
from dlbench.analysis.presentation.wording import INTERVAL
from dlbench.analysis.ratios.pairing import grouped
from dlbench.core.prices import Prices
from dlbench.core.rows.row import Row, Setting
from dlbench.core.schema import Unit

_MODEL = str(Setting("param", "model"))
_CHOICE = "the batch, precision, layout, mode and implementation of the update at which it was sustained, or else fastest"
_EPOCHS = "passes over ImageNet's training set, of the published schedule"
_RANKS = "processes that took part, one a device, where these were several"
_AS_TIME = "of its 95 % interval, as of the throughput"

_NETWORK: Fields[Estimate] = (own("network", _MODEL, Unit.TEXT, "the network", lambda each: each.schedule.model),)
_AT: Fields[Estimate] = (
    own("ranks", "train.ranks", Unit.COUNT, _RANKS, lambda each: None if each.is_alone else each.row.ranks),
    own("at", "train.choice", Unit.TEXT, _CHOICE, lambda each: each.choice),
)


def _rate(heading: str, of: str) -> Headed[Estimate]:
    """Return the column of the samples a second that time and money are counted by."""
    meaning = "samples over the time of all calls, slow ones included; of a sustained step the steady rate"
    return own(heading, f"{of}.items_per_s", Unit.ITEMS_PER_S, meaning, lambda each: each.row.paid_rate, "higher")


def _energy(of: str) -> Fields[Estimate]:
    """Return the columns of the energy of 1000 samples, of training or of inference."""
    return (
        own("of 1000", f"{of}.joules_1000", Unit.JOULES, "energy of 1000 samples, gross", lambda each: each.joules_of_1000[0], "lower"),
        own(INTERVAL, f"{of}.joules_1000_low", Unit.JOULES, "lower end of its 95 % interval", lambda each: each.joules_of_1000[1]),
        own(INTERVAL, f"{of}.joules_1000_high", Unit.JOULES, "upper end of it", lambda each: each.joules_of_1000[2]),
    )


_TIMES: Fields[Estimate] = (
    own("time to train", "train.seconds", Unit.SECONDS, "all steps of the schedule at that rate", better="lower"),
    own(INTERVAL, "train.low", Unit.SECONDS, f"lower end {_AS_TIME}", lambda each: each.ends[0]),
    own(INTERVAL, "train.high", Unit.SECONDS, "upper end of it", lambda each: each.ends[1]),
    own("kept", "train.kept", Unit.FRACTION, "of its burst, where it was sustained", better="higher"),
    own("energy", "train.joules", Unit.JOULES, "of all steps of the schedule", lambda each: each.joules, "lower"),
    *_energy("train"),
)


def time_table(estimates: Sequence[Estimate]) -> Table:
    """Return the table of estimates on one set of samples: ImageNet with its published schedules, or another."""
    title = f"Time to train on {dataset(estimates[0].schedule)}: an estimate"
    if dataset(estimates[0].schedule) != IMAGENET:
        fields: Fields[Estimate] = (*_NETWORK, place(estimates), *_AT, _rate("samples/s", "train"), *_TIMES)
        return table(title, fields, estimates, whole=whole_row)
    chosen = list({each.schedule.model: each.schedule for each in estimates}.values())
    families = grouped(chosen, lambda each: each.source)
    epochs = [f"epochs of {', '.join(each.model for each in family)}: {source}" for source, family in families.items()]
    took = dict.fromkeys(f"{each.took}: {each.took_source}" for each in chosen if each.took)
    return table(
        title,
        (
            *_NETWORK,
            place(estimates),
            *_AT,
            _rate("images/s", "train"),
            own("epochs", "train.epochs", Unit.COUNT, _EPOCHS, lambda each: each.schedule.epochs),
            *_TIMES,
            own("its authors", "train.took", Unit.TEXT, "how long it took them, and on what", lambda each: each.schedule.took),
        ),
        estimates,
        (f"images: {chosen[0].images:,} in ImageNet's training set", *epochs, *took),
        whole=whole_row,
    )


def money_table(estimates: Sequence[Estimate], prices: Prices) -> Table:
    """Return the table of what each estimate costs, each way that its prices tell."""
    costs = [cost for each in estimates for cost in each.costs]
    fields: Fields[Cost] = (
        own("network", _MODEL, Unit.TEXT, "the network", lambda each: each.estimate.schedule.model),
        place(costs),
        own("ranks", "train.ranks", Unit.COUNT, _RANKS, lambda each: None if each.estimate.is_alone else each.row.ranks),
        own("training", "cost.training", Unit.TEXT, "what it passes over", lambda each: words(each.estimate.schedule)),
        own("paid", "cost.way", Unit.TEXT, "rented; bought, its electricity included where that is known; or electricity alone"),
        own("an hour", "cost.per_hour", Unit.MONEY, "of all its devices", better="lower"),
        own("electricity", "cost.electricity", Unit.MONEY, "of an hour; rent does not tell it apart", better="lower"),
        own("1000 samples", "cost.of_1000", Unit.MONEY, "time of 1000 samples at that", lambda each: each.of(THOUSAND), "lower"),
        own(INTERVAL, "cost.of_1000_low", Unit.MONEY, f"lower end {_AS_TIME}", lambda each: each.ends(THOUSAND)[0]),
        own(INTERVAL, "cost.of_1000_high", Unit.MONEY, "upper end of it", lambda each: each.ends(THOUSAND)[1]),
        own("an epoch", "cost.of_epoch", Unit.MONEY, "one pass over all samples", lambda each: each.of(each.images), "lower"),
        own(INTERVAL, "cost.of_epoch_low", Unit.MONEY, f"lower end {_AS_TIME}", lambda each: each.ends(each.images)[0]),
        own(INTERVAL, "cost.of_epoch_high", Unit.MONEY, "upper end of it", lambda each: each.ends(each.images)[1]),
        own("all of it", "cost.of_training", Unit.MONEY, "all epochs", lambda each: each.of(each.estimate.samples), "lower"),
        own(INTERVAL, "cost.of_training_low", Unit.MONEY, f"lower end {_AS_TIME}", lambda each: each.ends(each.estimate.samples)[0]),
        own(INTERVAL, "cost.of_training_high", Unit.MONEY, "upper end of it", lambda each: each.ends(each.estimate.samples)[1]),
    )
    return table(f"What training costs{prices.heading}", fields, costs, whole=whole_row)


class _Plan(NamedTuple):
    """Devices that may be rented or bought, as a row took them."""

    row: Row
    hour: Hour


def rent_or_buy_table(estimates: Sequence[Estimate], prices: Prices) -> Table:
    """Return the table of devices with a rent and a price: after how many hours of use the rent saved has earned the price."""
    known = [_Plan(each.row, each.hour) for each in estimates if each.hour.rent is not None and each.hour.price is not None]
    # Networks differ in nothing but the power that they take here, so one line is enough where that is not known.
    plans = [alike[0] for alike in grouped(known, lambda each: (each.row.case.run, devices_of(each.row), each.hour)).values()]

    fields: Fields[_Plan] = (
        place(plans),
        own("devices", "buy.devices", Unit.COUNT, "how many", lambda each: len(devices_of(each.row))),
        own("price", "buy.price", Unit.MONEY, "to buy all its devices", lambda each: each.hour.price),
        own("rent", "buy.rent", Unit.MONEY, "of an hour", lambda each: each.hour.rent),
        own("electricity", "buy.electricity", Unit.MONEY, "that an owner pays for an hour", lambda each: each.hour.electricity),
        own("hours to earn it", "buy.hours", Unit.NUMBER, "price / (rent - electricity)", lambda each: each.hour.hours_to_earn, "lower"),
        own(
            "of its use", "buy.share", Unit.FRACTION, "these over years × 365 × hours a day", lambda each: each.hour.share_to_earn, "lower"
        ),
        own("cheaper", "buy.cheaper", Unit.TEXT, "what costs less over the planned use", lambda each: each.hour.cheaper),
    )
    return table(f"Rent or buy{prices.heading}", fields, plans)


def inference_table(estimates: Sequence[Estimate], prices: Prices) -> Table:
    """Return the table of what 1000 samples of inference take and cost, each way that their prices tell."""
    fields: Fields[Estimate] = (
        *_NETWORK,
        place(estimates),
        own("at", "inference.choice", Unit.TEXT, _CHOICE, lambda each: each.choice),
        _rate("samples/s", "inference"),
        own("kept", "inference.kept", Unit.FRACTION, "of its burst, where it was sustained", better="higher"),
        *_energy("inference"),
        *chain.from_iterable(map(_paid, Payment)),
    )
    currency = prices.heading if prices.has_amounts else ""
    return table(f"Inference on 1000 samples{currency}", fields, estimates, whole=whole_row)


def _paid(way: Payment) -> Fields[Estimate]:
    """Return the columns of what 1000 samples cost one way, with their interval."""

    def cost(each: Estimate) -> Cost | None:
        return next((cost for cost in each.costs if cost.way is way), None)

    def amount(each: Estimate) -> float | None:
        return found.of(THOUSAND) if (found := cost(each)) else None

    def end(at: int) -> Callable[[Estimate], float | None]:
        return lambda each: found.ends(THOUSAND)[at] if (found := cost(each)) else None

    return (
        own(
            str(way), f"inference.{way}", Unit.MONEY, "of 1000 samples", lambda each: (found := cost(each)) and found.of(THOUSAND), "lower"
        ),
        own(INTERVAL, f"inference.{way}_low", Unit.MONEY, f"lower end {_AS_TIME}", end(0)),
        own(INTERVAL, f"inference.{way}_high", Unit.MONEY, "upper end of it", end(1)),
    )
