"""Cost: how long training a published network would take, estimated from measured steps."""

from collections.abc import Sequence

from dlbench.analysis.answers.base import DEVICE, Answer, Columns, Missing, Question, Table, answered, by_device
from dlbench.analysis.ratios import CHOSEN, chosen, grouped
from dlbench.analysis.read.table import Results
from dlbench.analysis.wording import INTERVAL, choice, few, hardware, interval, number, plural, several_runs
from dlbench.core.model import Status
from dlbench.core.reference.schedules import schedules
from dlbench.core.rows.row import BY_NAME
from dlbench.core.rows.row import Cells as Row
from dlbench.core.schema import Column, Unit
from dlbench.core.units import seconds

QUESTION = Question("cost", "What does it cost: joules and money per 1000 samples, time to train?")
_TRAINING = frozenset(("training", "imagenet"))
_LEAVES_OUT = (
    "steps alone: reading and decoding images, validation, checkpoints, clocks that change over hours, and whether it converges at that "
    "batch and in that precision are left out"
)
_NO_ENERGY = "nothing meters energy yet, so joules and money are open"
_COMMAND_GIVES = "and nothing meters energy yet, so the command gives the time to train, and neither joules nor money"
_COLUMNS: Columns = (
    ("network", Column("param.model", Unit.TEXT, "the network")),
    DEVICE,
    ("at", Column("train.choice", Unit.TEXT, "the batch, precision, layout, mode and optimizer at which it was fastest")),
    ("images/s", BY_NAME["rate.items_per_s"]),
    ("epochs", Column("train.epochs", Unit.COUNT, "passes over ImageNet's training set, of the published schedule")),
    ("time to train", Column("train.seconds", Unit.SECONDS, "all steps of the schedule at that rate", "lower")),
    (INTERVAL, Column("train.low", Unit.SECONDS, "lower end of its 95 % interval, as of the throughput")),
    (INTERVAL, Column("train.high", Unit.SECONDS, "upper end of it")),
    ("its authors", Column("train.took", Unit.TEXT, "how long it took them, and on what")),
)


def answer(results: Results) -> Answer | Missing:
    """Return the time that each device would take to train the published networks, at its best measured throughput."""
    steps = [
        row
        for row in results.rows
        if row["case.status"] == Status.OK
        and not row["flag.implausible"]
        and row.get("param.ranks") in (None, 1)
        and row["rate.items_per_s"]
        and _TRAINING.issubset(results.declaration(row).tags)
        and str(row.get("param.model")) in schedules()
    ]
    if not steps:
        return Missing(QUESTION, f"{_no_steps(results)}, {_COMMAND_GIVES}", "dlbench run cnn")
    rows = [_estimate(row) for found in by_device(steps, "case").values() for row in _best(found)]
    of_model = grouped(rows, lambda row: str(row["param.model"]))
    models = [model for model in schedules() if model in of_model]
    headline = max(models, key=lambda model: len(of_model[model]))
    timed = next((model for model in models if model != headline and schedules()[model].took), None)
    sentences = [_sentence(of_model[model], several_runs(rows, "case")) for model in (headline, timed) if model]
    rows = [row for model in models for row in of_model[model]]
    table = Table("Time to train on ImageNet: an estimate", _COLUMNS, tuple(rows), _sources(models))
    return answered(QUESTION, sentences, rows, (_LEAVES_OUT, _NO_ENERGY), table)


def _no_steps(results: Results) -> str:
    """Say that none of the measured work is a training step with a published schedule, and name that work."""
    measured = [row for row in results.rows if row["case.status"] == Status.OK]
    names = dict.fromkeys(" ".join(filter(None, (str(row["case.workload"]), str(row.get("param.model") or "")))) for row in measured)
    if not names:
        return "no training step of a published network was measured"
    return f"{few(names)}: none of it is a training step, by one process, of a network with a published schedule"


def _best(rows: Sequence[Row]) -> list[Row]:
    """Return the row of highest throughput of each network."""
    return [max(found, key=lambda row: number(row["rate.items_per_s"])) for found in grouped(rows, lambda row: row["param.model"]).values()]


def _estimate(row: Row) -> Row:
    schedule = schedules()[str(row["param.model"])]
    ends = {"low": row["rate.items_per_s_high"], "high": row["rate.items_per_s_low"]}
    return {
        **row,
        "train.choice": choice({f"row.{name}": chosen(row, name) for name in CHOSEN}, "row"),
        "train.epochs": schedule.epochs,
        "train.seconds": schedule.seconds(number(row["rate.items_per_s"])),
        **{f"train.{end}": schedule.seconds(number(rate)) if rate else None for end, rate in ends.items()},
        "train.took": schedule.took,
    }


def _sentence(rows: Sequence[Row], several: bool) -> str:
    """Say how long a network takes on the first device, on the CPU if that is another, and how long it took its authors."""
    schedule = schedules()[str(rows[0]["param.model"])]
    last = next((row for row in rows if row["case.device"] == "cpu"), rows[-1])
    shown = list({id(row): row for row in (rows[0], last)}.values())
    parts = [f"{_time(row)} on {hardware(row, with_run=several)} at {row['train.choice']}" for row in shown]
    more = f" (and {plural(len(rows) - len(shown), 'more device')} in the table)" if len(rows) > len(shown) else ""
    authors = f"; its authors took {schedule.took}" if schedule.took else ""
    return f"{schedule.model}, {schedule.epochs} epochs of ImageNet, estimated: {', '.join(parts)}{more}{authors}."


def _time(row: Row) -> str:
    return f"{seconds(number(row['train.seconds']))} ({interval(row['train.low'], row['train.high'], seconds)})"


def _sources(models: Sequence[str]) -> tuple[str, ...]:
    """Return where the epochs and the times of the authors are from, each once."""
    chosen = [schedules()[model] for model in models]
    families = grouped(chosen, lambda each: each.source)
    epochs = [f"epochs of {', '.join(each.model for each in family)}: {source}" for source, family in families.items()]
    took = dict.fromkeys(f"{each.took}: {each.took_source}" for each in chosen if each.took)
    return (f"images: {chosen[0].images:,} in ImageNet's training set", *epochs, *took)
