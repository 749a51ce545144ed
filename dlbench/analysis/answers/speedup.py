"""Speed-up of an accelerator over the CPU, on the same case and each at its best; and of cards that are not here."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import NamedTuple, get_args

from dlbench.analysis.answers.engine.costs import hour_of
from dlbench.analysis.answers.engine.pairs import (
    OWN_BEST,
    SAME,
    VALUES,
    best,
    best_columns,
    by_kind,
    is_untuned,
    kind_of_work,
    machines_of,
    no_accelerator,
    one_kind_of_device,
    ratio_figure,
    reported_pairs,
    standing,
)
from dlbench.analysis.answers.engine.question import WORTH_IT, Question, Section, Tag
from dlbench.analysis.presentation.columns import CASE, RATIO, WORK, Figure, of_row, others, pair_cells, place, ratio_column
from dlbench.analysis.presentation.names import choice
from dlbench.analysis.presentation.wording import brief
from dlbench.analysis.ratios.matching import Match, Matches, OfMatch, grouped, launch_bound, match_rows, one_device
from dlbench.analysis.ratios.ratio import Ratio, least_and_most, middle
from dlbench.analysis.read.table import Results
from dlbench.core import units
from dlbench.core.model import Status
from dlbench.core.precision import PRECISIONS
from dlbench.core.prices import NO_PRICES, Prices
from dlbench.core.reference.networks import PARAMETERS, familiarity
from dlbench.core.reference.peaks import DevicePeak, card_of, name_words, peak_of
from dlbench.core.reference.published import KNOWN_CARDS, BytesLine, Kind, PublishedFigure, StepCounts, fitted, published_figures
from dlbench.core.rows.row import Row, cells
from dlbench.core.units import Column, Unit

_USUAL_BATCH = 64
"""Enough samples for a card to be busy; fewer where they do not fit."""
_SPARE = 1.2
"""Memory that a step may take over what it took here, by the batch: allocators and libraries differ."""
_STATE = {"training": 12, "inference": 4}
"""Bytes for each weight: of training with its gradient and its average."""
_FLOAT32 = [each.name for each in PRECISIONS.values() if each.storage == "float32" and not (each.scaled or each.autocast)]
"""What torch computes a network in by default: the last that a device has, whose matrix units may round the operands."""
_AUTOCAST = next(each.name for each in PRECISIONS.values() if each.scales_gradients)
"""What most published figures in 16 bits are in."""


@dataclass(frozen=True, slots=True)
class OnCard:
    """A step at its best here, and what it would be on a card."""

    row: Row
    kind: Kind
    card: DevicePeak
    dtype: str
    batch: int | None
    """None where a source states none."""
    low: float
    """The least samples a second."""
    high: float
    """The most; of a published figure the same."""
    figure: PublishedFigure | None = None
    at_most: bool = False
    """Whether an estimate is bounded by launches."""
    from_card: bool = False
    """Whether it is scaled from what a card here measured."""
    untuned: bool = False
    """Whether one setting alone was measured on a CPU here."""
    prices: Prices = NO_PRICES

    @property
    def step(self) -> str:
        """The work where there is little room: ``train resnet18``."""
        return f"{'train' if self.kind == 'training' else 'infer'} {self.row.params['model']}"

    @property
    def name(self) -> str:
        """The card without its maker."""
        return self.card.name.removeprefix("NVIDIA ").removeprefix("GeForce ")

    @property
    def ratio_low(self) -> float:
        """How many times as fast as here, at least."""
        return self.low / self.row.throughput

    @property
    def ratio_high(self) -> float:
        """At most."""
        return self.high / self.row.throughput

    @property
    def times(self) -> str:
        """The same as text: ``28.9×``, ``71…172×``."""
        low, high = units.three_digits(self.ratio_low), units.three_digits(self.ratio_high)
        return f"{low}×" if self.figure else f"at most {high}×" if self.at_most else f"{low}…{high}×"

    @property
    def brief(self) -> str:
        """The card in a headline: ``TITAN X``."""
        return self.name.partition(" (")[0]

    @property
    def year(self) -> str | None:
        """Of the figure."""
        return self.figure.year if self.figure else None

    @property
    def basis(self) -> str:
        """Whose figure it is and what that leaves out, or that it is an estimate."""
        if self.figure is None:
            return f"estimate{' from the card here' * self.from_card}{', launch-bound' * self.at_most}"
        return {True: "others' figure", False: "others' figure, without the update", None: "others' figure, update not said"}[
            self.figure.update if self.kind == "training" else True
        ]

    def lasting(self, rate: float) -> float | None:
        """Return the seconds that the samples asked for take."""
        return (self.prices.samples or 0) * self.prices.epochs / rate or None

    @property
    def worth(self) -> float | None:
        """The price of an hour of the card below which its samples cost less than here, at the least ratio."""
        here = min(hour_of(self.row, self.prices).ways.values(), default=None)
        return None if here is None else here * self.ratio_low


def on_cards(results: Results) -> list[OnCard]:
    """Return what each step measured would be on the cards asked for, or on known ones where there is no accelerator."""
    asked = results.prices.cards or (KNOWN_CARDS if no_accelerator(results) else ())
    steps = [row for row in results.rows if _is_step(row)]
    works = [(max(rows, key=attrgetter("throughput")), rows) for rows in grouped(steps, _work).values()]
    works.sort(key=lambda work: _step_rank(work[0]))
    made = (each for best, alike in works for card in map(card_of, asked) for each in _of_step(best, alike, card, results))
    return [each for each in made if each and name_words(each.card.name) != name_words(each.row.case.device_name or "")]


def _is_step(row: Row) -> bool:
    return kind_of_work(row) in get_args(Kind) and row.has_throughput and row.is_single_rank and bool(row.batch and row.params.get("model"))


def _step_rank(row: Row) -> tuple[bool, bool, int]:
    """Return what sorts steps: training first, then networks of the user's, then the most familiar."""
    model = row.params["model"]
    return kind_of_work(row) != "training", model in PARAMETERS, familiarity(model)


