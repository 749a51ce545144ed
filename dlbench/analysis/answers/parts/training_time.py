"""Time to train: the step of each network that counts on a device, and how long all steps of a training would take."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from dlbench.analysis.answers.parts.money import Hour, Payment, devices_of, hour_of
from dlbench.analysis.answers.parts.sustained import EVEN, Sustained, sustained
from dlbench.analysis.presentation import names
from dlbench.analysis.ratios.pairing import grouped
from dlbench.analysis.ratios.ratio import speed_ratio
from dlbench.analysis.read.table import Results
from dlbench.core import units
from dlbench.core.model import value_text
from dlbench.core.prices import NO_PRICES, Prices
from dlbench.core.reference.networks import PARAMETERS
from dlbench.core.reference.schedules import Schedule, schedules
from dlbench.core.rows.row import Row
from dlbench.core.stats import median_interval

MANY = 50_000
"""Samples that the time of each network is stated for where no others are asked for: a pass over a small set."""
THOUSAND = 1000
IMAGENET = "ImageNet"
_STEP = frozenset(("training", "imagenet"))
_TRAINING = "training"
_FORWARD = frozenset(("inference", "imagenet"))
Span = tuple[float | None, float | None]
"""The ends of a 95 % interval; None of too few rounds."""


class Estimate(NamedTuple):
    """A step, and how long all steps of a training would take, or of so many samples."""

    row: Row
    schedule: Schedule
    prices: Prices = NO_PRICES

    @property
    def hour(self) -> Hour:
        """What an hour of its devices costs."""
        return hour_of(self.row, self.prices)

    @property
    def model(self) -> str:
        """The network."""
        return self.schedule.model

    @property
    def what(self) -> str:
        """What it passes over, where there is little room."""
        return words(self.schedule)

    @property
    def paid(self) -> str | None:
        """What it costs at least, or else its energy, where that is known."""
        if cost := self.cheapest:
            return self.prices.money(cost.of(self.samples))
        return None if self.joules is None else units.energy(self.joules)

    @property
    def seconds(self) -> float:
        """That time."""
        return self.schedule.seconds(self.row.paid_rate)

    @property
    def ends(self) -> Span:
        """The ends of its 95 % interval, as of the throughput; None of too few rounds."""
        rates = median_interval(self.row.paid_rates)
        return (self.schedule.seconds(rates.high), self.schedule.seconds(rates.low)) if rates and rates.low else (None, None)

    @property
    def span(self) -> str:
        """Its interval where there is little room, behind the time: `` (40…42)`` for days; an empty text where there is none."""
        low, high = self.ends
        if low is None or high is None:
            return ""
        texts = [units.seconds(each) for each in (self.seconds, low, high)]
        numbers, others = zip(*(text.split(" ", 1) for text in texts), strict=True)
        alike = len(set(others)) == 1 and " " not in others[0]
        _, first, last = numbers if alike else texts
        return f" ({first}…{last})"

    @property
    def samples(self) -> int:
        """How many it takes, each as often as it is seen."""
        return self.schedule.images * self.schedule.epochs

    @property
    def devices(self) -> int:
        """How many it takes at once."""
        return len(devices_of(self.row))

    @property
    def where_else(self) -> str:
        """Where it is, as opposed to on one accelerator."""
        return "on the CPU" if self.row.is_on_cpu else f"on {self.devices} devices"

    @property
    def is_wanted(self) -> bool:
        """Whether it is of a network of one's own, or somebody asked for its samples or its price."""
        return self.model not in PARAMETERS or self.prices.samples is not None or self.prices.has_amounts

    @property
    def is_alone(self) -> bool:
        """Whether one process does the work."""
        return self.row.is_single_rank

    @property
    def at(self) -> str:
        """Its choice where there is little room."""
        return self.choice.replace("batch=", "b")

    @property
    def choice(self) -> str:
        """At what the step was the fastest that counts: of several ranks with their form, as far as one is named."""
        form = "" if self.is_alone else str(self.row.params.get("form") or "")
        return " ".join(filter(None, (names.choice(self.row), form)))

    @property
    def sustained(self) -> Sustained | None:
        """What the step kept of its burst; None where it was not sustained."""
        return sustained(self.row)

    @property
    def kept(self) -> float | None:
        """Share of its burst that it kept."""
        return self.sustained and self.sustained.kept

    @property
    def joules(self) -> float | None:
        """Energy of all samples; None where nothing metered it, or only the first of several devices."""
        of_1000 = self.joules_of_1000[0]
        return None if of_1000 is None else of_1000 * self.samples / THOUSAND

    @property
    def joules_of_1000(self) -> tuple[float | None, float | None, float | None]:
        """Energy of 1000 samples, and the ends of its 95 % interval."""
        energy = self.row.energy
        found = (energy.joules_per_item, energy.joules_per_item_low, energy.joules_per_item_high)
        low_to_high = [None if each is None or self.devices > 1 else each * THOUSAND for each in found]
        return low_to_high[0], low_to_high[1], low_to_high[2]

    @property
    def costs(self) -> list["Cost"]:
        """What it costs each way that its prices tell."""
        return [Cost(self, way, per_hour) for way, per_hour in self.hour.ways.items()]

    @property
    def cheapest(self) -> "Cost | None":
        """The way of these that costs least; None where no price tells any."""
        return min(self.costs, key=lambda each: each.per_hour, default=None)


