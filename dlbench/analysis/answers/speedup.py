"""Speed-up of accelerators over the CPU: by kind of work, each at its own best, and on the same case."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

from dlbench.analysis.answers.parts.base import Question, Section
from dlbench.analysis.answers.parts.best import best, is_untuned
from dlbench.analysis.answers.parts.cards import SECTION, OnCard, on_cards
from dlbench.analysis.answers.parts.headline import WORTH_IT, Tag, by_kind
from dlbench.analysis.answers.parts.pair_tables import (
    OWN_BEST,
    SAME,
    VALUES,
    best_columns,
    machines_of,
    no_accelerator,
    one_kind_of_device,
    ratio_figure,
    reported_pairs,
    standing,
)
from dlbench.analysis.presentation.columns import CASE, RATIO, WORK, of_row, others, pair_cells, place, ratio_column
from dlbench.analysis.presentation.figures import Figure
from dlbench.analysis.presentation.names import choice
from dlbench.analysis.presentation.wording import brief
from dlbench.analysis.ratios.matching import Match, Matches, OfMatch, grouped, launch_bound, match_rows
from dlbench.analysis.ratios.ratio import Ratio, least_and_most, middle
from dlbench.analysis.read.table import Results
from dlbench.core.model import Status
from dlbench.core.reference.networks import familiarity
from dlbench.core.reference.peaks import peak_of
from dlbench.core.units import Column, Unit

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
        SECTION,
    ],
)
