"""Speed-up of an accelerator over the CPU, on the same case and each at its best; and of cards that are not here."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, product
from operator import attrgetter
from typing import NamedTuple, get_args

from dlbench.analysis.answers.engine.costs import estimate_samples
from dlbench.analysis.answers.engine.pairs import (
    OWN_BEST,
    SAME,
    accelerator_order,
    best_columns,
    best_pairs,
    by_kind,
    figure_of_pairs,
    is_untuned,
    kind_of_work,
    machines_of,
    no_accelerator,
)
from dlbench.analysis.answers.engine.question import WORTH_IT, Question, Section, Tag, detail, shown
from dlbench.analysis.presentation.columns import CASE, RATIO, WORK, at, pair_cells, place, ratio_column
from dlbench.analysis.presentation.names import choice
from dlbench.analysis.presentation.wording import brief
from dlbench.analysis.ratios.matching import Match, MatchRecord, grouped, launch_bound, match_rows, one_device
from dlbench.analysis.ratios.ratio import median_by_ratio
from dlbench.analysis.read.table import Results
from dlbench.core import units
from dlbench.core.model import Status
from dlbench.core.precision import PRECISIONS
from dlbench.core.prices import Prices
from dlbench.core.reference.networks import PARAMETERS, familiarity
from dlbench.core.reference.peaks import DevicePeak, card_of, name_words, peak_of
from dlbench.core.reference.published import KNOWN_CARDS, BytesLine, Kind, PublishedFigure, StepCounts, fitted, published_figures
from dlbench.core.rows.row import Row

_USUAL_BATCH = 64
"""Batch that keeps a card busy; smaller if it does not fit."""
_SPARE = 1.2
"""Factor on the memory that a step took here, as allocators and libraries differ."""
_STATE = {"training": 12, "inference": 4}
"""Bytes for each weight; in training with its gradient and its average."""
_FLOAT32 = [each.name for each in PRECISIONS.values() if each.storage == "float32" and not (each.scaled or each.autocast)]
"""Precisions of torch's default. A device uses the last that it has; its matrix units may round the operands."""
_AUTOCAST = next(each.name for each in PRECISIONS.values() if each.scales_gradients)
"""Precision of most published figures in 16 bits."""


