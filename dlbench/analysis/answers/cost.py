"""Cost: how long training a published network would take, estimated from measured steps."""

from collections.abc import Sequence
from typing import NamedTuple

from dlbench.analysis.answers.parts.base import Answer, AnswerPart, Missing, Question, Table, answered, table
from dlbench.analysis.answers.parts.headline import Headline, Tag, fitting, nearer, qualifiers, which
from dlbench.analysis.presentation.fields import THROUGHPUT, own, place, whole_row
from dlbench.analysis.presentation.names import by_device, choice, hardware, several_runs
from dlbench.analysis.presentation.wording import INTERVAL, few, more_devices, with_interval
from dlbench.analysis.ratios.pairing import grouped
from dlbench.analysis.read.table import Results
from dlbench.core import units
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


def answer(results: Results) -> Answer | Missing:
    """Return the time that each device would take to train the published networks, at its best measured throughput."""
    steps = [
        Estimate(row, schedule)
        for row in results.rows
        if row.is_sound and row.is_single_rank and _TRAINING.issubset(row.declared.tags)
        if row.throughput and (schedule := schedules().get(str(row.params.get("model"))))
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
    models = [model for model in schedules() if model in best]
    most = max(models, key=lambda model: len(best[model]))
    timed = next((model for model in models if model != most and schedules()[model].took), None)
    estimates = [each for model in models for each in best[model]]
    several = several_runs(estimates)
    paragraphs = [_sentences(best[model], several) for model in (most, timed) if model]
    found = AnswerPart(paragraphs, estimates, [_table(estimates, models)], weaknesses=_LEAVES_OUT, headline=_headline(best[most], several))
    return answered(QUESTION, found)


def _headline(found: Sequence[Estimate], several: bool) -> Headline:
    """Return the shortest time in which a device trains a network, and how many others of its kind do."""
    best = min(found, key=lambda each: each.seconds)
    time, model, chosen = units.seconds(best.seconds), best.schedule.model, choice(best.row).replace("batch=", "b")
    text = fitting(f"{time}{best.span} for ImageNet, {model}", f"{time}{best.span} for ImageNet", f"{time} for ImageNet, {model}")
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
    told = [f"{schedule.model} trains for {schedule.epochs} epochs of ImageNet, estimated from steps."]
    for each in shown:
        told += [f"On {hardware(each.row, several)} that takes {each}.", f"It was fastest there at {choice(each.row)}."]
    if devices := more_devices(len(found) - len(shown)):
        told.append(f"{devices}.")
    return (*told, f"Its authors took {schedule.took}.") if schedule.took else tuple(told)


def _table(estimates: Sequence[Estimate], models: Sequence[str]) -> Table:
    chosen = [schedules()[model] for model in models]
    families = grouped(chosen, lambda each: each.source)
    epochs = [f"epochs of {', '.join(each.model for each in family)}: {source}" for source, family in families.items()]
    took = dict.fromkeys(f"{each.took}: {each.took_source}" for each in chosen if each.took)
    return table(
        "Time to train on ImageNet: an estimate",
        (
            own("network", str(Setting("param", "model")), Unit.TEXT, "the network", lambda each: each.schedule.model),
            place(estimates),
            own("at", "train.choice", Unit.TEXT, _CHOICE, lambda each: choice(each.row)),
            ("images/s", THROUGHPUT[0]),
            own("epochs", "train.epochs", Unit.COUNT, _EPOCHS, lambda each: each.schedule.epochs),
            own("time to train", "train.seconds", Unit.SECONDS, "all steps of the schedule at that rate", better="lower"),
            own(INTERVAL, "train.low", Unit.SECONDS, "lower end of its 95 % interval, as of the throughput", lambda each: each.ends[0]),
            own(INTERVAL, "train.high", Unit.SECONDS, "upper end of it", lambda each: each.ends[1]),
            own("its authors", "train.took", Unit.TEXT, "how long it took them, and on what", lambda each: each.schedule.took),
        ),
        estimates,
        (f"images: {chosen[0].images:,} in ImageNet's training set", *epochs, *took),
        whole=whole_row,
    )
