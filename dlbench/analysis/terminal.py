"""Rows and ratios as tables for people. The door to rich tables."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from dlbench.analysis import scaling_text, sentences, wording
from dlbench.analysis.findings import Pairs, best, pair
from dlbench.analysis.projection import projected
from dlbench.analysis.table import Results, records
from dlbench.core import units
from dlbench.core.model import Status, Value
from dlbench.core.summary import Rounds, Row, ending

_Columns = list[tuple[str, list[Text]]]


def overview(results: Results) -> RenderableType:
    """Return all that result files say to a person.

    The answer in a sentence, every case and, where a CPU and another device were measured, how many times as fast that is:
    on the same case, and each at its own best.
    """
    rows = results.rows  # not of the frame, which makes text of a column of numbers and texts
    told = [Text(units.one_line(line), style="dim") for line in (*sentences.reasons(rows), *results.circumstances)]
    many = sentences.many_alike(rows)
    entries = [(row, each) for row, each in zip(rows, results.rounds, strict=True) if ending(row) not in many]
    shown, rounds = [row for row, _ in entries], [each for _, each in entries]
    table = [results_table(shown, rounds), *[Text(line, style="yellow") for line in many.values()], *legend(shown, rounds)]
    cases = [Text(sentences.count(rows)), *_devices(rows), *table, *told]
    answer, tables = more_devices(projected(results))
    for sheet in (scaling_text.training, scaling_text.tower, scaling_text.bandwidths):
        tables += _sheet(sheet(rows))
    if {row["case.device"] == "cpu" for row in rows} == {True, False}:
        faster, pairs = _speedups(pair(results, "device"), best(results))
        answer, tables = [*faster, *answer], [*pairs, *tables]
    return Group(*answer, *cases, *tables)


def more_devices(rows: Sequence[Row]) -> tuple[list[RenderableType], list[RenderableType]]:
    """Return what more devices bring in sentences, and the table behind it; nothing without rows of `projection.projected`."""
    if not rows:
        return [], []
    answer: list[RenderableType] = [Text(line, style="bold") for line in scaling_text.headlines(rows)]
    sheet = scaling_text.table(rows)
    tables = [*_sheet(sheet), *_dim([*scaling_text.legend(sheet), *scaling_text.notes(rows)])]
    return answer, [*tables, *_sheet(scaling_text.projection(rows)), *_dim(scaling_text.assumptions(rows))]


def _dim(lines: Sequence[str]) -> list[RenderableType]:
    return [Text(line, style="dim") for line in lines]


def _sheet(sheet: scaling_text.Sheet) -> list[RenderableType]:
    """Return a table behind an empty line; nothing for one without columns."""
    title, columns = sheet
    return [Text(), _Fitting(title, [(heading, [_text(cell) for cell in cells]) for heading, cells in columns])] if columns else []


def paired(results: Results, pairs: Pairs) -> RenderableType:
    """Return what pairing the rows by one column says; by device, also each device at its own best."""
    lines = _devices(results.rows)
    if pairs.frame.empty:
        return Group(*lines, Text("No two ok rows differ in that column alone."))
    if pairs.frame["pair.by"].iloc[0] != "case.device":
        told = sentences.device_times(records(pairs.frame))
        return Group(*lines, pairs_table(pairs), *_dim(told))
    answer, tables = _speedups(pairs, best(results))
    return Group(*answer, *lines, *tables)


def _speedups(same: Pairs, own_best: Pairs) -> tuple[list[RenderableType], list[RenderableType]]:
    """Return the answer in sentences, and the tables behind it."""
    tables: list[RenderableType] = [table(pairs) for table, pairs in ((pairs_table, same), (best_table, own_best)) if not pairs.frame.empty]
    return [Text(line, style="bold") for line in sentences.headlines(same, own_best)], [Text(), *tables]


def results_table(rows: Sequence[Row], rounds: Sequence[Rounds]) -> RenderableType:
    """Return the table of cases; ``rounds[i]`` is what the rounds of ``rows[i]`` gave.

    Devices that ran the same work stand one below the other. A column with nothing to show is left out; where the screen is too
    narrow for the others, so are some of them, and a line below the table says which.
    """
    several = wording.several_runs(rows, "case")
    entries = _together(rows, rounds)
    spreads = [sentences.spread(row, each) for row, each in entries]
    kinds = {kind for kind, _ in spreads if kind}
    interval = kinds.pop() if len(kinds) == 1 else wording.INTERVAL
    ordered = [row for row, _ in entries]
    places = [wording.place(row, "case", several) for row in ordered]
    columns: _Columns = [
        ("case", [_case_cell(row) for row in ordered]),
        ("device", [_text(place) for place in places] if len(set(places)) > 1 else []),
        ("time", [_time_cell(row) for row in ordered]),
        (interval, [_text(span if kind == interval else f"{kind} {span}") for kind, span in spreads]),
        ("rounds", [_text(row["time.rounds"] or "") for row in ordered] if sentences.common_rounds(rows) is None else []),
        ("items/s", [_shown(row["rate.items_per_s"], lambda rate: units.item_rate(rate).removesuffix("/s")) for row in ordered]),
        ("FLOP/s", [_shown(row["rate.flops_per_s"], lambda rate: units.flop_rate(rate).removesuffix("FLOP/s")) for row in ordered]),
        ("peak", [_text(sentences.share_of_peak(row)) for row in ordered]),
        ("memory", [_shown(row["memory.peak_bytes"] or row["memory.host_peak_bytes"], units.byte_count) for row in ordered]),
        ("copies", [_shown(row["transfer.share"], units.percent) for row in ordered]),
        ("notes", [_text(", ".join(sentences.notes(row))) for row in ordered]),
    ]
    return _Fitting(None, [(title, cells) for title, cells in columns if title == "case" or any(cell.plain for cell in cells)])


def legend(rows: Sequence[Row], rounds: Sequence[Rounds]) -> list[RenderableType]:
    """Return a line for each mark that the table of these rows has: what it means and what to do."""
    return [Text(f"{mark}: {sentence}", style="dim") for mark, sentence in sentences.marks(rows, rounds).items()]


def pairs_table(pairs: Pairs) -> Table:
    """Return the ratios of rows that differ in one column: how many times as fast the other is."""
    rows = records(pairs.frame)
    several = wording.several_runs(rows, "base", "other")
    by = str(rows[0]["pair.by"]) if rows else ""
    columns: _Columns = [("case", [_text(wording.short(row["pair.case"])) for row in rows])]
    if by != "case.device":
        columns.append(("device", [_text(wording.place(row, "other", several and by != "case.run")) for row in rows]))
    if sentences.device_times(rows):
        columns.append(("which time", [_text(row["pair.time"] or "") for row in rows]))
    for side in ("base", "other"):
        labels = [wording.place(row, side, several) if by == "case.device" else str(row[f"{side}.value"]) for row in rows]
        compared = [row[f"{side}.{'device' if row['pair.time'] == 'device' else 'median'}_s"] for row in rows]
        columns += _side(side, labels, "time", [_shown(seconds, units.seconds) for seconds in compared])
    same = "The same case on both sides" if by == "case.device" else f"The same case with another {by}"
    return _table(f"{same}: how many times as fast", columns + _ratios(rows))


def best_table(pairs: Pairs) -> Table:
    """Return the ratios of throughputs, each side at a batch, precision and layout of its own."""
    rows = records(pairs.frame)
    several = wording.several_runs(rows, "base", "other")
    columns: _Columns = [("work", [_text(wording.short(row["pair.case"])) for row in rows])]
    for side in ("base", "other"):
        labels = [wording.place(row, side, several) for row in rows]
        columns += _side(side, labels, "throughput", [_text(sentences.throughput(row, side)) for row in rows])
        columns.append(("at", [_text(wording.choice(row, side)) for row in rows]))
    return _table("Each side at its own best batch, precision and layout: how many times the throughput", columns + _ratios(rows))


@dataclass(frozen=True)
class _Fitting:
    """A table that drops columns on a narrow screen, the least missed first, rather than squeeze the case into a few letters."""

    title: str | None
    columns: _Columns

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        shown, dropped = self.columns, []
        for title in _LEAST_MISSED:
            if _least_width(shown) > options.max_width and title in dict(shown):
                shown = [column for column in shown if column[0] != title]
                dropped.append(title)
        yield _table(self.title, shown)
        if dropped:
            yield Text(f"not shown at this width: {', '.join(reversed(dropped))}; widen the terminal, or use --format csv\n", style="dim")


def _least_width(columns: _Columns) -> int:
    """Return the screen columns that all of them take where the case has no more than it needs to be read."""
    widths = [max(len(title), *(cell.cell_len for cell in cells)) if cells else len(title) for title, cells in columns[1:]]
    return _CASE_WIDTH + sum(width + 2 for width in widths)


_CASE_WIDTH = 24
_LEAST_MISSED = (
    *("peak", "copies", "in theory", "memory", "FLOP/s", "scaling", "items/s", "items/s, projected"),
    *(wording.INTERVAL, "bubble", "waits"),
)
"""The first is the first to go."""


def _devices(rows: Sequence[Row]) -> list[RenderableType]:
    return [Text(line, style="dim") for line in sentences.devices(rows)]


def _table(title: str | None, columns: _Columns) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for name, _ in columns:
        # Words fold where the screen is narrow, a number never: half of one is another number.
        words = name in _WORDS
        table.add_column(_text(name), justify="left" if words else "right", overflow="fold" if words else "ellipsis", no_wrap=not words)
    for cells in zip(*(cells for _, cells in columns), strict=True):
        table.add_row(*cells)
    return table


_WORDS = ("case", "work", "device", "base", "other", "at", "notes", "scaling", "verdict", "staleness (updates in between)")


def _side(side: str, labels: list[str], title: str, cells: list[Text]) -> _Columns:
    """Return one column headed by the side's label where all rows share it, else the labels in a column of their own."""
    if len(set(labels)) == 1:
        return [(labels[0], cells)]
    return [(side, [_text(label) for label in labels]), (title, cells)]