class MeasuredStep(NamedTuple):
    """A step at its best on a device here."""

    row: Row
    alike: Sequence[Row]
    """All rows of the same network and kind of work on that device."""
    untuned: bool
    """Whether that device is a CPU on which a single setting was measured."""
    prices: Prices

    @property
    def kind(self) -> Kind:
        """Training or inference."""
        return "training" if kind_of_work(self.row) == "training" else "inference"

    @property
    def model(self) -> str:
        """The network."""
        return str(self.row.params["model"])

    @property
    def counts(self) -> StepCounts | None:
        """Operations and bytes of a sample, for a network of the user's by its row in fp32 with the largest batch; None if not known."""
        published: StepCounts | None = getattr(fitted(), self.kind).get(self.model)
        counted = [row for row in self.alike if row.case.dtype in _FLOAT32 and row.rate.flops_per_s and row.rate.bytes_per_s]
        if published or not counted:
            return published
        row = max(counted, key=lambda row: row.batch or 0)
        flops, moved = ((rate or 0) / row.throughput for rate in (row.rate.flops_per_s, row.rate.bytes_per_s))
        return StepCounts(flops, BytesLine(moved, 0))

    def on(self, card: DevicePeak) -> Iterator["OnCard"]:
        """Yield the step on a card: scaled from another card here, or else in each usual precision by others' figures or an estimate."""
        device = self.row.case.device_name
        if name_words(card.name) == name_words(device or ""):
            return
        if here := peak_of(device):
            found = [self._scaled(here, card)]
        else:
            found = [self._published(card, dtype) or self._estimated(card, dtype) for dtype in _precisions(card)]
        yield from filter(None, found)

    def _published(self, card: DevicePeak, dtype: str) -> "OnCard | None":
        """Return the step on a card by the fastest of others' figures; None if there is none."""
        figures = [each for each in published_figures() if each.params.get("model") == self.model and self.kind in each.tags]
        on_card = [each for each in figures if each.dtype == dtype and name_words(each.device) == name_words(card.name)]
        best = max(on_card, key=attrgetter("value"), default=None)
        return OnCard(self, card, dtype, best.batch, best.value, best.value, best) if best else None

    def _estimated(self, card: DevicePeak, dtype: str) -> "OnCard | None":
        """Return the step on a card by an estimate; None if its counts, or peaks of the card, are not known."""
        batch, counts = self._batch(card), self.counts
        guess = counts and fitted().guess(card, dtype, counts, batch)
        return OnCard(self, card, dtype, batch, guess.low, guess.high, at_most=guess.at_most) if guess else None

    def _scaled(self, here: DevicePeak, card: DevicePeak) -> "OnCard | None":
        """Return the same case on another card: its rate here, times the ratio of the estimates for both cards; None if one is missing.

        ``here`` is the card of the measurement. Published figures of both cards would mislead, as they differ in batch and software: by
        them an H200 is 1.73 times as fast as an H100, while a measurement of both gave 0.99 times.
        """
        row, counts = self.row, self.counts
        if not counts:
            return None
        estimates = fitted()
        dtype = row.case.dtype or ""
        batch = row.batch or 1
        guess_here = estimates.guess(here, dtype, counts, batch)
        guess_there = estimates.guess(card, dtype, counts, batch)
        if not (guess_here and guess_there):
            return None
        rate = row.throughput * guess_there.middle / guess_here.middle
        low, high = rate / estimates.factor, rate * estimates.factor  # nine of ten estimates are within that factor
        is_launch_bound = guess_there.at_most or bool(launch_bound(row))
        return OnCard(self, card, dtype, row.batch, low, high, at_most=is_launch_bound, from_card=True)

    def _batch(self, card: DevicePeak) -> int:
        """Return the batch of an estimate: `_USUAL_BATCH`, halved until it fits by the memory that the step took here."""
        batch, peak = _USUAL_BATCH, self.row.peak_bytes
        if card.memory_bytes and peak and self.row.batch:
            state = min(peak, _STATE[self.kind] * PARAMETERS.get(self.model, 0))
            while batch > 1 and _SPARE * (state + (peak - state) / self.row.batch * batch) > card.memory_bytes:
                batch //= 2
        return batch


class OnCard(NamedTuple):
    """A step at its best here, and its rate on a card that is not here."""

    measured: MeasuredStep
    card: DevicePeak
    dtype: str
    batch: int | None
    """None if a source does not state it."""
    low: float
    """Samples a second, at least."""
    high: float
    """Samples a second, at most; equal to ``low`` for a published figure."""
    figure: PublishedFigure | None = None
    at_most: bool = False
    """Whether an estimate is bounded by launches."""
    from_card: bool = False
    """Whether it is scaled from a measurement on a card here."""

    @property
    def row(self) -> Row:
        """The row here."""
        return self.measured.row

    @property
    def step(self) -> str:
        """Short name of the step: ``train resnet18``."""
        return f"{_BRIEF[self.measured.kind]} {self.measured.model}"

    @property
    def name(self) -> str:
        """The card without its maker."""
        return self.card.name.removeprefix("NVIDIA ").removeprefix("GeForce ")

    @property
    def ratio_low(self) -> float:
        """Its rate over that here, at least."""
        return self.low / self.row.throughput

    @property
    def ratio_high(self) -> float:
        """Its rate over that here, at most."""
        return self.high / self.row.throughput

    @property
    def times(self) -> str:
        """These ratios as text: ``28.9×``, ``71…172×``."""
        low, high = units.three_digits(self.ratio_low), units.three_digits(self.ratio_high)
        return f"{low}×" if self.figure else f"at most {high}×" if self.at_most else f"{low}…{high}×"

    @property
    def brief(self) -> str:
        """Name of the card for a headline: ``TITAN X``."""
        return self.name.partition(" (")[0]

    @property
    def basis(self) -> str:
        """Basis of the rates: others' figure and whether it has the update of weights, or an estimate."""
        if self.figure is None:
            return f"estimate{' from the card here' * self.from_card}{', launch-bound' * self.at_most}"
        update = self.figure.update if self.measured.kind == "training" else True
        return "others' figure" + {True: "", False: ", without the update", None: ", update not said"}[update]

    def lasting(self, rate: float) -> float | None:
        """Return the seconds for the samples asked for; None if there are none."""
        return (self.measured.prices.samples or 0) * self.measured.prices.epochs / rate or None

    @property
    def worth(self) -> float | None:
        """Price of an hour of the card below which its samples cost less than here, at ``ratio_low``."""
        here = min(estimate_samples(self.row, self.measured.prices).hour.amounts.values(), default=None)
        return None if here is None else here * self.ratio_low


