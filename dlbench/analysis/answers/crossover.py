"""Crossover: from what size on an accelerator stays ahead of the CPU, by the way in which operands get there."""

from collections.abc import Sequence
from itertools import product

from dlbench.analysis.answers.base import DEVICE, RATIO, Answer, Columns, Missing, Question, Table, answered
from dlbench.analysis.answers.pairs import ELSEWHERE, both_sides, without_accelerator
from dlbench.analysis.answers.ways import in_other_ways
from dlbench.analysis.figures import Axis, Figure
from dlbench.analysis.ratios import MACHINE, ONE_DEVICE, PAIR_COLUMNS, Entry, entries, grouped, identifying, sides, speed_ratio, unfit
from dlbench.analysis.read.table import Results
from dlbench.analysis.wording import INTERVAL, device_label, machine_name, middle, number, several_runs, short
from dlbench.core.declarations import Sweep
from dlbench.core.rows.row import Cells as Row
from dlbench.core.schema import Column, Unit, text

QUESTION = Question("crossover", "From what size on does the accelerator win, without and with the copies there and back?")
_COMMAND = "dlbench run crossover"
_CPU_ONLY = "only the CPU of this machine was measured"

_AT = Column("crossover.at", Unit.COUNT, "the size")
_LINE = Column("crossover.line", Unit.TEXT, "the line of a figure")
_WAY = Column("crossover.way", Unit.TEXT, "how operands get to the accelerator")
_FROM = Column("crossover.size", Unit.COUNT, "the smallest size from which on it is ahead at all sizes measured")
_LOW = Column(
    "crossover.low", Unit.COUNT, "the smallest from which on it may be ahead at all: upper ends of the speed-ups' intervals above 1"
)
_HIGH = Column("crossover.high", Unit.COUNT, "the smallest from which on it surely is: lower ends above 1")
_COLUMNS: Columns = (
    ("work", PAIR_COLUMNS["pair.case"]),
    DEVICE,
    ("operands", _WAY),
    ("size", Column("crossover.parameter", Unit.TEXT, "the parameter that is the size")),
    ("ahead from", _FROM),
    (INTERVAL, _LOW),
    (INTERVAL, _HIGH),
    ("range", Column("crossover.smallest", Unit.COUNT, "the smallest size measured on both")),
    ("range", Column("crossover.largest", Unit.COUNT, "the largest")),
    ("result", Column("crossover.result", Unit.TEXT, "whether there is a crossover in this range")),
    *RATIO,
)
_NOTES = (
    "ahead from: the smallest size measured from which on the accelerator is faster than the CPU at all larger ones, too; between it and "
    "the size measured before nothing is known",
    "its interval: from the smallest size from which on it may be ahead to the smallest from which on it surely is; none where it is "
    "surely ahead nowhere, or where rounds are too few",
    "ratio: how many times as fast as the CPU at the largest size",
)
_MOST_FIGURES = 12
"""A page has one for each of as many works; the table has all."""
_CROSSES, _THROUGHOUT, _NONE = "crossover", "ahead at every size measured", "no crossover in this range"


def answer(results: Results) -> Answer | Missing:
    """Return from what size on each accelerator stays ahead, in the work in the middle, and what other ways to compute the same bring."""
    points, ways = _points(results), in_other_ways(results)
    if not points and not ways.tables:
        return _missing(results)
    lines = [_line(found) for found in grouped(points, _key).values()]
    of_machines = grouped(lines, _machines).values()
    sentences = [_sentence(found, several_runs(lines, "base", "other")) for found in of_machines]
    # What other ways to compute the same bring is no answer to the question, so that it is open stands first.
    open_question = [] if lines else [f"From what size on an accelerator wins is open: {_missing(results).reason}."]
    crossover = [Table("From what size on the accelerator stays ahead of the CPU", _COLUMNS, tuple(lines), _NOTES)] if lines else []
    rows, tables = [*both_sides(results, points), *ways.rows], (*crossover, *ways.tables)
    return answered(QUESTION, sentences or open_question, rows, (), *tables, reports=ways.sentences, figures=_figures(points))


