"""Cost: time, energy and money to train a published network, a network of one's own, or on as many samples as one asks for."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from dlbench.analysis.answers.engine.costs import (
    THOUSAND,
    Cost,
    Estimate,
    Payment,
    devices_of,
    estimates,
    inference,
)
from dlbench.analysis.answers.engine.question import CONVERGENCE, CPU_ONLY, Question, Section, Tag
from dlbench.analysis.presentation.columns import place, spanned
from dlbench.analysis.presentation.wording import few
from dlbench.analysis.ratios.matching import grouped
from dlbench.analysis.read.table import Results
from dlbench.core.prices import Prices
from dlbench.core.reference.networks import PARAMETERS, familiarity
from dlbench.core.rows.row import Setting, cells
from dlbench.core.units import Column, Unit

_LEFT_OUT = "reading and decoding images, validation, checkpoints and clocks that change over hours are left out"
_NO_MONEY = "money is open: give --price, such as cuda=2.50/h"
_ONLY_DEVICES = "money is that of the devices: hosts that are paid for apart, storage, network, cooling and people are left out"
_IN_RENT = "--price kwh= changes no amount here, as rent includes electricity: give what a bought device costs, cuda=1600/4y/8h"
_UNMETERED = "nothing metered these steps: dlbench run sustained"


class Costs(NamedTuple):
    """What rows say of costs: trainings on samples that are asked for, and the published ones, their money, plans, and inference."""

    wanted: Sequence[Estimate]
    published: Sequence[Estimate]
    money: Sequence[Cost]
    plans: Sequence[Estimate]
    forward: Sequence[Estimate]


def _read(results: Results) -> Costs:
    """Return networks of one's own first, then the most familiar, and then those that were measured on the most devices."""
    every = list(estimates(results))
    alone = Counter(each.model for each in every if each.row.is_single_rank)

    def standing(each: Estimate) -> tuple[bool, int, int]:
        return each.model in PARAMETERS, familiarity(each.model), -alone[each.model]

    every.sort(key=standing)
    wanted, published = ([each for each in every if bool(each.schedule.source) is known] for known in (False, True))
    plans = [each for each in every if each.hour.rent is not None and each.hour.price is not None]
    # Networks differ in nothing but the power that they take here, so one line is enough where that is not known.
    once = [alike[0] for alike in grouped(plans, lambda each: (each.row.case.run, devices_of(each.row), each.hour)).values()]
    forward = sorted(inference(results), key=lambda each: -each.row.paid_rate)
    return Costs(wanted, published, [cost for each in every for cost in each.costs], once, forward)


def _cautions(results: Results) -> Iterator[str]:
    found = _read(results)
    every = [*found.wanted, *found.published]
    if every:
        yield from (_LEFT_OUT, CONVERGENCE)
    else:
        yield "no training step of a published network was measured: dlbench run cnn"
    yield from _what_stays_open(every or found.forward, results.prices)


def _what_stays_open(found: Sequence[Estimate], prices: Prices) -> Iterator[str]:
    """Yield what stays open of energy and money, and the command or the options that would tell it."""
    if not any(each.joules is not None for each in found):
        tried = next((each.row.energy.reason for each in found if each.kept and each.row.energy.reason), None)
        yield f"energy is open: {tried or _UNMETERED}"
    if not prices.has_amounts:
        yield _NO_MONEY
        return
    yield _ONLY_DEVICES
    if unspread := dict.fromkeys(each.row.case.device for each in found if each.hour.price is not None and each.hour.spread is None):
        yield f"what {few(unspread, 3)}, bought, costs an hour is open: say for how long it is used, --price cuda=1600/4y/8h"
    yield from _electricity(found, prices)
    priced = (prices.per_hour, prices.price)
    every = dict.fromkeys(device for each in found for device in devices_of(each.row))
    unpriced = [device for device in every if prices.per_kwh is None and all(of.of(device) is None for of in priced)]
    if unpriced:
        yield f"without a price: {few(unpriced, 3)}; give --price {unpriced[0]}=AMOUNT/h"


def _electricity(found: Sequence[Estimate], prices: Prices) -> Iterator[str]:
    """Yield which amounts are without electricity, and why."""
    owned = [each for each in found if each.hour.price is not None or (each.hour.rent is None and prices.per_kwh is not None)]
    if prices.per_kwh is not None and not owned:
        yield _IN_RENT
    for reason, alike in grouped((each for each in owned if each.hour.electricity is None), lambda each: _why(each, prices)).items():
        networks = dict.fromkeys(f"{each.model} on {each.row.case.device}" for each in alike)
        yield f"electricity is left out for {few(networks, 2)}: {reason}"