def on_cards(results: Results) -> list[OnCard]:
    """Return the best step of each network on each device, on the cards asked for, or on known ones if there is no accelerator."""
    cards = [card_of(name) for name in results.prices.cards or (KNOWN_CARDS if no_accelerator(results) else ())]
    if not cards:
        return []
    timed = [row for row in results.rows if row.has_throughput and row.is_single_rank and row.batch and row.params.get("model")]
    of_networks = [row for row in timed if kind_of_work(row) in get_args(Kind)]
    steps = []
    for alike in grouped(of_networks, lambda row: (kind_of_work(row), row.params["model"], one_device(row))).values():
        best = max(alike, key=attrgetter("throughput"))
        steps.append(MeasuredStep(best, alike, is_untuned(best, results.rows), results.prices))
    steps.sort(key=lambda each: (each.kind != "training", each.model in PARAMETERS, familiarity(each.model)))
    return [found for step, card in product(steps, cards) for found in step.on(card)]


def _precisions(card: DevicePeak) -> list[str]:
    """Return the precision of torch's default on a card, and that of autocast if the card has matrix units for it."""
    default = [name for name in _FLOAT32 if PRECISIONS[name].arithmetic in card.flops_per_s][-1:]
    return [*default, *([_AUTOCAST] if PRECISIONS[_AUTOCAST].arithmetic in card.matrix else [])]


def _foremost_cards(found: Sequence[OnCard]) -> list[OnCard]:
    """Return the first training with others' figure, and the last estimate for the same step; or else the first record alone."""
    trained = [each for each in found if each.measured.kind == "training"] or found
    first = next((each for each in trained if each.figure), trained[0])
    estimates = [each for each in found if each.row is first.row and not each.figure and each.dtype != _AUTOCAST]
    return [first, *(estimates[-1:] if first.figure else [])]


def _card_notes(found: Sequence[OnCard]) -> Iterator[str]:
    """Yield notes on the figures and estimates, and on their sources."""
    yield "others' figures are by other programs on other software, and an estimate is no measurement: neither is compared with anything"
    fit = fitted()
    yield (
        f"an estimate is operations / ({fit.a:g} · peak) + bytes / ({fit.b:g} · bandwidth), ÷{fit.factor:g} to ×{fit.factor:g}; "
        "docs/reference/what-if.md has how far it is off"
    )
    yield "batch of an estimate: 64, or fewer by the memory that the step took here, ±20 %; from a card here, the same case"
    for each in {each.figure.source: each.figure for each in found if each.figure}.values():
        yield f"{each.source}, {each.date}" + (f": {each.caution}" if each.caution else "")


