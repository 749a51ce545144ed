"""Published figures: each against the measured row of the nearest configuration."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import NamedTuple

from dlbench.analysis.answers.parts.base import Section
from dlbench.analysis.presentation.columns import KEY, of_row, place
from dlbench.analysis.presentation.names import by_device
from dlbench.analysis.ratios.matching import grouped
from dlbench.core import units
from dlbench.core.model import as_count
from dlbench.core.reference.peaks import name_words
from dlbench.core.reference.published import PublishedFigure, published_figures
from dlbench.core.rows.columns import BY_NAME
from dlbench.core.rows.row import Row, cells
from dlbench.core.units import Column, Unit

_QUANTITIES: Mapping[str, Callable[[Row], float | None]] = {
    "items a second": lambda row: row.rate.items_per_s,
    "bus bandwidth": lambda row: row.rate.bus_bytes_per_s,
    "copies to the device": lambda row: row.transfer.pinned_h2d_bytes_per_s,
    "copies from the device": lambda row: row.transfer.pinned_d2h_bytes_per_s,
}
"""What there are figures of."""
_NOT_THE_SAME = "figures of others, by other programs on other software: for the order of magnitude, and never a verdict"


class Counterpart(NamedTuple):
    """A published figure, and the measured row that is nearest to it."""

    figure: PublishedFigure
    row: Row
    quantity: str
    here: float

    def shown(self, value: float) -> str:
        """Return one of the two in their unit."""
        return units.text(value, BY_NAME[self.figure.column].unit)


def beside_published(rows: Sequence[Row]) -> list[Counterpart]:
    """Return published figures, each with the nearest case of the same work in the same precision.

    Of the figures of one work and precision each device is set against the nearest: of a device of its name, else of the most alike name.
    """
    found = list[Counterpart]()
    for (quantity, of), on_device in product(_QUANTITIES.items(), by_device([row for row in rows if row.is_sound]).values()):
        column = of_row(of).name
        figures = [each for each in published_figures() if each.on_cpu is on_device[0].is_on_cpu and each.column == column]
        for of_work in grouped(figures, lambda each: (each.tags, str(each.params), each.dtype)).values():
            if measured := {row: value for row in on_device if _is_same_work(row, of_work[0]) and (value := of(row))}:
                name = on_device[0].case.device_name or ""
                figure = max(of_work, key=lambda each: _alike(name, each.device))
                # Of the nearest batch the best.
                nearest = min(measured, key=lambda row: (_apart(row, figure.batch), -measured[row]))
                found.append(Counterpart(figure, nearest, quantity, measured[nearest]))
    return found


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


def _configuration(found: Counterpart) -> str:
    figure = found.figure
    batch = f"batch={figure.batch}" if figure.batch else "batch not stated" if "training" in figure.tags else ""
    return ", ".join(filter(None, (figure.device, batch, "without the update" if figure.update is False else "")))


SECTION: Section[Counterpart] = Section(
    records="published",
    title="Against published figures",
    columns=[
        KEY.headed("measured"),
        place,
        Column("published.quantity", Unit.TEXT, "what the figure is of", heading="of"),
        Column("published.measured", Unit.TEXT, "that here", heading="here").by(lambda each: each.shown(each.here)),
        Column("published.value", Unit.TEXT, "what others published", heading="there").by(lambda each: each.shown(each.figure.value)),
        Column("published.ratio", Unit.RATIO, "measured here over published", heading="ratio", priority=0).by(
            lambda each: each.here / each.figure.value
        ),
        Column(
            "published.configuration",
            Unit.TEXT,
            "device and batch of the figure, and whether it leaves out the update; its precision is that of the case",
        ).by(_configuration, "figure of"),
        Column("published.source", Unit.TEXT, "who published it, and when", heading="source").by(
            lambda each: f"{each.figure.source}, {each.figure.date}"
        ),
    ],
    notes=lambda found: dict.fromkeys(
        (_NOT_THE_SAME, *(f"{each.figure.source}: {each.figure.caution}" for each in found if each.figure.caution))
    ),
    whole=lambda each: cells(each.row),
)
