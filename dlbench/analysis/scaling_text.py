"""What more devices bring, in words: sentences, and the cells of its tables."""

from collections.abc import Callable, Sequence

from dlbench.analysis import sentences, wording
from dlbench.core import units
from dlbench.core.model import ParamValue
from dlbench.core.summary import Row

Sheet = tuple[str, list[tuple[str, list[str]]]]
"""A title, and columns: a heading and a cell for each row."""

_ASSUMPTIONS = (
    "Assumed: gradients go around a ring, whose latency grows with the ranks; every link is as fast as those measured, between machines "
    "too; as much communication hides behind the same computing as on the fewest ranks measured; inputs are on the devices already."
)
_COPIES = (
    "Copies: what sending each device its inputs would add if nothing hid it, all at once and as fast as on the fewest ranks measured."
)
_WHERE = ("param.ranks", "param.bytes", "case.dtype", "case.device", "case.run")
"""What tells a line of the table of collectives from another."""


def bandwidths(rows: Sequence[Row]) -> Sheet:
    """Return the table of collectives, of rows of the tidy table: bus bandwidth by ranks, size and operation; none without such rows."""
    known = [row for row in rows if row["rate.bus_bytes_per_s"] is not None and type(row.get("param.bytes")) is int]
    operations = list(dict.fromkeys(str(row["param.op"]) for row in known))
    lines: dict[tuple[ParamValue | None, ...], dict[str, Row]] = {}
    for row in sorted(known, key=lambda row: [wording.number(row[f"param.{name}"]) for name in ("ranks", "bytes")]):
        lines.setdefault(tuple(row[name] for name in _WHERE), {})[str(row["param.op"])] = row
    firsts = [next(iter(line.values())) for line in lines.values()]
    columns = [
        ("case", [units.byte_count(wording.number(row["param.bytes"])) for row in firsts]),
        ("device", _places(firsts, "case")),
        ("dtype", [str(row["case.dtype"] or "") for row in firsts]),
        ("ranks", [str(row["param.ranks"]) for row in firsts]),
    ]
    for operation in operations:
        found = [line.get(operation, {}).get("rate.bus_bytes_per_s") for line in lines.values()]
        columns.append((operation, [_cell(rate, units.byte_rate) for rate in found]))
    return _sheet("Collectives: bus bandwidth by size", columns)


def training(rows: Sequence[Row]) -> Sheet:
    """Return the table of what was trained for a time, of rows of the tidy table; none without such rows."""
    known = [row for row in rows if _trained(row)]
    columns = [
        ("case", [wording.short(wording.key(row)) for row in known]),
        ("device", _places(known, "case")),
        ("updates/s", [_value(row, "updates_per_s", units.three_digits) for row in known]),
        ("items/s", [_value(row, "items_per_s", units.three_digits) for row in known]),
        ("loss before", [_value(row, "loss_before", units.three_digits) for row in known]),
        ("after", [_value(row, "loss", units.three_digits) for row in known]),
        ("staleness (updates in between)", [_staleness(row) for row in known]),
    ]
    return _sheet("Trained for the same time: what waiting costs, and what not waiting costs", columns)


def tower(rows: Sequence[Row]) -> Sheet:
    """Return the table of the seven steps of each tower, of rows of the tidy table; none without such rows."""
    known = [row for row in rows if _trained(row) and row.get("value.replicate_s") is not None]
    steps = [name for name in (known[0] if known else ()) if name.startswith("value.") and name.endswith("_s") and "_per_" not in name]
    columns = [
        ("case", [wording.short(wording.key(row)) for row in known]),
        ("device", _places(known, "case")),
        *((name.removeprefix("value.").removesuffix("_s"), [_value(row, name[6:], units.seconds) for row in known]) for name in steps),
    ]
    return _sheet("The steps of a tower, by the clock of its first rank", columns)


def projection(rows: Sequence[Row]) -> Sheet:
    """Return the table of what was projected, with what was measured where it was; none without such rows."""
    known = [row for row in rows if row["scaling.projected_s"] is not None]
    columns = [
        *_what(known),
        ("step, projected", [_cell(row["scaling.projected_s"], units.seconds) for row in known]),
        ("copies, projected", [_cell(row["scaling.projected_copies_s"], units.seconds) for row in known]),
        ("items/s, projected", [_cell(row["scaling.projected_items_per_s"], units.item_rate) for row in known]),
        ("step, measured", [_cell(row["scaling.step_s"], units.seconds) for row in known]),
        ("error", [_cell(row["scaling.projection_error"], lambda error: f"{error * 100:+.1f} %") for row in known]),
    ]
    return _sheet("Projection, not measured: a data-parallel step on more devices", columns)


def assumptions(rows: Sequence[Row]) -> list[str]:
    """Return what the projection takes for granted, and how far off it was; nothing where there is none."""
    if all(row["scaling.projected_s"] is None for row in rows):
        return []
    told = [_ASSUMPTIONS, *([_COPIES] if any(row["scaling.projected_copies_s"] is not None for row in rows) else [])]
    errors = [abs(wording.number(row["scaling.projection_error"])) for row in rows if row["scaling.projection_error"] is not None]
    if not errors:
        return [*told, "No step of more ranks than it stands on was measured, so how far it is off is not known."]
    steps = wording.plural(len(errors), "measured step")
    return [*told, f"Checked on {steps} of more ranks than it stands on: off by {units.percent(max(errors))} at most."]


def _sheet(title: str, columns: Sequence[tuple[str, list[str]]]) -> Sheet:
    """Leave out the columns with nothing to show."""
    return title, [each for each in columns if any(each[1])]


def _what(rows: Sequence[Row]) -> list[tuple[str, list[str]]]:
    """Return the columns that tell rows of `efficiency.COLUMNS` apart."""
    return [
        ("case", [wording.short(row["scaling.work"]) for row in rows]),
        ("device", _places(rows, "scaling")),
        ("scaling", [str(row["scaling.kind"] or "") for row in rows]),
        ("ranks", [str(row["scaling.ranks"]) for row in rows]),
        ("cores each", [_cell(row["scaling.cores_per_rank"], lambda cores: f"{cores:.0f}") for row in rows]),
    ]


def _places(rows: Sequence[Row], prefix: str) -> list[str]:
    """Return where each row was measured; nothing where that is one place for all of them."""
    several = wording.several_runs(rows, prefix)
    places = [wording.place(row, prefix, several) for row in rows]
    return places if len(set(places)) > 1 else []


def _trained(row: Row) -> bool:
    """Whether a row is of a form that trains for a time."""
    return row["case.workload"] in sentences.TOLD_APART and row.get("value.updates_per_s") is not None


def _value(row: Row, name: str, text: Callable[[float], str]) -> str:
    value = row.get(f"value.{name}")
    return "" if isinstance(value, str) else _cell(value, text)


def _staleness(row: Row) -> str:
    """Return ``0: 12 %, 1: 80 %, 2-3: 8 %``: how many other updates came in between, and of how many of the updates."""
    prefix = "value.staleness_"
    numbers = {name: value for name, value in row.items() if name.startswith(prefix) and not isinstance(value, str)}
    counts = {name.removeprefix(prefix): wording.number(value or 0) for name, value in numbers.items()}
    whole = sum(counts.values())
    shares = {name.replace("_up", "+").replace("_", "-"): count / whole for name, count in counts.items() if count and whole}
    return ", ".join(f"{between}: {units.percent(share)}" for between, share in shares.items())


def _cell(value: ParamValue | None, text: Callable[[float], str]) -> str:
    return "" if value is None else text(wording.number(value))
