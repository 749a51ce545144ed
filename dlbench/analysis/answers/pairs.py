"""Tables of paired rows: how many times as fast one side is, or how many times its throughput."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dlbench.analysis.answers.base import DEVICE, RATIO, Columns, Table, by_device
from dlbench.analysis.figures import Axis, Figure, drawn
from dlbench.analysis.ratios import PAIR_COLUMNS, Pairs, pair
from dlbench.analysis.read.table import Results
from dlbench.analysis.wording import cell, choice, device_label, number, several_runs, short, value_name
from dlbench.core.model import Status
from dlbench.core.rows.row import Cells as Row
from dlbench.core.schema import Column, Unit

ELSEWHERE = "no accelerator took part; run the same suite on a machine that has one, and give both files to dlbench show"
"""Reason why nothing is compared with an accelerator. A file lists the devices that were asked for, so the machine may have one."""
_DEVICE_TIME = "device: by the device's own events; the wall time of a cold call, which is timed alone, also holds its launch and a wait"

_OVER_ROUNDS = (
    "ratio: the middle of what all pairs of rounds give, which on a noisy machine differs from the quotient of the two medians shown"
)
_APART = 0.05
"""Difference between the two from which on a reader would wonder."""

_AT = {"case.device": "on", "case.dtype": "in", "case.mode": "in", "case.run": "in"}


def without_accelerator(results: Results) -> bool:
    """Return whether no row was measured on an accelerator, and no file lists one."""
    identities = [environment.get("identity") for environment in results.environments.values()]
    present = any(isinstance(each, Mapping) and each.get("accelerators") for each in identities)
    return not present and all(row["case.device"] == "cpu" or row["case.status"] == Status.SKIPPED for row in results.rows)


def same_case(pairs: Pairs, results: Results, *more: Column) -> Table:
    """Return the table of rows that differ in one column: how many times as fast the other is.

    Behind that stand ``more`` columns of the tidy table, and the numbers that workloads declare, of both sides.
    """
    rows = [{**row} for row in pairs.rows]
    declared = [column for row in both_sides(results, rows) for column in results.declared(row) if not column.series]
    beside = {each.name: each for each in (*more, *declared)}
    cells = {(row["case.run"], row["case.id"]): row for row in results.rows}
    by = str(rows[0]["pair.by"]) if rows else ""
    several, on_devices = several_runs(rows, "base", "other"), by == "case.device"
    for row in rows:
        row["place"] = device_label(row, "other", several and by != "case.run")
        for side in ("base", "other"):
            row[f"{side}.label"] = device_label(row, side, several) if on_devices else str(row[f"{side}.value"])
            row |= {f"{side}.{name}": cells[row[f"{side}.run"], row[f"{side}.id"]].get(name) for name in beside}
            row[f"{side}.time_s"] = row[f"{side}.{'device' if row['pair.time'] == 'device' else 'median'}_s"]
    which = any(row["pair.time"] == "device" for row in rows)
    columns: Columns = (("case", PAIR_COLUMNS["pair.case"]), *(() if on_devices else (DEVICE,)))
    columns += (("which time", PAIR_COLUMNS["pair.time"]),) if which else ()
    for side in ("base", "other"):
        columns += _side(rows, side, ("time", Column(f"{side}.time_s", Unit.SECONDS, f"{side}: one call")))
    what = "how many times as fast" if any(row["ratio.speedup"] for row in rows) else "what it reports"
    differ = "on both sides" if on_devices else f"with another {by.partition('.')[2]}"
    title = f"The same case {differ}: {what}"
    columns += RATIO
    for column in beside.values():
        sides = ("base", "other")
        columns += tuple((_of_side(column, rows, side, by), replace(column, name=f"{side}.{column.name}")) for side in sides)
    notes = (*((_DEVICE_TIME,) if which else ()), *((_OVER_ROUNDS,) if any(map(_is_apart, rows)) else ()))
    return Table(title, columns, tuple(rows), notes)


def _is_apart(row: Row) -> bool:
    """Whether the ratio is far from the quotient of the two times that stand beside it."""
    base, other, ratio = (row[name] for name in ("base.time_s", "other.time_s", "ratio.speedup"))
    return bool(base and other and ratio) and abs(number(base) / number(other) / number(ratio) - 1) > _APART


def reported(results: Results, by: str) -> tuple[Table, list[str]]:
    """Return the table of rows that differ in one column and report values, not times; and of each device what its first one reports."""
    pairs = pair(results, by, timed=False) if results.has_values else Pairs((), ())  # most files report none, and pairing takes a while
    table = same_case(pairs, results)
    firsts = [rows[0] for rows in by_device(table.rows, "other").values()]
    return table, [f"{short(row['pair.case'])} reports {'; '.join(parts)}." for row in firsts if (parts := declared_values(table, row))]


def declared_values(table: Table, row: Row) -> list[str]:
    """Return for example ``p99_s 12.3 ms in bf16 and 12.5 ms in fp32``, for each value that the workload of a pair declares."""
    found = []
    for column in (column for _, column in table.columns if column.name.startswith("other.value.")):
        other, base = row[column.name], row[column.name.replace("other", "base", 1)]
        if other is not None and base is not None:
            name = column.name.removeprefix("other.value.")
            found.append(f"{name} {cell(other, column)} in {row['other.label']} and {cell(base, column)} in {row['base.label']}")
    return found


def own_best(pairs: Pairs) -> Table:
    """Return the table of throughputs, each side at a batch, precision, layout and mode of its own."""
    rows = [{**row} for row in pairs.rows]
    several = several_runs(rows, "base", "other")
    columns: Columns = (("work", PAIR_COLUMNS["pair.work"]),)
    for side in ("base", "other"):
        for row in rows:
            row[f"{side}.label"], row[f"{side}.choice"] = device_label(row, side, several), choice(row, side)
        without = [row[f"{side}.items_per_s"] is None for row in rows]  # their workloads count operations only
        columns += _side(rows, side, ("throughput", PAIR_COLUMNS[f"{side}.{'flops' if all(without) else 'items'}_per_s"]))
        if any(without) and not all(without):
            columns += (("FLOP/s", PAIR_COLUMNS[f"{side}.flops_per_s"]),)
        columns += (("at", Column(f"{side}.choice", Unit.TEXT, f"{side}: what it chose")),)
    return Table("Each side at its own best batch, precision, layout and mode: how many times the throughput", columns + RATIO, tuple(rows))


def ratio_figures(table: Table, case: str = "pair.case") -> list[Figure]:
    """Return the figure of the ratios in a table, a row each, named by that column; none where it has no ratios."""
    rows = [row for row in table.rows if row["ratio.speedup"] is not None]
    if not rows:
        return []
    if len({row["base.run"] for row in rows}) > 1:  # the same case on two machines is two lines
        rows = [{**row, case: f"{row[case]} on {device_label(row, 'other', True)}"} for row in rows]
    shown, left_out = drawn(rows, lambda row: number(row["ratio.speedup"]))
    by = str(rows[0]["pair.by"]).partition(".")[2] or "device"
    bases = {str(row["base.label"]) for row in rows}
    base = f" {bases.pop()}" if len(bases) == 1 else " the other side"
    about = f"A value above 1 is faster than{base}; the lines are 95 % intervals over rounds."
    return [
        Figure(
            title=table.title,
            about=f"{about}{left_out}",
            mark="dot" if len(rows) > len({row[case] for row in rows}) else "bar",
            x=Axis(f"times as fast as{base}", PAIR_COLUMNS["ratio.speedup"], log=True),
            y=Axis("case", PAIR_COLUMNS[case]),
            rows=shown,
            series=Axis(by, Column("other.label", Unit.TEXT, "the side that is compared with the base")),
            interval=(PAIR_COLUMNS["ratio.ci_low"], PAIR_COLUMNS["ratio.ci_high"]),
            reference=1.0,
        )
    ]


def both_sides(results: Results, pairs: Sequence[Row]) -> list[Row]:
    """Return the rows of the tidy table that stand on either side of pairs, each once."""
    sides = {(row[f"{side}.run"], row[f"{side}.id"]) for row in pairs for side in ("base", "other")}
    return [row for row in results.rows if (row["case.run"], row["case.id"]) in sides]


def _of_side(column: Column, rows: Sequence[Row], side: str, by: str) -> str:
    """Return ``p99_s in bf16`` where all rows share the side's label, else ``p99_s of other``, which has a column of labels."""
    labels = {str(row[f"{side}.label"]) for row in rows}
    where = f"{_AT.get(by, 'at')} {labels.pop()}" if len(labels) == 1 else f"of {side}"
    return f"{value_name(column)} {where}"


def _side(rows: Sequence[Row], side: str, value: tuple[str, Column]) -> Columns:
    """Return one column headed by the side's label where all rows share it, else the labels in a column of their own."""
    labels = {str(row[f"{side}.label"]) for row in rows}
    if len(labels) == 1:
        return ((labels.pop(), value[1]),)
    return ((side, Column(f"{side}.label", Unit.TEXT, f"{side}: which it is")), value)
