"""Ceilings of each device, and the rows below them: the roofline of Williams and others (2009, https://doi.org/10.1145/1498765.1498785)."""

from collections.abc import Iterable, Sequence

from dlbench.analysis.answers.base import DEVICE, Columns, Findings, Table
from dlbench.analysis.figures import Axis, Figure, drawn
from dlbench.analysis.ratios import PAIR_COLUMNS, grouped
from dlbench.analysis.read.ceilings import Ceilings, Machine, MeasuredCeiling, computed_in, from_caches, machine
from dlbench.analysis.read.table import Results
from dlbench.analysis.wording import hardware, key, number, plural, short
from dlbench.core.declarations import Ceiling
from dlbench.core.model import Status
from dlbench.core.rows.row import BY_NAME
from dlbench.core.rows.row import Cells as Row
from dlbench.core.schema import Column, Unit
from dlbench.core.units import byte_rate, flop_rate, seconds, three_digits

_WHAT = Column("ceiling.what", Unit.TEXT, "arithmetic and its precision, memory, or what takes that time at least")
_TIME, _FLOPS, _BYTES, _SHARE = (
    BY_NAME[name] for name in ("time.median_s", "rate.flops_per_s", "rate.bytes_per_s", "rate.ceiling_fraction")
)
_PEAK: Columns = (("peak", BY_NAME["rate.peak_fraction"]), ("of", BY_NAME["rate.peak"]))
_CEILINGS: Columns = (
    DEVICE,
    ("ceiling", _WHAT),
    ("reached by", PAIR_COLUMNS["pair.case"]),
    ("FLOP/s", _FLOPS),
    ("bytes/s", _BYTES),
    ("time", _TIME),
    ("of the best", _SHARE),
    *_PEAK,
)
_INTENSITY = Column("roofline.intensity", Unit.NUMBER, "stated operations over stated bytes")
_NEAREST = Column("roofline.nearest", Unit.TEXT, "the nearest ceiling")
_BELOW: Columns = (
    ("case", PAIR_COLUMNS["pair.case"]),
    DEVICE,
    ("FLOP/byte", _INTENSITY),
    ("FLOP/s", _FLOPS),
    ("bytes/s", _BYTES),
    ("ceiling", _SHARE),
    ("of", _NEAREST),
)
_SHOWN = {"arithmetic": _FLOPS.name, "memory": _BYTES.name, "launch": _TIME.name, "synchronisation": _TIME.name}
_NOTE = (
    "FLOP/byte is what the workload states of both; caches that hold what a call comes back to, and layers that are fused, "
    "move fewer bytes, so that such a case belongs further right."
)
_FROM_CACHES = "left out, as caches have some of what they move, which then is faster than memory: {}"
_MOST_FIGURES = 4


def findings(results: Results) -> Findings:
    """Return what each device can do at most, where memory was measured, and where the cases stand below it."""
    every = results.ceilings
    accelerators_first = sorted(every, key=lambda where: where[0] == "cpu")
    known = {where: every[where] for where in accelerators_first if ("memory", "") in every[where]}
    if not known:
        return Findings()
    sound = [
        row
        for row in results.rows
        if row["case.status"] == Status.OK and not row["flag.implausible"] and machine(row, results.environments) in known
    ]
    tops = [row for row in sound if results.declaration(row).ceiling in _SHOWN]
    ceilings = [row for where, found in known.items() for row in _ceiling_rows(where, found, tops, known, results)]
    stated = [row for row in sound if row[_FLOPS.name] and row[_BYTES.name] and row.get("param.ranks") in (None, 1)]
    below = [row for row in stated if not from_caches(row, known[machine(row, results.environments)]["memory", ""])]
    beyond = len(stated) - len(below)
    notes = (_NOTE, *([_FROM_CACHES.format(plural(beyond, "case"))] if beyond else []))
    tables = [Table("What each device can do at most", _CEILINGS, tuple(ceilings))]
    tables += (
        [Table("Cases below the measured ceilings", _BELOW, tuple(_point(row, known, results) for row in below), notes)] if below else []
    )
    sentences = tuple(_sentence(where, found, known) for where, found in known.items())
    best = [each.row for found in known.values() for each in found.values()]
    rests = {(row["case.run"], row["case.id"]): row for row in (*tops, *best)}
    return Findings(sentences, tuple(rests.values()), tuple(tables), tuple(_figures(below, known, results)))


def _place(where: Machine, known: Iterable[Machine], row: Row) -> str:
    """Return what a machine's device is called: where another has the same id, with its hardware, or the place where that is another."""
    others = {other[-1] == where[-1] for other in known if other[0] == where[0] and other != where}
    words = [hardware(row)] * (True in others) + [str(row["case.run"])] * (False in others)
    return f"{where[0]} ({', '.join(words)})" if words else str(where[0])


