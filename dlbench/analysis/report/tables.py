"""Tables shown on request: slowest layers, projections, bandwidths of collectives, and the values of workloads that report many."""

from collections.abc import Callable, Collection, Container, Sequence
from operator import attrgetter

from dlbench.analysis.answers.bottleneck.steps import layers
from dlbench.analysis.answers.devices import naming_columns
from dlbench.analysis.answers.engine.question import Table, detail, shown, table
from dlbench.analysis.presentation import names, wording
from dlbench.analysis.presentation.columns import KEY, Entry, of_row, place, value_column
from dlbench.analysis.ratios.matching import grouped
from dlbench.analysis.read.table import Results
from dlbench.analysis.report import sentences
from dlbench.analysis.report.screen import ScreenColumn, ScreenTable
from dlbench.analysis.scaling.projection import ERROR, PROJECTED_COPIES_S, PROJECTED_ITEMS_PER_S, PROJECTED_S, STEP_S, Projection
from dlbench.core import units
from dlbench.core.declarations import ValueRole
from dlbench.core.rows.row import Row

_ASSUMPTIONS = (
    "Assumed: gradients go around a ring, whose latency grows with the ranks; every link is as fast as those measured, between machines "
    "too; as much communication hides behind the same computing as on the fewest ranks measured; inputs are on the devices already."
)
_COPIES = (
    "Copies: what sending each device its inputs would add if nothing hid it, all at once and as fast as on the fewest ranks measured."
)


_PROJECTED = (
    PROJECTED_S.headed("step, projected"),
    PROJECTED_COPIES_S.headed("copies, projected"),
    PROJECTED_ITEMS_PER_S.headed("items/s, projected"),
    STEP_S.on(attrgetter("step")).headed("step, measured"),
    ERROR.headed("error"),
)
_FEW = 3
"""Values that stand in the notes of a case; where there are more, all stand in a table of their own."""
_ERRORS: tuple[ValueRole, ...] = ("error", "product_error")


def projection(found: Sequence[Projection]) -> Table:
    """Return the table of projected steps, with notes on assumptions and on the error where a step was measured, too."""
    notes = [_ASSUMPTIONS] if found else []
    if any(each.projected_copies_s is not None for each in found):
        notes.append(_COPIES)
    if errors := [abs(each.projection_error) for each in found if each.projection_error is not None]:
        measured = wording.plural(len(errors), "measured step")
        notes.append(f"Checked on {measured} of more ranks: off by {units.percent(max(errors))} at most.")
    elif found:
        notes.append("No step of more ranks than it stands on was measured, so how far it is off is not known.")
    title = "Projection, not measured: a data-parallel step on more devices"
    distinguishing = [each.on(attrgetter("step")) for each in naming_columns([each.step for each in found])]
    return table(title, (*distinguishing, *_PROJECTED), found, notes)


_LAYERS: Sequence[Entry] = (
    shown("layer.step", "text", "step", "the step whose time shares are of", lambda found: found.row.key),
    place,
    of_row(lambda row: row.time.median_s, "its time"),
    shown("layer.name", "text", "layer", "as the network calls it", lambda found: found.layer.name or "the network itself"),
    detail("layer.class", "text", "class", "its class", lambda found: found.layer.kind),
    detail("layer.forward_s", "s", "forward", "without the layers in it", lambda found: found.layer.forward_s),
    detail("layer.backward_s", "s", "backward", "the same", lambda found: found.layer.backward_s),
    shown("layer.share", "fraction", "of the step", "both over the time of the step"),
)


def slowest_layers(results: Results) -> Table:
    """Return the table of the slowest layers of the steps that the answer on the bottleneck names; no rows where none was profiled."""
    found = layers(results)
    by_step = grouped(found, lambda each: each.row)
    notes = [f"of {wording.brief(row.key)} they take {units.percent(sum(each.share for each in alike))}" for row, alike in by_step.items()]
    return table("Slowest layers of a step", _LAYERS, found, notes)


def value_notes(row: Row) -> list[str]:
    """Return the values of a row as texts such as ``p99 12.3 ms``, without the series of a product.

    Of more than `_FEW` values only some are shown, and ``…``: first those that are not zero, then those that can be better or worse.
    """
    values = {each: row.values[wording.value_name(each)] for each in row.value_columns if not (each.series and _errors(row))}
    chosen = list(values)
    omission = []
    if len(values) > _FEW:
        zero = {each for each, value in values.items() if not (any(value) if isinstance(value, Sequence) else value)}
        room = _FEW - any(each.series for each in values)  # a series is long
        chosen = sorted(values, key=lambda each: (each in zero, each.better is None))[:room]
        omission = ["…"]
    return [*(f"{wording.value_words(each)} {wording.cell(values[each], each)}" for each in chosen), *omission]


def values(results: Results) -> list[Table]:
    """Return a table of the values of each workload that reports many, or errors, one for each set of them."""
    many = [row for row in results.rows if len(row.value_columns) > _FEW or _errors(row)]
    groups = grouped(many, lambda row: (row.case.workload, row.value_columns))
    return [
        table(
            f"Values of {workload}",
            (KEY, place, *map(value_column, columns)),
            rows,
            [units.one_line(f"{wording.value_words(each)}: {each.meaning}") for each in columns],
        )
        for (workload, columns), rows in groups.items()
    ]


