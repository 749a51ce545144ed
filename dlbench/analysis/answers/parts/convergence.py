"""Trainings in formats of numbers: how far the accuracy of each lies from that in the plain format, seed by seed, and its loss."""

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import NamedTuple

from dlbench.analysis.answers.parts.sustained import series
from dlbench.analysis.presentation.figures import Figure, figure
from dlbench.analysis.presentation.names import device_label, several_runs
from dlbench.analysis.presentation.wording import few, plural, short
from dlbench.analysis.ratios.paired import ENOUGH_PAIRS, PairedDifference, paired_difference
from dlbench.analysis.ratios.pairing import MATH, grouped, label
from dlbench.core.rows.row import Row, Setting
from dlbench.core.schema import Column, Unit

_POINT = 0.01
"""How far an accuracy may lie below another and still be as good, where its workload declares no margin: one point."""
_MOST_NAMED = 4
"""Formats that a cell names; the table of trainings has all."""
COMMAND = "dlbench run convergence"
SEE_PRECISION = "convergence in another precision: see --topic precision; at another batch it was not measured"
"""In place of the caution of other answers, where trainings in formats were measured."""


class Convergence(StrEnum):
    """Whether a training converges as in the plain format."""

    YES = "yes"
    NO = "no"
    OPEN = "not shown"


@dataclass(frozen=True, slots=True)
class FormatTraining:
    """A training in one format of numbers, with several seeds."""

    row: Row
    name: str
    """Of the format."""
    base: Row | None
    """The same training in the plain format; None of that itself."""
    gap: PairedDifference | None
    """Its accuracy less that of base, by seed; None where they have other seeds."""

    @property
    def case(self) -> str:
        """The training, whatever its format."""
        return label(self.row, (_parameter(self.row),))

    @property
    def brief(self) -> str:
        """Its network and settings, without the workload: ``mlp at rate=0.02``. A network stands in no id where it is the usual one."""
        workload, *settings = short(self.case).split(" ")
        numbers = " ".join(each for each in settings if "=" in each)
        texts = {name: value for name, value in self.row.params.items() if isinstance(value, str) and name != _parameter(self.row)}
        words = " ".join(value for name, value in texts.items() if f"{name}={value}" not in settings) or workload
        return f"{words} at {numbers}" if numbers else words

    @property
    def margin(self) -> float:
        """How far its accuracy may lie below that of base."""
        declared = self.row.declared.value("seed_accuracy")
        return (declared.margin if declared else None) or _POINT

    @property
    def converges(self) -> Convergence | None:
        """Whether the whole interval of the gap lies within the margin, or above; None where its seeds are too few."""
        if self.gap is None or self.gap.interval is None:
            return None
        if self.gap.is_at_least(-self.margin):
            return Convergence.YES
        return Convergence.NO if self.gap.interval.high < -self.margin else Convergence.OPEN

    @property
    def accuracy(self) -> float:
        """Median over seeds."""
        return statistics.median(series(self.row, "seed_accuracy"))

    @property
    def seeds(self) -> int:
        """How many it was trained with."""
        return len(series(self.row, "seed_accuracy"))

    @property
    def loss(self) -> float | None:
        """Median over seeds of what the training ended with; None where it is not told."""
        return statistics.median(losses) if (losses := series(self.row, "seed_loss")) else None

    @property
    def diverged(self) -> int | None:
        """Seeds with which it diverged; None where it is not told."""
        found = series(self.row, "seed_diverged")
        return sum(each > 0 for each in found) if found else None


class CurvePoint(NamedTuple):
    """One point of the loss of a training."""

    name: str
    share: float
    """Of the training that had passed."""
    loss: float


def trainings(rows: Iterable[Row]) -> list[FormatTraining]:
    """Return the trainings in formats, known by the roles of what they declare; none without the same in the plain format."""
    having = [row for row in rows if row.is_sound and _parameter(row) in row.params and series(row, "seed_accuracy")]
    groups = grouped(having, lambda row: row.differing_from((Setting("param", _parameter(row)), MATH))).values()
    return [each for group in groups for each in _of_one(group)]


def _parameter(row: Row) -> str:
    return row.declared.parameter("format") or ""


