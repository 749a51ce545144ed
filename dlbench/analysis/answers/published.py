"""Published figures: each beside the measured row of the nearest configuration."""

import math

from dlbench.analysis.answers.base import Columns, Table, by_device
from dlbench.analysis.ratios import chosen, grouped
from dlbench.analysis.read.table import Results
from dlbench.analysis.scaling.speedup import counted
from dlbench.analysis.wording import hardware, key, number
from dlbench.core.model import Status
from dlbench.core.reference.peaks import name_words
from dlbench.core.reference.published import PublishedFigure, published_figures
from dlbench.core.rows.row import BY_NAME
from dlbench.core.rows.row import Cells as Row
from dlbench.core.schema import Column, Unit

_TITLES = {
    "rate.items_per_s": "items a second",
    "rate.bus_bytes_per_s": "bus bandwidth",
    "transfer.pinned_h2d_bytes_per_s": "copies to the device",
    "transfer.pinned_d2h_bytes_per_s": "copies from the device",
}
_NOT_THE_SAME = "figures of others, by other programs on other software: for the order of magnitude, and never a verdict"


def _columns(name: str) -> Columns:
    return (
        ("measured", Column("published.case", Unit.TEXT, "the case measured here that is nearest to it")),
        ("on", Column("published.here", Unit.TEXT, "what it was measured on here")),
        ("here", BY_NAME[name]),
        ("there", Column("published.value", BY_NAME[name].unit, "what others published")),
        ("ratio", Column("published.ratio", Unit.RATIO, "measured here over published")),
        ("figure of", Column("published.configuration", Unit.TEXT, "device and batch of the figure; its precision is that of the case")),
        ("source", Column("published.source", Unit.TEXT, "who published it")),
        ("date", Column("published.date", Unit.TEXT, "and when")),
    )


def beside_published(results: Results) -> list[Table]:
    """Return a table for each column of which there are published figures of the same work in the same precision.

    Of the figures of one work and precision each device stands beside the nearest: of a device of its name, else of the most alike name.
    """
    rows = [row for row in results.rows if row["case.status"] == Status.OK and not row["flag.implausible"]]
    found: list[tuple[PublishedFigure, Row]] = []
    for place, on_device in by_device(rows, "case").items():
        on_cpu = on_device[0]["case.device"] == "cpu"
        figures = [figure for figure in published_figures() if figure.on_cpu is on_cpu]
        for of_work in grouped(figures, lambda each: (each.column, each.tags, str(each.params), each.dtype)).values():
            measured = [row for row in on_device if _is_same_work(row, of_work[0], results)]
            if measured:
                figure = max(of_work, key=lambda each: _alike(str(measured[0]["case.device_name"]), each.device))
                found.append((figure, {**_nearest(measured, figure), "place": place}))
    tables = grouped(found, lambda each: each[0].column)
    return [
        Table(
            f"Beside published figures: {_TITLES[name]}",
            _columns(name),
            tuple(_row(*each, len(results.environments) > 1) for each in pairs),
            _notes([f for f, _ in pairs]),
        )
        for name, pairs in tables.items()
    ]


def _is_same_work(row: Row, figure: PublishedFigure, results: Results) -> bool:
    ranks = figure.params.get("ranks", 1)
    same = all(row.get(f"param.{name}") == value for name, value in figure.params.items()) and (counted(row, "ranks") or 1) == ranks
    alike = figure.tags.issubset(results.declaration(row).tags)
    return same and alike and figure.dtype in (None, row["case.dtype"]) and bool(row[figure.column])


def _alike(name: str, other: str) -> tuple[bool, int]:
    mine, theirs = name_words(name), name_words(other)
    return mine == theirs, len(set(mine) & set(theirs))


def _nearest(rows: list[Row], figure: PublishedFigure) -> Row:
    """Return the row of the nearest batch, and of those of one batch, or where there is none to hold it against, the best."""
    batch = figure.batch
    apart = [abs(math.log((counted({"param.batch": chosen(row, "batch")}, "batch") or 1) / batch)) if batch else 0.0 for row in rows]
    best = min(apart)
    return max((row for row, each in zip(rows, apart, strict=True) if each == best), key=lambda row: number(row[figure.column]))


def _row(figure: PublishedFigure, row: Row, several: bool) -> Row:
    here = number(row[figure.column])
    return {
        **{name: row[name] for name in ("place", "case.id", "case.run", "case.device", figure.column)},
        "published.case": key(row),
        "published.here": hardware(row, with_run=several),
        "published.value": figure.value,
        "published.ratio": here / figure.value,
        "published.configuration": figure.device if figure.batch is None else f"{figure.device}, batch={figure.batch}",
        "published.source": figure.source,
        "published.date": figure.date,
    }


def _notes(figures: list[PublishedFigure]) -> tuple[str, ...]:
    cautions = dict.fromkeys(f"{figure.source}: {figure.caution}" for figure in figures if figure.caution)
    return (_NOT_THE_SAME, *cautions)
