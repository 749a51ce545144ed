"""Tables of paired rows: how many times as fast one side is, or how many times its throughput."""

from dlbench.analysis.answers.base import RATIO, Table
from dlbench.analysis.findings import PAIR_COLUMNS, Pairs
from dlbench.analysis.table import records
from dlbench.analysis.wording import choice, place, several_runs
from dlbench.core.schema import Column, Unit
from dlbench.core.summary import Row

_Columns = tuple[tuple[str, Column], ...]
_DEVICE_TIME = "device: by the device's own events; the wall time of a cold call, which is timed alone, also holds its launch and a wait"
_PLACE = Column("pair.place", Unit.TEXT, "where both sides ran")


def same_case(pairs: Pairs) -> Table:
    """Return the table of rows that differ in one column: how many times as fast the other is."""
    rows = records(pairs.frame)
    by = str(rows[0]["pair.by"]) if rows else ""
    several, on_devices = several_runs(rows, "base", "other"), by == "case.device"
    for row in rows:
        row["pair.place"] = place(row, "other", several and by != "case.run")
        for side in ("base", "other"):
            row[f"{side}.label"] = place(row, side, several) if on_devices else str(row[f"{side}.value"])
            row[f"{side}.time_s"] = row[f"{side}.{'device' if row['pair.time'] == 'device' else 'median'}_s"]
    columns: _Columns = (("case", PAIR_COLUMNS["pair.case"]),)
    if not on_devices:
        columns += (("device", _PLACE),)
    notes: tuple[str, ...] = ()
    if any(row["pair.time"] == "device" for row in rows):
        columns, notes = (*columns, ("which time", PAIR_COLUMNS["pair.time"])), (_DEVICE_TIME,)
    for side in ("base", "other"):
        columns += _side(rows, side, ("time", Column(f"{side}.time_s", Unit.SECONDS, f"{side}: one call")))
    title = f"The same case {'on both sides' if on_devices else f'with another {by}'}: how many times as fast"
    return Table(title, columns + RATIO, tuple(rows), notes)


def own_best(pairs: Pairs) -> Table:
    """Return the table of throughputs, each side at a batch, precision and layout of its own."""
    rows = records(pairs.frame)
    several = several_runs(rows, "base", "other")
    columns: _Columns = (("work", PAIR_COLUMNS["pair.work"]),)
    for side in ("base", "other"):
        for row in rows:
            row[f"{side}.label"], row[f"{side}.choice"] = place(row, side, several), choice(row, side)
        without = [row[f"{side}.items_per_s"] is None for row in rows]  # their workloads count operations only
        columns += _side(rows, side, ("throughput", PAIR_COLUMNS[f"{side}.{'flops' if all(without) else 'items'}_per_s"]))
        if any(without) and not all(without):
            columns += (("FLOP/s", PAIR_COLUMNS[f"{side}.flops_per_s"]),)
        columns += (("at", Column(f"{side}.choice", Unit.TEXT, f"{side}: what it chose")),)
    return Table("Each side at its own best batch, precision and layout: how many times the throughput", columns + RATIO, tuple(rows))


def _side(rows: list[Row], side: str, value: tuple[str, Column]) -> _Columns:
    """Return one column headed by the side's label where all rows share it, else the labels in a column of their own."""
    labels = {str(row[f"{side}.label"]) for row in rows}
    if len(labels) == 1:
        return ((labels.pop(), value[1]),)
    return ((side, Column(f"{side}.label", Unit.TEXT, f"{side}: which it is")), value)
