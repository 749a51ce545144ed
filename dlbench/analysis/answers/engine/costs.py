"""Costs: the throughput that a step sustains, the price of an hour of its devices, and the time of all steps of a training."""

import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dlbench.analysis.presentation import names
from dlbench.analysis.presentation.wording import span
from dlbench.analysis.ratios.matching import grouped, one_device
from dlbench.analysis.read.table import Results
from dlbench.core import units
from dlbench.core.declarations import ValueRole
from dlbench.core.model import kind_of
from dlbench.core.prices import NO_PRICES, Prices
from dlbench.core.reference.networks import PARAMETERS, Schedule, schedules
from dlbench.core.rows.row import Row
from dlbench.core.stats import median_interval

EVEN = 0.03
"""Largest relative difference between steady and burst throughput that counts as none."""
MANY = 50_000
"""Samples to train on by default: a pass over a small data set."""
THOUSAND = 1000
_ITEMS = {"imagenet": "images", "tokens": "tokens"}
"""Items of a step by its tag, for the tags of steps whose rate gives the time to train."""
Ends = tuple[float | None, float | None]
"""Ends of a 95 % interval; None where rounds are too few."""


class Sustained(NamedTuple):
    """A row of a sustained step, and the share of its burst throughput that it kept."""

    row: Row
    kept: float
    """Steady throughput over that of the burst: median over rounds."""
    rounds: Sequence[float]
    """The same for each round."""

    @property
    def onset_s(self) -> float | None:
        """Seconds after which throughput had fallen for good; None if it did not fall."""
        points = series(self.row, "pace")
        burst = self.row.in_role("burst")
        window_s = self.row.energy.window_s
        if self.kept >= 1 - EVEN or not points or not burst or not window_s:
            return None
        # Other work holds up single points, so each counts as the median of itself and its neighbours.
        smooth = [statistics.median(points[max(0, at - 1) : at + 2]) for at in range(len(points))]
        fallen = max((at + 1 for at, each in enumerate(smooth) if each >= (1 - EVEN) * burst), default=0)
        return fallen * window_s / len(points) if fallen < len(points) else None


def sustained(row: Row) -> Sustained | None:
    """Return a row with the share of its burst that it kept; None for a step that was not sustained."""
    kept = [late / early for late, early in zip(row.each_round("steady"), row.each_round("burst"), strict=False) if early > 0]
    return Sustained(row, statistics.median(kept), kept) if kept else None


def series(row: Row, role: ValueRole) -> Sequence[float]:
    """Return the series that a row reports in a role; empty if it reports none."""
    declared = row.declared.value(role)
    found = row.values.get(declared.name) if declared else None
    return found if isinstance(found, Sequence) else ()


class CurvePoint(NamedTuple):
    """A point of a curve over the course of a row's training or window, for a figure."""

    row: Row
    name: str
    """Name of the curve."""
    share: float
    """Share of the course that had passed."""
    value: float


def curve(row: Row, name: str, values: Sequence[float]) -> list[CurvePoint]:
    """Return the points of a curve that has these values at equal distances."""
    return [CurvePoint(row, name, number / len(values), value) for number, value in enumerate(values, 1)]


class Hour(NamedTuple):
    """Costs of an hour of one or more devices together; None for each part that is not known."""

    rent: float | None = None
    """Rent, electricity included."""
    spread: float | None = None
    """Price to buy them, spread over the hours of their planned use."""
    electricity: float | None = None
    price: float | None = None
    """Price to buy them, whole."""

    @property
    def amounts(self) -> dict[str, float]:
        """Cost of the hour by payment: rented, and bought with electricity if that is known; else electricity alone."""
        bought = None if self.spread is None else self.spread + (self.electricity or 0.0)
        known = {"rented": self.rent, "bought": bought}
        if self.rent is None and bought is None:
            known = {"electricity": self.electricity}
        return {payment: amount for payment, amount in known.items() if amount is not None}

    @property
    def saved(self) -> float | None:
        """Savings of an hour of owning: the rent less the owner's electricity; None if there are none, or the rent is not known."""
        saved = 0.0 if self.rent is None else self.rent - (self.electricity or 0.0)
        return saved if saved > 0 else None

    @property
    def hours(self) -> float | None:
        """Hours of use until the rent saved equals the price; None if a part is not known, or nothing is saved."""
        return self.price / self.saved if self.price is not None and self.saved else None

    @property
    def share(self) -> float | None:
        """Those hours as a share of the planned use: below 1 buying is cheaper."""
        return self.spread / self.saved if self.spread is not None and self.saved else None


