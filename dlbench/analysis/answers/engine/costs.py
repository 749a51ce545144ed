"""Costs: what a step sustains, what an hour of its devices costs, and how long all steps of a training take."""

import statistics
from collections.abc import Iterator, Sequence
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
MANY = 50_000
"""Samples that the time of each network is stated for where no others are asked for: a pass over a small set."""
THOUSAND = 1000
_ITEMS = {"imagenet": "images", "tokens": "tokens"}
"""Tags of steps whose rate tells the time to train, and what their items are called."""
Ends = tuple[float | None, float | None]
"""The ends of a 95 % interval; None of too few rounds."""


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


def sustained(row: Row) -> Sustained | None:
    """Return a row with what it kept of its burst; None where it was not sustained."""
    kept = [late / early for late, early in zip(row.each_round("steady"), row.each_round("burst"), strict=False) if early > 0]
    return Sustained(row, statistics.median(kept), kept) if kept else None


def series(row: Row, role: ValueRole) -> Sequence[float]:
    """Return the series that a row reports in a role; empty where it reports none."""
    declared = row.declared.value(role)
    found = row.values.get(declared.name) if declared else None
    return found if isinstance(found, Sequence) else ()


class Hour(NamedTuple):
    """What an hour of devices costs together, each part None where it is not known."""

    rent: float | None = None
    """It includes electricity."""
    spread: float | None = None
    """Of the price to buy them, over the hours of their planned use."""
    electricity: float | None = None
    price: float | None = None
    """To buy them."""

    @property
    def amounts(self) -> dict[str, float]:
        """What it costs rented, and bought with electricity where that is known; else electricity alone."""
        bought = None if self.spread is None else self.spread + (self.electricity or 0.0)
        known = {"rented": self.rent, "bought": bought}
        if self.rent is None and bought is None:
            known = {"electricity": self.electricity}
        return {payment: amount for payment, amount in known.items() if amount is not None}

    @property
    def saved(self) -> float | None:
        """What an hour of owning saves: its rent, less the electricity that an owner pays; None where that is nothing, or not known."""
        saved = 0.0 if self.rent is None else self.rent - (self.electricity or 0.0)
        return saved if saved > 0 else None

    @property
    def hours(self) -> float | None:
        """Hours of use until the rent saved has earned the price; None where something is not known, or it never does."""
        return self.price / self.saved if self.price is not None and self.saved else None

    @property
    def share(self) -> float | None:
        """The share of the planned use that these are: below 1 buying is cheaper."""
        return self.spread / self.saved if self.spread is not None and self.saved else None


def devices_of(row: Row) -> tuple[str, ...]:
    """Return the devices that a row took: on a CPU one, whose ranks share it; of ranks on accelerators the first so many of their kind."""
    if row.is_on_cpu or row.is_single_rank or not row.ranks:
        return (row.case.device,)
    return tuple(f"{kind_of(row.case.device)}:{rank}" for rank in range(row.ranks))