def _why(each: Estimate, prices: Prices) -> str:
    """Return why an estimate has no electricity."""
    if prices.per_kwh is None:
        return "give --price kwh=AMOUNT"
    if each.devices > 1 and each.row.energy.watts is not None:
        return "of several devices only the first was metered"
    return (each.kept and each.row.energy.reason) or _UNMETERED


def _foremost(found: Sequence[Estimate]) -> list[Estimate]:
    """Return of the first network the shortest time on one device, that on a CPU, and that on several devices."""
    alike = [each for each in found if each.model == found[0].model]
    alone = [each for each in alike if each.row.is_single_rank] or alike
    groups = (alone, [each for each in alone if each.row.is_on_cpu], [each for each in alike if each.devices > 1])
    best, *others = (min(group, key=attrgetter("seconds")) for group in groups if group)
    return [best, *(each for each in others if each is not best)]


def _step(of: str) -> list[Column]:
    """Return the columns of a step, of training or of inference."""
    choice = "the batch, precision, layout, mode and implementation of the update at which it was sustained, or else fastest"
    rate = "samples over the time of all calls, slow ones included; of a sustained step the steady rate"
    return [
        Column(f"{of}.choice", Unit.TEXT, choice, heading="at", priority=0),
        Column(f"{of}.items_per_s", Unit.ITEMS_PER_S, rate, "higher", of=lambda each: each.row.paid_rate, heading="samples/s", priority=0),
        Column(f"{of}.kept", Unit.FRACTION, "of its burst, where it was sustained", "higher", heading="kept"),
        spanned(
            Column(f"{of}.joules_1000", Unit.JOULES, "energy of 1000 samples, gross", "lower", heading="energy of 1000", priority=0).by(
                lambda each: each.joules_of_1000[0]
            ),
            lambda each: each.joules_of_1000[1:],
        ),
    ]


def _label(found: Sequence[Estimate]) -> str:
    return CPU_ONLY if all(each.row.is_on_cpu for each in found) else "your data"


def _training(records: str) -> Section[Estimate]:
    """Return the section of times on one set of samples: ImageNet with its published schedules, or another."""
    text, short = "{model:15} trains at {rate}: {what} in {seconds}{span}", "{seconds}{span} for {what}, {model}"
    seconds = Column("train.seconds", Unit.SECONDS, "all steps of the schedule at that rate", "lower", heading="time to train", priority=0)
    return Section(
        records=records,
        title=lambda found: f"Time to train on {found[0].what}: an estimate",
        columns=[
            _MODEL,
            place,
            _RANKS,
            *_step("train"),
            Column("train.epochs", Unit.COUNT, "passes over its training set, of the published schedule", heading="epochs").by(
                lambda each: each.schedule.epochs if each.schedule.source else None
            ),
            spanned(seconds, lambda each: each.ends, "train."),
            Column("train.joules", Unit.JOULES, "of all steps of the schedule", "lower", heading="energy", priority=0),
            Column("train.took", Unit.TEXT, "how long it took them, and on what", heading="its authors").by(
                lambda each: each.schedule.took
            ),
        ],
        notes=_sources,
        whole=lambda each: cells(each.row),
        foremost=_foremost,
        by=lambda each: "paid" if each.paid else "",
        headline={
            "paid": (f"{text}, {{paid}}{{more}}", f"{short}, {{paid}}", "{seconds}{span}, {paid} for {what}"),
            "": (f"{text}{{more}}", short),
        },
        more=dict.fromkeys(("paid", ""), "; {seconds} {where_else}"),
        label=_label,
        lines=lambda found: 1 if found[0].is_wanted or _label(found) == CPU_ONLY else 0,
        qualifier=("{model} {at}{where}", "{at}{where}"),
        tags={Tag.ESTIMATE: lambda _: True},
    )


def _sources(found: Sequence[Estimate]) -> Iterator[str]:
    """Yield where epochs, and the times of authors, come from."""
    chosen = list({each.model: each.schedule for each in found if each.schedule.source}.values())
    yield from dict.fromkeys(f"images: {each.images:,} in ImageNet's training set" for each in chosen if each.items == "images")
    for source, family in grouped(chosen, lambda each: each.source).items():
        yield f"epochs of {', '.join(each.model for each in family)}: {source}"
    yield from dict.fromkeys(f"{each.took}: {each.took_source}" for each in chosen if each.took)


