"""Published figures: each against the measured row of the nearest configuration."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from dlbench.analysis.answers.parts.base import Section
from dlbench.analysis.presentation.columns import of_row
from dlbench.analysis.presentation.names import by_device, hardware, several_runs
from dlbench.analysis.presentation.wording import number
from dlbench.analysis.ratios.pairing import grouped
from dlbench.core.model import as_count
from dlbench.core.reference.peaks import name_words
from dlbench.core.reference.published import PublishedFigure, published_figures
from dlbench.core.rows.row import Row, cell, cells
from dlbench.core.schema import Column, Unit

_TITLES: Mapping[str, Column] = {
    "items a second": of_row(lambda row: row.rate.items_per_s),
    "bus bandwidth": of_row(lambda row: row.rate.bus_bytes_per_s),
    "copies to the device": of_row(lambda row: row.transfer.pinned_h2d_bytes_per_s),
    "copies from the device": of_row(lambda row: row.transfer.pinned_d2h_bytes_per_s),
}
"""What there are figures of."""
_NOT_THE_SAME = "figures of others, by other programs on other software: for the order of magnitude, and never a verdict"


class Counterpart(NamedTuple):
    """A published figure, and the measured row that is nearest to it."""

    figure: PublishedFigure
    row: Row


class HasRows(Protocol):
    """What has rows."""

    @property
    def rows(self) -> Sequence[Row]:
        """They."""


def beside_published(results: HasRows, title: str) -> list[Counterpart]:
    """Return published figures of one quantity, each with the nearest case of the same work in the same precision.

    Of the figures of one work and precision each device is set against the nearest: of a device of its name, else of the most alike name.
    """
    column, found = _TITLES[title], list[Counterpart]()
    for on_device in by_device([row for row in results.rows if row.is_sound]).values():
        figures = [each for each in published_figures() if each.on_cpu is on_device[0].is_on_cpu and each.column == column.name]
        for of_work in grouped(figures, lambda each: (each.tags, str(each.params), each.dtype)).values():
            if measured := [row for row in on_device if _is_same_work(row, of_work[0]) and column.value(row)]:
                name = measured[0].case.device_name or ""
                figure = max(of_work, key=lambda each: _alike(name, each.device))
                # Of the nearest batch the best.
                nearest = min(measured, key=lambda row: (_apart(row, figure.batch), -number(cell(column.value(row)))))
                found.append(Counterpart(figure, nearest))
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


def _section(title: str, column: Column) -> Section[Counterpart]:
    return Section(
        records=partial(beside_published, title=title),
        title=f"Against published figures: {title}",
        columns=[
            Column(
                "published.case",
                Unit.TEXT,
                "the case measured here that is nearest to it",
                of=lambda each: each.row.key,
                heading="measured",
            ),
            lambda found: Column("published.here", Unit.TEXT, "what it was measured on here", heading="on").by(
                lambda each: hardware(each.row, several_runs(found))
            ),
            column.headed("here"),
            Column("published.value", column.unit, "what others published", of=lambda each: each.figure.value, heading="there"),
            Column("published.ratio", Unit.RATIO, "measured here over published", heading="ratio", priority=0).by(
                lambda each: number(cell(column.value(each))) / each.figure.value
            ),
            Column(
                "published.configuration",
                Unit.TEXT,
                "device and batch of the figure, and whether it leaves out the update; its precision is that of the case",
            ).by(_configuration, "figure of"),
            Column("published.source", Unit.TEXT, "who published it", of=lambda each: each.figure.source, heading="source"),
            Column("published.date", Unit.TEXT, "and when", of=lambda each: each.figure.date, heading="date"),
        ],
        notes=lambda found: dict.fromkeys(
            (_NOT_THE_SAME, *(f"{each.figure.source}: {each.figure.caution}" for each in found if each.figure.caution))
        ),
        whole=lambda each: cells(each.row),
    )


SECTIONS = [_section(title, column) for title, column in _TITLES.items()]