def _work(row: Row) -> tuple[object, ...]:
    return kind_of_work(row), row.params["model"], *one_device(row)


def _precisions(card: DevicePeak) -> list[str]:
    """Return what torch computes a network in by default there, and autocast where the card has matrix units for it."""
    plain = [name for name in _FLOAT32 if PRECISIONS[name].arithmetic in card.flops_per_s][-1:]
    return [*plain, *([_AUTOCAST] if PRECISIONS[_AUTOCAST].arithmetic in card.matrix else [])]


def _of_step(best: Row, alike: Sequence[Row], card: DevicePeak, results: Results) -> Iterator[OnCard | None]:
    """Yield the best of the rows of a step on a card: from a card here in its own precision, else in each usual one."""
    here = peak_of(best.case.device_name)
    if here is None:
        yield from (_made(best, alike, card, dtype, results) for dtype in _precisions(card))
    else:
        yield _beside(here, best, alike, card, results.prices)


def _beside(here: DevicePeak, row: Row, alike: Sequence[Row], card: DevicePeak, prices: Prices) -> OnCard | None:
    """Return the same case on another card: the measured rate, times how many times as fast its estimate is there as here.

    Figures of others are no help: at another batch and on other software one made an H200 1.73 times an H100, measured as 0.99.
    """
    kind, dtype, batch = _kind(row), row.case.dtype or "", row.batch or 1
    counts = _counts(kind, row, alike)
    there, estimated = (counts and fitted().guess(each, dtype, counts, batch) for each in (card, here))
    if not (there and estimated):
        return None
    rate, factor = row.throughput * there.middle / estimated.middle, fitted().factor
    waits = there.at_most or bool(launch_bound(row))
    return OnCard(row, kind, card, dtype, batch, rate / factor, rate * factor, at_most=waits, from_card=True, prices=prices)


def _kind(row: Row) -> Kind:
    return "training" if kind_of_work(row) == "training" else "inference"


def _counts(kind: Kind, row: Row, alike: Sequence[Row]) -> StepCounts | None:
    counts: StepCounts | None = getattr(fitted(), kind).get(row.params["model"])
    return counts or _counted(alike)


def _made(row: Row, alike: Sequence[Row], card: DevicePeak, dtype: str, results: Results) -> OnCard | None:
    """Return the best of the rows of a step on a card; None where nothing is known of it there."""
    kind, model = _kind(row), row.params["model"]
    made = partial(OnCard, row, kind, card, dtype, untuned=is_untuned(row, results.rows), prices=results.prices)
    of_work = (each for each in published_figures() if (each.params.get("model"), each.dtype) == (model, dtype) and kind in each.tags)
    of_card = (each for each in of_work if name_words(each.device) == name_words(card.name))
    if figure := max(of_card, key=attrgetter("value"), default=None):
        return made(figure.batch, figure.value, figure.value, figure)
    counts, batch = _counts(kind, row, alike), _batch(row, card, kind)
    guess = fitted().guess(card, dtype, counts, batch) if counts else None
    return guess and made(batch, guess.low, guess.high, at_most=guess.at_most)