class Estimate(NamedTuple):
    """A step, and how long all steps of a training would take, or of so many samples."""

    row: Row
    schedule: Schedule
    prices: Prices = NO_PRICES

    @property
    def hour(self) -> Hour:
        """What an hour of its devices costs."""
        devices, prices = devices_of(self.row), self.prices
        watts = self.row.energy.watts if len(devices) == 1 else None  # what is metered is the first of several
        return Hour(prices.rent(devices), prices.spread(devices), prices.electricity(watts), prices.to_buy(devices))

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
        if costs := self.costs:
            return self.prices.money(min(each.of(self.samples) for each in costs))
        return None if self.joules is None else units.energy(self.joules)

    @property
    def seconds(self) -> float:
        """That time."""
        return self.schedule.seconds(self.row.paid_rate)

    @property
    def ends(self) -> Ends:
        """The ends of its 95 % interval, as of the throughput."""
        rates = median_interval(self.row.paid_rates)
        return (self.schedule.seconds(rates.high), self.schedule.seconds(rates.low)) if rates and rates.low else (None, None)

    @property
    def span(self) -> str:
        """Its interval where there is little room, behind the time: `` (40…42)`` for days; an empty text where there is none."""
        low, high = self.ends
        unit = units.seconds(self.seconds).partition(" ")[2]
        return "" if low is None or high is None else f" ({span(low, high, units.seconds).removesuffix(f' {unit}')})"

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
        return f"{names.choice(self.row)} {form}".strip()

    @property
    def joules(self) -> float | None:
        """Energy of all samples; None where nothing metered it, or only the first of several devices."""
        of_1000 = self.joules_of_1000[0]
        return None if of_1000 is None else of_1000 * self.samples / THOUSAND

    @property
    def joules_of_1000(self) -> Sequence[float | None]:
        """Energy of 1000 samples, and the ends of its 95 % interval."""
        energy = self.row.energy
        found = energy.joules_per_item, energy.joules_per_item_low, energy.joules_per_item_high
        return [None if each is None or self.devices > 1 else each * THOUSAND for each in found]

    @property
    def costs(self) -> list["Cost"]:
        """What it costs by each payment that its prices tell."""
        return [Cost(self, payment, per_hour) for payment, per_hour in self.hour.amounts.items()]


class Cost(NamedTuple):
    """What an estimate costs by one payment. The interval of each amount is that of the throughput."""

    estimate: Estimate
    payment: str
    per_hour: float

    @property
    def row(self) -> Row:
        """The row of the estimate."""
        return self.estimate.row

    def of(self, samples: float) -> float:
        """Return what so many samples cost: the time that they take of an hour's price."""
        return self.per_hour * samples * self.estimate.seconds / self.estimate.samples / 3600

    def ends(self, samples: float) -> Sequence[float | None]:
        """Return the ends of its 95 % interval."""
        return [end and self.of(samples) * end / self.estimate.seconds for end in self.estimate.ends]


def items_of(row: Row) -> str | None:
    """Return what the items of a step are called; None where it does not declare that."""
    return next((items for tag, items in _ITEMS.items() if tag in row.declared.tags), None)


def _steps(results: Results, kind: str) -> dict[str, list[Row]]:
    """Return by network the step that counts on each device, and on each number of several that train; accelerators come first.

    That is the one of highest throughput among those of one process, and among those of several ranks. The rate of a
    sustained step is what it kept under load, and counts before all others.
    """
    sound = [row for row in results.rows if row.is_sound and row.paid_rate and row.params.get("model")]
    alone = [row for row in sound if row.is_single_rank and kind in row.declared.tags and items_of(row)]
    together = [row for row in sound if kind == "training" and _trains_together(row)]
    found = grouped([*alone, *together], lambda row: str(row.params["model"]))
    return {
        model: [_counting(rows) for place in names.by_device(found[model]).values() for rows in grouped(place, _ranks).values()]
        for model in dict.fromkeys((*schedules(), *found))
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


def of_samples(row: Row, prices: Prices, model: str = "", samples: int = THOUSAND, epochs: int = 1) -> Estimate:
    """Return what so many samples take at the rate of a row."""
    return Estimate(row, Schedule(model, samples, epochs, "", None, None), prices)


def inference(results: Results) -> list[Estimate]:
    """Return for each network and device what 1000 samples of its inference take, where their energy or their price is known."""
    found = [of_samples(row, results.prices, model) for model, rows in _steps(results, "inference").items() for row in rows]
    return [each for each in found if each.costs or each.joules is not None]


def estimates(results: Results) -> Iterator[Estimate]:
    """Yield for each network an estimate for every device: of the training asked for, or of few samples, then of a published one."""
    prices = results.prices
    wanted = (prices.samples, prices.epochs) if prices.samples else (MANY, 1)
    for model, rows in _steps(results, "training").items():
        yield from (of_samples(row, prices, model, *wanted) for row in rows)
        if published := schedules().get(model):
            yield from (each for row in rows if (each := Estimate(row, published, prices)).items in (published.items, "samples"))
