"""Progress of a run on stderr and its time left: a table that fills in on a terminal, one line a case elsewhere."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dlbench.analysis.presentation.wording import plural
from dlbench.cli.session import Session
from dlbench.cli.terminal import busy_line, on_screen, say
from dlbench.core import units
from dlbench.core.conditions import BUSY
from dlbench.core.measurement import Measurement, Series
from dlbench.core.model import Status, settings_text
from dlbench.core.rows.summary import per_round, planned_row, summarise
from dlbench.harness.probe.programs import OtherPrograms
from dlbench.harness.schedule import Observer

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

    from dlbench.analysis.report.screen import ScreenTable
    from dlbench.analysis.report.terminal import End

_REST = 50
"""Times what answering took before it is done again: 2 % of the time between cases at most."""
_TICK_S = 1.0
_LONG_S = 5.0
"""Seconds without a case that starts or ends, after which the clock moves by itself: a screen that does not change looks like a hang."""


@contextmanager
def screen(session: Session, path: Path, programs: OtherPrograms) -> Iterator[Observer]:
    """Show the run on stderr for as long as it lasts, and first whether other programs take the CPUs."""
    busy = busy_line(programs)
    if not on_screen():
        if busy:
            say(busy)
        yield PlainLines(session)
        return
    from rich.console import Console
    from rich.live import Live

    # Redrawn when something happened, and by a timer only where nothing has for long: a thread that draws disturbs what is measured.
    with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as live:
        table = _LiveTable(session, path, live, programs, busy)
        table.draw()
        ended = threading.Event()
        clock = threading.Thread(target=table.tick_until, args=(ended,), daemon=True)
        clock.start()
        try:
            yield table
        finally:
            ended.set()
            clock.join()


def _how_ended(measurement: Measurement) -> str:
    """Return how a measurement ended: the time of a call or the status, the result of a search, and the reason if there is one."""
    medians = per_round([measurement]).median_s
    ended = units.seconds(medians[0]) if medians else measurement.status.value
    found = f", found {settings_text(measurement.found)}" if measurement.found else ""
    reason = f": {measurement.reason}" if measurement.reason else ""
    return f"{ended}{found}{reason}"


class Tracker(Observer):
    """Follows a run."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.policy = session.settings.policy
        self.measurements: dict[Series, list[Measurement]] = {}
        """Those that count, by case and side; without those that were skipped earlier, which are measured now."""
        self.round = -1
        """Number of the round among those that this command measures, from 0 on; -1 before the first."""
        self.current: Series | None = None
        self._waiting = {task.series for task in session.tasks}
        """Cases that this round has still to measure, perhaps again."""
        devices = dict.fromkeys(task.case.device for task in session.tasks if task.has_device)
        self._opening = f"starting workers for {', '.join(devices)}" if devices else ""
        """The start of a round, which takes seconds on an accelerator; empty where none of its devices is there."""
        self.doing = self._opening
        """Work between cases; empty while the file is written."""
        for measurement in session.done:
            if measurement.status is not Status.SKIPPED:
                self._note(measurement)

    def show(self, event: str = "") -> None:
        """Show where the run is, and what has just happened."""
        raise NotImplementedError

    def round_started(self, number: int, pending: Sequence[Series]) -> None:
        """Show the start of a round, which starts its processes."""
        self.round = number - self.session.first_round
        self._waiting = set(pending)
        self.current = None
        self.doing = self._opening
        self.show("" if self.round else self._opening)

    def case_started(self, series: Series, number: int) -> None:
        """Show which case is measured now."""
        self.current, self.doing = series, ""
        self.show()

    def case_tried(self, measurement: Measurement) -> None:
        """Show what was tried and how it ended."""
        self.show(f"tried {measurement.series} {_how_ended(measurement)}")

    def case_postponed(self, measurement: Measurement) -> None:
        """Show why a measurement does not count."""
        self.current = None
        reason = (measurement.conditions and measurement.conditions.explanation()) or "stays with its other side"
        self.show(f"{measurement.series} {_how_ended(measurement)}; {reason}; again later in this round")

    def case_left_out(self, series: Series) -> None:
        """Show that the case has a round less."""
        self._end(series)
        self.show(f"{series} left out of this round, as the budget has no time for it")

    def case_ended(self, measurement: Measurement) -> None:
        """Show the result that the case has in this round."""
        self._end(measurement.series)
        self._note(measurement)
        self.show(f"{measurement.series} {_how_ended(measurement)}")

    def _end(self, series: Series) -> None:
        self._waiting.discard(series)
        self.current = None

    def _note(self, measurement: Measurement) -> None:
        self.measurements.setdefault(measurement.series, []).append(measurement)

    def where(self) -> str:
        """Return ``round 2 of 7, 9 of 14 cases left``."""
        number = max(1, self.round + 1)
        of = f" of {self.policy.rounds}" if number <= self.policy.rounds else " (extra, for wide intervals)"
        return f"round {number}{of}, {plural(len(self._waiting), 'case')} left"


