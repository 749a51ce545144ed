"""Burst against steady: what sustained steps kept of the throughput that a short measurement shows."""

import statistics
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from dlbench.analysis.answers.parts.base import Section
from dlbench.analysis.presentation.columns import KEY, Figure, figure, of_row, over_rounds, place
from dlbench.analysis.presentation.wording import brief
from dlbench.core.declarations import ValueRole
from dlbench.core.rows.row import Row, cells
from dlbench.core.schema import Column, Unit

EVEN = 0.03
"""How far the steady throughput may lie from the burst and still be the same."""


class Sustained(NamedTuple):
    """A row of a sustained step, and what it kept of its burst."""

    row: Row
    kept: float
    """Its steady throughput over that of its burst: median over rounds."""
    rounds: Sequence[float]
    """The same of each round."""

    @property
    def onset_s(self) -> float | None:
        """Seconds after which throughput had fallen for good; None where it did not.

        By the median over rounds of each point, and of three points in a row, as single ones are held up by other work.
        """
        points, burst, window_s = series(self.row, "pace"), self.row.in_role("burst"), self.row.energy.window_s
        if self.kept >= 1 - EVEN or not points or not burst or not window_s:
            return None
        smooth = [statistics.median(points[max(0, at - 1) : at + 2]) for at in range(len(points))]
        fallen = max((at + 1 for at, each in enumerate(smooth) if each >= (1 - EVEN) * burst), default=0)
        return fallen * window_s / len(points) if fallen < len(points) else None


class Point(NamedTuple):
    """One point of a series of a sustained step, over its beginning."""

    row: Row
    line: str
    at_s: float
    """Seconds of the window that had passed in its middle."""
    share: float


def sustained_steps(rows: Sequence[Row]) -> list[Sustained]:
    """Return the rows that tell burst and steady throughput, those that kept least first."""
    found = (sustained(row) for row in rows if row.is_sound)
    return sorted(filter(None, found), key=lambda each: each.kept)


def sustained(row: Row) -> Sustained | None:
    """Return a row with what it kept of its burst; None where it was not sustained."""
    burst, steady = row.declared.value("burst"), row.declared.value("steady")
    if burst is None or steady is None:
        return None
    rounds = zip(row.rounds.values.get(steady.name, ()), row.rounds.values.get(burst.name, ()), strict=True)
    kept = [late / early for late, early in rounds if early > 0]
    return Sustained(row, statistics.median(kept), kept) if kept else None


def _figures(found: Sequence[Sustained]) -> Iterator[Figure]:
    """Yield throughput and, where the machine tells it, the clock of these over their windows."""
    yield figure(
        "Sustained throughput and clock",
        "Throughput over that of the first second, and the device's clock over its first reading, in the course of the window.",
        "line",
        [*chain.from_iterable(_points(each.row) for each in found)],
        Column("sustained.at_s", Unit.SECONDS, "of the window that had passed", heading="time"),
        Column("sustained.share", Unit.RATIO, "over the burst, or the first clock", heading="over its beginning"),
        Column("sustained.line", Unit.TEXT, "which step, and of it what", heading="what"),
        place(found),
        reference=1.0,
    )


def _points(row: Row) -> Iterator[Point]:
    window_s, pace, clock = row.energy.window_s or 0.0, series(row, "pace"), series(row, "clock")
    for what, points, beginning in (("", pace, row.in_role("burst")), (": clock", clock, next(iter(clock), None))):
        if beginning and window_s:
            yield from (
                Point(row, brief(row.key) + what, (at + 0.5) * window_s / len(points), p / beginning) for at, p in enumerate(points)
            )


def series(row: Row, role: ValueRole) -> Sequence[float]:
    """Return the series that a row reports in a role; empty where it reports none."""
    declared = row.declared.value(role)
    found = row.values.get(declared.name) if declared else None
    return found if isinstance(found, Sequence) else ()


SECTION = Section(
    records="bursts",
    title="Burst against steady throughput",
    columns=[
        KEY.headed("step"),
        place,
        Column("sustained.burst", Unit.ITEMS_PER_S, "throughput at the beginning", "higher", heading="burst").by(
            lambda each: each.row.in_role("burst")
        ),
        of_row(lambda row: row.rate.items_per_s, "steady"),
        over_rounds(
            Column("sustained.kept", Unit.FRACTION, "steady over burst: median over rounds", "higher", heading="kept", priority=0),
            lambda each: each.rounds,
            "sustained.",
        ),
        Column("sustained.onset_s", Unit.SECONDS, "time after which it stayed more than 3 % below its burst", priority=0).by(
            lambda each: each.onset_s, "fell after"
        ),
        of_row(lambda row: row.energy.watts, "power"),
    ],
    whole=lambda each: cells(each.row),
    headline={"": "{kept} kept of the burst"},
    figures=[_figures],
)
