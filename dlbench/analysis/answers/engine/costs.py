"""Costs: what a step sustains, what an hour of its devices costs, and how long all steps of a training take."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from dlbench.analysis.presentation import names
from dlbench.analysis.presentation.wording import span
from dlbench.analysis.ratios.matching import grouped
from dlbench.analysis.read.table import Results
from dlbench.core import units
from dlbench.core.declarations import ValueRole
from dlbench.core.model import kind_of
from dlbench.core.prices import NO_PRICES, Prices
from dlbench.core.reference.networks import PARAMETERS, Schedule, schedules
from dlbench.core.rows.row import Row
from dlbench.core.stats import median_interval

EVEN = 0.03
"""How far the steady throughput may lie from the burst and still be the same."""


class Sustained(NamedTuple):
    """A row of a sustained step, and what it kept of its burst."""

    row: Row
    kept: float
    """Its steady throughput over that of its burst: median over rounds."""
    rounds: Sequence[float]
    """The same of each round."""

    @property
    def onset_s(self) -> float | None:
        """Seconds after which throughput had fallen for good; None where it did not.

        By the median over rounds of each point, and of three points in a row, as single ones are held up by other work.
        """
        points, burst, window_s = series(self.row, "pace"), self.row.in_role("burst"), self.row.energy.window_s
        if self.kept >= 1 - EVEN or not points or not burst or not window_s:
            return None
        smooth = [statistics.median(points[max(0, at - 1) : at + 2]) for at in range(len(points))]
        fallen = max((at + 1 for at, each in enumerate(smooth) if each >= (1 - EVEN) * burst), default=0)
        return fallen * window_s / len(points) if fallen < len(points) else None


def sustained_steps(rows: Sequence[Row]) -> list[Sustained]:
    """Return the rows that tell burst and steady throughput, those that kept least first."""
    found = (sustained(row) for row in rows if row.is_sound)
    return sorted(filter(None, found), key=lambda each: each.kept)


def sustained(row: Row) -> Sustained | None:
    """Return a row with what it kept of its burst; None where it was not sustained."""
    burst, steady = row.declared.value("burst"), row.declared.value("steady")
    if burst is None or steady is None:
        return None
    rounds = zip(row.rounds.values.get(steady.name, ()), row.rounds.values.get(burst.name, ()), strict=True)
    kept = [late / early for late, early in rounds if early > 0]
    return Sustained(row, statistics.median(kept), kept) if kept else None


def series(row: Row, role: ValueRole) -> Sequence[float]:
    """Return the series that a row reports in a role; empty where it reports none."""
    declared = row.declared.value(role)
    found = row.values.get(declared.name) if declared else None
    return found if isinstance(found, Sequence) else ()


class Payment(StrEnum):
    """How devices are paid for."""

    RENTED = "rented"
    BOUGHT = "bought"
    POWERED = "electricity"
    """Where nothing is known but that."""


@dataclass(frozen=True, slots=True)
class Hour:
    """What an hour of devices costs together, each part None where it is not known."""

    rent: float | None = None
    """It includes electricity."""
    spread: float | None = None
    """Of the price to buy them, over the hours of their planned use."""
    electricity: float | None = None
    price: float | None = None
    """To buy them."""

    @property
    def ways(self) -> dict[Payment, float]:
        """What it costs each way that is known: rented; bought, with electricity where that is known; else electricity alone."""
        found = {}
        if self.rent is not None:
            found[Payment.RENTED] = self.rent
        if self.spread is not None:
            found[Payment.BOUGHT] = self.spread + (self.electricity or 0.0)
        return found or ({} if self.electricity is None else {Payment.POWERED: self.electricity})

    @property
    def saved(self) -> float | None:
        """What an hour of owning saves: its rent, less the electricity that an owner pays, where that is known."""
        return None if self.rent is None else self.rent - (self.electricity or 0.0)

    @property
    def hours(self) -> float | None:
        """Hours of use until the rent saved has earned the price; None where something is not known, or it never does."""
        if self.price is None or self.saved is None or self.saved <= 0:
            return None
        return self.price / self.saved

    @property
    def share(self) -> float | None:
        """The share of the planned use that these are: below 1 buying is cheaper."""
        if self.spread is None or self.saved is None or self.saved <= 0:
            return None
        return self.spread / self.saved  # the price over both, so that devices of several plans count by what they cost

    @property
    def cheaper(self) -> str | None:
        """What costs less over the planned use, ``buying`` or ``renting``; None where they cost the same, or something is not known."""
        if self.price is None or self.saved is None:
            return None
        if self.saved <= 0:
            return "renting" if self.price or self.saved else None
        return None if self.share is None else "buying" if self.share < 1 else "renting"


def devices_of(row: Row) -> tuple[str, ...]:
    """Return the devices that a row took: on a CPU one, whose ranks share it; of ranks on accelerators the first so many of their kind."""
    if row.is_on_cpu or row.is_single_rank or not row.ranks:
        return (row.case.device,)
    return tuple(f"{kind_of(row.case.device)}:{rank}" for rank in range(row.ranks))


def hour_of(row: Row, prices: Prices) -> Hour:
    """Return what an hour of the devices of a row costs at these prices."""
    devices = devices_of(row)
    watts = row.energy.watts if len(devices) == 1 else None  # what is metered is the first of several
    return Hour(prices.rent(devices), prices.spread(devices), prices.electricity(watts), prices.to_buy(devices))


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
