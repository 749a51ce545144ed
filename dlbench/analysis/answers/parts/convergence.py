"""Trainings in formats of numbers: how far the accuracy of each lies from that in the plain format, seed by seed, and its loss."""

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from dlbench.analysis.answers.parts.headline import Headline, foremost
from dlbench.analysis.answers.parts.sustained import series
from dlbench.analysis.presentation.fields import own
from dlbench.analysis.presentation.figures import Figure, figure
from dlbench.analysis.presentation.names import device_label, several_runs
from dlbench.analysis.presentation.wording import difference, few, plural, short
from dlbench.analysis.ratios.paired import ENOUGH_PAIRS, PairedDifference, paired_difference
from dlbench.analysis.ratios.pairing import MATH, grouped, label
from dlbench.core.rows.row import Row, Setting
from dlbench.core.schema import Unit
from dlbench.core.units import three_digits

_POINT = 0.01
"""How far an accuracy may lie below another and still be as good, where its workload declares no margin: one point."""
MOST_WORDS = 25
"""Words of a sentence at most."""
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
    def gap_text(self) -> str:
        """The gap with its interval: ``-0.2 points (-0.6…0.1)``; empty where there is none."""
        return difference(self.gap.shift, self.gap.interval, Unit.FRACTION) if self.gap else ""

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


def _plain_format(found: Sequence[FormatTraining]) -> str:
    return next(each.name for each in found if each.base is None)


def verdict(found: Sequence[FormatTraining]) -> str:
    """Say whether trainings in one format converge: ``converges``, ``not converging``, ``converges in 1 of 2 trainings``."""
    outcomes = [each.converges for each in found if each.converges]
    yes = outcomes.count(Convergence.YES)
    if not outcomes:
        return "too few seeds to tell"
    if 0 < yes < len(outcomes):
        return f"converges in {yes} of {len(outcomes)} trainings"
    return "converges" if yes else "not converging" if Convergence.NO in outcomes else "not shown to converge"


class FormatCount(NamedTuple):
    """How many formats converge on a device, in all of their trainings."""

    row: Row
    like: int
    open: int
    """Of which it is not shown, in some training, and in none that they don't."""
    formats: int
    """Apart from the plain one."""
    trainings: int
    """Apart from their format."""
    seeds: int
    """The fewest of any."""
    too_few: bool
    """Whether these are too few to tell it of any."""
    of_a_format: tuple[int, int]
    """Trainings of the format with the fewest of them, and with the most."""

    @property
    def each(self) -> str:
        """How many trainings each format has: ``3``, or where they have not all as many ``2 or 3``, ``1 to 3``."""
        fewest, most = self.of_a_format
        return f"{fewest} {'or' if most == fewest + 1 else 'to'} {most}" if fewest < most else str(most)


def counted(found: Sequence[FormatTraining]) -> FormatCount:
    """Count the formats of a device that converge."""
    of_format = grouped((each for each in found if each.base), lambda each: each.name)
    outcomes = [{each.converges for each in of_one} for of_one in of_format.values()]
    like = outcomes.count({Convergence.YES})
    not_shown = sum(Convergence.NO not in each for each in outcomes) - like
    cases, seeds = {each.case for each in found}, min(each.seeds for each in found)
    too_few = seeds < ENOUGH_PAIRS and set.union(*outcomes) == {None}
    sizes = sorted(map(len, of_format.values()))
    return FormatCount(found[0].row, like, not_shown, len(outcomes), len(cases), seeds, too_few, (sizes[0], sizes[-1]))


def headline(devices: Mapping[str, list[FormatTraining]]) -> Headline:
    """Return how many formats converge like the plain one on the first device; accelerators come first."""
    found, where = foremost(devices)
    count = counted(found)
    start, still = f"{count.like} of {count.formats} formats converge", f", {count.open} open" if count.open else ""
    texts = [f"{start}{like}{still}" for like in (f" like {_plain_format(found)}", "")]
    if count.too_few:
        texts = [f"too few seeds to tell, {ENOUGH_PAIRS} would do"]
    fewest, most = count.of_a_format
    of_each = f"{count.each} trainings each" if fewest < most else plural(count.trainings, "training")
    about = [f"{of_each}, {count.seeds} seeds{place}" for place in (where, "")]
    return Headline(texts, about, rows=found, has_intervals=True)