def _counted(rows: Sequence[Row]) -> StepCounts | None:
    """Return what a network of the user's takes for a sample, as its rows in fp32 count it at their largest batch; None where none does."""
    plain = [row for row in rows if row.case.dtype in _FLOAT32 and row.rate.flops_per_s and row.rate.bytes_per_s]
    if not plain:
        return None
    row = max(plain, key=lambda row: row.batch or 0)
    flops, moved = ((rate or 0) / row.throughput for rate in (row.rate.flops_per_s, row.rate.bytes_per_s))
    return StepCounts(flops, BytesLine(moved, 0))


def _batch(row: Row, card: DevicePeak, kind: Kind) -> int:
    """Return the batch that an estimate is for: 64, or half of it as often as it takes to fit, by the memory that the step took here."""
    batch, peak = _USUAL_BATCH, row.peak_bytes
    if card.memory_bytes and peak and row.batch:
        state = min(peak, _STATE[kind] * PARAMETERS.get(str(row.params["model"]), 0))
        while batch > 1 and _SPARE * (state + (peak - state) / row.batch * batch) > card.memory_bytes:
            batch //= 2
    return batch


def _foremost_cards(found: Sequence[OnCard]) -> list[OnCard]:
    """Return the first training with others' figure, and behind it the last estimate for the same step; else the first of all."""
    trained = [each for each in found if each.kind == "training"] or found
    first = next((each for each in trained if each.figure), trained[0])
    plain = [each for each in found if each.row is first.row and not each.figure and each.dtype != _AUTOCAST]
    return [first, *plain[-1:]] if first.figure else [first]


def _card_notes(found: Sequence[OnCard]) -> Iterator[str]:
    """Yield what the numbers are, and of which precisions a card has none."""
    yield "others' figures are by other programs on other software, and an estimate is no measurement: neither is compared with anything"
    fit = fitted()
    yield (
        f"an estimate is operations / ({fit.a:g} · peak) + bytes / ({fit.b:g} · bandwidth), ÷{fit.factor:g} to ×{fit.factor:g}; "
        "docs/reference/what-if.md has how far it is off"
    )
    yield "batch of an estimate: 64, or fewer by the memory that the step took here, ±20 %; from a card here, the same case"
    yield "where a card has matrix units that round the operands of convolutions by torch's default, it is taken to use them"
    for card in {each.card.name: each.card for each in found}.values():
        for name in (PRECISIONS[each].arithmetic for each in (_FLOAT32[-1], _AUTOCAST)):
            if name in card.lacks:
                yield f"{card.name} lacks matrix units for {name}"
            elif name not in card.flops_per_s:
                yield f"{card.name}: its peak of {name} is not listed, for want of a source"
    for each in {each.figure.source: each.figure for each in found if each.figure}.values():
        yield f"{each.source}, {each.date}" + (f": {each.caution}" if each.caution else "")


_CARDS: Section[OnCard] = Section(
    records="cards",
    title="What a card would bring: how many times as fast as here at its best",
    label="a GPU",
    columns=[
        Column("card.step", Unit.TEXT, "the step, of training or of inference", heading="step", priority=0),
        place,
        Column("card.name", Unit.TEXT, "the card that is not here", heading="card", priority=0),
        Column("card.choice", Unit.TEXT, "at what the step was the fastest here", of=lambda each: choice(each.row), heading="here at"),
        Column("card.here", Unit.ITEMS_PER_S, "samples a second here", of=lambda each: each.row.throughput, heading="here"),
        Column("card.precision", Unit.TEXT, "that it is computed in there", heading="in").by(
            lambda each: "autocast" if PRECISIONS[each.dtype].autocast else each.dtype
        ),
        Column("card.batch", Unit.TEXT, "samples of a step there", heading="batch").by(lambda each: str(each.batch or "not stated")),
        Column("card.low", Unit.ITEMS_PER_S, "samples a second there, at least", heading="there from"),
        Column("card.high", Unit.ITEMS_PER_S, "at most", heading="to"),
        Column("card.ratio_low", Unit.RATIO, "how many times as fast, at least", heading="times from", priority=0),
        Column("card.ratio_high", Unit.RATIO, "at most", heading="up to", priority=0),
        Column("card.basis", Unit.TEXT, "others' figure with what it leaves out, or an estimate", heading="by"),
        Column("card.year", Unit.TEXT, "of the figure", heading="year"),
        Column("card.hours_here", Unit.SECONDS, "for the samples asked for", heading="samples here").by(
            lambda each: each.lasting(each.row.throughput)
        ),
        Column("card.hours_least", Unit.SECONDS, "on the card, at least", heading="there from").by(lambda each: each.lasting(each.high)),
        Column("card.hours_most", Unit.SECONDS, "at most", heading="to").by(lambda each: each.lasting(each.low)),
        Column("card.worth", Unit.MONEY, "price of an hour below which renting it costs less than here", heading="worth an hour"),
        Column(
            "card.source", Unit.TEXT, "who published it", of=lambda each: each.figure and each.figure.source, heading="source", priority=3
        ),
    ],
    notes=_card_notes,
    whole=lambda each: cells(each.row),
    foremost=_foremost_cards,
    by=lambda each: "figure" if each.figure else "estimate",
    headline={
        "figure": ("{times} {step} ({brief}, {year}){more}", "{times} {step:20} ({brief}, {year})", "{times} {step:20} ({brief})"),
        "estimate": ("{times} {step} ({brief}), an estimate", "{times} {step:20}, an estimate"),
    },
    more={"estimate": "; {brief} estimate {times}"},
    qualifier=("{basis}",),
    tags={Tag.CPU_UNTUNED: attrgetter("untuned"), Tag.NOT_MEASURED: lambda _: True},
)