def _errors(row: Row) -> set[str]:
    """Return the columns of the errors that a row has."""
    return {each.column.name for each in row.described if each.role in _ERRORS and each.name in row.values}


_TEXT_HEADINGS = frozenset({"case", "device", "file", "notes"})
"""Headings of columns without numbers."""


def order_rows(rows: Sequence[Row]) -> list[Row]:
    """Return the rows in the order of the table; devices that ran the same work stand one below the other.

    First come steps of networks, then other work of networks, products and convolutions, transfers and storage, and small things.
    """
    return names.flat(grouped(sorted(rows, key=_rank), lambda row: row.key))


def _rank(row: Row) -> int:
    """Return the place of a row's group in the table, from 0 on."""
    tags = row.declared.tags
    if row.declared.is_step:
        return 0
    if "model" in row.params:
        return 1
    if "compute" in tags:
        return 2
    moves_data = "copy" in tags or "supply" in tags or row.declared.parameter("collective_op") is not None
    return 3 if moves_data else 4


def case_columns(rows: Sequence[Row], shared: Collection[str] = (), *, with_legends: bool = False) -> list[ScreenColumn]:
    """Return the columns of the table of cases, without those that have nothing to show.

    ``shared``: marks that all rows have, which the notes leave out. ``with_legends``: columns have a note on the meaning of their heading.
    """
    legends = sentences.legends(rows) if with_legends else {}
    columns = []
    for heading, texts in _texts_by_heading(rows, shared).items():
        if heading == "case" or any(texts):
            is_number = heading not in _TEXT_HEADINGS
            priority = -1 if heading == "time" else int(is_number)  # a narrow screen leaves out numbers first, and the time last
            legend = f"{heading}: {legends[heading]}" if heading in legends else ""
            columns.append(ScreenColumn(heading, texts, is_number, priority, legend))
    return columns


def _texts_by_heading(rows: Sequence[Row], shared: Collection[str]) -> dict[str, list[str]]:
    """Return the cells of each column of the table of cases, by its heading.

    A column with nothing to show has no cells, or only empty ones. ``shared`` is as in `case_columns`.
    """
    several_runs = names.several_runs(rows)
    labels = [names.device_label(row, several_runs) for row in rows]  # with the name of the run if there are several
    files = [row.file for row in rows]
    # A run is a file, whose name the label has already, or all files of a machine, which a column of its own then tells apart.
    is_each_run_one_file = files == [row.case.run for row in rows]
    spreads = list(map(sentences.spread, rows))
    kinds = {kind for kind, _ in spreads if kind}
    # Heading of the column of spreads. If rows have several kinds, a cell of another kind than the heading begins with its kind.
    common_kind = kinds.pop() if len(kinds) == 1 else wording.INTERVAL
    return {
        "case": [wording.short(row.key) for row in rows],
        "device": labels if len(set(labels)) > 1 else [],
        "file": [] if is_each_run_one_file else files,
        "time": list(map(_time, rows)),
        common_kind: [ends if kind == common_kind else f"{kind} {ends}".strip() for kind, ends in spreads],
        "rounds": [str(row.time.rounds or "") for row in rows] if sentences.common_rounds(rows) is None else [],
        "items/s": [_shown(row.rate.items_per_s, units.item_rate).removesuffix("/s") for row in rows],
        "FLOP/s": [_shown(row.rate.flops_per_s, units.flop_rate).removesuffix("FLOP/s") for row in rows],
        "peak": [sentences.share_of("peak", row) for row in rows],
        "ceiling": [sentences.share_of("ceiling", row) for row in rows],
        "memory": [_shown(row.memory.peak_bytes or row.memory.host_peak_bytes, units.byte_count) for row in rows],
        "copies": [_shown(row.transfer.share, units.percent) for row in rows],
        "notes": [", ".join([*sentences.notes(row, shared), *value_notes(row)]) for row in rows],
    }


def cases_table(
    rows: Sequence[Row], shared: Collection[str] = (), reasons_below: Container[str] = (), *, with_legends: bool = False
) -> ScreenTable:
    """Return the table of cases, in the order of `order_rows`.

    ``shared`` and ``with_legends`` are as in `case_columns`. ``reasons_below``: endings whose reason is below the whole table.
    """
    rows = order_rows(rows)
    troubled = {at: row for at, row in enumerate(rows) if row.case.status and not row.is_ok}
    styles = {at: "red" if row.is_failure else "yellow" for at, row in troubled.items()}
    below = {at: text for at, row in enumerate(rows) if row.ending not in reasons_below and (text := trouble(row))}
    return ScreenTable(case_columns(rows, shared, with_legends=with_legends), styles, below)


def trouble(row: Row) -> str:
    """Return the line below a case: why it did not go well or is implausible; else an empty text."""
    if row.case.status and not row.is_ok:
        return row.reason
    return (row.flag.implausible_reason or "") if row.flag.implausible else ""


def _time(row: Row) -> str:
    if row.case.status and not row.is_ok:  # None: planned, and not measured yet
        return names.status(row)
    return _shown(row.time.median_s, units.seconds)


def _shown(value: float | None, text: Callable[[float], str]) -> str:
    return "" if value is None else text(value)