def _missing(results: Results) -> Missing:
    kinds = {row["case.device"] == "cpu" for row in results.rows if row["case.status"] == "ok"}
    if without_accelerator(results):
        return Missing(QUESTION, ELSEWHERE)
    if kinds == {True}:
        return Missing(QUESTION, _CPU_ONLY, _COMMAND)
    return Missing(QUESTION, "no work went well at several sizes on both a CPU and an accelerator", _COMMAND)


def _points(results: Results) -> list[Row]:
    """Return the speed-up of each accelerator over each CPU at each size, in the order of work, way and size, of work at several sizes."""
    columns = [name for name in identifying(results.columns) if name not in MACHINE]
    swept = [(each, sweep) for each in entries(results) if (sweep := results.declaration(each.row).sweep) and _size(each, sweep)]
    fit = [(each, sweep) for each, sweep in swept if unfit(each, "case.device", timed=True) is None]

    def work(found: tuple[Entry, Sweep]) -> tuple[object, ...]:
        entry, sweep = found
        own = (f"param.{sweep.size}", f"param.{sweep.copies}")
        return sweep.size, sweep.copies, *(entry.row[name] for name in columns if name not in own)

    points = [point for group in grouped(fit, work).values() for point in _races([each for each, _ in group], group[0][1])]
    several, cpus_named = several_runs(points, "base", "other"), len({_machine(row, "base") for row in points}) > 1
    for row in points:
        beside = f" beside {device_label(row, 'base', several)}" if cpus_named else ""
        row["place"] = f"{device_label(row, 'other', several)}{beside}"
    return points


def _races(group: Sequence[Entry], sweep: Sweep) -> list[Row]:
    """Return the points of one work, of each accelerator and way beside each CPU, first that of the CPU itself, which needs no copies."""
    devices = grouped(group, lambda each: (*(each.row[name] for name in ONE_DEVICE), _way(each, sweep))).values()
    cpus = [found for found in devices if found[0].row["case.device"] == "cpu"]
    others = [found for found in devices if found[0].row["case.device"] != "cpu"]
    resident = {_way(found[0], sweep) for found in cpus}
    others.sort(key=lambda found: _way(found[0], sweep) not in resident)
    return [point for cpu, other in product(cpus, others) for point in _raced(cpu, other, sweep)]


def _raced(cpu: Sequence[Entry], other: Sequence[Entry], sweep: Sweep) -> list[Row]:
    """Return a row for each size that both were measured at; none for fewer than two."""
    bases, others = ({_size(each, sweep): each for each in side} for side in (cpu, other))
    sizes = sorted(bases.keys() & others.keys())
    found: list[Row] = []
    for size in sizes if len(sizes) > 1 else ():
        base, faster = bases[size], others[size]
        speeds = [[1 / seconds for seconds in each.rounds.median_s] for each in (base, faster)]
        about: Row = {_AT.name: size, "crossover.parameter": sweep.size, _WAY.name: _way(faster, sweep)}
        hidden = (sweep.size, *filter(None, (sweep.copies,)))
        found.append({**sides(base, faster, "case.device", hidden), **about, **speed_ratio(*speeds)})
    return found


def _size(entry: Entry, sweep: Sweep) -> float:
    """Return how large the work of a row is, zero where it does not say; an edited file may hold any value."""
    value = entry.row.get(f"param.{sweep.size}")
    return value if type(value) in (int, float) and 0 < value < 2**53 else 0  # type: ignore[operator, return-value]  # narrowed by its type


def _way(entry: Entry, sweep: Sweep) -> str | None:
    """Return how operands get to where a row was measured, such as ``copies=pinned``; None where it does not say."""
    value = entry.row.get(f"param.{sweep.copies}")
    return None if value is None else f"{sweep.copies}={value}"


def _machine(row: Row, side: str) -> tuple[object, ...]:
    return tuple(row[f"{side}.{name}"] for name in ("run", "device", "device_name", "threads"))


def _machines(row: Row) -> tuple[object, ...]:
    return *_machine(row, "base"), *_machine(row, "other")


def _key(row: Row) -> tuple[object, ...]:
    """Return what the points of one line have in common."""
    return row["pair.case"], *_machines(row), row["crossover.parameter"], row[_WAY.name]