_NO_WORK = frozenset(("copy", "self"))
"""Tags of copies, which nobody wants done for their own sake, and of what tests dlbench."""
_APART = ("launch", "synchronisation", "copy")
"""Ceilings of what measures a launch or a copy."""
_BRIEF = {"training": "train", "inference": "infer"}
"""How short names of their cases begin."""


@dataclass(frozen=True, slots=True)
class Family(OfMatch):
    """Pairs of one accelerator and one CPU in one kind of work."""

    name: str
    pairs: tuple[Match, ...]
    """The cases that ran on both."""
    pair: Match
    """Each side at its own best, of the most familiar network, else of the network or shape in the middle, and never of the fastest: a line
    that picks its case says nothing about the others. Where there is no throughput to choose by, a case that ran on both."""
    untuned: bool
    """Whether one setting alone was measured on the CPU."""

    @property
    def same(self) -> Match | None:
        """The case in the middle of those that ran on both, of the same network or shape where there are any."""
        same = [each for each in self.pairs if each.work == self.pair.work] or self.pairs
        return middle(same) if same else None

    @property
    def alike(self) -> Ratio | None:
        """Its ratio."""
        return None if self.same is None else self.same.ratio

    @property
    def same_case(self) -> str | None:
        """Its name where there is little room, without the kind; None where the family is of the same two rows already."""
        return None if self.same is None or self.same.sides == self.pair.sides else self._brief(self.same.case)

    @property
    def work(self) -> str:
        """What was done where there is little room, without the name of the kind."""
        return self._brief(self.case)

    def _brief(self, case: str) -> str:
        return brief(case).removeprefix(f"{_BRIEF.get(self.name, self.name)} ")

    @property
    def at(self) -> str | None:
        """What the accelerator chose and what the CPU, where there is little room; None of the same case."""
        if self.pair.by is not None:
            return None
        there, here = (choice(row).replace("batch=", "b") for row in (self.pair.other, self.pair.base))
        return there if there == here else f"{there} / {here}"

    @property
    def best(self) -> str | None:
        """The same in words; None where that is no other than the same case."""
        return self.same_case and f"each at its best ({self.work} {self.at})"


class Compared(NamedTuple):
    """Accelerators against CPUs."""

    families: Sequence[Family]
    same: Sequence[Match]
    bests: Sequence[Match]
    values: Sequence[Match]
    cards: Sequence[OnCard]


def _read(results: Results) -> Compared:
    """Return the kinds of work of each accelerator, first those of the one that the headline is of, and the pairs that they are made of."""
    cards = on_cards(results)
    results = results.where(
        lambda row: (
            row.case.status is not Status.SKIPPED and row.declared.ceiling not in _APART and not _NO_WORK.intersection(row.declared.tags)
        )
    )
    if {row.is_on_cpu for row in results.rows} != {True, False}:
        return Compared((), (), (), (), cards)
    same, bests = match_rows(results, "device"), best(results)
    return Compared([*chain(*_families(results, same, bests))], same.rows, bests.rows, reported_pairs(results, "device").rows, cards)


def _families(results: Results, same: Matches, own_best: Matches) -> list[list[Family]]:
    """Return the families of each accelerator against each CPU: training and inference first, then those of most cases.

    There is never one of all kinds, which would tell of the suites that ran.
    """
    found = []
    for group in grouped(sorted((*own_best.rows, *same.rows), key=machines_of), machines_of).values():
        families = []
        for name, pairs in by_kind(group).items():
            bests, alike = ([each for each in pairs if (each.by is None) is best] for best in (True, False))
            pair = _asked_first(bests or alike)
            families.append(Family(name, tuple(alike), pair, is_untuned(pair.base, results.rows)))
        found.append(families)
    return sorted(found, key=_standing, reverse=True)