def sentences(where: str, found: Sequence[FormatTraining]) -> Iterator[str]:
    """Yield of one device how many formats converge, which do so in some trainings only, which is furthest behind, and which diverged."""
    count, plain = counted(found), _plain_format(found)
    if count.too_few:
        yield f"On {where} {count.seeds} seeds are too few to tell which formats converge like {plain}; {ENOUGH_PAIRS} would do."
    else:
        still = f", and {count.open} {'is' if count.open == 1 else 'are'} open" if count.open else ""
        fewest, most = count.of_a_format
        of_each = f"{count.each} " if fewest < most else ""
        formats = f"{count.like} of {plural(count.formats, 'format')}"
        yield f"On {where} {formats} converge like {plain} in all of their {of_each}trainings{still}."
        yield from _outcomes(found)
    if diverged := sorted((each for each in found if each.diverged), key=lambda each: -(each.diverged or 0)):
        first, more = diverged[0], len(diverged) - 1
        yield f"{first.name} in {first.brief} diverged in {first.diverged} of {first.seeds} seeds."
        if more:
            yield f"{plural(more, 'more training')} diverged in at least one seed."


def _outcomes(found: Sequence[FormatTraining]) -> Iterator[str]:
    of_format = grouped((each for each in found if each.converges), lambda each: each.name)
    patterns = grouped(of_format.items(), lambda each: (_named(each[1], Convergence.YES), _named(each[1], Convergence.NO)))
    for (yes, no), alike in patterns.items():
        if no:
            yield _apart([name for name, _ in alike], yes, no)
    if still := [f"{each.name} in {each.brief}" for each in found if each.base and each.converges in (None, Convergence.OPEN)]:
        yield f"Whether {_listed(still, 2)} converge{'s' if len(still) == 1 else ''} is not shown."
    if behind := [each for each in found if each.converges is Convergence.NO]:
        last = min(behind, key=lambda each: each.gap.shift if each.gap else 0.0)
        yield f"Furthest behind is {last.name} in {last.brief}: {last.gap_text}{_losses(last)}."


def _named(found: Sequence[FormatTraining], outcome: Convergence) -> tuple[str, ...]:
    return tuple(each.brief for each in found if each.converges is outcome)


def _apart(names: Sequence[str], yes: Sequence[str], no: Sequence[str]) -> str:
    """Return where formats converge and where not, with as many trainings as the sentence has room for."""
    one = len(names) == 1
    for most in (3, 2, 1):
        who, where, where_not = (_listed(each, most) for each in (names, yes, no))
        said = f"{who} {'does' if one else 'do'} not converge in {where_not}"
        if yes:
            said = f"{who} {'converges' if one else 'converge'} in {where}, and not in {where_not}"
        if len(said.split()) <= MOST_WORDS:
            break
    return f"{said}."


def _listed(names: Sequence[str], most: int) -> str:
    """Return ``a, b and c``, or of more than ``most`` the first: ``a, b and 3 more``."""
    return few(names, most) if len(names) > most else " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def _losses(found: FormatTraining) -> str:
    """Return its loss against that of the plain format: ``, loss 1.32 against 0.376``; empty where one is not told."""
    base = series(found.base, "seed_loss") if found.base else ()
    if found.loss is None or not base:
        return ""
    return f", loss {three_digits(found.loss)} against {three_digits(statistics.median(base))}"


def loss_curves(found: Sequence[FormatTraining]) -> list[Figure]:
    """Return the loss over each training, a line a format."""
    several, figures = several_runs(found), []
    for (case, where), alike in grouped(found, lambda each: (each.brief, device_label(each, several))).items():
        points = [
            CurvePoint(each.name, (at + 1) / len(curve), loss)
            for each in sorted(alike, key=lambda each: (each.base is not None, -(each.loss or 0.0)))
            for curve in [series(each.row, "loss_curve")]
            for at, loss in enumerate(curve)
        ]
        shown = figure(
            f"Loss by format: {case} on {where}",
            "One line a format, the plain one first and then those that end highest; further right is later in the training.",
            "line",
            points,
            own("of the training", "curve.share", Unit.FRACTION, "how much of the training had passed"),
            own("loss", "curve.loss", Unit.NUMBER, "of the training, over all seeds", better="lower"),
            own("format", "curve.name", Unit.TEXT, "format of numbers"),
            log="y",  # what diverges is apart by powers of ten
        )
        figures += [shown] if points else []
    return figures