def _line(points: Sequence[Row]) -> Row:
    """Return the conclusion from the points of one line, the smallest size first."""
    first, last = points[0], points[-1]
    found = _ahead_from(points, "ratio.speedup")
    result = _NONE if found is None else _THROUGHOUT if found == first[_AT.name] else _CROSSES
    few = any(point["ratio.ci_low"] is None for point in points)
    return {
        **last,
        _FROM.name: found,
        _LOW.name: None if few else _ahead_from(points, "ratio.ci_high"),
        _HIGH.name: None if few else _ahead_from(points, "ratio.ci_low"),
        "crossover.smallest": first[_AT.name],
        "crossover.largest": last[_AT.name],
        "crossover.result": result,
        "crossover.few": few,
    }


def _ahead_from(points: Sequence[Row], column: str) -> float | None:
    """Return the smallest size from which on a column is above 1 at all larger sizes, too; None where it is not at the largest."""
    found = None
    for point in reversed(points):
        if number(point[column]) <= 1:
            break
        found = number(point[_AT.name])
    return found


def _sentence(lines: Sequence[Row], several: bool) -> str:
    """Return what an accelerator beside a CPU comes to in the work whose speed-up at the largest size is in the middle, and in how many."""
    works = grouped(lines, lambda row: row["pair.case"])
    case = middle([found[0] for found in works.values()])["pair.case"]
    accelerator, cpu = (machine_name(lines[0], side, several) for side in ("other", "base"))
    parts = [f"{told}{_with(rows)}" for told, rows in grouped(works[case], _told).items()]
    said = f"{accelerator} beside {cpu} in {short(case)}: {', '.join(parts)}"
    if len(works) == 1:
        return f"{said}."
    by_way = grouped(lines, lambda row: row[_WAY.name]).values()
    counts = [f"{sum(row['crossover.result'] != _NONE for row in rows)} of {len(rows)}{_with(rows[:1])}" for rows in by_way]
    return f"{said}; of the works it gets ahead for good in {', in '.join(counts)}."


def _told(row: Row) -> str:
    name = row["crossover.parameter"]
    start, low, high, smallest, largest = (
        None if (value := row[column]) is None else text(number(value), Unit.COUNT)
        for column in (_FROM.name, _LOW.name, _HIGH.name, "crossover.smallest", "crossover.largest")
    )
    if row["crossover.few"]:
        certainty = "too few rounds for an interval"
    elif high is None:
        certainty = f"perhaps from {low} on, surely nowhere"
    else:
        certainty = "" if low == high else f"{low}…{high}"
    if row["crossover.result"] == _NONE:
        perhaps = f", perhaps ahead from {low} on" if low else ""
        return f"no crossover in {name}={smallest}…{largest}{perhaps}"
    throughout = row["crossover.result"] == _THROUGHOUT
    where = f"at every size measured, {name}={smallest}…{largest}" if throughout else f"from {name}={start} on"
    return f"ahead {where}{f' ({certainty})' if certainty and not (throughout and high == smallest) else ''}"


def _with(rows: Sequence[Row]) -> str:
    ways = " and ".join(str(row[_WAY.name]) for row in rows if row[_WAY.name])
    return f" with {ways}" if ways else ""


def _figures(points: Sequence[Row]) -> list[Figure]:
    """Return the speed-up against the size, with a line a device and way, of the first works among those measured in the most ways."""
    several = len({row["place"] for row in points}) > 1
    parts = [(row["place"] if several or not row[_WAY.name] else None, row[_WAY.name]) for row in points]
    rows = [{**row, _LINE.name: " ".join(str(part) for part in both if part)} for row, both in zip(points, parts, strict=True)]
    works = grouped(rows, lambda row: row["pair.case"])
    lines = {case: len({row[_LINE.name] for row in found}) for case, found in works.items()}
    drawn = [case for case in works if lines[case] == max(lines.values())][:_MOST_FIGURES]
    about = "Above 1 the accelerator is faster than the CPU; the vertical lines are 95 % intervals over rounds."
    return [
        Figure(
            title=f"Speed-up by size: {short(case)}",
            about=about,
            mark="line",
            x=Axis(str(works[case][0]["crossover.parameter"]), _AT, log=True),
            y=Axis("times as fast as the CPU", PAIR_COLUMNS["ratio.speedup"], log=True),
            rows=tuple(works[case]),
            series=Axis("operands", _LINE),
            interval=(PAIR_COLUMNS["ratio.ci_low"], PAIR_COLUMNS["ratio.ci_high"]),
            reference=1.0,
        )
        for case in drawn
    ]
