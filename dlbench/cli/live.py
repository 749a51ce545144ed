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
    from rich.segment import Segments

    from dlbench.analysis.report.screen import ScreenTable
    from dlbench.analysis.report.terminal import End

_PAUSE_FACTOR = 50
"""The next update of the answers waits 50 times as long as the last one took, so that updates take 2 % of the run at most."""
_TICK_S = 1.0
"""Time between two looks at whether the clock has to be redrawn."""
_CLOCK_AFTER_S = 5.0
"""Seconds without a redrawn table, after which the clock moves by itself: a screen that does not change looks like a hang."""
_LEAST_TABLE_LINES = 3
"""Lines that the table gets even where the answers fill the screen."""


@contextmanager
def screen(session: Session, path: Path, programs: OtherPrograms) -> Iterator[Observer]:
    """Yield the observer that shows a run on stderr: a table on a terminal, else a line for each event.

    Both say if other programs use the CPUs. ``path``: the result file that the run writes.
    """
    busy = busy_line(programs)
    if not on_screen():
        if busy:
            say(busy)
        yield PlainLines(session)
        return
    from rich.console import Console
    from rich.live import Live

    # To draw while a case is measured would disturb it, so the table is redrawn on events and not by rich's timer. The thread below draws
    # only where no event has come for a while, and then only moves the clock.
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
    time_or_status = units.seconds(medians[0]) if medians else measurement.status.value
    search_result = f", found {settings_text(measurement.found)}" if measurement.found else ""
    reason = f": {measurement.reason}" if measurement.reason else ""
    return f"{time_or_status}{search_result}{reason}"


