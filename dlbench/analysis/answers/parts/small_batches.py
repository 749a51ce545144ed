"""Small batches: what a sample costs at them, how well training at them learns, and where it diverges."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from dlbench.analysis.answers.parts.base import AnswerPart, of_devices
from dlbench.analysis.answers.parts.headline import Headline, foremost, limits, of_the_middle, qualifiers, span_of
from dlbench.analysis.presentation.fields import CASE, RATIO, Field, Fields, Headed, own, place, whole_row
from dlbench.analysis.presentation.figures import Figure, figure
from dlbench.analysis.presentation.names import by_workload
from dlbench.analysis.presentation.pair_columns import of_ratio
from dlbench.analysis.presentation.wording import brief, plural, short
from dlbench.analysis.ratios.pairing import BATCH, grouped, label
from dlbench.analysis.ratios.ratio import Ratio, middle, speed_ratio
from dlbench.analysis.read.table import Results
from dlbench.core.rows.row import Row
from dlbench.core.schema import Unit


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


_LINE: Field[Training] = Field(CASE.column, lambda each: short(each.case).partition(" ")[2])
_BATCH: Headed[Training] = own("batch", "small.batch", Unit.COUNT, "samples of a step")
_SECONDS: Headed[Training] = own(
    "a sample", "small.sample_s", Unit.SECONDS, "time of a sample", lambda each: each.row.in_role("sample"), "lower"
)
_ACCURACY: Headed[Training] = own(
    "accuracy", "small.accuracy", Unit.FRACTION, "accuracy when the training has ended", lambda each: each.row.in_role("accuracy"), "higher"
)
_FIELDS: Fields[Training] = (
    ("training", CASE),
    _BATCH,
    _SECONDS,
    *RATIO,
    _ACCURACY,
    own("diverged after", "small.diverged_at", Unit.COUNT, "samples after which it had diverged"),
)


def findings(results: Results) -> AnswerPart:
    """Return what a sample costs at each batch of the same training over that at the largest batch, and what became of the training."""
    trained = [row for row in results.rows if row.declared.value("sample") and row.is_sound]
    found = [each for rows in grouped(trained, lambda row: row.differing_from({BATCH})).values() for each in _trainings(rows)]
    return of_devices(
        "Training by batch size",
        _FIELDS,
        found,
        _paragraph,
        ("ratio: how many times as long as at the largest batch a sample takes",),
        whole=lambda each: whole_row(each) | of_ratio(each),
        figures=_figures(found),
        headline=_headline,
    )


def _trainings(rows: Sequence[Row]) -> list[Training]:
    """Return a training at each of its batches, the smallest first; nothing where there is only one."""
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


def _smallest(found: Sequence[Training]) -> tuple[list[Training], list[Training]]:
    """Return the trainings at the smallest batch, and those whose time counts: one that diverged was timed over few samples."""
    least = min(each.batch for each in found)
    smallest = [each for each in found if each.batch == least]
    return smallest, [each for each in smallest if each.diverged_at is None] or smallest


def _headline(devices: Mapping[str, list[Training]]) -> Headline:
    found, where = foremost(devices)
    timed = _smallest(found)[1]
    one = middle(timed)
    name = brief(one.case)
    text = f"batch {one.batch:,} costs {one.ratio.brief} batch {one.largest:,}"
    texts = [f"{text}{one.ratio.span}", text]
    if one.ratio.is_undecided:
        texts = [f"batch {one.batch:,} or {one.largest:,}: no difference shown"]
    about = qualifiers((f"a sample of {name}", name), where, span_of(timed))
    return Headline(texts, about, one.ratio.span, [one.row], limits(one.ratio))


def _paragraph(where: str, found: Sequence[Training]) -> tuple[str, ...]:
    smallest, timed = _smallest(found)
    one = middle(timed)
    diverged = [(after, each.case) for each in smallest if (after := each.diverged_at) is not None]
    end = [f"None of {plural(len(smallest), 'training')} at batch={one.batch} diverges."]
    if diverged:
        after, case = min(diverged, key=itemgetter(0))
        end = [
            f"Of {plural(len(smallest), 'training')} at batch={one.batch} {len(diverged)} diverged.",
            f"The first was {short(case)}, after {plural(int(after), 'sample')}.",
        ]
    cost = f"On {where} a sample at batch={one.batch} costs {one.ratio} as much as at batch={one.largest}."
    return cost, f"That is training {short(one.case)}.", *of_the_middle(timed), *end


def _figures(found: Sequence[Training]) -> list[Figure]:
    """Return the time of a sample and the accuracy against the batch, of each workload a figure each, with all devices."""
    about, line = "One line a training; further right is a larger batch.", ("training", _LINE)
    return [
        figure(f"{title} by batch: {where}", about, "line", shown, _BATCH, (title.lower(), field), line, place(found), log=log)
        for where, trainings in by_workload(found).items()
        for title, (_, field), log in (("Time of a sample", _SECONDS, "xy"), ("Accuracy", _ACCURACY, "x"))
        if (shown := [each for each in trainings if field.of(each) is not None])
    ]