def _ceiling_rows(where: Machine, found: Ceilings, tops: Iterable[Row], known: Iterable[Machine], results: Results) -> list[Row]:
    """Return the best of each kind, and of memory each case at its best."""
    moves = [row for row in tops if machine(row, results.environments) == where and results.declaration(row).ceiling == "memory"]
    moves += [each.row for each in found.values() if each.kind == "memory"]  # which may declare no ceiling
    each_best = {key(row): row for row in sorted(moves, key=lambda row: number(row[_BYTES.name] or 0))}
    chosen = [(str(each.kind), each.precision, each.row) for each in found.values() if each.kind != "memory"]
    chosen += [("memory", "", row) for row in reversed(each_best.values())]
    kinds = list(_SHOWN)
    return [
        {
            **{name: row[name] for name in (_SHARE.name, "rate.peak_fraction", "rate.peak", _SHOWN[kind])},
            _WHAT.name: f"{kind} in {precision}" if precision else kind,
            "place": _place(where, known, row),
            "pair.case": key(row),
        }
        for kind, precision, row in sorted(chosen, key=lambda each: kinds.index(each[0]))
    ]


def _sentence(where: Machine, found: Ceilings, known: Iterable[Machine]) -> str:
    memory = found["memory", ""]
    arithmetic = sorted((each for each in found.values() if each.kind == "arithmetic"), key=lambda each: -each.per_s)
    rates = [f"{flop_rate(each.per_s)} in {each.precision}" for each in arithmetic]
    rates.append(f"{byte_rate(memory.per_s)} of memory ({short(key(memory.row))})")
    names: dict[Ceiling, str] = {"launch": "a launch", "synchronisation": "one that is waited for"}
    times = [f"{seconds(1 / found[kind, ''].per_s)} {name}" for kind, name in names.items() if (kind, "") in found]
    text = f"At most {_place(where, known, memory.row)} reaches {', '.join(rates)}"
    if where[0] == "cpu":
        times = times[:1]  # it is done when a launch returns
    text += f", and takes {' and '.join(times)}" if times else ""
    if arithmetic:
        top = next((each for each in arithmetic if each.precision == "fp32"), arithmetic[0])
        text += f"; {top.precision} is bound by memory below {three_digits(top.per_s / memory.per_s)} FLOP a byte"
    return f"{text}."


def _point(row: Row, known: Iterable[Machine], results: Results) -> Row:
    names = ("case.workload", _FLOPS.name, _BYTES.name, _SHARE.name)
    return {
        **{name: row[name] for name in names},
        _INTENSITY.name: number(row[_FLOPS.name]) / number(row[_BYTES.name]),
        _NEAREST.name: str(row["rate.ceiling"] or "").partition(":")[0] or None,
        "pair.case": key(row),
        "place": _place(machine(row, results.environments), known, row),
    }


def _figures(below: Sequence[Row], known: dict[Machine, Ceilings], results: Results) -> list[Figure]:
    """Return a roofline for each device and precision that has a roof and rows below it, those with the most rows first."""
    groups = grouped(below, lambda row: (machine(row, results.environments), computed_in(row)))
    found = []
    for (where, precision), alike in sorted(groups.items(), key=lambda group: -len(group[1])):
        arithmetic: MeasuredCeiling | None = known[where].get(("arithmetic", str(precision)))
        if arithmetic is None:
            continue
        rows = [_point(row, known, results) for row in alike]
        shown, left_out = drawn(rows, lambda row: number(row[_INTENSITY.name]))
        bandwidth = known[where]["memory", ""].per_s
        ridge = arithmetic.per_s / bandwidth
        ends = [number(row[_INTENSITY.name]) for row in rows]
        corners = [min(*ends, ridge / 4), ridge, max(*ends, 4 * ridge)]
        roof: list[Row] = [{_INTENSITY.name: at, _FLOPS.name: min(at * bandwidth, arithmetic.per_s)} for at in corners]
        about = (
            f"The line is the most that was measured: {byte_rate(bandwidth)} on the slope, {flop_rate(arithmetic.per_s)} from "
            f"{three_digits(ridge)} FLOP a byte on. A dot far below it is held up by something else.{left_out}"
        )
        x, y = Axis("operations a byte", _INTENSITY, log=True), Axis("FLOP/s", _FLOPS, log=True)
        title = f"Roofline in {precision}: {rows[0]['place']}"
        found.append(Figure(title, about, "dot", x, y, shown, Axis("workload", BY_NAME["case.workload"]), bound=tuple(roof)))
    return found[:_MOST_FIGURES]
