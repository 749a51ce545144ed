"""Table of cases as words: the same columns on a terminal and on a page."""

from collections.abc import Callable, Sequence
from itertools import chain

from dlbench.analysis import wording
from dlbench.analysis.ratios import grouped
from dlbench.analysis.read.places import file_of
from dlbench.analysis.report import detail_tables, sentences
from dlbench.core import units
from dlbench.core.model import ParamValue
from dlbench.core.rows.row import Cells as Row
from dlbench.core.rows.row import ending
from dlbench.core.rows.summary import Rounds
from dlbench.core.schema import Column

WORDS = frozenset({"case", "device", "file", "notes"})
"""Headings of columns without numbers."""


def ordered(rows: Sequence[Row], rounds: Sequence[Rounds]) -> list[tuple[Row, Rounds]]:
    """Return the rows with their rounds; devices that ran the same work stand one below the other."""
    return list(chain.from_iterable(grouped(zip(rows, rounds, strict=True), lambda entry: wording.key(entry[0])).values()))


def columns(entries: Sequence[tuple[Row, Rounds]], declared: Callable[[Row], Sequence[Column]]) -> list[tuple[str, list[str]]]:
    """Return each heading with a text for each entry; ``declared`` returns the columns of a row's values.

    A column with nothing to show is left out.
    """
    rows = [row for row, _ in entries]
    several = wording.several_runs(rows, "case")
    spreads = [sentences.spread(row, rounds) for row, rounds in entries]
    kinds = {kind for kind, _ in spreads if kind}
    interval = kinds.pop() if len(kinds) == 1 else wording.INTERVAL
    labels = [wording.device_label(row, "case", several) for row in rows]
    files = [file_of(row) for row in rows]
    found = [
        ("case", [wording.short(wording.key(row)) for row in rows]),
        ("device", labels if len(set(labels)) > 1 else []),
        ("file", files if files != [str(row["case.run"]) for row in rows] else []),
        ("time", [_time(row) for row in rows]),
        (interval, [span if kind == interval else f"{kind} {span}" for kind, span in spreads]),
        ("rounds", [str(row["time.rounds"] or "") for row in rows] if sentences.common_rounds(rows) is None else []),
        ("items/s", [_shown(row["rate.items_per_s"], lambda rate: units.item_rate(rate).removesuffix("/s")) for row in rows]),
        ("FLOP/s", [_shown(row["rate.flops_per_s"], lambda rate: units.flop_rate(rate).removesuffix("FLOP/s")) for row in rows]),
        *((what, [sentences.share_of(what, row) for row in rows]) for what in ("peak", "ceiling")),
        ("memory", [_shown(row["memory.peak_bytes"] or row["memory.host_peak_bytes"], units.byte_count) for row in rows]),
        ("copies", [_shown(row["transfer.share"], units.percent) for row in rows]),
        ("notes", [", ".join([*sentences.notes(row), *detail_tables.value_notes(declared(row), row)]) for row in rows]),
    ]
    texts = [(title, [units.one_line(cell) for cell in cells]) for title, cells in found]
    return [(title, cells) for title, cells in texts if title == "case" or any(cells)]


def trouble(row: Row) -> str:
    """Return what stands below a case: why it did not go well, or can't be true; else an empty text."""
    if row["case.status"] not in ("ok", None):
        return units.one_line(ending(row)[1])
    return units.one_line(str(row["flag.implausible_reason"])) if row["flag.implausible"] else ""


def _time(row: Row) -> str:
    if row["case.status"] in ("ok", None):  # None: planned, and not measured yet
        return _shown(row["time.median_s"], units.seconds)
    return wording.status(row)


def _shown(value: ParamValue | None, text: Callable[[float], str]) -> str:
    return "" if value is None else text(wording.number(value))
