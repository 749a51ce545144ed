"""What a person sees while a run goes on: a table that fills in and tightens, or one line a case off a terminal."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dlbench.core import units
from dlbench.core.model import Measurement, Series, Status
from dlbench.core.rows.summary import Rounds, Row, ending, per_round, planned_row, summarise
from dlbench.harness.runner import Observer

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from dlbench.cli.session import Session


@contextmanager
def screen(session: "Session", path: Path) -> Iterator[Observer]:
    """Show the run on stderr for as long as it lasts."""
    progress = Progress(session)
    if not sys.stderr.isatty() or os.environ.get("CI") or os.environ.get("TERM") == "dumb":
        yield PlainLines(progress)
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True)
    # Redrawn when something happened and never by a timer: a thread that wakes up would disturb what is measured.
    with Live(console=console, auto_refresh=False, transient=True) as live:
        table = LiveTable(progress, path, console, lambda drawn: live.update(drawn, refresh=True))
        table.draw()
        yield table


class Progress:
    """How far the run is, and about how long it still takes."""

    def __init__(self, session: "Session") -> None:
        self.policy = session.settings.policy
        self.tasks = session.tasks
        self.values = session.values
        self.measurements: dict[Series, list[Measurement]] = {}
        for measurement in session.done:
            self.measurements.setdefault(measurement.series, []).append(measurement)
        self.round = 0
        self.left_in_round = len(session.tasks)
        self.current: Series | None = None
        self._first_round = session.first_round
        self._started = time.monotonic()
        self._took_s: dict[Series, float] = {}
        self._case_started = self._started

    def round_started(self, number: int, tasks: int) -> None:
        """Note a new round of so many cases, each counted on each side."""
        self.round, self.left_in_round = number - self._first_round, tasks

    def case_started(self, series: Series) -> None:
        """Note what is measured now."""
        self.current, self._case_started = series, time.monotonic()

    def case_postponed(self) -> None:
        """Note that the current case gets another turn."""
        self.current = None

    def case_ended(self, measurement: Measurement) -> None:
        """Note a result."""
        self.measurements.setdefault(measurement.series, []).append(measurement)
        self._took_s[measurement.series] = time.monotonic() - self._case_started
        self.left_in_round -= 1
        self.current = None

    def elapsed_s(self) -> float:
        """Return the seconds since the run began."""
        return time.monotonic() - self._started

    def left_s(self) -> float | None:
        """Return about how many seconds the planned rounds still take; None before anything was measured."""
        if not self._took_s:
            return None
        usual_s = sum(self._took_s.values()) / len(self._took_s)
        running = [task.series for task in self.tasks if not self._has_ended(task.series)]
        later = max(0, self.policy.rounds - self.round - 1) * sum(self._took_s.get(series, usual_s) for series in running)
        left_s = self.left_in_round * usual_s + later
        return left_s if self.policy.budget_s is None else min(left_s, max(0.0, self.policy.budget_s - self.elapsed_s()))

    def where(self) -> str:
        """Return ``round 2 of 7, 9 of 14 cases left``."""
        of = f" of {self.policy.rounds}" if self.round < self.policy.rounds else " (extra, for the widest intervals)"
        return f"round {self.round + 1}{of}, {self.left_in_round} case{'' if self.left_in_round == 1 else 's'} left"

    def _has_ended(self, series: Series) -> bool:
        measurements = self.measurements.get(series, [])
        return any(measurement.status is not Status.OK for measurement in measurements[-1:])


class PlainLines(Observer):
    """One line a case, for logs."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def round_started(self, number: int, tasks: int) -> None:
        """Note it."""
        self._progress.round_started(number, tasks)

    def case_started(self, series: Series, number: int) -> None:
        """Note it."""
        self._progress.case_started(series)

    def case_postponed(self, measurement: Measurement) -> None:
        """Write a line, for whoever wonders what takes so long."""
        self._progress.case_postponed()
        told = (measurement.throttling and measurement.throttling.explanation()) or "stays with its other side"
        line = f"{self._progress.where()}: {measurement.series} {told}; again later in this round"
        click.echo(units.one_line(line), err=True)

    def case_ended(self, measurement: Measurement) -> None:
        """Write the line."""
        self._progress.case_ended(measurement)
        medians = per_round([measurement]).median_s
        ended = units.seconds(medians[0]) if medians else measurement.status.value
        reason = f": {measurement.reason}" if measurement.reason else ""
        click.echo(units.one_line(f"{self._progress.where()}: {measurement.series} {ended}{reason}"), err=True)