def _ratios(rows: Sequence[Row]) -> _Columns:
    intervals = [wording.bounds(row) or "too few rounds" for row in rows]
    return [
        ("ratio", [Text(wording.times(row), style="bold") for row in rows]),
        (wording.INTERVAL, [_text(interval) for interval in intervals]),
    ]


def _together(rows: Sequence[Row], rounds: Sequence[Rounds]) -> list[tuple[Row, Rounds]]:
    """Return the rows with those of the same work next to each other, in the order in which each work came first."""
    groups: dict[str, list[tuple[Row, Rounds]]] = {}
    for row, each in zip(rows, rounds, strict=True):
        groups.setdefault(wording.key(row), []).append((row, each))
    return [entry for group in groups.values() for entry in group]


def _case_cell(row: Row) -> Text:
    cell = _text(wording.short(wording.key(row)))
    if row["case.status"] not in ("ok", None):
        cell.append(f"\n{units.one_line(ending(row)[1])}", style="yellow")
    elif row["flag.implausible"]:
        cell.append(f"\n{units.one_line(str(row['flag.implausible_reason']))}", style="yellow")
    return cell


def _time_cell(row: Row) -> Text:
    if row["case.status"] in ("ok", None):  # None: planned, and not measured yet
        return _shown(row["time.median_s"], units.seconds)
    return Text(str(row["case.status"]), style="red" if Status(str(row["case.status"])).is_failure else "yellow")


def _shown(value: Value | None, text: Callable[[float], str]) -> Text:
    return Text("" if value is None else text(wording.number(value)))


def _text(value: Value) -> Text:
    return Text(units.one_line(str(value)))
