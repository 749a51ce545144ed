"""Small batches: what a sample costs at them, how well training at them learns, and where it diverges. A part of the answer on batches."""

from collections.abc import Sequence
from typing import NamedTuple

from dlbench.analysis.answers.parts.base import Section
from dlbench.analysis.answers.parts.headline import foremost
from dlbench.analysis.answers.parts.pair_tables import RATIO_TAGS
from dlbench.analysis.presentation.columns import CASE, RATIO, of_ratio, place
from dlbench.analysis.presentation.names import by_device, flat
from dlbench.analysis.ratios.matching import BATCH, grouped, label
from dlbench.analysis.ratios.ratio import Ratio, middle, speed_ratio
from dlbench.analysis.read.table import Results
from dlbench.core.rows.row import Row, cells
from dlbench.core.units import Column, Unit


class Training(NamedTuple):
    """A training at one batch."""

    row: Row
    case: str
    """The training, whatever its batch."""
    batch: int
    largest: int
    """The largest batch of the same training."""
    ratio: Ratio
    """How many times as long as at that a sample takes."""


def trainings(results: Results) -> list[Training]:
    """Return each training at each of its batches, the smallest first."""
    trained = [row for row in results.rows if row.declared.value("sample") and row.is_sound]
    found = [each for rows in grouped(trained, lambda row: row.differing_from({BATCH})).values() for each in _of_one(rows)]
    return flat(by_device(found))


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
    return [
        Training(row, label(row, (BATCH.name,)), batch, largest, speed_ratio(base, took)) for batch, (row, took) in sorted(by_batch.items())
    ]


def _foremost(found: Sequence[Training]) -> list[Training]:
    """Return the training in the middle at the smallest batch, and one that diverged there, which was timed over few samples."""
    alike = foremost(found)
    smallest = [each for each in alike if each.batch == min(each.batch for each in alike)]
    whole = [each for each in smallest if each.row.in_role("diverged") is None]
    return [middle(whole or smallest), *(each for each in smallest if whole and each not in whole)][:2]


SECTION = Section(
    records="trainings",
    title="Training by batch size",
    columns=[
        CASE.headed("training"),
        place,
        Column("small.batch", Unit.COUNT, "samples of a step", heading="batch", priority=0),
        Column("small.sample_s", Unit.SECONDS, "time of a sample", "lower", priority=0).by(
            lambda each: each.row.in_role("sample"), "a sample"
        ),
        RATIO,
        Column("small.accuracy", Unit.FRACTION, "accuracy when the training has ended", "higher", priority=0).by(
            lambda each: each.row.in_role("accuracy"), "accuracy"
        ),
        Column("small.diverged_at", Unit.COUNT, "samples after which it had diverged", priority=0).by(
            lambda each: each.row.in_role("diverged"), "diverged after"
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
    tags=RATIO_TAGS,
)