class Tracker(Observer):
    """Follows a run: its round, the case that is measured now, and the measurements so far. Subclasses show that."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.policy = session.settings.policy
        self.round = -1
        """Number of the current round among those that this command measures: 0 is the first, and -1 stands for none yet."""
        self.current: Series | None = None
        """The case that is measured now; None between cases."""
        self._unfinished = {task.series for task in session.tasks}
        """Cases that the current round has still to measure, or to measure again."""
        self.measurements: dict[Series, list[Measurement]] = {}
        """The measurements of each case, one a round, with those that a resumed file has already."""
        for measurement in session.done:
            if measurement.status is not Status.SKIPPED:  # what was skipped then is measured now
                self._add(measurement)
        devices = dict.fromkeys(task.case.device for task in session.tasks if task.has_device)
        self._start_text = f"starting workers for {', '.join(devices)}" if devices else ""
        """Line on the start of each round, which takes seconds on an accelerator; empty if no device of the cases is present."""
        self.between_cases = self._start_text
        """What is done while no case is measured: workers are started; or, if empty, the file is written."""

    def show(self, event: str = "") -> None:
        """Show where the run is, and what has just happened."""
        raise NotImplementedError

    def round_started(self, number: int, pending: Sequence[Series]) -> None:
        """Show the start of a round, which starts its workers; only the first round makes an event of it."""
        self.round = number - self.session.first_round
        self._unfinished = set(pending)
        self.current = None
        self.between_cases = self._start_text
        is_first = self.round == 0
        self.show(self._start_text if is_first else "")

    def case_started(self, series: Series, number: int) -> None:
        """Show which case is measured now."""
        self.current = series
        self.between_cases = ""
        self.show()

    def case_tried(self, measurement: Measurement) -> None:
        """Show what was tried and how it ended."""
        self.show(f"tried {measurement.series} {_how_ended(measurement)}")

    def case_postponed(self, measurement: Measurement) -> None:
        """Show why a measurement does not count."""
        self.current = None
        # Without an explanation of its own the case was fine, and is repeated because that of the other side was not.
        explanation = measurement.conditions.explanation() if measurement.conditions else ""
        reason = explanation or "stays with its other side"
        self.show(f"{measurement.series} {_how_ended(measurement)}; {reason}; again later in this round")

    def case_left_out(self, series: Series) -> None:
        """Show that the case is not measured in this round."""
        self._finish(series)
        self.show(f"{series} left out of this round, as the budget has no time for it")

    def case_ended(self, measurement: Measurement) -> None:
        """Show the result that the case has in this round."""
        self._finish(measurement.series)
        self._add(measurement)
        self.show(f"{measurement.series} {_how_ended(measurement)}")

    def _finish(self, series: Series) -> None:
        self._unfinished.discard(series)
        self.current = None

    def _add(self, measurement: Measurement) -> None:
        self.measurements.setdefault(measurement.series, []).append(measurement)

    def progress(self) -> str:
        """Return ``round 2 of 7, 9 cases left``; rounds above the planned number are extra ones, which narrow wide intervals."""
        number = max(1, self.round + 1)
        is_planned = number <= self.policy.rounds
        of_all = f" of {self.policy.rounds}" if is_planned else " (extra, for wide intervals)"
        return f"round {number}{of_all}, {plural(len(self._unfinished), 'case')} left"


class PlainLines(Tracker):
    """One line a case, for logs, and one before them that says which workers are started."""

    def show(self, event: str = "") -> None:
        """Write what has happened."""
        if event:
            say(units.one_line(f"{self.progress()}: {event}"))


class _LiveTable(Tracker):
    """The table of results so far, redrawn as each case starts and ends; below it answers, a line of status, and what happens now."""

    def __init__(self, session: Session, path: Path, live: "Live", programs: OtherPrograms, busy: str = "") -> None:
        super().__init__(session)
        self._path = path
        self._live = live
        self._programs = programs
        self._busy = busy
        """Line on other programs that used the CPUs before anything was measured; empty if none did."""
        self._visible_cases = live.console.height
        """Number of cases that the table showed when it was last drawn; before that the lines of the screen, which is more than fit."""
        # A case's row changes only when that case ends, so each row is kept until then. Cases of absent devices share one line instead.
        self._rows = {task.series: planned_row(task.case, task.side.name) for task in session.tasks if task.has_device}
        for series in self.measurements:  # those of a resumed file
            self._update_row(series)
        absent_devices = [task.case.device for task in session.tasks if not task.has_device]
        names = ", ".join(dict.fromkeys(absent_devices))
        self._absent_line = f"{plural(len(absent_devices), 'case')} skipped, not available here: {names}" if absent_devices else ""
        self._last_event = ""
        """What has happened since the last result: a try of a search, or a measurement that does not count."""
        self._answers: End | None = None
        self._answers_due_s = 0.0
        """When the answers may be updated next, on the scale of `time.monotonic`."""
        self._update_answers()

    def show(self, event: str = "") -> None:
        """Redraw the screen, with the event until the next one; the start of workers has a line of its own."""
        if event != self.between_cases:
            self._last_event = event
        self.draw()

    def case_started(self, series: Series, number: int) -> None:
        if self.between_cases:  # while workers were starting nothing was measured, so who used the CPUs then shows
            self._programs.named()
        else:
            self._programs.renew()
        super().case_started(series, number)

    def case_postponed(self, measurement: Measurement) -> None:
        self._name_others(measurement)
        super().case_postponed(measurement)

    def case_ended(self, measurement: Measurement) -> None:
        self._finish(measurement.series)
        self._add(measurement)
        self._last_event = ""
        self._update_row(measurement.series)
        self._name_others(measurement)
        if measurement.status is Status.SKIPPED:  # many end so at once, and drawing each would take longer than a budget's grace
            return
        self.draw()  # the result at once, as the answers may take seconds on a busy machine
        if self._update_answers():
            self.draw()

    def case_left_out(self, series: Series) -> None:
        was_measured = self.current is not None
        self._finish(series)
        if was_measured:  # many that were not begun may be left out at once, so these draw nothing
            self.draw()

    def _name_others(self, measurement: Measurement) -> None:
        """Look for the programs that use the CPUs if the case is known to have lost much of its time to others."""
        conditions = measurement.conditions
        lost_share = (conditions.lost or 0.0) if conditions else 0.0
        if lost_share > BUSY:
            self._programs.named(lost_share)

    def _update_row(self, series: Series) -> None:
        """Compute the row of a case anew from its measurements; a case of an absent device has none."""
        if series not in self._rows:
            return
        row = summarise(self.measurements[series], self.policy.target)
        in_run = replace(row.case, run=row.case.side or "")  # there is one file, so the side alone tells its runs apart
        self._rows[series] = replace(row, case=in_run, declared=self.session.signatures[row.case.workload].declared)

    def _update_answers(self) -> bool:
        """Answer the questions anew from the rows so far, and return whether that was done.

        Nothing is done if the session is not meant to answer questions, or no case went well yet. With many cases an update takes seconds,
        so nothing is done either until a pause after the last update is over.
        """
        started_s = time.monotonic()
        measured = [row for row in self._rows.values() if row.case.status is not None]  # a case that is only planned has none
        any_is_ok = any(row.case.status is Status.OK for row in measured)
        if not self.session.answered or not any_is_ok or started_s < self._answers_due_s:
            return False
        from dlbench.analysis.answers import answers
        from dlbench.analysis.answers.engine.question import Answer
        from dlbench.analysis.read.table import rows_so_far
        from dlbench.analysis.report.terminal import End

        declarations = {workload: signature.declared for workload, signature in self.session.signatures.items()}
        # Answers read the accelerators of a machine from the header of its file, so the results get that part of a header. It lists all
        # accelerators of the session, also those on which nothing has been measured yet.
        accelerators = [{"kind": device.kind, "name": device.name} for device in self.session.devices if device.kind != "cpu"]
        results = rows_so_far(measured, self._path.stem, declarations, {"identity": {"accelerators": accelerators}})
        outcomes = answers(results)
        has_answer = any(isinstance(each, Answer) for each in outcomes)
        self._answers = End(results, outcomes) if has_answer else None  # draws the answers, a line each
        ended_s = time.monotonic()
        self._answers_due_s = ended_s + _PAUSE_FACTOR * (ended_s - started_s)
        return True

    def draw(self) -> None:
        """Draw the whole screen: the table around the current case, the answers, the line of status, and what happens now."""
        from rich.console import Group
        from rich.text import Text

        self._drawn_s = time.monotonic()
        left_s = self.left_s()
        self._progress_text = self.progress()
        self._time_left_text = "" if left_s is None else f", about {units.clock_time(left_s)} left"
        self._status = Text(self._status_with_time(), style="bold")
        last_lines = [Text(line, style="dim", no_wrap=True, overflow="ellipsis") for line in self._last_lines()]
        answers = [self._answers] if self._answers else []
        table = self._visible_table(Group(*answers, self._status, *last_lines))
        # `tick_until` draws all of this again with another status. The other parts are laid out here, so that drawing takes little time.
        self._live.update(Group(self._laid_out(table, *answers), self._status, self._laid_out(*last_lines)), refresh=True)

    def _last_lines(self) -> list[str]:
        """Return the lines below the status: absent devices, other programs, the last event, and what is done now."""
        between_cases = self.between_cases or f"writing {self._path}"
        now = f"now {self.current}" if self.current else between_cases
        lines = (self._absent_line, self._busy or self._programs.found, self._last_event, now)
        return [units.one_line(line) for line in lines if line]

    def _laid_out(self, *parts: "RenderableType") -> "Segments":
        """Return parts as they are printed: to draw the result again takes 0.7 ms instead of 11."""
        from rich.segment import Segments

        return Segments([segment for part in parts for segment in self._live.console.render(part)])

    def _status_with_time(self) -> str:
        passed_s = time.monotonic() - self.session.settings.began
        return f"{self._progress_text}, {units.clock_time(passed_s)} gone{self._time_left_text}"

    def tick_until(self, ended: threading.Event) -> None:
        """Draw the clock anew each second, where nothing has happened for long; any thread may do so."""
        while not ended.wait(_TICK_S):
            if time.monotonic() - self._drawn_s > _CLOCK_AFTER_S:
                self._status.plain = self._status_with_time()
                self._live.refresh()

    def _visible_table(self, below: "RenderableType") -> "RenderableType":
        """Return a table of the cases around the current one: as many as fit on the screen above ``below``."""
        from dlbench.analysis.report import tables
        from dlbench.analysis.report.screen import fitting, lines_of

        rows = list(self._rows.values())
        current_place = list(self._rows).index(self.current) if self.current in self._rows else 0
        console = self._live.console
        free_lines = console.height - lines_of(console, below) - 1  # the terminal keeps its last line
        table_lines = max(_LEAST_TABLE_LINES, free_lines)

        def table_of(count: int) -> "ScreenTable":
            # The current case stands in the middle, except near both ends of the list.
            first_place = max(0, min(current_place - count // 2, len(rows) - count))
            return tables.cases_table(rows[first_place : first_place + count])

        # `fitting` lays out tables with fewer and fewer cases until one fits. It starts with one case more than fitted last time, so that
        # few are laid out and the table can grow again.
        self._visible_cases, table = fitting(console, table_of, self._visible_cases + 1, table_lines)
        return table
