"""Table of cases: the same columns on a terminal and on a page."""

from collections.abc import Callable, Collection, Container, Mapping, Sequence

from dlbench.analysis.presentation import names, wording
from dlbench.analysis.ratios.matching import grouped
from dlbench.analysis.report import detail_tables, sentences
from dlbench.analysis.report.screen import ScreenColumn, ScreenTable
from dlbench.core import units
from dlbench.core.rows.row import Row

_TEXTS = frozenset({"case", "device", "file", "notes"})
"""Headings of columns without numbers."""


def ordered(rows: Sequence[Row]) -> list[Row]:
    """Return the rows, what is asked for most first; devices that ran the same work stand one below the other.

    Steps of networks, what else networks do, products and convolutions, transfers and storage, small things.
    """
    return names.flat(grouped(sorted(rows, key=_place), lambda row: row.key))


def _place(row: Row) -> int:
    declared, tags = row.declared, row.declared.tags
    moves = "copy" in tags or "supply" in tags or declared.parameter("collective_op") is not None
    return [declared.is_step, "model" in row.params, "compute" in tags, moves, True].index(True)


def columns(rows: Sequence[Row], shared: Collection[str] = (), legends: Mapping[str, str] | None = None) -> list[ScreenColumn]:
    """Return the columns of the table of cases. One with nothing to show is left out, and so are marks that all rows share.

    ``legends``: what a heading means.
    """
    several = names.several_runs(rows)
    spreads = list(map(sentences.spread, rows))
    kinds = {kind for kind, _ in spreads if kind}
    interval = kinds.pop() if len(kinds) == 1 else wording.INTERVAL
    labels = [names.device_label(row, several) for row in rows]
    files = [row.file for row in rows]
    found = {
        "case": [wording.short(row.key) for row in rows],
        "device": labels if len(set(labels)) > 1 else [],
        "file": files if files != [row.case.run for row in rows] else [],
        "time": list(map(_time, rows)),
        interval: [span if kind == interval else f"{kind} {span}".strip() for kind, span in spreads],
        "rounds": [str(row.time.rounds or "") for row in rows] if sentences.common_rounds(rows) is None else [],
        "items/s": [_shown(row.rate.items_per_s, lambda rate: units.item_rate(rate).removesuffix("/s")) for row in rows],
        "FLOP/s": [_shown(row.rate.flops_per_s, lambda rate: units.flop_rate(rate).removesuffix("FLOP/s")) for row in rows],
        **{what: [sentences.share_of(what, row) for row in rows] for what in ("peak", "ceiling")},
        "memory": [_shown(row.memory.peak_bytes or row.memory.host_peak_bytes, units.byte_count) for row in rows],
        "copies": [_shown(row.transfer.share, units.percent) for row in rows],
        "notes": [", ".join([*sentences.notes(row, shared), *detail_tables.value_notes(row)]) for row in rows],
    }
    notes = {heading: f"{heading}: {meaning}" for heading, meaning in (legends or {}).items()}
    return [
        # Texts are the last to go from a narrow screen, but for the time.
        ScreenColumn(heading, texts, heading not in _TEXTS, -1 if heading == "time" else int(heading not in _TEXTS), notes.get(heading, ""))
        for heading, texts in found.items()
        if heading == "case" or any(texts)
    ]


def table(
    rows: Sequence[Row],
    *,
    legends: Mapping[str, str] | None = None,
    shared: Collection[str] = (),
    reasons_below: Container[str] = (),
) -> ScreenTable:
    """Return the table of cases; devices that ran the same work stand one below the other.

    ``shared``: marks that no row needs; ``reasons_below``: how cases ended that stands below the table.
    """
    rows = ordered(rows)
    troubled = {at: row for at, row in enumerate(rows) if row.case.status and not row.is_ok}
    styles = {at: "red" if row.is_failure else "yellow" for at, row in troubled.items()}
    below = {at: text for at, row in enumerate(rows) if row.ending not in reasons_below and (text := trouble(row))}
    return ScreenTable(columns(rows, shared, legends), styles, below)


def trouble(row: Row) -> str:
    """Return what stands below a case: why it did not go well, can't be true, or tells no speed; else an empty text."""
    if row.case.status and not row.is_ok:
        return row.reason
    doubt = row.flag.implausible_reason if row.flag.implausible else row.rate.reason if row.flag.no_speed else None
    return doubt or ""


def _time(row: Row) -> str:
    if row.case.status and not row.is_ok:  # None: planned, and not measured yet
        return names.status(row)
    return _shown(row.time.median_s, units.seconds)


def _shown(value: float | None, text: Callable[[float], str]) -> str:
    return "" if value is None else text(value)
