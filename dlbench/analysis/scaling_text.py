"""What more devices bring, in words: sentences, and the cells of its tables."""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import groupby

from dlbench.analysis import sentences, wording
from dlbench.core import units
from dlbench.core.model import Value
from dlbench.core.summary import Row

Sheet = tuple[str, list[tuple[str, list[str]]]]
"""A title, and columns: a heading and a cell for each row."""

_ON_CPU = (
    "Ranks on a CPU share its cores and its memory, so efficiency is that of its cores: "
    "it shows that a form works and what it costs here, not how accelerators scale."
)
_ASSUMPTIONS = (
    "Assumed: gradients go around a ring, whose latency grows with the ranks; every link is as fast as those measured, between machines "
    "too; as much communication hides behind the same computing as on the fewest ranks measured; inputs are on the devices already."
)
_COPIES = (
    "Copies: what sending each device its inputs would add if nothing hid it, all at once and as fast as on the fewest ranks measured."
)
_MEANINGS = {
    "memory": "peak of one device, on a CPU of one process: the highest of the ranks",
    "waits": "communication that a step waits for, the price of synchronising: the step less the same one without it, and its share",
    "bubble": "idle part of a pipeline's step, from steps with other numbers of microbatches; in theory (p - 1) / (m + p - 1)",
}
_WHERE = ("param.ranks", "param.bytes", "case.dtype", "case.device", "case.run")
"""What tells a line of the table of collectives from another."""
_MANY = 2  # from where on "a second GPU" is "4 GPUs"


def headlines(rows: Sequence[Row]) -> list[str]:
    """Return a sentence for each work on each kind of device: ``A second GPU buys 1.83 × (1.80…1.86): data_parallel ddp …, weak.``."""
    told = [row for row in rows if row["scaling.speedup"] is not None and row["scaling.verdict"] not in ("base", "implausible")]
    several = wording.several_runs(rows, "scaling")
    return [_headline(list(group), several) for _, group in groupby(told, key=_group)]


def table(rows: Sequence[Row]) -> Sheet:
    """Return the table of forms and devices; columns with nothing to show are left out, and cases with nothing to measure."""
    # The others are projections, or told below the table.
    rows = [row for row in rows if row["scaling.case"] and row["scaling.verdict"] not in ("unsupported", "skipped")]
    columns = [
        *_what(rows),
        ("items/s", [_cell(row["scaling.items_per_s"], lambda rate: units.item_rate(rate).removesuffix("/s")) for row in rows]),
        ("speed-up", [_cell(row["scaling.speedup"], _times) for row in rows]),
        (wording.INTERVAL, [_bounds(row) for row in rows]),
        ("efficiency", [_cell(row["scaling.efficiency"], units.percent) for row in rows]),
        ("memory", [_cell(row["scaling.memory_bytes"], units.byte_count) for row in rows]),
        ("waits", [_waits(row) for row in rows]),
        ("bubble", [_cell(row["scaling.bubble"], units.percent) for row in rows]),
        ("in theory", [_cell(row["scaling.bubble_theory"], units.percent) for row in rows]),
        ("verdict", [str(row["scaling.verdict"] or "") for row in rows]),
    ]
    return _sheet("More devices: what all do together, against one", columns)


def legend(sheet: Sheet) -> list[str]:
    """Return what the columns of that table mean whose names do not say it all, of those that it has."""
    shown = dict(sheet[1])
    return [f"{name}: {meaning}" for name, meaning in _MEANINGS.items() if name in shown]


def bandwidths(rows: Sequence[Row]) -> Sheet:
    """Return the table of collectives, of rows of the tidy table: bus bandwidth by ranks, size and operation; none without such rows."""
    known = [row for row in rows if row["rate.bus_bytes_per_s"] is not None and type(row.get("param.bytes")) is int]
    operations = list(dict.fromkeys(str(row["param.op"]) for row in known))
    lines: dict[tuple[Value | None, ...], dict[str, Row]] = {}
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
        *((name.removeprefix("value.").removesuffix("_s"), [_cell(row[name], units.seconds) for row in known]) for name in steps),
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


def notes(rows: Sequence[Row]) -> list[str]:
    """Return what a reader of the table has to know, and why cells are empty."""
    lines = [_ON_CPU] if any(row["scaling.device"] == "cpu" for row in rows) else []
    counts = Counter(str(row["scaling.reason"]) for row in rows if row["scaling.case"] and row["scaling.reason"])
    return [*lines, *(units.one_line(f"{wording.plural(count, 'case')}: {reason}") for reason, count in counts.items())]


