"""Feeding: what a step keeps of its best throughput by each way to get its batch, and what part of it that takes."""

import math
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from dlbench.analysis.answers.base import DEVICE, RATIO, Columns, Findings, Table, by_device, with_device
from dlbench.analysis.figures import Axis, Figure, drawn
from dlbench.analysis.ratios import PAIR_COLUMNS, Entry, entries, grouped, identifying, label, speed_ratio
from dlbench.analysis.read.table import Results
from dlbench.analysis.scaling.speedup import counted
from dlbench.analysis.wording import INTERVAL, as_far_as, number, ratio, short, value_name
from dlbench.core.declarations import Part
from dlbench.core.model import Status
from dlbench.core.rows.row import BY_NAME
from dlbench.core.rows.row import Cells as Row
from dlbench.core.schema import Column, Unit
from dlbench.core.units import item_rate, percent

_WAY = Column("feeding.way", Unit.TEXT, "how a step gets its batch")
_INPUT = Column("feeding.input_share", Unit.FRACTION, "part of a call in which the host gets its batch together or waits for it")
_TRANSFER = Column("feeding.transfer_share", Unit.FRACTION, "the copy of a batch, timed alone, over a call")
_RATES = (BY_NAME["rate.items_per_s_low"], BY_NAME["rate.items_per_s_high"])
_SMALL = {
    Column("feeding.of_largest", Unit.RATIO, "throughput of this batch over that of the largest, each at its best"): "speedup",
    Column("feeding.of_largest_low", Unit.RATIO, "lower end of its 95 % interval"): "ci_low",
    Column("feeding.of_largest_high", Unit.RATIO, "upper end of it"): "ci_high",
}
_ITSELF: Row = {"ratio.speedup": 1.0}
_STEP = "feeding.step"
"""Of a row the number of its step: rows of one differ at most in how it gets its batch."""
_RATE = BY_NAME["rate.items_per_s"]
_COLUMNS: Columns = (
    ("work", PAIR_COLUMNS["pair.case"]),
    DEVICE,
    ("batches", _WAY),
    ("items/s", _RATE),
    *RATIO,
    ("getting them", _INPUT),
    ("copying them", _TRANSFER),
    *zip(("of the largest batch", INTERVAL, INTERVAL), _SMALL, strict=True),
)
_NOTES = (
    "ratio: over the way of most items/s, which was chosen for that among the same measurements",
    "getting and copying them: over the time of a call; an accelerator may compute meanwhile, so what they cost there is in the ratio only",
)


def findings(results: Results) -> Findings:
    """Return throughput by the way that steps get their batches, each beside the best, and what part of a step that takes."""
    groups = _alike(results)
    rows = [row for step, group in enumerate(groups) for row in _rows(step, group, results)]
    if not rows:
        return Findings()
    rounds = {(each.row["case.run"], each.row["case.id"]): each.rounds.items_per_s for group in groups for each in group}
    devices = {where: _beside_largest(found, rounds, results) for where, found in by_device(rows, "case").items()}
    more = {each.name: each for row in rows for each in _others(row, results)}
    columns = (*_COLUMNS, *((value_name(each), each) for each in more.values()))
    table = Table("Throughput by how a step gets its batch", columns, tuple(chain.from_iterable(devices.values())), _NOTES)
    sentences = tuple(_sentence(where, found) for where, found in devices.items())
    return Findings(sentences, tuple(rows), (table,), tuple(_figures(rows)))


def _alike(results: Results) -> list[list[Entry]]:
    """Return rows that differ at most in how their step gets its batch, largest batch first."""
    columns = identifying(results.columns)

    def key(each: Entry) -> tuple[object, ...]:
        ways = {f"param.{name}" for name in results.declaration(each.row).feeding}
        return tuple(each.row[name] for name in columns if name not in ways)

    fed = [each for each in entries(results) if results.declaration(each.row).feeding and _is_fit(each)]
    return sorted(grouped(fed, key).values(), key=lambda group: -(counted(group[0].row, "batch") or 0))


def _is_fit(each: Entry) -> bool:
    row = each.row
    timed = (row["time.median_s"] or 0) > 0 and min(each.rounds.items_per_s, default=0) > 0  # type: ignore[operator]  # a number
    return row["case.status"] == Status.OK and not row["flag.implausible"] and timed


def _rows(step: int, group: Sequence[Entry], results: Results) -> list[Row]:
    """Return the rows of one kind of step with all that the table shows, the best first."""
    best, *others = sorted(group, key=lambda each: -_rate(each.row))
    feeding = results.declaration(best.row).feeding
    pairs = math.comb(len(group), 2)  # the best is chosen, and the worst
    ways = _ways([best.row, *(each.row for each in others)], feeding)
    found = []
    for each, way in zip((best, *others), ways, strict=True):
        row = each.row
        found.append(
            {
                **row,
                **(_ITSELF if each is best else speed_ratio(best.rounds.items_per_s, each.rounds.items_per_s, among=pairs)),
                "pair.case": label(row, feeding),
                _STEP: step,
                _WAY.name: way,
                _INPUT.name: _share(row, "input", results),
                _TRANSFER.name: _share(row, "transfer", results),
            }
        )
    return found


