"""Batch size: what a small one costs, and how large a one is needed and fits."""

from collections.abc import Iterable, Sequence

from dlbench.analysis.answers import memory, small
from dlbench.analysis.answers.base import DEVICE, RATIO, Answer, Missing, Question, Table, answered, by_device, with_device
from dlbench.analysis.figures import Axis, Figure
from dlbench.analysis.ratios import PAIR_COLUMNS, Entry, entries, grouped, identifying, label, speed_ratio
from dlbench.analysis.read.table import Results
from dlbench.analysis.scaling.speedup import counted
from dlbench.analysis.wording import among, hedge, is_ahead, middle, number, ratio, short
from dlbench.core.model import Status
from dlbench.core.rows.row import BY_NAME
from dlbench.core.rows.row import Cells as Row
from dlbench.core.schema import Column, Unit
from dlbench.core.units import item_rate

QUESTION = Question("batch", "Which batch size; what is the largest that fits; what does a small batch cost?")
ENOUGH = 0.9
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
_BATCH = Column("param.batch", Unit.COUNT, "items of one call")
_SWEEP = Column("batch.sweep", Unit.TEXT, "the parameters that stay the same while the batch grows")
_ITSELF: Row = dict.fromkeys(("ratio.speedup", "ratio.ci_low", "ratio.ci_high"), 1.0)
_RATES = (BY_NAME["rate.items_per_s_low"], BY_NAME["rate.items_per_s_high"])
_QUANTITIES = (
    ("throughput", BY_NAME["rate.items_per_s"], _RATES),
    ("latency", BY_NAME["time.median_s"], (BY_NAME["time.ci_low_s"], BY_NAME["time.ci_high_s"])),
    ("memory", Column("batch.memory_bytes", Unit.BYTES, "peak on the accelerator, or on a CPU of the process", "lower"), None),
)
_TRIED = ", tries"
"""Ends the name of a line of tries."""
_OF_TRIES = " Tries of a search stand on one round each, without an interval."
_INTERVALS = " The vertical lines are 95 % intervals over rounds."


def answer(results: Results) -> Answer | Missing:
    """Return the batch that is enough in the work in the middle of each device, and what the smallest gives beside it."""
    free = ("param.batch", "case.device_name", "case.threads", "case.math")  # which nobody knows of what ran out of memory
    columns = [name for name in identifying(results.columns) if name not in free]
    fit = [each for each in entries(results) if counted(each.row, "batch") and each.row.get("param.ranks") in (None, 1)]
    groups = grouped(fit, lambda each: tuple(each.row[name] for name in columns))
    sweeps = [(group, found) for group in groups.values() if len(found := _measured(group)) > 1]
    swept, searches = [[each.row for each in found] for _, found in sweeps], memory.searches(results)
    memories, learned = memory.findings(searches, swept), small.findings(results)
    if not sweeps and not memories.tables and not learned.tables:
        return Missing(QUESTION, "no work was measured at several batch sizes", "dlbench run batch")
    devices = by_device([_row(group, found) for group, found in sweeps], "case")
    table = Table("Throughput by batch size", _COLUMNS, tuple(row for found in devices.values() for row in found))
    enough = [_sentence(where, found) for where, found in devices.items()]
    # One of each where there are both, as there is room for two.
    both = memories.sentences and learned.sentences
    others = [*memories.sentences[: 1 if both else None], *learned.sentences[: 1 if both else None]]
    return answered(
        QUESTION,
        enough or others,
        [*(row for rows in swept for row in rows), *memories.rows, *learned.rows],
        memories.weaknesses,
        *([table] if sweeps else ()),
        *memories.tables,
        *learned.tables,
        reports=others if enough else (),
        figures=[*_figures([_point(row, _line(row)) for rows in swept for row in rows] + _tried(searches)), *learned.figures],
    )


