"""Speed-up of accelerators over the CPU: by kind of work on the same case, and each at its own best."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from dlbench.analysis.answers.parts.base import Question, Section
from dlbench.analysis.answers.parts.best import best
from dlbench.analysis.answers.parts.cards import SECTION, OnCard, on_cards
from dlbench.analysis.answers.parts.headline import Tag, by_kind, span_of
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
from dlbench.analysis.presentation import pair_columns
from dlbench.analysis.presentation.columns import CASE, RATIO, WORK, others, place, ratio_column
from dlbench.analysis.presentation.figures import Figure
from dlbench.analysis.presentation.wording import brief
from dlbench.analysis.ratios.pairing import OfPair, Pair, Pairs, grouped, launch_bound, match_rows
from dlbench.analysis.ratios.ratio import least_and_most, middle
from dlbench.analysis.read.table import Results
from dlbench.core.model import Status
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
    pair: Pair
    """The one in the middle, and not the fastest: a line that picks its case says nothing about the others."""
    best: Pair | None
    """The pair of the same work with each side at its own best."""

    @property
    def cases(self) -> int:
        """How many ran on both."""
        return len(self.pairs)

    @property
    def work(self) -> str:
        """The case in the middle where there is little room, without the name of the kind."""
        return brief(self.case).removeprefix(f"{_BRIEF.get(self.name, self.name)} ")

    @property
    def among(self) -> str | None:
        """How many they are and between which ratios, where there is little room; None of one."""
        return f"; {self.cases} cases{span_of(self.pairs).removeprefix('; cases')}" if self.cases > 1 else None


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
    return Compared([*chain(*_families(same, bests))], same.rows, bests.rows, reported_pairs(results, "device").rows, cards)


def compared(results: Results) -> Results:
    """Return the rows that a device was there for and that measure no launch or copy, nor dlbench itself."""
    return results.where(
        lambda row: (
            row.case.status is not Status.SKIPPED and row.declared.ceiling not in _APART and not _NO_WORK.intersection(row.declared.tags)
        )
    )


def _families(same: Pairs, own_best: Pairs) -> list[list[Family]]:
    """Return the families of each accelerator against each CPU: training and inference first, then those of most cases.

    There is never one of all kinds, which would tell of the suites that ran.
    """
    bests = {(machines_of(each), each.case): each for each in own_best.rows}
    found = []
    for machines, group in grouped(sorted(same.rows, key=machines_of), machines_of).items():
        chosen = ((name, pairs, middle(pairs)) for name, pairs in by_kind(group).items())
        found.append([Family(name, tuple(pairs), each, bests.get((machines, each.work))) for name, pairs, each in chosen])
    return sorted(found, key=_standing, reverse=True)


def _standing(found: Sequence[Family]) -> tuple[float, ...]:
    """Return what sorts accelerators: whether they train, whether they infer, then as `standing` does."""
    return *(found[0].name == step for step in ("training", "inference")), *standing(found[0].pair)


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
                CASE.headed("case in the middle"),
                Column("family.cases", Unit.COUNT, "cases that ran on both", heading="cases"),
                RATIO,
                Column("family.least", Unit.RATIO, "the least ratio of them", heading="least").by(
                    lambda family: least_and_most(family.pairs)[0].speedup
                ),
                Column("family.most", Unit.RATIO, "the most ratio of them", heading="most").by(
                    lambda family: least_and_most(family.pairs)[1].speedup
                ),
                ratio_column(
                    "family.best",
                    "of its work with each side at its own best batch, precision, layout and mode",
                    "each at its best",
                    lambda family: family.best and family.best.ratio,
                ),
                Column("family.launch_bound", Unit.COUNT, "cases that wait for launches", heading="launch-bound", priority=0).by(
                    lambda family: sum(bool(launch_bound(each.other)) for each in family.pairs) or None
                ),
                others,
            ),
            notes=(
                "ratio: of the case in the middle; kinds of work are not mixed, as a middle of all would depend on the suites that ran",
            ),
            whole=lambda family: pair_columns.cells(family.pair),
            foremost=_foremost,
            by=lambda family: family.ratio.outcome,
            headline={
                "gain": "{name:20} {speedup}{span}{more}",
                "loss": "CPU faster: {speedup}{span} in {name:20}",
                "open": "no gain shown in {name:20}",
            },
            more={"gain": ", {name:20} {speedup}"},
            qualifier=("{work}{where}{among}", "{work}{where}"),
            tags={Tag.NOISY: lambda family: family.ratio.is_undecided, Tag.FEW_ROUNDS: lambda family: family.ratio.interval is None},
        ),
        SAME,
        Section(records="bests", title=OWN_BEST, columns=[best_columns], whole=pair_columns.cells, figures=[_best_ratios]),
        VALUES,
        SECTION,
    ],
)
