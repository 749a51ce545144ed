"""Small batches: what a sample costs at them, how well training at them learns, and where it diverges."""

from collections.abc import Sequence

from dlbench.analysis.answers.base import DEVICE, RATIO, Columns, Findings, Table, by_device, with_device
from dlbench.analysis.figures import Axis, Figure
from dlbench.analysis.ratios import PAIR_COLUMNS, Entry, entries, grouped, identifying, label, speed_ratio
from dlbench.analysis.read.table import Results
from dlbench.analysis.scaling.speedup import counted
from dlbench.analysis.wording import among, middle, number, plural, ratio, short
from dlbench.core.declarations import Learning
from dlbench.core.model import Status
from dlbench.core.rows.row import Cells as Row
from dlbench.core.schema import Column, Unit

_BATCH = Column("small.batch", Unit.COUNT, "samples of a step")
_SECONDS = Column("small.sample_s", Unit.SECONDS, "time of a sample", "lower")
_ACCURACY = Column("small.accuracy", Unit.FRACTION, "accuracy when the training has ended", "higher")
_DIVERGED = Column("small.diverged_at", Unit.COUNT, "samples after which it had diverged")
_LARGEST = "small.largest"
"""Of a row the largest batch of the same training, whose time its ratio is over."""
_COLUMNS: Columns = (
    ("training", PAIR_COLUMNS["pair.case"]),
    DEVICE,
    ("batch", _BATCH),
    ("a sample", _SECONDS),
    *RATIO,
    ("accuracy", _ACCURACY),
    ("diverged after", _DIVERGED),
)
_NOTES = ("ratio: how many times as long as at the largest batch a sample takes",)


def findings(results: Results) -> Findings:
    """Return what a sample costs at each batch of the same training beside the largest batch, and what became of the training."""
    columns = [name for name in identifying(results.columns) if name != "param.batch"]
    trained = [(each, learning) for each in entries(results) if (learning := results.declaration(each.row).learning)]
    fit = [(each, learning) for each, learning in trained if _is_fit(each, learning)]
    groups = grouped(fit, lambda found: tuple(found[0].row[name] for name in columns)).values()
    rows = [row for group in groups for row in _rows(group)]
    if not rows:
        return Findings()
    devices = by_device(rows, "case")
    sentences = tuple(_sentence(where, found) for where, found in devices.items())
    shown = tuple(row for found in devices.values() for row in found)
    return Findings(sentences, tuple(rows), (Table("Training by batch size", _COLUMNS, shown, _NOTES),), tuple(_figures(rows)))


def _is_fit(each: Entry, learning: Learning) -> bool:
    took = each.rounds.values.get(learning.seconds, ())
    return each.row["case.status"] == Status.OK and bool(counted(each.row, "batch")) and min(took, default=0) > 0


def _rows(group: Sequence[tuple[Entry, Learning]]) -> list[Row]:
    """Return a row for each batch of a training, the smallest first; none where there is only one."""
    by_batch = {number(counted(each.row, "batch")): (each, learning) for each, learning in group}
    if len(by_batch) < 2:
        return []
    # A training that diverged ended early, and its numbers were no longer those of others.
    whole = [batch for batch, (each, learning) in by_batch.items() if _reported(each, learning.diverged) is None]
    base_batch = max(whole or by_batch)
    largest, its_learning = by_batch[base_batch]
    base = largest.rounds.values[its_learning.seconds]
    return [
        {
            **each.row,
            "pair.case": label(each.row, ("batch",)),
            _BATCH.name: batch,
            _LARGEST: base_batch,
            _SECONDS.name: _reported(each, learning.seconds),
            **speed_ratio(base, each.rounds.values[learning.seconds]),
            _ACCURACY.name: _reported(each, learning.accuracy),
            _DIVERGED.name: _reported(each, learning.diverged),
        }
        for batch, (each, learning) in sorted(by_batch.items())
    ]


def _reported(each: Entry, name: str) -> float | None:
    value = each.row.get(f"value.{name}")
    return value if isinstance(value, int | float) else None  # an edited file may hold a series


def _sentence(where: str, rows: Sequence[Row]) -> str:
    smallest = [row for row in rows if row[_BATCH.name] == min(number(row[_BATCH.name]) for row in rows)]
    diverged = [row for row in smallest if row[_DIVERGED.name] is not None]
    timed = [row for row in smallest if row not in diverged] or smallest  # one that diverged was timed over few samples
    row = middle(timed)
    batch = f"batch={number(row[_BATCH.name]):g}"
    cost = f"On {where} {batch} costs {ratio(row)} as much a sample as batch={number(row[_LARGEST]):g} in {short(row['pair.case'])}"
    end = f"none of {plural(len(smallest), 'training')} at {batch} diverges"
    if diverged:
        first = min(diverged, key=lambda each: number(each[_DIVERGED.name]))
        after = f"{short(first['pair.case'])} after {plural(int(number(first[_DIVERGED.name])), 'sample')}"
        end = f"of {plural(len(smallest), 'training')} at {batch} {len(diverged)} diverged, first {after}"
    return f"{cost}{among(timed)}; {end}."


def _figures(rows: Sequence[Row]) -> list[Figure]:
    """Return the time of a sample and the accuracy against the batch, of each workload and device a figure each."""
    found = []
    for (workload, where), points in grouped(with_device(rows, "case"), lambda row: (row["case.workload"], row["place"])).items():
        lines = [{**row, "pair.case": short(row["pair.case"]).partition(" ")[2]} for row in points]
        for title, column in (("Time of a sample", _SECONDS), ("Accuracy", _ACCURACY)):
            shown = tuple(row for row in lines if row[column.name] is not None)
            axes = Axis("batch", _BATCH, log=True), Axis(title.lower(), column, log=column is _SECONDS)
            named, about = f"{title} by batch: {workload} on {where}", "One line a training; further right is a larger batch."
            found += [Figure(named, about, "line", *axes, shown, Axis("training", PAIR_COLUMNS["pair.case"]))] if shown else []
    return found