def _group(row: Row) -> tuple[Value | None, ...]:
    return row["scaling.work"], row["scaling.kind"], row["scaling.device"], row["scaling.run"]


def _headline(rows: Sequence[Row], several: bool) -> str:
    first = rows[0]
    if first["scaling.device"] == "cpu":
        gains = [f"{_ranks(row)} do {_gain(row)} the work of one rank with {_of_base(row)}" for row in rows]
    else:
        gains = [f"{_devices(row)} {_gain(row)}" for row in rows]
        gains[0] = gains[0].replace(_devices(first), f"{_devices(first)} {'buys' if first['scaling.ranks'] == _MANY else 'buy'}", 1)
    text = ", ".join(gains)
    about = [wording.short(first["scaling.work"]), str(first["scaling.kind"] or ""), str(first["scaling.run"]) if several else ""]
    return units.one_line(f"{text[0].upper()}{text[1:]}: {', '.join(filter(None, about))}.")


def _devices(row: Row) -> str:
    noun = "GPU" if str(row["scaling.device"]).partition(":")[0] in ("cuda", "xpu", "mps") else "device"
    return f"a second {noun}" if row["scaling.ranks"] == _MANY else f"{row['scaling.ranks']} {noun}s"


def _ranks(row: Row) -> str:
    """Return ``4``, or on a CPU ``2 ranks of 1 core``."""
    cores = row["scaling.cores_per_rank"]
    return str(row["scaling.ranks"]) if cores is None else f"{_plural(row['scaling.ranks'], 'rank')} of {_plural(cores, 'core')}"


def _of_base(row: Row) -> str:
    """Return the cores that the base has in all: as many as it has itself, where it has as many times the resources of one."""
    mine = wording.number(row["scaling.ranks"]) * wording.number(row["scaling.cores_per_rank"] or 1)
    return _plural(round(mine / wording.number(row["scaling.resources"])), "core")


def _plural(count: Value | None, noun: str) -> str:
    return wording.plural(int(wording.number(count)), noun)


def _gain(row: Row) -> str:
    return f"{_times(wording.number(row['scaling.speedup']))} ({_bounds(row) or 'too few rounds for an interval'})"


def _times(ratio: float) -> str:
    return f"{units.three_digits(ratio)} ×"


def _bounds(row: Row) -> str:
    if row["scaling.speedup_low"] is None or row["scaling.verdict"] == "base":
        return ""
    return "…".join(units.three_digits(wording.number(row[f"scaling.speedup_{end}"])) for end in ("low", "high"))


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


def _waits(row: Row) -> str:
    """Return ``55.7 ms (11.0 %)``."""
    exposed, step = row["scaling.exposed_s"], row["scaling.step_s"]
    if exposed is None or not step:
        return ""
    exposed_s, step_s = wording.number(exposed), wording.number(step)
    return f"{units.seconds(exposed_s)} ({units.percent(exposed_s / step_s)})"


def _places(rows: Sequence[Row], prefix: str) -> list[str]:
    """Return where each row was measured; nothing where that is one place for all of them."""
    several = wording.several_runs(rows, prefix)
    places = [wording.place(row, prefix, several) for row in rows]
    return places if len(set(places)) > 1 else []


def _trained(row: Row) -> bool:
    """Whether a row is of a form that trains for a time."""
    return row["case.workload"] in sentences.TOLD_APART and row.get("value.updates_per_s") is not None


def _value(row: Row, name: str, text: Callable[[float], str]) -> str:
    return _cell(row.get(f"value.{name}"), text)


def _staleness(row: Row) -> str:
    """Return ``0: 12 %, 1: 80 %, 2-3: 8 %``: how many other updates came in between, and of how many of the updates."""
    prefix = "value.staleness_"
    counts = {name.removeprefix(prefix): wording.number(value or 0) for name, value in row.items() if name.startswith(prefix)}
    whole = sum(counts.values())
    shares = {name.replace("_up", "+").replace("_", "-"): count / whole for name, count in counts.items() if count and whole}
    return ", ".join(f"{between}: {units.percent(share)}" for between, share in shares.items())


def _cell(value: Value | None, text: Callable[[float], str]) -> str:
    return "" if value is None else text(wording.number(value))
