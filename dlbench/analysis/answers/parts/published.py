"""Published figures: each against the measured row of the nearest configuration."""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from dlbench.analysis.answers.parts.base import Table, table
from dlbench.analysis.presentation.fields import Field, of_row, own, whole_row
from dlbench.analysis.presentation.names import by_device, hardware
from dlbench.analysis.ratios.pairing import grouped
from dlbench.analysis.read.table import Results
from dlbench.core.model import as_count
from dlbench.core.reference.peaks import name_words
from dlbench.core.reference.published import PublishedFigure, published_figures
from dlbench.core.rows.columns import BY_NAME
from dlbench.core.rows.row import Row
from dlbench.core.schema import Unit

_Quantity = Callable[[Row], float | None]
_TITLES: Mapping[str, _Quantity] = {
    "items a second": lambda row: row.rate.items_per_s,
    "bus bandwidth": lambda row: row.rate.bus_bytes_per_s,
    "copies to the device": lambda row: row.transfer.pinned_h2d_bytes_per_s,
    "copies from the device": lambda row: row.transfer.pinned_d2h_bytes_per_s,
}
_QUANTITIES = {of_row(quantity).column.name: (title, quantity) for title, quantity in _TITLES.items()}
"""What there are figures of, by the column that they name."""
_CONFIGURATION = "device and batch of the figure; its precision is that of the case"
_NOT_THE_SAME = "figures of others, by other programs on other software: for the order of magnitude, and never a verdict"


class Counterpart(NamedTuple):
    """A published figure, and the measured row that is nearest to it."""

    figure: PublishedFigure
    row: Row
    value: float
    """What the row has of what it is a figure of, in the same unit."""


def beside_published(results: Results) -> list[Table]:
    """Return a table for each column of which there are published figures of the same work in the same precision.

    Of the figures of one work and precision each device is set against the nearest: of a device of its name, else of the most alike name.
    """
    found: list[Counterpart] = []
    for on_device in by_device([row for row in results.rows if row.is_sound]).values():
        on_cpu = on_device[0].is_on_cpu
        figures = [figure for figure in published_figures() if figure.on_cpu is on_cpu]
        for of_work in grouped(figures, lambda each: (each.column, each.tags, str(each.params), each.dtype)).values():
            _, quantity = _QUANTITIES[of_work[0].column]
            measured = [(row, value) for row in on_device if _is_same_work(row, of_work[0]) and (value := quantity(row))]
            if measured:
                name = measured[0][0].case.device_name or ""
                figure = max(of_work, key=lambda each: _alike(name, each.device))
                # Of the nearest batch the best.
                nearest = min(measured, key=lambda each: (_apart(each[0], figure.batch), -each[1]))
                found.append(Counterpart(figure, *nearest))
    several = len(results.environments) > 1
    return [_table(name, each, several) for name, each in grouped(found, lambda each: each.figure.column).items()]


def _is_same_work(row: Row, figure: PublishedFigure) -> bool:
    same = all(row.params.get(name) == value for name, value in figure.params.items())
    one_rank = "ranks" in figure.params or row.is_single_rank
    return same and one_rank and figure.tags.issubset(row.declared.tags) and figure.dtype in (None, row.case.dtype)


def _alike(name: str, other: str) -> tuple[bool, int]:
    mine, theirs = name_words(name), name_words(other)
    return mine == theirs, len(set(mine) & set(theirs))


def _apart(row: Row, batch: int | None) -> float:
    """Return how far the batch of a row, of a search the one it found, is from another, on logarithms; zero where there is no other."""
    return abs(math.log((as_count(row.setting("batch")) or 1) / batch)) if batch else 0.0


def _table(name: str, found: list[Counterpart], several: bool) -> Table:
    column, (title, _) = BY_NAME[name], _QUANTITIES[name]
    nearest, here = "the case measured here that is nearest to it", "what it was measured on here"
    cautions = dict.fromkeys(f"{each.figure.source}: {each.figure.caution}" for each in found if each.figure.caution)
    return table(
        f"Against published figures: {title}",
        (
            own("measured", "published.case", Unit.TEXT, nearest, lambda each: each.row.key),
            own("on", "published.here", Unit.TEXT, here, lambda each: hardware(each.row, several)),
            ("here", Field(column, lambda each: each.value)),
            own("there", "published.value", column.unit, "what others published", lambda each: each.figure.value),
            own("ratio", "published.ratio", Unit.RATIO, "measured here over published", lambda each: each.value / each.figure.value),
            own("figure of", "published.configuration", Unit.TEXT, _CONFIGURATION, _configuration),
            own("source", "published.source", Unit.TEXT, "who published it", lambda each: each.figure.source),
            own("date", "published.date", Unit.TEXT, "and when", lambda each: each.figure.date),
        ),
        found,
        (_NOT_THE_SAME, *cautions),
        whole=whole_row,
    )


def _configuration(found: Counterpart) -> str:
    figure = found.figure
    return figure.device if figure.batch is None else f"{figure.device}, batch={figure.batch}"
