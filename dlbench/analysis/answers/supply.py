"""Storage: how fast it supplies samples, beside what the training steps of its machine consume."""

import math
from collections.abc import Iterable, Sequence

from dlbench.analysis.answers.base import DEVICE, RATIO, Columns, Findings, Table, with_device
from dlbench.analysis.figures import Axis, Figure, drawn
from dlbench.analysis.ratios import PAIR_COLUMNS, Entry, entries, grouped, label, speed_ratio
from dlbench.analysis.read.ceilings import machine
from dlbench.analysis.read.table import Results
from dlbench.analysis.wording import INTERVAL, device_label, key, number, ratio, short
from dlbench.core.declarations import Declaration
from dlbench.core.model import Status
from dlbench.core.rows.row import BY_NAME
from dlbench.core.rows.row import Cells as Row
from dlbench.core.schema import Column, Unit
from dlbench.core.units import item_rate

_TRAINS = "training"
_RATE, _BYTES = BY_NAME["rate.items_per_s"], BY_NAME["rate.bytes_per_s"]
_RATES = (BY_NAME["rate.items_per_s_low"], BY_NAME["rate.items_per_s_high"])
_CONSUMED = Column("supply.consumed_per_s", Unit.ITEMS_PER_S, "samples that the step takes in a second")
_STEP = Column("supply.step", Unit.TEXT, "the training step, and where it ran")
_WAY = Column("supply.way", Unit.TEXT, "how the samples are read")
_BESIDE: Columns = (("step", _STEP), ("consumes", _CONSUMED), ("read by", _WAY), ("supplies", _RATE), *RATIO)
_READ: Columns = (
    ("reading", PAIR_COLUMNS["pair.case"]),
    DEVICE,
    ("bandwidth", _BYTES),
    ("samples/s", _RATE),
    *((INTERVAL, each) for each in _RATES),
)
_NOTES = (
    "ratio: samples supplied over samples consumed; below 1 the step waits for storage however it is fed",
    "of each step the slowest and the fastest way to read from storage itself; decoding and augmenting are not in it",
)


def findings(results: Results) -> Findings:
    """Return how fast storage supplies samples, and how much of what each training step on its machine consumes that is."""
    sound = [each for each in entries(results) if _is_sound(each)]
    read = [each for each in sound if results.declaration(each.row).supply]
    if not read:
        return Findings()

    def host(each: Entry) -> object:
        return machine(each.row, results.environments)[-1]

    supplies = grouped((each for each in read if _of_storage(each.row, results.declaration(each.row))), host)
    steps = [each for each in sound if _TRAINS in results.declaration(each.row).tags and each.row.get("param.ranks") in (None, 1)]
    rows = [row for step in steps for row in _beside(step, supplies.get(host(step), []), results)]
    bandwidths = [{**each.row, "pair.case": label(each.row, ())} for each in read]
    tables = [Table("Samples read from storage", _READ, with_device(bandwidths, "case"))]
    if rows:
        tables.insert(0, Table("What storage supplies beside what steps consume", _BESIDE, tuple(rows), _NOTES))
    rests_on = [*(each.row for each in read), *(each.row for each in steps if rows)]
    return Findings((_beside_steps(rows) if rows else _alone(bandwidths),), tuple(rests_on), tuple(tables), _figures(rows))


def _is_sound(each: Entry) -> bool:
    row, rates = each.row, each.rounds.items_per_s
    timed = (row["time.median_s"] or 0) > 0 and min(rates, default=0) > 0 and max(rates) < math.inf  # type: ignore[operator]  # a number
    return row["case.status"] == Status.OK and not row["flag.implausible"] and timed


def _of_storage(row: Row, declared: Declaration) -> bool:
    """Whether what a row reads comes from storage and not from memory."""
    return declared.supply is not None and all(str(row.get(f"param.{name}")) in texts for name, texts in declared.supply.when.items())


def _beside(step: Entry, supplies: Iterable[Entry], results: Results) -> list[Row]:
    """Return the slowest and the fastest way to read what a step consumes, each with how much of that it supplies."""
    tags = results.declaration(step.row).tags
    fit = [each for each in supplies if (supply := results.declaration(each.row).supply) and supply.consumers in tags]
    ordered = sorted(fit, key=lambda each: number(each.row[_RATE.name]))
    return [
        {
            _STEP.name: f"{short(key(step.row))} on {device_label(step.row, 'case', len(results.environments) > 1)}",
            _CONSUMED.name: step.row[_RATE.name],
            _WAY.name: short(label(each.row, ())),
            _RATE.name: each.row[_RATE.name],
            **speed_ratio(step.rounds.items_per_s, each.rounds.items_per_s, among=len(fit)),
        }
        for each in (*ordered[:1], *ordered[1:][-1:])
    ]


def _alone(rows: Sequence[Row]) -> str:
    """Say how many samples are read in a second, where nothing was measured that consumes them."""
    slowest, fastest = (choose(rows, key=lambda row: number(row[_RATE.name])) for choose in (min, max))
    told = dict.fromkeys(f"{item_rate(number(row[_RATE.name]))} ({short(row['pair.case'])})" for row in (slowest, fastest))
    return f"Samples are read at {' to '.join(told)}; no training step that consumes such samples was measured beside that."


def _beside_steps(rows: Sequence[Row]) -> str:
    """Say of the step that consumes most how much of that storage supplies."""
    of_most = max(grouped(rows, lambda row: row[_STEP.name]).values(), key=lambda found: number(found[0][_CONSUMED.name]))
    slowest, *fastest = of_most
    rate = item_rate(number(slowest[_CONSUMED.name]))
    text = f"Of what {slowest[_STEP.name]} consumes ({rate}) this storage feeds {_fed(slowest)}"
    return f"{text}{''.join(f' at worst, and {_fed(row)} at best' for row in fastest)}."


def _fed(row: Row) -> str:
    return f"{ratio(row)}, read by {row[_WAY.name]} ({item_rate(number(row[_RATE.name]))})"


def _figures(rows: Sequence[Row]) -> tuple[Figure, ...]:
    """Return for each step how much of what it consumes storage supplies, as bars from 1."""
    if not rows:
        return ()
    shown, left_out = drawn(rows, lambda row: number(row["ratio.speedup"]))
    about = f"Bars to the left of 1: the step waits for storage. The lines are 95 % intervals over rounds.{left_out}"
    x = Axis("samples supplied over samples consumed", PAIR_COLUMNS["ratio.speedup"], log=True)
    interval = (PAIR_COLUMNS["ratio.ci_low"], PAIR_COLUMNS["ratio.ci_high"])
    title = "What storage feeds of each training step"
    return (Figure(title, about, "bar", x, Axis("step", _STEP), shown, Axis("read by", _WAY), interval, reference=1.0),)