def devices_of(row: Row) -> tuple[str, ...]:
    """Return the devices that a row ran on: a single CPU, which its ranks share, or the first accelerators, one for each rank."""
    if row.is_on_cpu or row.is_single_rank or not row.ranks:
        return (row.case.device,)
    return tuple(f"{kind_of(row.case.device)}:{rank}" for rank in range(row.ranks))


class Estimate(NamedTuple):
    """A step, and an estimate of the time, energy and money that all steps of a schedule take."""

    row: Row
    schedule: Schedule
    prices: Prices = NO_PRICES

    @property
    def hour(self) -> Hour:
        """Cost of an hour of its devices."""
        devices, prices = devices_of(self.row), self.prices
        watts = self.row.energy.watts if len(devices) == 1 else None  # only the first of several devices is metered
        return Hour(prices.rent(devices), prices.spread(devices), prices.electricity(watts), prices.to_buy(devices))

    @property
    def model(self) -> str:
        """The network."""
        return self.schedule.model

    @property
    def what(self) -> str:
        """Samples as a short text: ``ImageNet``, ``30 × 50,000 images``."""
        times = "" if self.schedule.epochs == 1 else f"{self.schedule.epochs:,} × "
        return self.schedule.of if self.schedule.source else f"{times}{self.schedule.images:,} {self.items}"

    @property
    def items(self) -> str:
        """Word for its samples: ``images``; ``samples`` of a user's network, whose inputs may be anything."""
        return items_of(self.row) or "samples"

    @property
    def rate(self) -> str:
        """Samples in a second, as text."""
        return units.item_rate(self.row.paid_rate).removesuffix("/s").rstrip() + f" {self.items}/s"

    @property
    def paid(self) -> str | None:
        """Its least cost, or else its energy, as text; None if neither is known."""
        if costs := self.costs:
            return self.prices.money(min(each.of(self.samples) for each in costs))
        return None if self.joules is None else units.energy(self.joules)

    @property
    def seconds(self) -> float:
        """Time of all steps."""
        return self.schedule.seconds(self.row.paid_rate)

    @property
    def ends(self) -> Ends:
        """Ends of the 95 % interval of that time, from those of the throughput."""
        rates = median_interval(self.row.paid_rates)
        return (self.schedule.seconds(rates.high), self.schedule.seconds(rates.low)) if rates and rates.low else (None, None)

    @property
    def span(self) -> str:
        """That interval as it follows the time: `` (40…42)``, in the same unit; empty if there is none."""
        low, high = self.ends
        unit = units.seconds(self.seconds).partition(" ")[2]
        return "" if low is None or high is None else f" ({span(low, high, units.seconds).removesuffix(f' {unit}')})"

    @property
    def samples(self) -> int:
        """Number of samples over all epochs."""
        return self.schedule.images * self.schedule.epochs

    @property
    def devices(self) -> int:
        """Number of devices that it takes at once."""
        return len(devices_of(self.row))

    @property
    def where_else(self) -> str:
        """Its devices as text, for those that are not a single accelerator."""
        return "on the CPU" if self.row.is_on_cpu else f"on {self.devices} devices"

    @property
    def is_wanted(self) -> bool:
        """Whether somebody asked for it: it is of a network of the user's, or samples or prices were given."""
        return self.model not in PARAMETERS or self.prices.samples is not None or self.prices.has_amounts

    @property
    def at(self) -> str:
        """Its choice as a shorter text."""
        return self.choice.replace("batch=", "b")

    @property
    def choice(self) -> str:
        """Settings of the row as text; with the form of its parallelism for several ranks."""
        form = "" if self.row.is_single_rank else str(self.row.params.get("form") or "")
        return f"{names.choice(self.row)} {form}".strip()

    @property
    def joules(self) -> float | None:
        """Energy of all samples; None if it was not metered, or for the first of several devices only."""
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
        """Its cost by each payment whose price is known."""
        return [Cost(self, payment, per_hour) for payment, per_hour in self.hour.amounts.items()]