class LiveTable(Observer):
    """The table of results so far, redrawn as each case starts and ends."""

    def __init__(self, progress: Progress, path: Path, console: "Console", show: "Callable[[RenderableType], None]") -> None:
        self._progress = progress
        self._path = path
        self._console = console
        self._show = show
        self._fitting = console.height
        """Cases that the screen had room for when it was last drawn."""
        # A case's row changes only when that case ends, so each is computed once a round.
        self._rows = {task.series: ({**planned_row(task.case), "case.run": task.side.name}, Rounds()) for task in progress.tasks}
        for series, measurements in progress.measurements.items():
            self._rows[series] = self._entry(measurements)

    def round_started(self, number: int, tasks: int) -> None:
        """Note it; the first case draws."""
        self._progress.round_started(number, tasks)

    def case_started(self, series: Series, number: int) -> None:
        """Say what is measured now."""
        self._progress.case_started(series)
        self.draw()

    def case_postponed(self, measurement: Measurement) -> None:
        """Note it; its row waits for its next turn."""
        self._progress.case_postponed()

    def case_ended(self, measurement: Measurement) -> None:
        """Fill in its row."""
        self._progress.case_ended(measurement)
        self._rows[measurement.series] = self._entry(self._progress.measurements[measurement.series])
        self.draw()

    def draw(self) -> None:
        """Show as much of the table as fits, around the current case."""
        from rich.console import Group
        from rich.text import Text

        current = self._progress.current
        left_s = self._progress.left_s()
        left = "" if left_s is None else f", about {units.clock_time(left_s)} left"
        status = Text(f"{self._progress.where()}, {units.clock_time(self._progress.elapsed_s())} gone{left}", style="bold")
        doing = f"now {current}" if current else f"writing {self._path}"
        now = Text(units.one_line(doing), style="dim", no_wrap=True, overflow="ellipsis")
        self._show(Group(self._part_around(current), status, now))

    def _part_around(self, current: Series | None) -> "RenderableType":
        """Return the table of as many cases as the screen has lines for; those that are told together at the end take none."""
        from dlbench.analysis.read.declared import columns
        from dlbench.analysis.report.sentences import many_alike
        from dlbench.analysis.report.terminal import results_table

        many = many_alike([row for row, _ in self._rows.values()])
        entries = self._rows
        if many:  # seldom, and a run may have many thousand cases
            entries = {series: entry for series, entry in self._rows.items() if ending(entry[0]) not in many} or self._rows
        position = list(entries).index(current) if current in entries else 0
        room = max(3, self._console.height - 3)  # but for two lines of status, and one that the terminal keeps
        count = min(room, self._fitting + 1)  # most often as many as last time
        while True:
            visible = _window(len(entries), count, position)
            rows, rounds = zip(*list(entries.values())[visible.start : visible.stop], strict=True)
            table = results_table(rows, rounds, lambda row: columns(self._progress.values.get(str(row["case.workload"]), ()), row))
            lines = len(self._console.render_lines(table, pad=False))
            if lines <= room or count == 1:
                self._fitting = count
                return table
            count = max(1, min(count - 1, count * room // lines))  # a name is folded, and a reason has a line of its own

    def _entry(self, measurements: Sequence[Measurement]) -> tuple[Row, Rounds]:
        row = summarise(measurements, self._progress.policy.target)
        return {**row, "case.run": measurements[0].side}, per_round(measurements)


def _window(count: int, height: int, position: int) -> range:
    """Return at most ``height`` of ``count`` indices, with ``position`` among them."""
    first = max(0, min(position - height // 2, count - height))
    return range(first, min(count, first + height))
