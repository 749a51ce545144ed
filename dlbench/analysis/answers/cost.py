"""Cost: time, energy and money to train a published network, a network of one's own, or on as many samples as one asks for."""

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from dlbench.analysis.answers.engine.costs import THOUSAND, Cost, Estimate, devices_of, inference_estimates, sustained, training_estimates
from dlbench.analysis.answers.engine.question import CONVERGENCE, CPU_ONLY, Question, Section, Tag, detail, shown
from dlbench.analysis.presentation.columns import place, spanned
from dlbench.analysis.presentation.wording import few
from dlbench.analysis.ratios.matching import grouped
from dlbench.analysis.read.table import Results
from dlbench.core.prices import Prices
from dlbench.core.reference.networks import PARAMETERS, familiarity
from dlbench.core.rows.row import Setting
from dlbench.core.units import Column

_LEFT_OUT = "reading and decoding images, validation, checkpoints and clocks that change over hours are left out"
_NO_MONEY = "money is open: give --price, such as cuda=2.50/h"
_ONLY_DEVICES = "money is that of the devices: hosts that are paid for apart, storage, network, cooling and people are left out"
_UNMETERED = "nothing metered these steps: dlbench run sustained"


class Costs(NamedTuple):
    """Records of the five sections: trainings, their costs in money, offers to rent or buy, and inference."""

    wanted: Sequence[Estimate]
    """Trainings on the samples that were asked for."""
    published: Sequence[Estimate]
    """Trainings as published."""
    money: Sequence[Cost]
    plans: Sequence[Estimate]
    """Estimates whose devices can be rented or bought."""
    inference: Sequence[Estimate]


def _read(results: Results) -> Costs:
    """Return all costs: of trainings, with the user's own networks first and then familiar ones; and of inference, highest rate first."""
    trainings = sorted(training_estimates(results), key=lambda each: (each.model in PARAMETERS, familiarity(each.model)))
    inference = sorted(inference_estimates(results), key=lambda each: -each.row.paid_rate)
    with_rent_and_price = [each for each in trainings if each.hour.rent is not None and each.hour.price is not None]
    # Two networks on the same devices have one plan, unless their power differs and with it the costs of an hour.
    by_plan = grouped(with_rent_and_price, lambda each: (each.row.case.run, devices_of(each.row), each.hour))
    return Costs(
        wanted=[each for each in trainings if not each.schedule.source],  # only a published schedule has a source
        published=[each for each in trainings if each.schedule.source],
        money=[cost for each in (*trainings, *inference) for cost in each.costs],
        plans=[alike[0] for alike in by_plan.values()],
        inference=inference,
    )


def _cautions(results: Results) -> Iterator[str]:
    """Yield what the times leave out, and what is not known of energy and money."""
    found = _read(results)
    trainings = [*found.wanted, *found.published]
    yield from (_LEFT_OUT, CONVERGENCE) if trainings else ("no training step of a published network was measured: dlbench run cnn",)
    estimates = trainings or found.inference
    if all(each.joules is None for each in estimates):
        reasons = (_why_unmetered(each) for each in estimates if sustained(each.row))
        yield f"energy is open: {next(reasons, _UNMETERED)}"
    yield from _open_money(estimates, results.prices)


def _open_money(estimates: Sequence[Estimate], prices: Prices) -> Iterator[str]:
    """Yield a sentence on each part of the money that is left out, with the option that gives it."""
    if not prices.has_amounts:
        yield _NO_MONEY
        return
    yield _ONLY_DEVICES
    without_use = [each for each in estimates if each.hour.price is not None and each.hour.spread is None]
    if bought := dict.fromkeys(each.row.case.device for each in without_use):
        yield f"what {few(bought, 3)}, bought, costs an hour is open: say for how long it is used, --price cuda=1600/4y/8h"
    # Rent includes electricity; who owns a device pays for it.
    owned = [each for each in estimates if each.hour.price is not None or (each.hour.rent is None and prices.per_kwh is not None)]
    for reason, alike in grouped((each for each in owned if each.hour.electricity is None), _why_unmetered).items():
        networks = dict.fromkeys(f"{each.model} on {each.row.case.device}" for each in alike)
        yield f"electricity is left out for {few(networks, 2)}: {'give --price kwh=AMOUNT' if prices.per_kwh is None else reason}"


def _why_unmetered(each: Estimate) -> str:
    """Return the reason why the energy of an estimate is not known."""
    if each.devices > 1 and each.row.energy.watts is not None:
        return "of several devices only the first was metered"
    return (sustained(each.row) and each.row.energy.reason) or _UNMETERED


def _foremost(found: Sequence[Estimate]) -> list[Estimate]:
    """Return the fastest estimates of the first network: on one device, on a CPU, and on several devices."""
    alike = [each for each in found if each.model == found[0].model]
    alone = [each for each in alike if each.row.is_single_rank] or alike
    groups = (alone, [each for each in alone if each.row.is_on_cpu], [each for each in alike if each.devices > 1])
    best, *others = (min(group, key=attrgetter("seconds")) for group in groups if group)
    return [best, *(each for each in others if each is not best)]


def _step_columns(prefix: str) -> list[Column]:
    """Return the columns of a step; ``prefix`` starts their names: ``train`` or ``inference``."""
    joules = shown(f"{prefix}.joules_1000", "J", "energy of 1000", "energy of 1000 samples, gross", lambda each: each.joules_of_1000[0])
    return [
        shown(f"{prefix}.choice", "text", "at", "batch, precision and other settings at which it was sustained, or else fastest"),
        shown(
            f"{prefix}.items_per_s",
            "items/s",
            "samples/s",
            "over the time of all calls; if sustained the steady rate",
            attrgetter("row.paid_rate"),
        ),
        spanned(joules, lambda each: each.joules_of_1000[1:]),
    ]


