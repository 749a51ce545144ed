"""Screens of result files: cases, the end, answers and details, on a terminal or in a pipe."""

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from dlbench.analysis.answers import answer_to, devices, speedup
from dlbench.analysis.answers import answers as every_answer
from dlbench.analysis.answers.parts.base import Answer, Missing, Table
from dlbench.analysis.answers.parts.pair_tables import same_case
from dlbench.analysis.claims import claims_table
from dlbench.analysis.presentation import wording
from dlbench.analysis.ratios.pairing import DEVICE, Pairs
from dlbench.analysis.read.merge import merged
from dlbench.analysis.read.table import Results
from dlbench.analysis.report import case_table, detail_tables, ending, sentences
from dlbench.analysis.report.screen import Note, ScreenTable, columns_of, fitting, lines_of
from dlbench.analysis.scaling.projection import projected
from dlbench.analysis.scaling.speedup import scaling
from dlbench.core.model import Status
from dlbench.core.rows.row import Row
from dlbench.core.units import fold

if TYPE_CHECKING:
    from dlbench.analysis.compare.verdict import Comparison

_TABLE_LINES = 6
"""Lines that the table of cases has on a screen that is too small for all."""


def overview(
    results: Results,
    found: Sequence[Answer | Missing] | None = None,
    *,
    details: bool = False,
    height: int | None = None,
    more: str = "--topic details",
    left_open: str = "",
) -> RenderableType:
    """Return what result files say to a person: the cases, and behind them the run in one line with a line for each answer.

    ``found``: the answers, where they are known already. ``left_open``: what was not asked, and the command for it.
    With ``details`` all tables stand between them. On a screen of ``height`` lines there are as many cases as leave the end on it, and
    notes on how they were measured are left to ``more``.
    """
    results = merged(results)
    found = every_answer(results) if found is None else found
    answered = [each for each in found if isinstance(each, Answer)]
    tables: list[Table] = []
    if details:
        tables = [
            *(table for each in answered for table in each.tables),
            detail_tables.slowest_layers(results),
            detail_tables.projection(projected(scaling(results), results)),
            *detail_tables.values(results),
            detail_tables.bandwidths(results),
        ]
    rows, folded = results.rows, None if details else height
    many, shared = sentences.many_alike(rows), sentences.shared_marks(rows)
    shown = case_table.ordered([row for row in rows if row.ending not in many])
    failures = sentences.many_alike(shown, failed=True)
    machines = [] if folded and rows else [Note(sentences.count(rows), ""), *_notes(sentences.devices(rows))]
    above = [*_not_usable(results), *machines]
    notes = [*sentences.reasons(rows), *sentences.unstated(results), *results.circumstances]
    below = [*_notes([*failures.values(), *many.values()], "yellow"), *([] if folded else _notes(notes)), *_drawn(tables)]
    if rows and (folded or any(row.case.status is not Status.SKIPPED for row in rows)):  # else the count says it all
        below += [End(results, found, sentences.marks(shown, results), shared, left_open, folded)]

    def chosen(rows: Sequence[Row]) -> ScreenTable:
        legends = None if folded else sentences.legends(shown)
        return case_table.table(rows, legends=legends, shared=shared, reasons_below=failures)

    if not (folded and shown):
        return Group(*above, *([chosen(shown)] if shown else []), *below)
    console, first = Console(), sorted(shown, key=lambda row: not case_table.trouble(row))
    room = max(_TABLE_LINES, folded - sum(lines_of(console, part) for part in (*above, *below)) - 1)
    place = {id(row): at for at, row in enumerate(shown)}
    count, table = fitting(console, lambda count: chosen(sorted(first[:count], key=lambda row: place[id(row)])), len(first), room)
    hidden = [*([f"{left} more"] if (left := len(first) - count) else []), *([wording.plural(len(notes), "note")] if notes else [])]
    return Group(*above, table, *_notes([f"{', '.join(hidden)}: {more}"] if hidden else []), *below)


def reasoning(results: Results, topic: str | None = None) -> RenderableType:
    """Return the devices and the reasoning of each answer, or of that on one topic with the tables that it stands on."""
    results = merged(results)
    found = [each for each in every_answer(results) if topic in (None, each.question.topic)]
    tables = [table for each in found if topic and isinstance(each, Answer) for table in each.tables]
    return _screen(results, [*_notes(sentences.devices(results.rows)), *_reasons(results, *found)], tables)


def more_devices(results: Results) -> RenderableType:
    """Return what more devices bring, the table behind it, and what it would be on more of them than were measured."""
    found, steps = answer_to(devices, results.usable), scaling(results)
    answer = _reasons(results, found) if isinstance(found, Answer) else []
    projection = detail_tables.projection(projected(steps, results))
    return _screen(results, answer, [devices.table(steps), projection])


