"""Figure as data: tidy rows in base units and how to draw them. Who draws it is the report's business."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from dlbench.analysis.presentation.fields import Field, Headed, cells
from dlbench.core.rows.row import Cells
from dlbench.core.schema import Column

T = TypeVar("T")
Mark = Literal["bar", "line", "dot", "stack"]
"""Bars begin at zero or, on a logarithmic axis, at the ``reference``; a stack has those of all series one behind the other. Lines join the
points of one series in the order of ``x``."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis: which column of the rows, in its base unit, and how it reads."""

    title: str
    column: Column
    """A text or a flag makes a categorical axis, in the order of the rows; any other unit one of numbers."""
    log: bool = False


@dataclass(frozen=True, slots=True)
class Figure:
    """Tidy rows and an encoding: enough to draw it, to print it as a table, and to say it to somebody who can't see it."""

    title: str
    about: str
    """One or two sentences: what is drawn, and what to read from it."""
    mark: Mark
    x: Axis
    y: Axis
    rows: tuple[Cells, ...]
    series: Axis | None = None
    """Tells lines, bars or dots apart, by colour and by shape or dash; a text."""
    interval: tuple[Column, Column] | None = None
    """The ends of an interval around the number of each row, on the axis that has numbers: of two ``y`` for lines, else ``x``."""
    reference: float | None = None
    """A value on that axis to hold the others against, such as a ratio of 1."""
    band: tuple[Column, Column] | None = None
    """The ends of a band around the reference, of each row its own, such as a threshold."""
    bound: tuple[Cells, ...] = ()
    """Corners of a line that no row should be beyond, such as a roofline: an ``x`` and a ``y`` each."""

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        object.__setattr__(self, "rows", tuple({name: row.get(name) for name in names} for row in self.rows))

    @property
    def columns(self) -> tuple[Column, ...]:
        """What is drawn of a row, and all that the rows keep."""
        axes = (self.y, *([self.series] if self.series else ()), self.x)
        return (*(axis.column for axis in axes), *(self.interval or ()), *(self.band or ()))


def figure(
    title: str,
    about: str,
    mark: Mark,
    found: Sequence[T],
    *axes: Headed[T],
    log: str = "",
    interval: Sequence[Field[T]] = (),
    reference: float | None = None,
    bound: tuple[Cells, ...] = (),
    spread: Callable[[T], float] | None = None,
) -> Figure:
    """Return the figure of records, a row each. Axes are headings with fields, as in a table: x, y and, where there are several, series.

    ``log`` names the logarithmic ones: ``xy``. ``interval``: the fields of its two ends. ``spread``: a number of each record, over whose
    range those are chosen that are drawn where there are too many; without it all are drawn.
    """
    shown, left_out = drawn(found, spread) if spread else (found, "")
    x, y, *series = (Axis(heading, field.column, axis in log) for axis, (heading, field) in zip("xyz", axes, strict=False))
    rows = cells((*(field for _, field in axes), *interval), shown)
    ends = (interval[0].column, interval[1].column) if interval else None
    return Figure(title, f"{about}{left_out}", mark, x, y, rows, next(iter(series), None), ends, reference, bound=bound)


MOST_DRAWN = 20
"""Rows of a categorical axis that can still be read."""


def drawn(rows: Sequence[T], number: Callable[[T], float]) -> tuple[tuple[T, ...], str]:
    """Return as many rows as can be drawn, spread evenly over the range of their numbers, in their order; and a sentence on the others."""
    if len(rows) <= MOST_DRAWN:
        return tuple(rows), ""
    ranked = sorted(range(len(rows)), key=lambda at: number(rows[at]))
    chosen = {ranked[round(step * (len(rows) - 1) / (MOST_DRAWN - 1))] for step in range(MOST_DRAWN)}
    note = f" {MOST_DRAWN} of {len(rows)} are drawn, spread evenly from the lowest to the highest; the table of the answer has all."
    return tuple(rows[at] for at in sorted(chosen)), note