def _asked_first(found: Sequence[Match]) -> Match:
    """Return the pair of the most familiar network, of several the one in the middle."""
    places = [familiarity(each.base.params.get("model")) for each in found]
    return middle(each for each, place in zip(found, places, strict=True) if place == min(places))


def _hot(found: Match | Family) -> str | None:
    """Return ``hot`` where the accelerator's last cache holds all that a call moves, so that only the first one waits for memory."""
    row = found.sides[1]
    peak, moved = peak_of(row.case.device_name), (row.rate.bytes_per_s or 0) * (row.time.median_s or 0)
    return "hot" if peak and 0 < moved <= peak.last_cache_bytes and row.params.get("cache") != "cold" else None


def _standing(found: Sequence[Family]) -> tuple[float, ...]:
    """Return what sorts accelerators: whether they train, whether they infer, then as `standing` does."""
    return *(found[0].name == step for step in ("training", "inference")), *standing(found[0].pair)


def _end(which: int, family: Family) -> float | None:
    return least_and_most(family.pairs)[which].speedup if family.pairs else None


def _foremost(found: Sequence[Family]) -> list[Family]:
    """Return the first kinds of work of the first accelerator, behind the first of them those with a gain."""
    alike = [each for each in found if machines_of(each.pair) == machines_of(found[0].pair)]
    return [alike[0], *(each for each in alike[1:] if each.ratio.outcome == "gain")]


def _best_ratios(found: Sequence[Match]) -> Iterator[Figure]:
    yield ratio_figure(OWN_BEST, found, WORK)


_HOT = Column("hot", Unit.TEXT, "whether the accelerator's last cache holds all that a call moves", heading="cache", of=_hot)
ORDER = 10
QUESTION = Question(
    "speed-up",
    "How much faster is the accelerator than the CPU, on the same case and each at its best?",
    command="dlbench run",
    missing=(no_accelerator, one_kind_of_device, "no case went well on both a CPU and an accelerator"),
    read=_read,
    sections=[
        Section(
            records="families",
            title="Speed-up by kind of work",
            columns=(
                Column("family.name", Unit.TEXT, "the kind of work: training, inference, or the workload", heading="work", priority=0),
                place,
                CASE.headed("of"),
                Column("family.at", Unit.TEXT, "batch, precision and other settings of either at its best", heading="each at"),
                RATIO.headed("each at its best"),
                ratio_column("family.alike", "of the case in the middle of those that ran on both", "same case", attrgetter("alike")),
                Column("family.cases", Unit.COUNT, "cases that ran on both", heading="cases").by(lambda family: len(family.pairs)),
                Column("family.least", Unit.RATIO, "the least ratio of them", heading="least").by(partial(_end, 0)),
                Column("family.most", Unit.RATIO, "the most ratio of them", heading="most").by(partial(_end, 1)),
                Column("family.launch_bound", Unit.COUNT, "cases that wait for launches", heading="launch-bound", priority=0).by(
                    lambda family: sum(bool(launch_bound(each.other)) for each in family.pairs) or None
                ),
                _HOT,
                of_row(lambda row: row.time.clock_hz, "clock"),
                of_row(lambda row: row.time.power_w, "power"),
                others,
            ),
            notes=("of ResNet-50, else ResNet-18, else the network or shape in the middle of its kind of work",),
            whole=pair_cells,
            foremost=_foremost,
            by=lambda family: family.ratio.outcome,
            label=WORTH_IT,
            second="{alike} on the same case, {same_case:24}",
            headline={
                "gain": ("{name:20} {speedup}{span}, {best}{more}", "{name:20} {speedup}{span}{more}"),
                "loss": "CPU faster: {speedup}{span} in {name:20}",
                "open": "no gain shown in {name:20}",
            },
            more={"gain": ", {name:20} {speedup}"},
            qualifier=("{work} {at}{where}", "{work}{where}"),
            tags={
                Tag.NOISY: lambda family: family.ratio.is_undecided,
                Tag.FEW_ROUNDS: lambda family: family.ratio.interval is None,
                Tag.CPU_UNTUNED: attrgetter("untuned"),
            },
        ),
        replace(SAME, columns=[*SAME.columns, _HOT]),
        Section(records="bests", title=OWN_BEST, columns=[best_columns, _HOT], whole=pair_cells, figures=[_best_ratios]),
        VALUES,
        _CARDS,
    ],
)
