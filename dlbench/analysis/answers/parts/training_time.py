"""Time to train: the step of each network that counts on a device, and how long all steps of a training would take."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dlbench.analysis.answers.parts.money import Hour, Payment, devices_of, hour_of
from dlbench.analysis.answers.parts.sustained import sustained
from dlbench.analysis.presentation import names
from dlbench.analysis.presentation.wording import span
from dlbench.analysis.ratios.matching import grouped
from dlbench.analysis.read.table import Results
from dlbench.core import units
from dlbench.core.prices import NO_PRICES, Prices
from dlbench.core.reference.networks import PARAMETERS
from dlbench.core.reference.schedules import Schedule, schedules
from dlbench.core.rows.row import Row
from dlbench.core.stats import median_interval

MANY = 50_000
"""Samples that the time of each network is stated for where no others are asked for: a pass over a small set."""
THOUSAND = 1000
_ITEMS = {"imagenet": "images", "tokens": "tokens"}
"""Tags of steps whose rate tells the time to train, and what their items are called."""
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
        """What it passes over, where there is little room: ``ImageNet``, ``30 × 50,000 images``."""
        often = "" if self.schedule.epochs == 1 else f"{self.schedule.epochs:,} × "
        return self.schedule.of if self.schedule.source else f"{often}{self.schedule.images:,} {self.items}"

    @property
    def items(self) -> str:
        """What its samples are called."""
        return items_of(self.row) or "samples"

    @property
    def rate(self) -> str:
        """How many it takes in a second."""
        return units.item_rate(self.row.paid_rate).removesuffix("/s").rstrip() + f" {self.items}/s"

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
        unit = units.seconds(self.seconds).partition(" ")[2]
        return f" ({span(low, high, units.seconds).removesuffix(f' {unit}')})"

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
    def at(self) -> str:
        """Its choice where there is little room."""
        return self.choice.replace("batch=", "b")

    @property
    def choice(self) -> str:
        """At what the step was the fastest that counts: of several ranks with their form, as far as one is named."""
        form = "" if self.row.is_single_rank else str(self.row.params.get("form") or "")
        return " ".join(filter(None, (names.choice(self.row), form)))

    @property
    def kept(self) -> float | None:
        """Share of its burst that it kept; None where it was not sustained."""
        return (found := sustained(self.row)) and found.kept

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
    def prices(self) -> Prices:
        """Those it is made of."""
        return self.estimate.prices

    @property
    def electricity(self) -> float | None:
        """What of the price of an hour is electricity; None where that is not known, and of rent, which includes it."""
        return None if self.way is Payment.RENTED else self.estimate.hour.electricity

    def of(self, samples: float) -> float:
        """Return what so many samples cost: the time that they take of an hour's price."""
        return self.per_hour * samples * self.estimate.seconds / self.estimate.samples / 3600

    def ends(self, samples: float) -> Span:
        """Return the ends of its 95 % interval."""
        low, high = (each and self.of(samples) * each / self.estimate.seconds for each in self.estimate.ends)
        return low, high


def items_of(row: Row) -> str | None:
    """Return what the items of a step are called; None where it does not declare that."""
    return next((items for tag, items in _ITEMS.items() if tag in row.declared.tags), None)


def _best_steps(results: Results) -> dict[str, list[Row]]:
    """Return by network the training step that counts on each device, and on each number of several; accelerators come first.

    That is the one of highest throughput among those of one process, and among those of several ranks. The rate of a
    sustained step is what it kept under load, and counts before all others.
    """
    sound = [row for row in results.rows if row.is_sound and row.paid_rate and row.params.get("model")]
    alone = [row for row in sound if row.is_single_rank and "training" in row.declared.tags and items_of(row)]
    models = [*schedules(), *dict.fromkeys(str(row.params["model"]) for row in alone)]
    found = grouped([*alone, *filter(_trains_together, sound)], lambda row: str(row.params["model"]))
    return {
        model: [
            _counting(of_ranks) for of_place in names.by_device(found[model]).values() for of_ranks in grouped(of_place, _ranks).values()
        ]
        for model in models
        if model in found
    }


def _ranks(row: Row) -> int:
    return 1 if row.is_single_rank else row.ranks or 1


def _trains_together(row: Row) -> bool:
    """Whether several devices train one network: their ranks communicate, as the parts of one step. Those on a CPU share a device."""
    declared = row.declared
    silent = row.params.get(declared.parameter("communicates") or "") is False
    apart = row.params.get("form") in declared.parallel.independent
    one_step = declared.parallel.step is not None and "training" in declared.tags
    return _ranks(row) > 1 and one_step and not (row.is_on_cpu or silent or apart)


def _counting(rows: Sequence[Row]) -> Row:
    return max(list(filter(sustained, rows)) or rows, key=lambda row: row.paid_rate)


def inference(results: Results) -> list[Estimate]:
    """Return for each network and device what 1000 samples of its inference take, where their energy or their price is known."""
    sound = [row for row in results.rows if row.is_sound and row.paid_rate and row.is_single_rank and row.params.get("model")]
    rows = [row for row in sound if "inference" in row.declared.tags and items_of(row)]
    groups = grouped(rows, lambda row: str(row.params.get("model")))
    found = [(model, _counting(of_place)) for model, of_model in groups.items() for of_place in names.by_device(of_model).values()]
    every = [Estimate(row, Schedule(model, THOUSAND, 1, "", None, None), results.prices) for model, row in found]
    return [each for each in every if each.costs or each.joules is not None]


def estimates(results: Results) -> Iterator[Estimate]:
    """Yield for each network an estimate for every device: of the training asked for, or of few samples, then of a published one."""
    prices = results.prices
    wanted = (prices.samples, prices.epochs) if prices.samples else (MANY, 1)
    for model, rows in _best_steps(results).items():
        yield from (Estimate(row, Schedule(model, *wanted, "", None, None), prices) for row in rows)
        if published := schedules().get(model):
            yield from (each for row in rows if (each := Estimate(row, published, prices)).items in (published.items, "samples"))