class Cost(NamedTuple):
    """Cost of an estimate by one payment. The interval of each amount is that of the throughput."""

    estimate: Estimate
    payment: str
    per_hour: float

    @property
    def row(self) -> Row:
        """The row of the estimate."""
        return self.estimate.row

    def of(self, samples: float) -> float:
        """Return the cost of so many samples: the hours that they take, times the price of an hour."""
        return self.per_hour * samples * self.estimate.seconds / self.estimate.samples / 3600

    def ends(self, samples: float) -> Sequence[float | None]:
        """Return the ends of the 95 % interval of that cost."""
        return [end and self.of(samples) * end / self.estimate.seconds for end in self.estimate.ends]


def items_of(row: Row) -> str | None:
    """Return the word for the items of a step; None if its tags declare none."""
    items = next((items for tag, items in _ITEMS.items() if tag in row.declared.tags), None)
    return "samples" if items == "images" and row.params.get("model") not in PARAMETERS else items


def _best_steps(results: Results, kind: str) -> dict[str, list[Row]]:
    """Return the best step of each network for each device and number of ranks, accelerators first.

    ``kind`` is ``training`` or ``inference``; only training counts on several ranks.
    """
    sound = [row for row in results.rows if row.is_sound and row.paid_rate and row.params.get("model")]
    alone = [row for row in sound if row.is_single_rank and kind in row.declared.tags and items_of(row)]
    together = [row for row in sound if kind == "training" and _trains_together(row)]
    by_model = grouped([*alone, *together], lambda row: str(row.params["model"]))
    found = {}
    for model, rows in by_model.items():
        by_devices = grouped(names.flat(names.by_device(rows)), lambda row: (one_device(row), _ranks(row)))
        found[model] = list(map(_best, by_devices.values()))
    return found


def _ranks(row: Row) -> int:
    return 1 if row.is_single_rank else row.ranks or 1


def _trains_together(row: Row) -> bool:
    """Whether several devices train one network in steps that they share. Ranks on a CPU don't: they share one device."""
    declared = row.declared
    silent = row.params.get(declared.parameter("communicates") or "") is False
    independent = row.params.get("form") in declared.parallel.independent
    one_step = declared.parallel.step is not None and "training" in declared.tags
    return _ranks(row) > 1 and one_step and not (row.is_on_cpu or silent or independent)


def _best(rows: Sequence[Row]) -> Row:
    """Return the row of highest rate; among sustained ones if there are any, as theirs is the rate that lasts."""
    return max(list(filter(sustained, rows)) or rows, key=lambda row: row.paid_rate)


def estimate_samples(row: Row, prices: Prices, model: str = "", samples: int = THOUSAND, epochs: int = 1) -> Estimate:
    """Return an estimate for so many samples at the rate of a row."""
    return Estimate(row, Schedule(model, samples, epochs, "", None, None), prices)


def inference_estimates(results: Results) -> list[Estimate]:
    """Return an estimate for 1000 samples of inference, for each network and device whose energy or price is known."""
    found = [estimate_samples(row, results.prices, model) for model, rows in _best_steps(results, "inference").items() for row in rows]
    return [each for each in found if each.costs or each.joules is not None]


def training_estimates(results: Results) -> Iterator[Estimate]:
    """Yield two estimates for each network and device: for the samples asked for, or `MANY`, and for its published schedule."""
    prices = results.prices
    samples, epochs = (prices.samples, prices.epochs) if prices.samples else (MANY, 1)
    for model, rows in _best_steps(results, "training").items():
        yield from (estimate_samples(row, prices, model, samples, epochs) for row in rows)
        if published := schedules().get(model):
            found = (Estimate(row, published, prices) for row in rows)
            yield from (each for each in found if each.items in (published.items, "samples"))