def _label(found: Sequence[Estimate]) -> str:
    """Return the words in front of the line on a screen."""
    return CPU_ONLY if all(each.row.is_on_cpu for each in found) else "your data"


def _training_section(field: str) -> Section[Estimate]:
    """Return the section of the trainings in one field of `Costs`: ``wanted`` or ``published``."""
    # The module `making` fills in the names in braces from columns and properties of an estimate. {model:15} is cut to 15 characters. Of
    # several texts a screen shows the first that has room.
    long = "{model:15} trains at {rate}: {what} in {seconds}{span}"
    short = "{seconds}{span} for {what}, {model}"
    return Section(
        records=field,
        title=lambda found: f"Time to train on {found[0].what}: an estimate",
        columns=[
            _MODEL,
            place,
            _RANKS,
            *_step_columns("train"),
            detail("train.epochs", "count", "epochs", "passes over its samples", attrgetter("schedule.epochs")),
            spanned(shown("train.seconds", "s", "time to train", "all steps at that rate"), lambda each: each.ends, "train."),
            shown("train.joules", "J", "energy", "of all steps"),
            detail("train.took", "text", "its authors", "how long it took them, and on what", attrgetter("schedule.took")),
        ],
        notes=_sources,
        foremost=_foremost,
        by=lambda each: "paid" if each.paid else "unpaid",  # unpaid: neither money nor energy is known
        headline={
            "paid": (long + ", {paid}{more}", short + ", {paid}", "{seconds}{span}, {paid} for {what}"),
            "unpaid": (long + "{more}", short),
        },
        more=dict.fromkeys(("paid", "unpaid"), "; {seconds} {where_else}"),  # {more} tells of the second of the foremost estimates
        label=_label,
        lines=_line_count,
        qualifier=("{model} {at}{where}", "{at}{where}"),  # behind the headline, in place of the case and its device
        tags={Tag.ESTIMATE: lambda _: True},
    )


def _line_count(found: Sequence[Estimate]) -> int:
    """Return how many estimates have a line on a screen: one if somebody asked for it, or if there is no accelerator to tell of."""
    return 1 if found[0].is_wanted or _label(found) == CPU_ONLY else 0


def _sources(found: Sequence[Estimate]) -> Iterator[str]:
    """Yield the source of the epochs of each published schedule, and of the time that its authors took."""
    schedules = list({each.model: each.schedule for each in found if each.schedule.source}.values())
    for source, family in grouped(schedules, lambda each: each.source).items():
        yield f"epochs of {', '.join(each.model for each in family)}, of {family[0].images:,} {family[0].items}: {source}"
    yield from dict.fromkeys(f"{each.took}: {each.took_source}" for each in schedules if each.took)


def _amount(name: str, heading: str, samples: Callable[[Cost], float]) -> Column:
    """Return the column of the cost of so many samples, with its interval."""
    column = detail(f"cost.{name}", "money", heading, f"of {heading}", lambda each: each.of(samples(each)))
    return spanned(column, lambda each: each.ends(samples(each)))


def _samples(each: Cost) -> str:
    """Return what an amount is for: ``ImageNet``, ``inference on 1,000 images``."""
    return f"{'inference on ' * ('inference' in each.row.declared.tags)}{each.estimate.what}"


_MODEL = shown(str(Setting("param", "model")), "text", "network", "the network")
_RANKS = detail(
    "train.ranks", "count", "ranks", "of several devices how many", lambda each: None if each.row.is_single_rank else each.row.ranks
)
_PLAN = (
    detail("buy.price", "money", "price", "to buy all its devices"),
    detail("buy.rent", "money", "rent", "of an hour"),
    detail("buy.electricity", "money", "electricity", "that an owner pays for an hour"),
    detail("buy.hours", "number", "hours to earn it", "price / (rent - electricity)"),
    detail("buy.share", "fraction", "of its use", "these over years × 365 × hours a day: below 100 % buying is cheaper"),
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
        *map(_training_section, ("wanted", "published")),
        Section(
            records="money",
            title=lambda found: f"What it costs{found[0].estimate.prices.heading}",
            columns=[
                _MODEL.by(lambda each: each.estimate.model),
                place,
                _RANKS,
                detail("cost.samples", "text", "for", "what training passes over, or inference", _samples),
                detail("cost.payment", "text", "paid", "rented; bought, with electricity where that is known; or electricity alone"),
                detail("cost.per_hour", "money", "an hour", "of all its devices"),
                _amount("of_1000", "1000 samples", lambda _: THOUSAND),
                _amount("of_all", "all of it", lambda each: each.estimate.samples),
            ],
        ),
        Section(
            records="plans",
            title=lambda found: f"Rent or buy{found[0].prices.heading}",
            columns=[place, detail("buy.devices", "count", "devices", "how many"), *(each.on(attrgetter("hour")) for each in _PLAN)],
        ),
        Section(
            records="inference",
            title="Inference on 1000 samples",
            columns=[
                _MODEL,
                place,
                *_step_columns("inference"),
                shown("inference.paid", "text", "cost", "the least price of 1000, else energy"),
            ],
            headline={"": ("{paid} for 1000 samples of inference", "{paid} for 1000 samples")},
            qualifier=("{model} {at}{where}", "{at}{where}"),
            tags={Tag.ESTIMATE: lambda _: True},
        ),
    ],
)