def _priced(title: str) -> Callable[[Sequence[Cost | Estimate]], str]:
    return lambda found: f"{title}{found[0].prices.heading}"


def _amount(name: str, meaning: str, heading: str, samples: Callable[[Cost], float]) -> Column:
    """Return the column of what so many samples cost, with its interval."""
    column = Column(f"cost.{name}", Unit.MONEY, meaning, "lower", of=lambda each: each.of(samples(each)), heading=heading)
    return spanned(column, lambda each: each.ends(samples(each)))


def _way(way: Payment) -> Column:
    """Return the column of what 1000 samples of inference cost one way."""

    def cost(each: Estimate) -> Cost | None:
        return next((cost for cost in each.costs if cost.way is way), None)

    column = Column(f"inference.{way}", Unit.MONEY, "of 1000 samples", "lower", heading=str(way), priority=0)
    shown = column.by(lambda each: (found := cost(each)) and found.of(THOUSAND))
    return spanned(shown, lambda each: found.ends(THOUSAND) if (found := cost(each)) else (None, None))


_MODEL = Column(str(Setting("param", "model")), Unit.TEXT, "the network", heading="network", priority=0)
_RANKS = Column("train.ranks", Unit.COUNT, "processes that took part, one a device, where these were several", heading="ranks").by(
    lambda each: None if each.row.is_single_rank else each.row.ranks
)
_PLAN = (
    Column("buy.price", Unit.MONEY, "to buy all its devices", heading="price"),
    Column("buy.rent", Unit.MONEY, "of an hour", heading="rent"),
    Column("buy.electricity", Unit.MONEY, "that an owner pays for an hour", heading="electricity"),
    Column("buy.hours", Unit.NUMBER, "price / (rent - electricity)", "lower", heading="hours to earn it"),
    Column("buy.share", Unit.FRACTION, "these over years × 365 × hours a day", "lower", heading="of its use"),
    Column("buy.cheaper", Unit.TEXT, "what costs less over the planned use", heading="cheaper"),
)
ORDER = 90
QUESTION = Question(
    "cost",
    "What does it cost: joules and money per 1000 samples, time to train?",
    command="dlbench run cnn",
    others=("dlbench run",),
    missing=["no training step of a published network was measured"],
    read=_read,
    cautions=_cautions,
    sections=[
        *map(_training, ("wanted", "published")),
        Section(
            records="money",
            title=_priced("What training costs"),
            columns=[
                _MODEL.by(lambda each: each.estimate.model),
                place,
                _RANKS,
                Column("cost.training", Unit.TEXT, "what it passes over", of=lambda each: each.estimate.what, heading="training"),
                Column("cost.way", Unit.TEXT, "rented; bought, with electricity where that is known; or electricity alone").by(
                    lambda each: str(each.way), "paid"
                ),
                Column("cost.per_hour", Unit.MONEY, "of all its devices", "lower", heading="an hour"),
                Column("cost.electricity", Unit.MONEY, "of an hour; rent does not tell it apart", "lower", heading="electricity"),
                _amount("of_1000", "time of 1000 samples at that", "1000 samples", lambda _: THOUSAND),
                _amount("of_epoch", "one pass over all samples", "an epoch", lambda each: each.estimate.schedule.images),
                _amount("of_training", "all epochs", "all of it", lambda each: each.estimate.samples),
            ],
            whole=lambda each: cells(each.row),
        ),
        Section(
            records="plans",
            title=_priced("Rent or buy"),
            columns=[
                place,
                Column("buy.devices", Unit.COUNT, "how many", heading="devices"),
                *(each.on(attrgetter("hour")) for each in _PLAN),
            ],
        ),
        Section(
            records="forward",
            title=lambda found: f"Inference on 1000 samples{found[0].prices.heading if any(each.costs for each in found) else ''}",
            columns=[_MODEL, place, *_step("inference"), *map(_way, Payment)],
            whole=lambda each: cells(each.row),
            headline={"": ("{paid} for 1000 samples of inference", "{paid} for 1000 samples")},
            qualifier=("{model} {at}{where}", "{at}{where}"),
            tags={Tag.ESTIMATE: lambda _: True},
        ),
    ],
)