def _of_one(rows: Sequence[Row]) -> Iterator[FormatTraining]:
    """Yield one training in each of its formats; nothing where it was not run in the plain one and another."""
    base = next((row for row in rows if row.declared.stands_out("format", row.params)), None)
    for row in sorted(rows, key=lambda row: row is not base) if base and len(rows) > 1 else ():  # the plain one first
        other = None if row is base else base
        gap = paired_difference(series(other, "seed_accuracy"), series(row, "seed_accuracy")) if other else None
        yield FormatTraining(row, str(row.params[_parameter(row)]), other, gap)


def verdict(found: Sequence[FormatTraining]) -> str:
    """Say whether trainings in one format converge: ``converges``, ``not converging``, ``converges in 1 of 2``."""
    outcomes = [each.converges for each in found if each.converges]
    yes = outcomes.count(Convergence.YES)
    if not outcomes:
        return "too few seeds to tell"
    if 0 < yes < len(outcomes):
        return f"converges in {yes} of {len(outcomes)}"
    return "converges" if yes else "not converging" if Convergence.NO in outcomes else "not shown to converge"


@dataclass(frozen=True, slots=True)
class FormatCount:
    """How many formats converge on a device, in all of their trainings."""

    of: Sequence[FormatTraining]

    @property
    def row(self) -> Row:
        """Of one of them."""
        return self.of[0].row

    @property
    def plain(self) -> str:
        """The format that the others are held against."""
        return next(each.name for each in self.of if each.base is None)

    @property
    def outcomes(self) -> Mapping[str, list[Convergence | None]]:
        """What the trainings of each other format came to."""
        by_name = grouped((each for each in self.of if each.base), lambda each: each.name)
        return {name: [each.converges for each in alike] for name, alike in by_name.items()}

    @property
    def like(self) -> int:
        """Those that converge in all of their trainings."""
        return [*map(set, self.outcomes.values())].count({Convergence.YES})

    @property
    def open(self) -> int:
        """Those of which it is not shown, in some training, and in none that they don't."""
        return sum(Convergence.NO not in each for each in self.outcomes.values()) - self.like

    @property
    def formats(self) -> int:
        """Apart from the plain one."""
        return len(self.outcomes)

    @property
    def behind(self) -> str | None:
        """Those that don't converge, in some training at least: ``bf16 in 1 of 2, binary``."""
        counts = ((name, found.count(Convergence.NO), len(found)) for name, found in self.outcomes.items())
        return few([f"{name} in {no} of {all_of}" if no < all_of else name for name, no, all_of in counts if no], _MOST_NAMED) or None

    @property
    def trainings(self) -> int:
        """Apart from their format."""
        return len({each.case for each in self.of})

    @property
    def seeds(self) -> int:
        """The fewest of any."""
        return min(each.seeds for each in self.of)

    @property
    def each(self) -> str:
        """How many trainings each format has: ``3``, or where they have not all as many ``2 or 3``, ``1 to 3``."""
        fewest, *_, most = sorted(map(len, self.outcomes.values())) * 2
        return f"{fewest} {'or' if most == fewest + 1 else 'to'} {most}" if fewest < most else str(most)

    @property
    def about(self) -> str:
        """The same in words: ``1 or 2 trainings each``, ``1 training``."""
        return plural(self.trainings, "training") if self.each.isdecimal() else f"{self.each} trainings each"

    @property
    def outcome(self) -> str:
        """``few`` where no seeds are enough to tell it of any, ``open`` where it is not shown of some."""
        too_few = self.seeds < ENOUGH_PAIRS and not any(chain(*self.outcomes.values()))
        return "few" if too_few else "open" if self.open else ""


def loss_curves(found: Sequence[FormatTraining]) -> Iterator[Figure]:
    """Yield the loss over each training, a line a format."""
    several = several_runs(found)
    for (case, where), alike in grouped(found, lambda each: (each.brief, device_label(each, several))).items():
        points = [
            CurvePoint(each.name, (at + 1) / len(curve), loss)
            for each in sorted(alike, key=lambda each: (each.base is not None, -(each.loss or 0.0)))
            for curve in [series(each.row, "loss_curve")]
            for at, loss in enumerate(curve)
        ]
        yield figure(
            f"Loss by format: {case} on {where}",
            "One line a format, the plain one first and then those that end highest; further right is later in the training.",
            "line",
            points,
            Column("curve.share", Unit.FRACTION, "how much of the training had passed", heading="of the training"),
            Column("curve.loss", Unit.NUMBER, "of the training, over all seeds", "lower", heading="loss"),
            Column("curve.name", Unit.TEXT, "format of numbers", heading="format"),
            log="y",  # what diverges is apart by powers of ten
        )
