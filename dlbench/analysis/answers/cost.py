"""Cost: how long training a published network would take, and a million samples of any other, estimated from measured steps."""

from collections.abc import Sequence
from typing import NamedTuple

from dlbench.analysis.answers.parts.base import Answer, AnswerPart, Missing, Question, Table, answered, table
from dlbench.analysis.answers.parts.headline import Headline, Tag, fitting, nearer, qualifiers, which
from dlbench.analysis.presentation.fields import THROUGHPUT, Fields, own, place, whole_row
from dlbench.analysis.presentation.names import by_device, choice, hardware, several_runs
from dlbench.analysis.presentation.wording import INTERVAL, few, more_devices, with_interval
from dlbench.analysis.ratios.pairing import grouped
from dlbench.analysis.read.table import Results
from dlbench.core import units
from dlbench.core.reference.networks import PARAMETERS
from dlbench.core.reference.schedules import Schedule, schedules
from dlbench.core.rows.row import Row, Setting
from dlbench.core.schema import Unit

ORDER = 90
QUESTION = Question("cost", "What does it cost: joules and money per 1000 samples, time to train?")
_TRAINING = frozenset(("training", "imagenet"))
_LEAVES_OUT = (
    "reading and decoding images, validation, checkpoints and clocks that change over hours are left out",
    "whether it converges at that batch and in that precision is open",
    "nothing meters energy yet, so joules and money are open",
)
_OPEN = "joules and money stay open"
_CHOICE = "the batch, precision, layout, mode and implementation of the update at which it was fastest"
_EPOCHS = "passes over ImageNet's training set, of the published schedule"


_MANY = 1_000_000
"""Samples that the time of a network without a published schedule is stated for."""


class Estimate(NamedTuple):
    """A training step, and how long all steps of the schedule of its network would take."""

    row: Row
    schedule: Schedule

    @property
    def seconds(self) -> float:
        """That time."""
        return self.schedule.seconds(self.row.throughput)

    @property
    def ends(self) -> tuple[float | None, float | None]:
        """The ends of its 95 % interval, as of the throughput; None of too few rounds."""
        low, high = self.row.rate.items_per_s_low, self.row.rate.items_per_s_high
        return (self.schedule.seconds(high), self.schedule.seconds(low)) if low and high else (None, None)

    def __str__(self) -> str:
        return with_interval(self.seconds, *self.ends, units.seconds)

    @property
    def span(self) -> str:
        """Its interval where there is little room, behind the time: `` (40…42)`` for days; an empty text where there is none."""
        low, high = self.ends
        if low is None or high is None:
            return ""
        texts = [units.seconds(each) for each in (self.seconds, low, high)]
        numbers, others = zip(*(text.split(" ", 1) for text in texts), strict=True)
        alike = len(set(others)) == 1 and " " not in others[0]
        _, first, last = numbers if alike else texts
        return f" ({first}…{last})"


_FIELDS: Fields[Estimate] = (
    own("network", str(Setting("param", "model")), Unit.TEXT, "the network", lambda each: each.schedule.model),
    own("at", "train.choice", Unit.TEXT, _CHOICE, lambda each: choice(each.row)),
    ("samples/s", THROUGHPUT[0]),
    own("time to train", "train.seconds", Unit.SECONDS, "all steps of the schedule at that rate", better="lower"),
    own(INTERVAL, "train.low", Unit.SECONDS, "lower end of its 95 % interval, as of the throughput", lambda each: each.ends[0]),
    own(INTERVAL, "train.high", Unit.SECONDS, "upper end of it", lambda each: each.ends[1]),
)


