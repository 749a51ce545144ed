"""Small batches: what a sample costs at them, how well training at them learns, and where it diverges. A part of the answer on batches."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dlbench.analysis.answers.parts.base import Section
from dlbench.analysis.answers.parts.headline import Tag, foremost
from dlbench.analysis.presentation.columns import CASE, RATIO, of_ratio, place
from dlbench.analysis.presentation.figures import Figure, figure
from dlbench.analysis.presentation.names import by_device, by_workload
from dlbench.analysis.presentation.wording import short
from dlbench.analysis.ratios.pairing import BATCH, grouped, label
from dlbench.analysis.ratios.ratio import Ratio, middle, speed_ratio
from dlbench.analysis.read.table import Results
from dlbench.core.rows.row import Row, cells
from dlbench.core.schema import Column, Unit


@dataclass(frozen=True, slots=True)
class Training:
    """A training at one batch."""

    row: Row
    batch: int
    largest: int
    """The largest batch of the same training."""
    ratio: Ratio
    """How many times as long as at that a sample takes."""

    @property
    def case(self) -> str:
        """The training, whatever its batch."""
        return label(self.row, (BATCH.name,))

    @property
    def diverged_at(self) -> float | None:
        """Samples after which it had diverged; None where it did not."""
        return self.row.in_role("diverged")


def trainings(results: Results) -> list[Training]:
    """Return each training at each of its batches, the smallest first."""
    trained = [row for row in results.rows if row.declared.value("sample") and row.is_sound]
    found = [each for rows in grouped(trained, lambda row: row.differing_from({BATCH})).values() for each in _of_one(rows)]
    return [each for alike in by_device(found).values() for each in alike]


def _of_one(rows: Sequence[Row]) -> list[Training]:
    """Return a training at its batches; nothing where there is only one."""
    by_batch = {
        batch: (row, took)
        for row in rows
        if (batch := row.batch)
        and (seconds := row.declared.value("sample"))
        and min(took := row.rounds.values.get(seconds.name, ()), default=0.0) > 0
    }
    if len(by_batch) < 2:
        return []
    # A training that diverged ended early, and its numbers were no longer those of others.
    whole = [batch for batch, (row, _) in by_batch.items() if row.in_role("diverged") is None]
    largest = max(whole or by_batch)
    _, base = by_batch[largest]
    return [Training(row, batch, largest, speed_ratio(base, took)) for batch, (row, took) in sorted(by_batch.items())]


def _foremost(found: Sequence[Training]) -> list[Training]:
    """Return the training in the middle at the smallest batch, and the first that diverged there, which was timed over few samples."""
    alike = foremost(found)
    least = min(each.batch for each in alike)
    smallest = [each for each in alike if each.batch == least]
    diverged = sorted((each for each in smallest if each.diverged_at is not None), key=lambda each: each.diverged_at or 0)
    one = middle([each for each in smallest if each.diverged_at is None] or smallest)
    return [one, *(each for each in diverged[:1] if each is not one)]


def _figures(found: Sequence[Training]) -> Iterator[Figure]:
    """Yield the time of a sample and the accuracy against the batch, of each workload a figure each, with all devices."""
    line = CASE.by(lambda each: short(each.case).partition(" ")[2], "training")
    for where, alike in by_workload(found).items():
        for title, column, log in (("Time of a sample", _SECONDS, "xy"), ("Accuracy", _ACCURACY, "x")):
            shown = [each for each in alike if column.value(each) is not None]
            about = "One line a training; further right is a larger batch."
            yield figure(f"{title} by batch: {where}", about, "line", shown, _BATCH, column, line, place(found), log=log)


_BATCH = Column("small.batch", Unit.COUNT, "samples of a step", of=lambda each: each.batch, heading="batch", priority=0)
_SECONDS = Column("small.sample_s", Unit.SECONDS, "time of a sample", "lower", heading="a sample", priority=0).by(
    lambda each: each.row.in_role("sample")
)
_ACCURACY = Column("small.accuracy", Unit.FRACTION, "accuracy when the training has ended", "higher", heading="accuracy", priority=0).by(
    lambda each: each.row.in_role("accuracy")
)
SECTION = Section(
    records="trainings",
    title="Training by batch size",
    columns=[
        CASE.headed("training"),
        place,
        _BATCH,
        _SECONDS,
        RATIO,
        _ACCURACY,
        Column("small.diverged_at", Unit.COUNT, "samples after which it had diverged", heading="diverged after", priority=0).by(
            lambda each: each.diverged_at
        ),
    ],
    notes=["ratio: how many times as long as at the largest batch a sample takes"],
    whole=lambda each: {**cells(each.row), **of_ratio(each)},
    foremost=_foremost,
    by=lambda each: each.ratio.outcome,
    headline={
        **dict.fromkeys(("gain", "loss"), "batch {batch} costs {speedup} batch {largest}{span}"),
        "open": "batch {batch} or {largest}: no difference shown",
    },
    tags={Tag.FEW_ROUNDS: lambda each: each.ratio.interval is None, Tag.NOISY: lambda each: each.ratio.is_undecided},
    figures=[_figures],
)