def _ways(rows: Sequence[Row], feeding: Sequence[str]) -> list[str]:
    """Return for each row such as ``loader workers=2``: a word needs no name, and a number is left out that tells nothing apart."""
    words = [tuple(str(row[name]) for name in map("param.{}".format, feeding) if isinstance(row.get(name), str)) for row in rows]
    numbers = [tuple(name for name in feeding if not isinstance(row.get(f"param.{name}"), str)) for row in rows]
    values: dict[tuple[tuple[str, ...], str], set[object]] = {}
    for row, of_row, names in zip(rows, words, numbers, strict=True):
        for name in names:
            values.setdefault((of_row, name), set()).add(row.get(f"param.{name}"))
    return [
        " ".join([*of_row, *(f"{name}={row.get(f'param.{name}')}" for name in names if len(values[of_row, name]) > 1)]) or "the only way"
        for row, of_row, names in zip(rows, words, numbers, strict=True)
    ]


def _share(row: Row, part: Part, results: Results) -> float | None:
    seconds = results.declaration(row).part(row, part)
    share = math.inf if seconds is None else seconds / number(row["time.median_s"])
    return share if math.isfinite(share) else None  # a file that was edited may say anything


def _others(row: Row, results: Results) -> list[Column]:
    """Return what the workload of a row reports beside the parts of a call."""
    return [each.column for each in results.declaration(row).values if each.part is None and not each.series]


def _rate(row: Row) -> float:
    return number(row[_RATE.name])


def _beside_largest(rows: Sequence[Row], rounds: Mapping[tuple[Any, Any], Sequence[float]], results: Results) -> list[Row]:
    """Return the rows of a device, that of the smallest batch at its best with what it gives beside the same step with the largest."""
    bests = [found[0] for found in grouped(rows, lambda row: row[_STEP]).values()]
    small = [row for row in bests if _but_batch(row, results) == _but_batch(bests[0], results)][-1]
    if small is bests[0] or not counted(small, "batch"):
        return list(rows)
    ways = math.prod(sum(row[_STEP] == best[_STEP] for row in rows) for best in (bests[0], small))  # of which each is its step's best
    ratio = speed_ratio(*(rounds[row["case.run"], row["case.id"]] for row in (bests[0], small)), among=ways)
    beside = {column.name: ratio[f"ratio.{name}"] for column, name in _SMALL.items()}
    return [{**row, **beside} if row is small else row for row in rows]


def _sentence(where: str, rows: Sequence[Row]) -> str:
    """Say of the step with the largest batch by which way it is fed best and worst, and what the smallest batch gives beside it."""
    steps = list(grouped(rows, lambda row: row[_STEP]).values())
    best, *others = steps[0]
    text = f"On {where} {short(best['pair.case'])} is fed best by {best[_WAY.name]}: {item_rate(_rate(best))}{_getting(best)}"
    if others:
        worst = others[-1]
        apart = worst["ratio.ci_high"] is not None and number(worst["ratio.ci_high"]) < 1
        how = "worst by" if apart else f"no worse {as_far_as(worst)} by any other, last"
        text += f"; {how} {worst[_WAY.name]}: {ratio(worst)} of that{_getting(worst)}"
    for small in (row for row in rows if "feeding.of_largest" in row):
        times = {f"ratio.{name}": small[column.name] for column, name in _SMALL.items()}
        text += f"; batch={counted(small, 'batch')} at its best has {ratio(times)} the throughput of this step at its best"
    return f"{text}."


def _getting(row: Row) -> str:
    share = row[_INPUT.name]
    return "" if share is None else f", {percent(number(share))} of a call spent on getting its batch"


def _but_batch(row: Row, results: Results) -> str:
    return label(row, (*results.declaration(row).feeding, "batch"))


def _figures(rows: Sequence[Row]) -> list[Figure]:
    """Return throughput by the way of batches, of each workload and device a figure."""
    found = []
    for (workload, where), of_device in grouped(with_device(rows, "case"), lambda row: (row["case.workload"], row["place"])).items():
        shown, left_out = drawn(of_device, _rate)
        one = len({row["pair.case"] for row in shown}) == 1
        about = f"Further right is better; the lines are 95 % intervals over rounds.{left_out}"
        axes = Axis("throughput", _RATE), Axis("batches", _WAY)
        series = None if one else Axis("work", PAIR_COLUMNS["pair.case"])
        title = f"Throughput by how a step gets its batch: {workload} on {where}"
        found.append(Figure(title, about, "bar" if one else "dot", *axes, shown, series, _RATES))
    return found