def answer(results: Results) -> Answer | Missing:
    """Return the time that each device would take to train the networks, at its best measured throughput."""
    steps = [
        Estimate(row, schedule)
        for row in results.rows
        if row.is_sound and row.is_single_rank and _TRAINING.issubset(row.declared.tags)
        if row.throughput and (schedule := _schedule(str(row.params.get("model"))))
    ]
    if not steps:
        names = dict.fromkeys(f"{row.case.workload} {row.params.get('model', '')}".rstrip() for row in results.rows if row.is_ok)
        none = f"{few(names, 3)}: no training step of a published network by one process"
        lacking = none if names else "no training step of a published network was measured"
        return Missing(QUESTION, f"{lacking}; {_OPEN}", "dlbench run cnn", others=("dlbench run",))
    best = {
        model: [min(of_device, key=lambda each: each.seconds) for of_device in by_device(found).values()]
        for model, found in grouped(steps, lambda each: each.schedule.model).items()
    }
    published, others = [model for model in schedules() if model in best], [model for model in best if model not in schedules()]
    several = several_runs([each for found in best.values() for each in found])
    paragraphs, tables = list[tuple[str, ...]](), list[Table]()
    if published:
        most = max(published, key=lambda model: len(best[model]))
        timed = next((model for model in published if model != most and schedules()[model].took), None)
        paragraphs += [_sentences(best[model], several) for model in (most, timed) if model]
        tables.append(_table([each for model in published for each in best[model]], published))
    paragraphs += [_sentences(best[model], several) for model in others]
    if others:
        tables.append(_table_of_many([each for model in others for each in best[model]]))
    estimates = [each for model in (*published, *others) for each in best[model]]
    headline = _headline(best[others[0] if others else most], several)
    return answered(QUESTION, AnswerPart(paragraphs, estimates, tables, weaknesses=_LEAVES_OUT, headline=headline))


def _schedule(model: str) -> Schedule | None:
    """Return the published schedule of a network, and a million samples of one that the user brought."""
    own = None if model in PARAMETERS else Schedule(model, _MANY, 1, "", None, None)
    return schedules().get(model, own)


def _headline(found: Sequence[Estimate], several: bool) -> Headline:
    """Return the shortest time in which a device trains a network, and how many others of its kind do."""
    best = min(found, key=lambda each: each.seconds)
    time, model, chosen = units.seconds(best.seconds), best.schedule.model, choice(best.row).replace("batch=", "b")
    what = "ImageNet" if model in schedules() else "a million samples"
    text = fitting(f"{time}{best.span} for {what}, {model}", f"{time}{best.span} for {what}", f"{time} for {what}, {model}")
    if not text.endswith(model):
        chosen = f"{model} {chosen}"
    alike = [each for each in found if each.row.is_on_cpu is best.row.is_on_cpu]
    where = which(best.row, alike, len(alike) - 1)
    return Headline([text], [chosen + where, *qualifiers([chosen], nearer(where))], best.span, [best], {Tag.STEPS_ALONE: True})


def _sentences(found: Sequence[Estimate], several: bool) -> tuple[str, ...]:
    """Say how long a network takes on the device that is fastest, on a CPU if that is another, and how long it took its authors."""
    schedule, first = found[0].schedule, min(found, key=lambda each: each.seconds)
    last = next((each for each in found if each.row.is_on_cpu), first)
    shown = (first,) if last is first else (first, last)
    published = f"{schedule.model} trains for {schedule.epochs} epochs of ImageNet, estimated from steps."
    told = [published if schedule.model in schedules() else f"{schedule.model} trains on a million samples, estimated from steps."]
    for each in shown:
        told += [f"On {hardware(each.row, several)} that takes {each}.", f"It was fastest there at {choice(each.row)}."]
    if devices := more_devices(len(found) - len(shown)):
        told.append(f"{devices}.")
    return (*told, f"Its authors took {schedule.took}.") if schedule.took else tuple(told)


def _table_of_many(estimates: Sequence[Estimate]) -> Table:
    network, at, rate, *times = _FIELDS
    fields: Fields[Estimate] = (network, place(estimates), at, rate, *times)
    return table("Time to train on a million samples: an estimate", fields, estimates, whole=whole_row)


def _table(estimates: Sequence[Estimate], models: Sequence[str]) -> Table:
    chosen = [schedules()[model] for model in models]
    families = grouped(chosen, lambda each: each.source)
    epochs = [f"epochs of {', '.join(each.model for each in family)}: {source}" for source, family in families.items()]
    took = dict.fromkeys(f"{each.took}: {each.took_source}" for each in chosen if each.took)
    network, at, _, *times = _FIELDS
    return table(
        "Time to train on ImageNet: an estimate",
        (
            network,
            place(estimates),
            at,
            ("images/s", THROUGHPUT[0]),
            own("epochs", "train.epochs", Unit.COUNT, _EPOCHS, lambda each: each.schedule.epochs),
            *times,
            own("its authors", "train.took", Unit.TEXT, "how long it took them, and on what", lambda each: each.schedule.took),
        ),
        estimates,
        (f"images: {chosen[0].images:,} in ImageNet's training set", *epochs, *took),
        whole=whole_row,
    )
