"""Burst against steady: what sustained steps kept of the throughput that a short measurement shows."""

import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dlbench.analysis.answers.parts.base import Table, table
from dlbench.analysis.presentation.fields import KEY, THROUGHPUT, Fields, of_row, own, place, whole_row
from dlbench.analysis.presentation.figures import Figure, figure
from dlbench.analysis.presentation.names import device_label, hardware, several_runs
from dlbench.analysis.presentation.wording import INTERVAL, brief
from dlbench.core import units
from dlbench.core.declarations import ValueRole
from dlbench.core.rows.row import Row
from dlbench.core.schema import Unit
from dlbench.core.stats import Interval, median_interval

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
    def interval(self) -> Interval | None:
        """Of 95 %, order statistics over rounds; None below six."""
        return median_interval(self.rounds)

    @property
    def low(self) -> float | None:
        """Lower end of the interval."""
        return self.interval and self.interval.low

    @property
    def high(self) -> float | None:
        """Upper end of it."""
        return self.interval and self.interval.high

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

    def sentences(self, several: bool) -> list[str]:
        """Say what it kept, and how far short measurements of it are off where they are."""
        return [f"{hardware(self.row, several)} kept {units.percent(self.kept)} of the burst of {brief(self.row.key)}.", *self.warning()]

    def warning(self) -> list[str]:
        """Say how far short measurements of it are off; nothing where they are not."""
        if abs(self.kept - 1) <= EVEN:
            return []
        off, onset_s = units.percent(abs(1 / self.kept - 1)), self.onset_s
        onset = f", as it fell after {units.seconds(onset_s)}" if onset_s else ""
        return [f"Short measurements of it tell {off} too {'much' if self.kept < 1 else 'little'}{onset}."]


class Point(NamedTuple):
    """One point of a series of a sustained step, over its beginning."""

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


def burst_table(found: Sequence[Sustained]) -> Table:
    """Return burst and steady throughput of these, and from when on it had fallen."""
    fields: Fields[Sustained] = (
        place(found),
        ("step", KEY),
        own("burst", "sustained.burst", Unit.ITEMS_PER_S, "throughput at the beginning", lambda each: each.row.in_role("burst"), "higher"),
        ("steady", THROUGHPUT[0]),
        own("kept", "sustained.kept", Unit.FRACTION, "steady over burst: median over rounds", better="higher"),
        own(INTERVAL, "sustained.low", Unit.FRACTION, "lower end of its 95 % order-statistic interval over rounds"),
        own(INTERVAL, "sustained.high", Unit.FRACTION, "upper end of it"),
        own("fell after", "sustained.onset_s", Unit.SECONDS, "time after which it stayed more than 3 % below its burst"),
        ("power", of_row(lambda row: row.energy.watts)),
    )
    return table("Burst against steady throughput", fields, found, whole=whole_row)


def burst_figure(found: Sequence[Sustained]) -> Figure:
    """Return throughput and, where the machine tells it, the clock of these over their windows."""
    several = several_runs(found)
    devices = {device_label(each, several) for each in found}
    points = [point for each in found for role in _DRAWN for point in _points(each.row, role, several, len(devices) > 1)]
    about = "Throughput over that of the first second, and the device's clock over its first reading, in the course of the window."
    return figure(
        "Sustained throughput and clock",
        about,
        "line",
        points,
        own("time", "sustained.at_s", Unit.SECONDS, "of the window that had passed"),
        own("over its beginning", "sustained.share", Unit.RATIO, "over the burst, or the first clock"),
        own("what", "sustained.line", Unit.TEXT, "which step where, and of it what"),
        reference=1.0,
    )


_DRAWN: Mapping[ValueRole, str] = {"pace": "", "clock": ": clock"}
"""Series that are drawn, by their role, and what tells them apart."""


def _points(row: Row, role: ValueRole, several: bool, with_device: bool) -> list[Point]:
    points, window_s = series(row, role), row.energy.window_s
    beginning = row.in_role("burst") if role == "pace" else next(iter(points), None)
    if not beginning or not window_s:
        return []
    line = f"{brief(row.key)}{f' on {device_label(row, several)}' if with_device else ''}{_DRAWN[role]}"
    return [Point(line, (at + 0.5) * window_s / len(points), each / beginning) for at, each in enumerate(points)]


def series(row: Row, role: ValueRole) -> Sequence[float]:
    """Return the series that a row reports in a role; empty where it reports none."""
    declared = row.declared.value(role)
    found = row.values.get(declared.name) if declared else None
    return found if isinstance(found, Sequence) else ()
