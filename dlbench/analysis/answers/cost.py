"""Cost: how long training a published network would take, estimated from measured steps."""

from collections.abc import Sequence
from typing import NamedTuple

from dlbench.analysis.answers.parts.base import Answer, AnswerPart, Missing, Question, Table, answered, table
from dlbench.analysis.presentation.fields import THROUGHPUT, own, place, whole_row
from dlbench.analysis.presentation.names import by_device, choice, hardware, several_runs
from dlbench.analysis.presentation.wording import INTERVAL, few, interval, more_devices
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
    "steps alone: reading and decoding images, validation, checkpoints, clocks that change over hours, and whether it converges at that "
    "batch and in that precision are left out"
)
_NO_ENERGY = "nothing meters energy yet, so joules and money are open"
_COMMAND_GIVES = "and nothing meters energy yet, so the command gives the time to train, and neither joules nor money"
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
    def ends(self) -> tuple[float, float] | tuple[None, None]:
        """The ends of its 95 % interval, as of the throughput; None of too few rounds."""
        low, high = self.row.rate.items_per_s_low, self.row.rate.items_per_s_high
        return (self.schedule.seconds(high), self.schedule.seconds(low)) if low and high else (None, None)

    def __str__(self) -> str:
        low, high = self.ends
        return f"{units.seconds(self.seconds)} ({interval(low, high, units.seconds)})"


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
        none = f"{few(names)}: none of it is a training step, by one process, of a network with a published schedule"
        lacking = none if names else "no training step of a published network was measured"
        return Missing(QUESTION, f"{lacking}, {_COMMAND_GIVES}", "dlbench run cnn")
    best = {
        model: [min(of_device, key=lambda each: each.seconds) for of_device in by_device(found).values()]
        for model, found in grouped(steps, lambda each: each.schedule.model).items()
    }
    models = [model for model in schedules() if model in best]
    headline = max(models, key=lambda model: len(best[model]))
    timed = next((model for model in models if model != headline and schedules()[model].took), None)
    estimates = [each for model in models for each in best[model]]
    sentences = [_sentence(best[model], several_runs(estimates)) for model in (headline, timed) if model]
    found = AnswerPart(sentences, estimates, [_table(estimates, models)], weaknesses=(_LEAVES_OUT, _NO_ENERGY))
    return answered(QUESTION, found)


def _sentence(found: Sequence[Estimate], several: bool) -> str:
    """Say how long a network takes on the first device, on the CPU if that is another, and how long it took its authors."""
    schedule = found[0].schedule
    last = next((each for each in found if each.row.is_on_cpu), found[-1])
    shown = found[:1] if last is found[0] else (found[0], last)
    parts = [f"{each} on {hardware(each.row, several)} at {choice(each.row)}" for each in shown]
    more = f" ({devices})" if (devices := more_devices(len(found) - len(shown))) else ""
    authors = f"; its authors took {schedule.took}" if schedule.took else ""
    return f"{schedule.model}, {schedule.epochs} epochs of ImageNet, estimated: {', '.join(parts)}{more}{authors}."


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
            own(
                "time to train", "train.seconds", Unit.SECONDS, "all steps of the schedule at that rate", lambda each: each.seconds, "lower"
            ),
            own(INTERVAL, "train.low", Unit.SECONDS, "lower end of its 95 % interval, as of the throughput", lambda each: each.ends[0]),
            own(INTERVAL, "train.high", Unit.SECONDS, "upper end of it", lambda each: each.ends[1]),
            own("its authors", "train.took", Unit.TEXT, "how long it took them, and on what", lambda each: each.schedule.took),
        ),
        estimates,
        (f"images: {chosen[0].images:,} in ImageNet's training set", *epochs, *took),
        whole=whole_row,
    )
