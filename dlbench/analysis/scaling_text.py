"""What more devices bring, in words: sentences, and the cells of its tables."""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import groupby

from dlbench.analysis import sentences
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
_MANY = 2  # from where on "a second GPU" is "4 GPUs"


def headlines(rows: Sequence[Row]) -> list[str]:
    """Return a sentence for each work on each kind of device: ``A second GPU buys 1.83 × (1.80…1.86): data_parallel ddp …, weak.``."""
    told = [row for row in rows if row["scaling.speedup"] is not None and row["scaling.verdict"] not in ("base", "implausible")]
    several = sentences.several_runs(rows, "scaling")
    return [_headline(list(group), several) for _, group in groupby(told, key=_group)]


def table(rows: Sequence[Row]) -> Sheet:
    """Return the table of forms and devices; columns with nothing to show are left out."""
    rows = [row for row in rows if row["scaling.case"]]  # the others are projections
    several = sentences.several_runs(rows, "scaling")
    columns = [
        ("case", [sentences.short(row["scaling.work"]) for row in rows]),
        ("device", [sentences.place(row, "scaling", several) for row in rows]),
        ("scaling", [str(row["scaling.kind"] or "") for row in rows]),
        ("ranks", [_ranks(row) for row in rows]),
        ("items/s", [_cell(row["scaling.items_per_s"], lambda rate: units.item_rate(rate).removesuffix("/s")) for row in rows]),
        ("speed-up", [_cell(row["scaling.speedup"], _times) for row in rows]),
        (sentences.INTERVAL, [_bounds(row) for row in rows]),
        ("efficiency", [_cell(row["scaling.efficiency"], units.percent) for row in rows]),
        ("memory of each", [_cell(row["scaling.memory_bytes"], units.byte_count) for row in rows]),
        ("waits for others", [_exposed(row) for row in rows]),
        ("bubble", [_bubble(row) for row in rows]),
        ("verdict", [str(row["scaling.verdict"] or "") for row in rows]),
    ]
    return "More devices: what all do together, against one", [each for each in columns if any(each[1])]


def bandwidths(rows: Sequence[Row]) -> Sheet:
    """Return the table of collectives, of rows of the tidy table: bus bandwidth by operation, ranks and size; none without such rows."""
    known = [row for row in rows if row["rate.bus_bytes_per_s"] is not None]
    sizes = sorted({int(sentences.number(row["param.bytes"])) for row in known})
    lines: dict[tuple[str, ...], dict[int, Row]] = {}
    several = sentences.several_runs(known, "case")
    for row in known:
        head = str(row["param.op"]), str(row["param.ranks"]), str(row["case.dtype"] or ""), sentences.place(row, "case", several)
        lines.setdefault(head, {})[int(sentences.number(row["param.bytes"]))] = row
    heads = [list(column) for column in zip(*lines, strict=True)]
    columns = list(zip(("case", "ranks", "dtype", "device"), heads, strict=bool(heads)))
    for size in sizes:
        cells = [_cell(line[size]["rate.bus_bytes_per_s"] if size in line else None, units.byte_rate) for line in lines.values()]
        columns.append((units.byte_count(size), cells))
    return "Collectives: bus bandwidth by size", columns if known else []


def projection(rows: Sequence[Row]) -> Sheet:
    """Return the table of what was projected, with what was measured where it was; none without such rows."""
    known = [row for row in rows if row["scaling.projected_s"] is not None]
    several = sentences.several_runs(known, "scaling")
    columns = [
        ("case", [sentences.short(row["scaling.work"]) for row in known]),
        ("device", [sentences.place(row, "scaling", several) for row in known]),
        ("scaling", [str(row["scaling.kind"] or "") for row in known]),
        ("ranks", [_ranks(row) for row in known]),
        ("step, projected", [_cell(row["scaling.projected_s"], units.seconds) for row in known]),
        ("copies, projected", [_cell(row["scaling.projected_copies_s"], units.seconds) for row in known]),
        ("items/s, projected", [_cell(row["scaling.projected_items_per_s"], units.item_rate) for row in known]),
        ("step, measured", [_cell(row["scaling.step_s"], units.seconds) for row in known]),
        ("error", [_cell(row["scaling.projection_error"], lambda error: f"{error * 100:+.1f} %") for row in known]),
    ]
    return "Projection, not measured: a data-parallel step on more devices", [each for each in columns if any(each[1])]


def assumptions(rows: Sequence[Row]) -> list[str]:
    """Return what the projection takes for granted, and how far off it was; nothing where there is none."""
    if all(row["scaling.projected_s"] is None for row in rows):
        return []
    told = [_ASSUMPTIONS, *([_COPIES] if any(row["scaling.projected_copies_s"] is not None for row in rows) else [])]
    errors = [abs(sentences.number(row["scaling.projection_error"])) for row in rows if row["scaling.projection_error"] is not None]
    if not errors:
        return [*told, "No step of more ranks than it stands on was measured, so how far it is off is not known."]
    steps = sentences.plural(len(errors), "measured step")
    return [*told, f"Checked on {steps} of more ranks than it stands on: off by {units.percent(max(errors))} at most."]


def notes(rows: Sequence[Row]) -> list[str]:
    """Return what a reader of the table has to know, and why cells are empty."""
    lines = [_ON_CPU] if any(row["scaling.device"] == "cpu" for row in rows) else []
    counts = Counter(str(row["scaling.reason"]) for row in rows if row["scaling.case"] and row["scaling.reason"])
    return [*lines, *(units.one_line(f"{sentences.plural(count, 'case')}: {reason}") for reason, count in counts.items())]


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
    about = [sentences.short(first["scaling.work"]), str(first["scaling.kind"] or ""), str(first["scaling.run"]) if several else ""]
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
    mine = sentences.number(row["scaling.ranks"]) * sentences.number(row["scaling.cores_per_rank"] or 1)
    return _plural(round(mine / sentences.number(row["scaling.resources"])), "core")


def _plural(count: Value | None, noun: str) -> str:
    return sentences.plural(int(sentences.number(count)), noun)


def _gain(row: Row) -> str:
    return f"{_times(sentences.number(row['scaling.speedup']))} ({_bounds(row) or 'too few rounds for an interval'})"


def _times(ratio: float) -> str:
    return f"{units.three_digits(ratio)} ×"


def _bounds(row: Row) -> str:
    if row["scaling.speedup_low"] is None or row["scaling.verdict"] == "base":
        return ""
    return "…".join(units.three_digits(sentences.number(row[f"scaling.speedup_{end}"])) for end in ("low", "high"))


def _exposed(row: Row) -> str:
    if row["scaling.exposed_s"] is None:
        return ""
    text = units.seconds(sentences.number(row["scaling.exposed_s"]))
    if row["scaling.exposed_low_s"] is None:
        return text
    low, high = (units.seconds(sentences.number(row[f"scaling.exposed_{end}_s"])) for end in ("low", "high"))
    return f"{text} ({low}…{high})"


def _bubble(row: Row) -> str:
    theory, measured = row["scaling.bubble_theory"], row["scaling.bubble"]
    if theory is None:
        return ""
    return f"{_cell(measured, units.percent) or '?'} (theory {units.percent(sentences.number(theory))})"


def _cell(value: Value | None, text: Callable[[float], str]) -> str:
    return "" if value is None else text(sentences.number(value))
