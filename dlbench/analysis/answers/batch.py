"""Batch size: what a small one costs, and how large a one is needed and fits."""

from collections.abc import Iterable, Sequence

from dlbench.analysis.answers.base import DEVICE, RATIO, Answer, Missing, Question, Table, answered, by_device
from dlbench.analysis.ratios import PAIR_COLUMNS, Entry, entries, grouped, identifying, label, speed_ratio
from dlbench.analysis.read.table import Results
from dlbench.analysis.scaling.speedup import counted
from dlbench.analysis.wording import among, middle, number, ratio, short
from dlbench.core.model import Status
from dlbench.core.rows.summary import Row
from dlbench.core.schema import BY_NAME, Column, Unit
from dlbench.core.units import item_rate

QUESTION = Question("batch", "Which batch size; what is the largest that fits; what does a small batch cost?")
ENOUGH = 0.95
"""Share of the best throughput from which on a larger batch is not worth its memory and its latency."""
_COLUMNS = (
    ("work", PAIR_COLUMNS["pair.case"]),
    DEVICE,
    ("batch", Column("batch.enough", Unit.COUNT, f"the smallest batch with {ENOUGH:.0%} of the best throughput")),
    ("items/s", BY_NAME["rate.items_per_s"]),
    ("smallest", Column("batch.smallest", Unit.COUNT, "the smallest batch measured, whose throughput the ratio is over")),
    *RATIO,
    ("fits", Column("batch.fits", Unit.COUNT, "the largest batch that went well")),
    ("too large", Column("batch.too_large", Unit.COUNT, "the smallest batch that ran out of memory")),
)


def answer(results: Results) -> Answer | Missing:
    """Return the batch that is enough in the work in the middle of each device, and what the smallest gives beside it."""
    free = ("param.batch", "case.device_name", "case.threads", "case.math")  # which nobody knows of what ran out of memory
    columns = [name for name in identifying(results.columns) if name not in free]
    fit = [each for each in entries(results) if counted(each.row, "batch") and each.row.get("param.ranks") in (None, 1)]
    groups = grouped(fit, lambda each: tuple(each.row[name] for name in columns))
    sweeps = [(group, found) for group in groups.values() if len(found := _measured(group)) > 1]
    if not sweeps:
        return Missing(QUESTION, "no work was measured at several batch sizes", "dlbench run batch")
    devices = by_device([_row(group, found) for group, found in sweeps], "case")
    rows = [row for found in devices.values() for row in found]
    sentences = [_sentence(where, found) for where, found in devices.items()]
    on = [entry.row for _, found in sweeps for entry in found]
    return answered(QUESTION, sentences, on, (), Table("Throughput by batch size", _COLUMNS, tuple(rows)))


def _measured(group: Iterable[Entry]) -> list[Entry]:
    """Return what went well and has a throughput, a row a batch, the smallest first."""
    fit = [each for each in group if each.row["case.status"] == Status.OK and not each.row["flag.implausible"]]
    timed = {counted(each.row, "batch"): each for each in fit if min(each.rounds.items_per_s, default=0) > 0}
    return [timed[batch] for batch in sorted(timed)]


def _row(group: Iterable[Entry], measured: Sequence[Entry]) -> Row:
    smallest, most = measured[0], max(number(each.row["rate.items_per_s"]) for each in measured)
    enough = next(each for each in measured if number(each.row["rate.items_per_s"]) >= ENOUGH * most)
    return {
        **{name: enough.row[name] for name in ("case.run", "case.device", "rate.items_per_s")},
        "pair.case": label(smallest.row, ("batch",)),
        "batch.enough": counted(enough.row, "batch"),
        "batch.smallest": counted(smallest.row, "batch"),
        **speed_ratio(smallest.rounds.items_per_s, enough.rounds.items_per_s),
        "batch.fits": counted(measured[-1].row, "batch"),
        "batch.too_large": min([counted(each.row, "batch") for each in group if each.row["case.status"] == Status.OOM], default=None),
    }


def _sentence(where: str, rows: Sequence[Row]) -> str:
    row = middle(rows)
    text = f"On {where} batch={row['batch.enough']} is enough for {short(row['pair.case'])}: {item_rate(number(row['rate.items_per_s']))}"
    smaller = f", {ratio(row)} the throughput of batch={row['batch.smallest']}"
    text += ", the smallest measured" if row["batch.enough"] == row["batch.smallest"] else smaller
    end = f"batch={row['batch.too_large']} runs out of memory" if row["batch.too_large"] else f"all up to batch={row['batch.fits']} fit"
    return f"{text}{among(rows)}; {end}."