class Cost(NamedTuple):
    """What an estimate costs one way. The interval of each amount is that of the throughput."""

    estimate: Estimate
    way: Payment
    per_hour: float

    @property
    def row(self) -> Row:
        """The row of the estimate."""
        return self.estimate.row

    @property
    def images(self) -> int:
        """Samples of an epoch."""
        return self.estimate.schedule.images

    @property
    def electricity(self) -> float | None:
        """What of the price of an hour is electricity; None where that is not known, and of rent, which includes it."""
        return None if self.way is Payment.RENTED else self.estimate.hour.electricity

    def of(self, samples: float) -> float:
        """Return what so many samples cost: the time that they take of an hour's price."""
        return self._amount(samples, self.estimate.seconds)

    def ends(self, samples: float) -> Span:
        """Return the ends of its 95 % interval."""
        first, last = (None if seconds is None else self._amount(samples, seconds) for seconds in self.estimate.ends)
        return first, last

    def _amount(self, samples: float, seconds: float) -> float:
        return self.per_hour * samples * seconds / self.estimate.samples / 3600


def best_steps(results: Results) -> dict[str, list[Row]]:
    """Return by network the training step that counts on each device, and on each number of several; accelerators come first.

    That is the one of highest throughput among those of one process, and among those of several ranks. The rate of a
    sustained step is what it kept under load, and counts before all others.
    """
    return {model: [_counting(of_place) for of_place in places] for model, places in _trained(results).items()}


def faster_steps(results: Results) -> Iterator[str]:
    """Yield a sentence on each short measurement that was faster than the sustained step that counts before it, at other settings."""
    for of_place in chain.from_iterable(_trained(results).values()):
        steady = _counting(of_place)
        others = [row for row in of_place if row.has_throughput and names.choice(row) != names.choice(steady)]
        if not others or not sustained(steady) or min(steady.paid_rates) <= 0:
            continue
        row = max(others, key=lambda row: row.paid_rate)
        ratio = speed_ratio(steady.paid_rates, row.paid_rates, among=len(others))
        if ratio.speedup > 1 + EVEN and not ratio.is_undecided:
            where = f"{row.params['model']} {names.choice(row)} on {row.case.device}"
            yield f"short steps of {where} were {ratio.brief}{ratio.span} as fast{_sustaining(row, steady)}"


def _sustaining(row: Row, steady: Row) -> str:
    """Return the command that sustains a step with settings that another was sustained without; empty where its mode alone differs."""
    settings = [(name, steady.setting(name), row.setting(name)) for name in ("model", "batch", "dtype", "layout")]
    if all(there in (None, value) for _, there, value in settings):
        return ""
    told = [f"--set {name}={value_text(value)}" for name, there, value in settings if there and value and value not in ("fp32", "nchw")]
    return f": {' '.join(['dlbench run sustained', *told])}"


def _trained(results: Results) -> dict[str, list[list[Row]]]:
    """Return by network its training steps on each device, and on each number of several."""
    sound = [row for row in results.rows if row.is_sound and row.paid_rate and row.params.get("model")]
    alone = [row for row in sound if row.is_single_rank and _STEP.issubset(row.declared.tags)]
    models = {*schedules(), *(str(row.params["model"]) for row in alone)}
    several = [row for row in sound if _trains_together(row) and str(row.params["model"]) in models]
    by_model = grouped([*alone, *several], lambda row: str(row.params["model"]))
    return {
        model: [of_ranks for of_place in names.by_device(rows).values() for of_ranks in grouped(of_place, _ranks).values()]
        for model, rows in by_model.items()
    }


def _ranks(row: Row) -> int:
    return 1 if row.is_single_rank else row.ranks or 1


def _trains_together(row: Row) -> bool:
    """Whether several devices train one network: their ranks communicate, as the parts of one step. Those on a CPU share a device."""
    declared = row.declared
    silent = row.params.get(declared.parameter("communicates") or "") is False
    apart = row.params.get("form") in declared.parallel.independent
    one_step = declared.parallel.step is not None and _TRAINING in declared.tags
    return _ranks(row) > 1 and one_step and not (row.is_on_cpu or silent or apart)


def _counting(rows: Sequence[Row]) -> Row:
    steady = [row for row in rows if sustained(row)]
    return max(steady or rows, key=lambda row: row.paid_rate)


def inference(results: Results) -> list[Estimate]:
    """Return for each network and device what 1000 samples of its inference take, where their energy or their price is known."""
    rows = [row for row in results.rows if row.is_sound and row.paid_rate and row.is_single_rank and _FORWARD.issubset(row.declared.tags)]
    groups = grouped(rows, lambda row: str(row.params.get("model")))
    found = [(model, _counting(of_place)) for model, of_model in groups.items() for of_place in names.by_device(of_model).values()]
    every = [Estimate(row, Schedule(model, THOUSAND, 1, "", None, None), results.prices) for model, row in found]
    return [each for each in every if each.costs or each.joules is not None]


def estimates(found: Mapping[str, Sequence[Row]], prices: Prices) -> dict[str, list[list[Estimate]]]:
    """Return for each network an estimate for every device: of the training asked for, or of few samples, then of a published one."""
    wanted = (prices.samples, prices.epochs) if prices.samples else (MANY, 1)
    works = {model: [Schedule(model, *wanted, "", None, None), *filter(None, [schedules().get(model)])] for model in found}
    return {model: [[Estimate(row, schedule, prices) for row in found[model]] for schedule in works[model]] for model in found}


def words(schedule: Schedule) -> str:
    """Return what a training passes over: ``ImageNet``, ``50,000 samples``, ``30 × 50,000 samples``."""
    often = "" if schedule.epochs == 1 else f"{schedule.epochs:,} × "
    return IMAGENET if schedule.source else f"{often}{schedule.images:,} samples"
