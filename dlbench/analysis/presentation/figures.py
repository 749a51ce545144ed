"""Figure as data: tidy rows in base units and how to draw them. Who draws it is the report's business."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from dlbench.analysis.presentation.columns import cells, plain
from dlbench.core.rows.row import Cells
from dlbench.core.units import Column, Unit

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

    @property
    def has_words(self) -> bool:
        """Whether it is categorical."""
        return self.column.unit in (Unit.TEXT, Unit.FLAG)


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
    place: Axis | None = None
    """Where each row was measured; where these are several, it tells lines of one series apart by their dash."""
    clip: tuple[float, float] | None = None
    """Ends of what is drawn of ``y``, or of ``x`` where ``y`` has words; a number beyond is an arrow at the end."""

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        object.__setattr__(self, "rows", tuple({name: row.get(name) for name in names} for row in self.rows))

    @property
    def axes(self) -> tuple[Axis, ...]:
        """All of them, ``x`` last."""
        return tuple(axis for axis in (self.y, self.series, self.place, self.x) if axis)

    @property
    def columns(self) -> tuple[Column, ...]:
        """What is drawn of a row, and all that the rows keep."""
        return (*(axis.column for axis in self.axes), *(self.interval or ()), *(self.band or ()))


def figure(
    title: str,
    about: str,
    mark: Mark,
    found: Sequence[T],
    *axes: Column,
    log: str = "",
    interval: Sequence[Column] = (),
    band: Sequence[Column] = (),
    reference: float | None = None,
    bound: tuple[Cells, ...] = (),
    clip: tuple[float, float] | None = None,
) -> Figure:
    """Return the figure of records, a row each. Axes are columns: x, y and, if any, series and place.

    ``log`` names the logarithmic ones: ``xy``. ``interval``: its two ends, by default those of x or y; ``band``: those of a band.
    """
    ends = interval or next((each.ends for each in axes[:2] if each.ends), ())
    x, y, *more = (Axis(each.heading, plain(each), axis in log) for axis, each in zip("xy  ", axes, strict=False))
    series, place = [*more, None, None][:2]
    rows = cells([*(replace(each, ends=None) for each in axes), *ends, *band], found)
    shown_ends, shown_band = ((plain(each[0]), plain(each[1])) if each else None for each in (ends, band))
    return Figure(title, about, mark, x, y, rows, series, shown_ends, reference, shown_band, bound, place, clip)