_CARDS: Section[OnCard] = Section(
    records="cards",
    title="What a card would bring: how many times as fast as here at its best",
    label="a GPU",
    columns=[
        shown("card.step", "text", "step", "the step, of training or of inference"),
        place,
        shown("card.name", "text", "card", "the card that is not here"),
        detail("card.choice", "text", "here at", "at what the step was the fastest here", lambda each: choice(each.row)),
        detail("card.here", "items/s", "here", "samples a second here", attrgetter("row.throughput")),
        detail("card.dtype", "text", "in", "precision that it is computed in there"),
        detail("card.batch", "count", "batch", "samples of a step there; null where a source does not state it"),
        detail("card.low", "items/s", "there from", "samples a second there, at least"),
        detail("card.high", "items/s", "to", "at most"),
        shown("card.ratio_low", "ratio", "times from", "how many times as fast, at least"),
        shown("card.ratio_high", "ratio", "up to", "at most"),
        detail("card.basis", "text", "by", "others' figure with what it leaves out, or an estimate"),
        detail("card.year", "text", "year", "of the figure", at("figure.year")),
        detail("card.hours_least", "s", "samples from", "for the samples asked for, at least", lambda each: each.lasting(each.high)),
        detail("card.hours_most", "s", "to", "at most", lambda each: each.lasting(each.low)),
        detail("card.worth", "money", "worth an hour", "price of an hour below which renting it costs less than here"),
    ],
    notes=_card_notes,
    foremost=_foremost_cards,
    by=lambda each: "figure" if each.figure else "estimate",
    headline={
        "figure": ("{times} {step} ({brief}, {year}){more}", "{times} {step:20} ({brief}, {year})", "{times} {step:20} ({brief})"),
        "estimate": ("{times} {step} ({brief}), an estimate", "{times} {step:20}, an estimate"),
    },
    more={"estimate": "; {brief} estimate {times}"},
    qualifier=("{basis}",),
    tags={Tag.CPU_UNTUNED: attrgetter("measured.untuned"), Tag.NOT_MEASURED: lambda _: True},
)


_NO_WORK = frozenset(("copy", "self"))
"""Tags of copies, which nobody wants for their own sake, and of tests of dlbench."""
_NO_WORK_CEILINGS = ("launch", "synchronisation", "copy")
"""Ceilings whose cases measure a launch or a copy, and no work."""
_BRIEF = {"training": "train", "inference": "infer"}
"""Kinds of work and the first word of their cases' short names."""


@dataclass(frozen=True, slots=True)
class Family(MatchRecord):
    """One kind of work on one accelerator and one CPU."""

    name: str
    pairs: tuple[Match, ...]
    """Cases that ran on both."""
    pair: Match
    """Both sides at their own best, for the most familiar network, or else for the network or shape of median speed-up, as the fastest
    says nothing about others. Without a throughput, a case that ran on both."""
    untuned: bool
    """Whether a single setting was measured on the CPU."""

    @property
    def same(self) -> Match | None:
        """The median of the cases that ran on both, of the same network or shape if possible."""
        same = [each for each in self.pairs if each.work == self.pair.work] or self.pairs
        return median_by_ratio(same) if same else None

    @property
    def waiting(self) -> int | None:
        """Number of these cases that wait for launches; None for none."""
        return sum(bool(launch_bound(each.other)) for each in self.pairs) or None

    @property
    def same_case(self) -> str | None:
        """Short name of the median case without the kind of work; None if it has the same two rows as ``pair``."""
        return None if self.same is None or self.same.sides == self.pair.sides else self._brief(self.same.case)

    @property
    def work(self) -> str:
        """Short name of the work without its kind."""
        return self._brief(self.case)

    def _brief(self, case: str) -> str:
        return brief(case).removeprefix(f"{_BRIEF.get(self.name, self.name)} ")

    @property
    def at(self) -> str | None:
        """Short settings of the accelerator and of the CPU at their best; None for a case that ran on both."""
        if self.pair.by is not None:
            return None
        there, here = (choice(row).replace("batch=", "b") for row in (self.pair.other, self.pair.base))
        return there if there == here else f"{there} / {here}"

    @property
    def best(self) -> str | None:
        """The same in words; None if that is the median case, too."""
        return self.same_case and f"each at its best ({self.work} {self.at})"


class SpeedUps(NamedTuple):
    """Records of the four sections."""

    families: Sequence[Family]
    same: Sequence[Match]
    bests: Sequence[Match]
    cards: Sequence[OnCard]


def _read(results: Results) -> SpeedUps:
    """Return the speed-ups of accelerators over CPUs, those of the headline first, and of cards that are not here."""
    cards = on_cards(results)
    results = results.where(_is_work)
    if {row.is_on_cpu for row in results.rows} != {True, False}:
        return SpeedUps((), (), (), cards)
    same, bests = match_rows(results, "device").rows, best_pairs(results)
    return SpeedUps(_families(results, [*bests, *same]), same, bests, cards)