class PlainLines(Tracker):
    """One line a case, for logs, and a first one before any."""

    def show(self, event: str = "") -> None:
        """Write what has happened."""
        if event:
            say(units.one_line(f"{self.where()}: {event}"))


class _LiveTable(Tracker):
    """The table of results so far, redrawn as each case starts and ends."""

    def __init__(self, session: Session, path: Path, live: "Live", programs: OtherPrograms, busy: str = "") -> None:
        super().__init__(session)
        self._path = path
        self._live = live
        self._programs = programs
        self._busy = busy
        """Other programs on the CPUs before anything was measured."""
        self._fitting = live.console.height
        """Cases that the screen had room for when it was last drawn."""
        # A case's row changes only when that case ends, so each is computed once a round.
        self._rows = {task.series: planned_row(task.case, task.side.name) for task in session.tasks if task.has_device}
        absent = [task.case.device for task in session.tasks if not task.has_device]
        missing = ", ".join(dict.fromkeys(absent))
        self._absent = f"{plural(len(absent), 'case')} skipped, not available here: {missing}" if absent else ""
        for series, measurements in self.measurements.items():
            self._renew(series, measurements)
        self._news = ""
        """A measurement that does not count, since the last one that does."""
        self._answers: End | None = None
        self._answers_due_s = 0.0
        self._answer()

    def show(self, event: str = "") -> None:
        """Draw all of it anew, with the event until a case ends."""
        if event != self.doing:
            self._news = event
        self.draw()

    def case_started(self, series: Series, number: int) -> None:
        if self.doing:  # the workers of the round have started meanwhile
            self._programs.named()
        else:
            self._programs.renew()
        super().case_started(series, number)

    def case_postponed(self, measurement: Measurement) -> None:
        self._name_others(measurement)
        super().case_postponed(measurement)

    def case_ended(self, measurement: Measurement) -> None:
        self._end(measurement.series)
        self._note(measurement)
        self._news = ""
        self._renew(measurement.series, self.measurements[measurement.series])
        self._name_others(measurement)
        if measurement.status is Status.SKIPPED:  # many end so at once, and drawing each would take longer than a budget's grace
            return
        self.draw()  # at once, as answering may take seconds on a busy machine
        if self._answer():
            self.draw()

    def case_left_out(self, series: Series) -> None:
        was_measured = self.current is not None
        self._end(series)
        if was_measured:  # of those that were not begun there may be many at once
            self.draw()

    def _name_others(self, measurement: Measurement) -> None:
        """Look for the programs that use the CPUs if the case is known to have lost much of its time to others."""
        lost = (measurement.conditions and measurement.conditions.lost) or 0.0
        if lost > BUSY:
            self._programs.named(lost)

    def _answer(self) -> bool:
        """Answer from the rows so far, unless that would take a noticeable part of the run, as it does with many cases.

        Return whether there are new answers.
        """
        started_s = time.monotonic()
        measured = [row for row in self._rows.values() if row.case.status is not None]
        went_well = any(row.case.status is Status.OK for row in measured)
        if not went_well or not self.session.answered or started_s < self._answers_due_s:
            return False
        from dlbench.analysis.answers import answers
        from dlbench.analysis.answers.engine.question import Answer
        from dlbench.analysis.read.table import rows_so_far
        from dlbench.analysis.report.terminal import End

        declared = {name: each.declared for name, each in self.session.signatures.items()}
        cards = [{"kind": each.kind, "name": each.name} for each in self.session.devices if each.kind != "cpu"]
        results = rows_so_far(measured, self._path.stem, declared, {"identity": {"accelerators": cards}})
        found = answers(results)
        self._answers = End(results, found) if any(isinstance(each, Answer) for each in found) else None
        ended_s = time.monotonic()
        self._answers_due_s = ended_s + _REST * (ended_s - started_s)
        return True

    def draw(self) -> None:
        """Show as much of the table as fits, around the current case, and below it the answers and the status."""
        from rich.console import Group
        from rich.segment import Segments
        from rich.text import Text

        self._drawn_s = time.monotonic()
        left_s = self.left_s()
        left = "" if left_s is None else f", about {units.clock_time(left_s)} left"
        self._status_form = f"{self.where()}, {{}} gone{left}"
        self._status = status = Text(self._with_time(), style="bold")
        doing = f"now {self.current}" if self.current else self.doing or f"writing {self._path}"
        lines = [line for line in (self._absent, self._busy or self._programs.found, self._news, doing) if line]
        now = [Text(units.one_line(line), style="dim", no_wrap=True, overflow="ellipsis") for line in lines]
        answers = [self._answers] if self._answers else []
        table = self._visible_part(Group(*answers, status, *now))

        def laid_out(part: "RenderableType") -> Segments:
            """Return a part as it is printed: to draw that again takes 0.7 ms instead of 11."""
            return Segments([*self._live.console.render(part)])

        # The status alone changes until the next call, with the time that has gone.
        self._live.update(Group(*map(laid_out, (table, *answers)), status, *map(laid_out, now)), refresh=True)

    def _with_time(self) -> str:
        return self._status_form.format(units.clock_time(time.monotonic() - self.session.settings.began))

    def tick_until(self, ended: threading.Event) -> None:
        """Draw the clock anew each second, where nothing has happened for long; any thread may do so."""
        while not ended.wait(_TICK_S):
            if time.monotonic() - self._drawn_s > _LONG_S:
                self._status.plain = self._with_time()
                self._live.refresh()

    def _visible_part(self, below: "RenderableType") -> "RenderableType":
        """Return the table of as many cases, around the current one, as the screen has lines for above ``below``."""
        from dlbench.analysis.report import tables
        from dlbench.analysis.report.screen import fitting, lines_of

        position = list(self._rows).index(self.current) if self.current in self._rows else 0
        console = self._live.console
        room = max(3, console.height - lines_of(console, below) - 1)  # one line the terminal keeps

        def around_current(count: int) -> "ScreenTable":
            first = max(0, min(position - count // 2, len(self._rows) - count))
            return tables.cases_table(list(self._rows.values())[first : first + count])

        # Most often as many as last time.
        self._fitting, table = fitting(console, around_current, self._fitting + 1, room)
        return table

    def _renew(self, series: Series, measurements: Sequence[Measurement]) -> None:
        if series not in self._rows:  # those of devices that are not there share a line
            return
        row = summarise(measurements, self.policy.target)
        declared = self.session.signatures[row.case.workload].declared
        self._rows[series] = replace(row, case=replace(row.case, run=row.case.side or ""), declared=declared)
