"""Speed-up of accelerators over the CPU: by kind of work, each at its own best, and on the same case."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

from dlbench.analysis.answers.parts.base import Question, Section
from dlbench.analysis.answers.parts.best import best
from dlbench.analysis.answers.parts.cards import SECTION, OnCard, on_cards
from dlbench.analysis.answers.parts.headline import Tag, by_kind
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
from dlbench.analysis.presentation.columns import CASE, RATIO, WORK, others, pair_cells, place, ratio_column
from dlbench.analysis.presentation.figures import Figure
from dlbench.analysis.presentation.names import choice
from dlbench.analysis.presentation.wording import brief
from dlbench.analysis.ratios.pairing import OfPair, Pair, Pairs, chosen, grouped, launch_bound, match_rows, one_device, settings_named
from dlbench.analysis.ratios.ratio import Ratio, least_and_most, middle
from dlbench.analysis.read.table import Results
from dlbench.core.model import Status
from dlbench.core.rows.row import MACHINE
from dlbench.core.schema import Column, Unit

_NO_WORK = frozenset(("copy", "self"))
"""Tags of copies, which nobody wants done for their own sake, and of what tests dlbench."""
_APART = ("launch", "synchronisation", "copy")
"""Ceilings of what measures a launch or a copy."""
_BRIEF = {"training": "train", "inference": "infer"}
"""How short names of their cases begin."""


@dataclass(frozen=True, slots=True)
class Family(OfPair):
    """Pairs of one accelerator and one CPU in one kind of work."""

    name: str
    pairs: tuple[Pair, ...]
    """The cases that ran on both."""
    pair: Pair
    """Each side at its own best, of the network or shape in the middle, and not of the fastest: a line that picks its case says nothing
    about the others. Where there is no throughput to choose by, the case in the middle."""
    untuned: bool = False
    """Whether one setting alone was measured on the CPU."""

    @property
    def cases(self) -> int:
        """How many ran on both."""
        return len(self.pairs)

    @property
    def alike(self) -> Ratio | None:
        """The ratio of the case in the middle of those that ran on both, of the same network or shape where there are any."""
        same = [each for each in self.pairs if each.work == self.pair.work] or self.pairs
        return middle(same).ratio if same else None

    @property
    def work(self) -> str:
        """What was done where there is little room, without the name of the kind."""
        return brief(self.case).removeprefix(f"{_BRIEF.get(self.name, self.name)} ")

    @property
    def at(self) -> str | None:
        """What the accelerator chose and what the CPU, where there is little room; None of the same case."""
        if self.pair.by is not None:
            return None
        there, here = (choice(row).replace("batch=", "b") for row in (self.pair.other, self.pair.base))
        return there if there == here else f"{there} / {here}"


class Compared(NamedTuple):
    """Accelerators against CPUs."""

    families: Sequence[Family]
    same: Sequence[Pair]
    bests: Sequence[Pair]
    values: Sequence[Pair]
    cards: Sequence[OnCard]


def _read(results: Results) -> Compared:
    """Return the kinds of work of each accelerator, first those of the one that the headline is of, and the pairs that they are made of."""
    cards, results = on_cards(results), compared(results)
    if {row.is_on_cpu for row in results.rows} != {True, False}:
        return Compared((), (), (), (), cards)
    same, bests = match_rows(results, "device"), best(results)
    return Compared([*chain(*_families(results, same, bests))], same.rows, bests.rows, reported_pairs(results, "device").rows, cards)


def compared(results: Results) -> Results:
    """Return the rows that a device was there for and that measure no launch or copy, nor dlbench itself."""
    return results.where(
        lambda row: (
            row.case.status is not Status.SKIPPED and row.declared.ceiling not in _APART and not _NO_WORK.intersection(row.declared.tags)
        )
    )


def _families(results: Results, same: Pairs, own_best: Pairs) -> list[list[Family]]:
    """Return the families of each accelerator against each CPU: training and inference first, then those of most cases.

    There is never one of all kinds, which would tell of the suites that ran.
    """
    settings = grouped(results.rows, lambda row: (row.differing_from((*MACHINE, *settings_named(chosen(row)))), *one_device(row)))
    alone = {(row.case.run, row.case.id): len(set(map(choice, rows))) == 1 for rows in settings.values() for row in rows}
    found = []
    for group in grouped(sorted((*own_best.rows, *same.rows), key=machines_of), machines_of).values():
        families = []
        for name, pairs in by_kind(group).items():
            bests, alike = ([each for each in pairs if (each.by is None) is best] for best in (True, False))
            pair = middle(bests or alike)
            families.append(Family(name, tuple(alike), pair, bool(pair.base.batch) and alone[pair.base.case.run, pair.base.case.id]))
        found.append(families)
    return sorted(found, key=_standing, reverse=True)


def _standing(found: Sequence[Family]) -> tuple[float, ...]:
    """Return what sorts accelerators: whether they train, whether they infer, then as `standing` does."""
    return *(found[0].name == step for step in ("training", "inference")), *standing(found[0].pair)


def _end(which: int, family: Family) -> float | None:
    return least_and_most(family.pairs)[which].speedup if family.pairs else None


def _foremost(found: Sequence[Family]) -> list[Family]:
    """Return the first kinds of work of the first accelerator, behind the first of them those with a gain."""
    alike = [each for each in found if machines_of(each.pair) == machines_of(found[0].pair)]
    return [alike[0], *(each for each in alike[1:] if each.ratio.outcome == "gain")]


def _best_ratios(found: Sequence[Pair]) -> Iterator[Figure]:
    yield ratio_figure(OWN_BEST, found, WORK)


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
                Column("family.cases", Unit.COUNT, "cases that ran on both", heading="cases"),
                Column("family.least", Unit.RATIO, "the least ratio of them", heading="least").by(partial(_end, 0)),
                Column("family.most", Unit.RATIO, "the most ratio of them", heading="most").by(partial(_end, 1)),
                Column("family.launch_bound", Unit.COUNT, "cases that wait for launches", heading="launch-bound", priority=0).by(
                    lambda family: sum(bool(launch_bound(each.other)) for each in family.pairs) or None
                ),
                others,
            ),
            notes=(
                "of several networks or shapes that in the middle; kinds of work are not mixed, as a middle of all tells of the suites",
            ),
            whole=pair_cells,
            foremost=_foremost,
            by=lambda family: family.ratio.outcome,
            headline={
                "gain": "{name:20} {speedup}{span}{more}",
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
        SAME,
        Section(records="bests", title=OWN_BEST, columns=[best_columns], whole=pair_cells, figures=[_best_ratios]),
        VALUES,
        SECTION,
    ],
)