def paired(results: Results, pairs: Pairs, values: Table) -> RenderableType:
    """Return what pairing the rows by one column says, also of those that report ``values`` alone; by device, each at its own best, too."""
    where = _notes(sentences.devices(results.rows))
    if not (pairs.rows or values.rows):
        return Group(*where, Note("No two ok rows differ in that column alone.", ""))
    found = answer_to(speedup, results.usable) if pairs.by == DEVICE else None
    answer, tables = (_reasons(results, found), found.tables) if isinstance(found, Answer) else ([], (same_case(pairs), values))
    return _screen(results, [*answer, *where], tables)


def claims(results: Results) -> RenderableType:
    """Return what others claim, and what was measured beside it."""
    return _screen(results, [], [claims_table(results)])


def verdicts(comparison: "Comparison", several: bool) -> RenderableType:
    """Return the verdict on each case, why it is so, and, where it is one of ``several``, what the comparison comes to."""
    from dlbench.analysis.report import compare_terminal  # which other screens need not wait for

    table = ScreenTable(compare_terminal.columns(comparison))
    reasons = _notes(compare_terminal.reasons(comparison), "")
    summary = [*_notes([compare_terminal.count(comparison.cases)], ""), Text()]
    return Group(table, *reasons, *(summary if several else []))


def _screen(results: Results, parts: Sequence[RenderableType], tables: Iterable[Table]) -> RenderableType:
    """Return the parts and the tables behind a line for each run that is not usable."""
    return Group(*_not_usable(results), *parts, *_drawn(tables))


def _not_usable(results: Results) -> list[RenderableType]:
    return _notes(sentences.not_usable(results), "bold red")


_NUMBER = re.compile(r"(?<![\w.])\d+(?:[.,]\d+)*(?: ?[×%])?(?!\w)")


@dataclass(frozen=True)
class Lines:
    """What is answered, on a screen of any width, with the first number of each line in colour."""

    found: Sequence[Answer | Missing]
    shared: Container[str] = ()
    """Tags that all cases have, which no line repeats."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self.texts(options.max_width)

    def texts(self, width: int) -> Iterator[Text]:
        """Yield each line."""
        for label, text in ending.lines(self.found, width, self.shared):
            line = Text(f"{label:<{ending.LABEL}}{text}", no_wrap=True, overflow="crop")
            if number := _NUMBER.search(line.plain):
                line.stylize("bold cyan", *number.span())
            yield line


@dataclass(frozen=True)
class End:
    """The end of a screen: the run in one line, what it answers, what is open, and its words of trouble as far as there is room."""

    results: Results
    found: Sequence[Answer | Missing]
    marks: Mapping[str, str] | None = None
    """Those of the cases above; None where no word is explained."""
    shared: Container[str] = ()
    left_open: str = ""
    height: int | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        run = ending.run_in_words(self.results)
        lines = [
            *(Text(each, style="bold") for each in ending.packed(run, options.max_width)),
            *Lines(self.found, self.shared).texts(options.max_width),
            *(Text(each) for each in (ending.hanging("open", self.left_open, options.max_width) if self.left_open else ())),
        ]
        yield from lines
        room = None if self.height is None else min(self.height, ending.MOST) - len(lines)
        used = "\n".join(line.plain for line in lines)
        for each in () if self.marks is None else ending.explanations(used, self.marks, self.shared):
            folded = fold(each, options.max_width)
            if room is not None and (room := room - len(folded)) < 0:
                break
            yield Note(each)


def _reasons(results: Results, *found: Answer | Missing) -> list[RenderableType]:
    """Return the headline of each answer, its sentences, and what weakens it, or why there is none; and what their tags mean."""
    parts = list[RenderableType]()
    for each in found:
        limits = [", ".join(each.tags)] if isinstance(each, Answer) else []
        about = "".join(f"  {part}" for part in (each.qualifier, *limits) if part)
        parts.append(Text(f"{each.question.topic}: {each.headline}", style="bold").append(about, style="not bold"))
        if isinstance(each, Missing):
            command = f"; measure it with: {each.command}" if each.command else ""
            parts.append(Note(f"{each.reason}{command}", "", 2))
        else:
            parts += [*_notes(each.sentences, "", 2), *_notes(each.weaknesses, indent=2)]
        parts.append(Text())
    of_answers = {tag for each in found if isinstance(each, Answer) for tag in each.tags}
    marks = {mark: meaning for mark, meaning in sentences.marks(results.rows, results).items() if mark in of_answers}
    return [*parts, *_notes(ending.explanations(of_answers, marks))]


def _drawn(tables: Iterable[Table]) -> Iterator[RenderableType]:
    """Yield each table of data behind an empty line, and what a reader has to know of it."""
    for table in tables:
        if columns := columns_of(table):
            yield from (Text(), Note(table.title, "bold"), ScreenTable(columns), *_notes(table.notes))


def _notes(lines: Iterable[str], style: str = "dim", indent: int = 0) -> list[RenderableType]:
    return [Note(line, style, indent) for line in lines]