def _is_work(row: Row) -> bool:
    is_work = row.declared.ceiling not in _NO_WORK_CEILINGS and not _NO_WORK.intersection(row.declared.tags)
    return is_work and row.case.status is not Status.SKIPPED


def _families(results: Results, pairs: Sequence[Match]) -> list[Family]:
    """Return the kinds of work of each accelerator and CPU: training and inference first, then those of most cases."""
    by_machines = grouped(sorted(pairs, key=machines_of), machines_of)
    found = list[list[Family]]()
    for alike in by_machines.values():
        found.append([_family(name, of_kind, results) for name, of_kind in by_kind(alike).items()])
    found.sort(key=_order, reverse=True)
    return list(chain.from_iterable(found))


def _family(name: str, pairs: Sequence[Match], results: Results) -> Family:
    """Return one kind of work from its pairs: those at the best of each side, and the same cases."""
    bests = [each for each in pairs if each.by is None]
    same = tuple(each for each in pairs if each.by is not None)
    pair = _most_familiar(bests or same)
    return Family(name, same, pair, is_untuned(pair.base, results.rows))


def _most_familiar(found: Sequence[Match]) -> Match:
    """Return the pair of the most familiar network; the median of several."""
    places = [familiarity(each.base.params.get("model")) for each in found]
    return median_by_ratio(each for each, place in zip(found, places, strict=True) if place == min(places))


def _order(found: Sequence[Family]) -> tuple[float, ...]:
    """Return a key that sorts accelerators: whether they train, whether they infer, then `accelerator_order`."""
    return *(found[0].name == step for step in ("training", "inference")), *accelerator_order(found[0].pair)


def _foremost(found: Sequence[Family]) -> list[Family]:
    """Return the first kind of work of the first accelerator, and all further ones with a gain."""
    on_first = [each for each in found if machines_of(each.pair) == machines_of(found[0].pair)]
    return [on_first[0], *(each for each in on_first[1:] if each.ratio.outcome == "gain")]


ORDER = 10
QUESTION = Question(
    "speed-up",
    "How much faster is the accelerator than the CPU, on the same case and each at its best?",
    command="dlbench run",
    missing=(no_accelerator, "no case went well on both a CPU and an accelerator"),
    read=_read,
    sections=[
        Section(
            records="families",
            title="Speed-up by kind of work",
            columns=(
                shown("family.name", "text", "work", "the kind of work: training, inference, or the workload"),
                place,
                CASE.headed("of"),
                detail("family.at", "text", "each at", "batch, precision and other settings of either at its best"),
                RATIO.headed("each at its best"),
                ratio_column("family.alike", "of the case in the middle of those that ran on both", "same case", at("same.ratio")),
                detail("family.cases", "count", "cases", "cases that ran on both", lambda family: len(family.pairs)),
                shown("family.waiting", "count", "launch-bound", "cases that wait for launches"),
            ),
            notes=("of ResNet-50, else ResNet-18, else the network or shape in the middle of its kind of work",),
            whole=pair_cells,
            foremost=_foremost,
            label=WORTH_IT,
            second="{alike} on the same case, {same_case:24}",
            headline={
                "gain": ("{name:20} {speedup}{span}, {best}{more}", "{name:20} {speedup}{span}{more}"),
                "loss": "CPU faster: {speedup}{span} in {name:20}",
                "open": "no gain shown in {name:20}",
            },
            more={"gain": ", {name:20} {speedup}"},
            qualifier=("{work} {at}{where}", "{work}{where}"),
            tags={Tag.CPU_UNTUNED: attrgetter("untuned")},
        ),
        SAME,
        Section(
            records="bests",
            title=OWN_BEST,
            columns=[best_columns],
            whole=pair_cells,
            figures=lambda found: [figure_of_pairs(OWN_BEST, found, WORK)],
        ),
        _CARDS,
    ],
)