def _measured(group: Iterable[Entry]) -> list[Entry]:
    """Return what went well and has a throughput, a row a batch, the smallest first."""
    fit = [each for each in group if each.row["case.status"] == Status.OK and not each.row["flag.implausible"]]
    timed = {counted(each.row, "batch"): each for each in fit if min(each.rounds.items_per_s, default=0) > 0}
    return [timed[batch] for batch in sorted(timed)]


def _row(group: Iterable[Entry], measured: Sequence[Entry]) -> Row:
    smallest, most = measured[0], max(number(each.row["rate.items_per_s"]) for each in measured)
    enough = next(each for each in measured if number(each.row["rate.items_per_s"]) >= ENOUGH * most)
    return {
        **{name: enough.row[name] for name in ("case.run", "case.device", "rate.items_per_s", "time.rounds")},
        "pair.case": label(smallest.row, ("batch",)),
        "batch.enough": counted(enough.row, "batch"),
        "batch.smallest": counted(smallest.row, "batch"),
        **(_ITSELF if enough is smallest else speed_ratio(smallest.rounds.items_per_s, enough.rounds.items_per_s, among=len(measured) - 1)),
        "batch.fits": counted(measured[-1].row, "batch"),
        "batch.too_large": min([counted(each.row, "batch") for each in group if each.row["case.status"] == Status.OOM], default=None),
    }


def _figures(points: Sequence[Row]) -> list[Figure]:
    """Return throughput, latency and memory against the batch, of each workload and device a figure each, with a line a sweep or search."""
    found = []
    for (workload, where), rows in grouped(with_device(points, "case"), lambda row: (row["case.workload"], row["place"])).items():
        for title, column, interval in _QUANTITIES:
            shown = tuple(row for row in rows if row[column.name] is not None)
            about = f"One line a network or shape; further right is a larger batch.{_INTERVALS if interval else ''}"
            about += _OF_TRIES if any(str(row[_SWEEP.name]).endswith(_TRIED) for row in shown) else ""
            axes = Axis("batch", _BATCH, log=True), Axis(title, column, log=True)
            named = f"{title[0].upper()}{title[1:]} by batch size: {workload} on {where}"
            found += [Figure(named, about, "line", *axes, shown, Axis("work", _SWEEP), interval)] if shown else []
    return found


def _tried(searches: Iterable[memory.SearchRows]) -> list[Row]:
    """Return the points of the tries that went well and have a throughput."""
    fit = [row for each in searches for row in each.fits if not row["flag.implausible"] and row["time.median_s"]]
    return [_point(row, f"{_line(row)}{_TRIED}") for row in fit if row["rate.items_per_s"]]


def _point(row: Row, line: str) -> Row:
    return {**row, "batch.memory_bytes": memory.peak_bytes(row), "param.batch": counted(row, "batch"), _SWEEP.name: line}


def _line(row: Row) -> str:
    """Return what tells one sweep of a workload from another, such as ``resnet50 fp32``."""
    return short(label(row, ("batch",))).partition(" ")[2] or str(row["case.workload"])


def _sentence(where: str, rows: Sequence[Row]) -> str:
    row = middle(rows)
    last = row["batch.enough"] == row["batch.fits"] != row["batch.smallest"] and not row["batch.too_large"]
    enough = f"is the largest measured{' and gives most' if is_ahead(row) else ''}" if last else "is enough"
    text = f"On {where} batch={row['batch.enough']} {enough} for {short(row['pair.case'])}: {item_rate(number(row['rate.items_per_s']))}"
    smaller = f", {ratio(row)} the throughput of batch={row['batch.smallest']}{hedge(row, 'no more')}"
    text += ", the smallest measured" if row["batch.enough"] == row["batch.smallest"] else smaller
    end = f"batch={row['batch.too_large']} runs out of memory" if row["batch.too_large"] else f"all up to batch={row['batch.fits']} fit"
    end = "a larger one may give more" if last else end
    return f"{text}{among(rows)}; {end}."
