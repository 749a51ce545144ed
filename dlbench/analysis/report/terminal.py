"""Rows and ratios as tables for people. The door to rich."""

import re
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from dlbench.analysis.answers import answer_to, devices, speedup
from dlbench.analysis.answers import answers as every_answer
from dlbench.analysis.answers.parts.base import Answer, Missing, Table
from dlbench.analysis.answers.parts.pair_tables import same_case
from dlbench.analysis.claims import claims_table
from dlbench.analysis.compare.verdict import Comparison
from dlbench.analysis.presentation import pair_columns, wording
from dlbench.analysis.ratios.pairing import DEVICE, Pairs
from dlbench.analysis.read.merge import merged
from dlbench.analysis.read.table import Results
from dlbench.analysis.report import case_table, compare_terminal, detail_tables, sentences, strips, ten_lines
from dlbench.analysis.report.screen_table import Kind, Note, ScreenColumn, ScreenTable, fitting, lines_of, screen_table
from dlbench.analysis.scaling.columns import EFFICIENCY, SPEEDUP
from dlbench.analysis.scaling.projection import projected
from dlbench.analysis.scaling.speedup import scaling
from dlbench.core import units
from dlbench.core.model import Status
from dlbench.core.rows.row import Row
from dlbench.core.schema import Unit

_BAR = "bar (log)"
_BAR_NOTE = f"{_BAR}: how many times as fast, on a logarithmic scale; to the right of │ faster, to the left slower"
_STRIP_NOTE = "each round's median beside the case's own, which is in the middle; the higher, the more rounds; ‹ and › are rounds beyond"


def overview(
    results: Results,
    found: Sequence[Answer | Missing] | None = None,
    *,
    details: bool = False,
    pictures: bool = False,
    height: int | None = None,
    more: str = "--details",
) -> RenderableType:
    """Return what result files say to a person: the cases, and a line for each of the ten questions.

    ``found``: their answers, where they are known already.
    With ``details`` all tables stand between them. With ``pictures`` there are bars and strips of rounds. On a screen of ``height`` lines
    there are as many cases as leave the lines of answers on it, and notes on how they were measured are left to ``more``.
    """
    results = merged(results)
    found = every_answer(results) if found is None else found
    tables: list[Table] = []
    if details:
        tables = [
            *(table for each in found if isinstance(each, Answer) for table in each.tables),
            detail_tables.projection(projected(scaling(results), results)),
            *detail_tables.values(results),
            detail_tables.bandwidths(results),
        ]
    rows = results.rows
    many, shared = sentences.many_alike(rows), sentences.shared_marks(rows)
    shown = case_table.ordered([row for row in rows if row.ending not in many])
    failures = sentences.many_failures(shown)
    folded = None if details else height
    legends = None if folded else sentences.legends(shown)
    machines = sentences.devices(rows)
    if folded and len(machines) > _MOST_DEVICES:
        machines[_MOST_DEVICES - 1 :] = [f"{len(machines) - _MOST_DEVICES + 1} more devices: {more}"]
    above = [*_not_usable(results), Text(sentences.count(rows)), *_texts(machines)]
    about = (*_on_notes(shown, details), *sentences.reasons(rows), *sentences.unstated(results), *results.circumstances)
    notes = list(map(units.one_line, about))
    answers = [TenLines(found, shared), *_texts(ten_lines.explanations(found, sentences.marks(shown, results), shared))]
    if rows and all(row.case.status is Status.SKIPPED for row in rows):
        answers = []  # dashes alone
    below = [*_texts([*failures.values(), *many.values()], "yellow"), *([] if folded else _texts(notes)), *_drawn(tables, pictures)]

    def table_of(rows: Sequence[Row]) -> ScreenTable:
        return results_table(rows, pictures=pictures, legends=legends, shared=shared, reasons_below=failures)

    if not shown:
        return Group(*above, *below, *answers)
    if not folded:
        return Group(*above, table_of(shown), *below, *answers)
    foremost = {case for each in found if isinstance(each, Answer) for case in each.foremost}
    return _Folded(shown, table_of, above, [*below, *answers], len(notes), folded, more, foremost)


def _on_notes(rows: Sequence[Row], details: bool) -> list[str]:
    """Return a line on the values in the notes of cases: what their ranges are over, and where the others are."""
    more = 0 if details else detail_tables.more_values(rows)
    parts = [*detail_tables.ranges(rows), *([f"all values of {wording.plural(more, 'case')}: --details"] if more else [])]
    return [f"notes: {'; '.join(parts)}"] if parts else []


_MOST_DEVICES = 4
"""Lines on devices above a folded table."""
_TABLE_LINES = 12
"""Lines that the table of cases has on a screen that is too small for all."""


@dataclass(frozen=True)
class _Folded:
    """Cases between what stands above and below them, as many as leave that on a screen of so many lines."""

    rows: Sequence[Row]
    table: Callable[[Sequence[Row]], ScreenTable]
    above: Sequence[RenderableType]
    below: Sequence[RenderableType]
    notes: int
    """How many are left out."""
    height: int
    more: str
    """The command, or its option, that shows what is left out."""
    foremost: Container[str]
    """Ids of the cases that are shown before others."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        first = case_table.by_importance(self.rows, self.foremost)

        def chosen(count: int) -> ScreenTable:
            ids = set(map(id, first[:count]))
            return self.table([row for row in self.rows if id(row) in ids])

        room = max(_TABLE_LINES, self.height - sum(lines_of(console, part) for part in (*self.above, *self.below)) - 1)
        count, table = fitting(console, chosen, len(self.rows), room)
        while count < len(self.rows) and lines_of(console, larger := chosen(count + 1)) <= room:
            count, table = count + 1, larger
        hidden = [f"{left} more"] if (left := len(self.rows) - count) > 0 else []
        hidden += [wording.plural(self.notes, "note")] if self.notes else []
        yield from (*self.above, table)
        yield from _texts([f"{', '.join(hidden)}: {self.more}"] if hidden else [])
        yield from self.below


def reasoning(results: Results, topic: str | None = None, *, pictures: bool = False) -> RenderableType:
    """Return the reasoning of each answer, or of that on one topic with the tables that it stands on."""
    results = merged(results)
    found = [each for each in every_answer(results) if topic in (None, each.question.topic)]
    tables = [table for each in found if topic and isinstance(each, Answer) for table in each.tables]
    return _screen(results, _reasons(results, *found), tables, pictures)


def more_devices(results: Results, *, pictures: bool = False) -> RenderableType:
    """Return what more devices bring, the table behind it, and what it would be on more of them than were measured."""
    found, steps = answer_to(devices, results.usable), scaling(results)
    answer = _reasons(results, found) if isinstance(found, Answer) else []
    projection = detail_tables.projection(projected(steps, results))
    return _screen(results, answer, [devices.table(steps), projection], pictures)


def paired(results: Results, pairs: Pairs, values: Table, *, pictures: bool = False) -> RenderableType:
    """Return what pairing the rows by one column says, also of those that report ``values`` alone; by device, each at its own best, too."""
    if not (pairs.rows or values.rows):
        return Group(*_texts(sentences.devices(results.rows)), Text("No two ok rows differ in that column alone."))
    found = answer_to(speedup, results.usable) if pairs.by == DEVICE else None
    answer, tables = (_reasons(results, found), found.tables) if isinstance(found, Answer) else ([], (same_case(pairs), values))
    return _screen(results, [*answer, *_texts(sentences.devices(results.rows))], tables, pictures)


def claims(results: Results) -> RenderableType:
    """Return what others claim, and what was measured beside it."""
    return _screen(results, [], [claims_table(results)], pictures=False)


def _screen(results: Results, parts: Sequence[RenderableType], tables: Iterable[Table], pictures: bool) -> RenderableType:
    """Return the parts and the tables behind a line for each run that is not usable."""
    return Group(*_not_usable(results), *parts, *_drawn(tables, pictures))


def _not_usable(results: Results) -> list[RenderableType]:
    return _texts(sentences.not_usable(results), "bold red")


def verdicts(comparison: Comparison) -> RenderableType:
    """Return the table of a comparison for a screen: what a pipe gets, with names short and in columns that fold."""
    names = compare_terminal.short_names(comparison)
    rows = [(units.one_line(names[case.case]), *compare_terminal.cells(case)[1:]) for case in comparison.cases]
    return screen_table(compare_terminal.HEADINGS, rows, compare_terminal.NUMBERS, compare_terminal.KEPT, compare_terminal.NAME_WIDTH)


_NUMBER = re.compile(r"(?<![\w.])\d+(?:[.,]\d+)*(?: ?[×%])?(?!\w)")


@dataclass(frozen=True)
class TenLines:
    """Answers on a screen of any width, a line each, with the number of each in colour."""

    found: Sequence[Answer | Missing]
    shared: Container[str] = ()
    """Tags that all cases have, which no line repeats."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for topic, text in ten_lines.lines(self.found, options.max_width, self.shared, ascii_only=options.ascii_only):
            line = Text(f"{topic:<{ten_lines.TOPIC_WIDTH}}{text}", no_wrap=True, overflow="crop")
            if number := _NUMBER.search(line.plain):
                line.stylize("bold cyan", *number.span())
            yield line


def _reasons(results: Results, *found: Answer | Missing) -> list[RenderableType]:
    """Return the headline of each answer, its sentences, and what weakens it, or why there is none; and what their tags mean."""
    parts = list[RenderableType]()
    for each in found:
        limits = [", ".join(each.tags)] if isinstance(each, Answer) else []
        about = "".join(f"  {part}" for part in (each.qualifier, *limits) if part)
        parts.append(Text(f"{each.question.topic}: {each.headline}", style="bold").append(about, style="not bold"))
        if isinstance(each, Missing):
            command = f"; measure it with: {each.command}" if each.command else ""
            parts += _texts([f"  {units.one_line(each.reason)}{command}"], "")
        else:
            parts += _texts((f"  {sentence}" for sentence in each.sentences), "")
            parts += _texts(f"  {units.one_line(weakness)}" for weakness in each.weaknesses)
        parts.append(Text())
    of_answers = {tag for each in found if isinstance(each, Answer) for tag in each.tags}
    marks = {mark: meaning for mark, meaning in sentences.marks(results.rows, results).items() if mark in of_answers}
    return [*parts, *_texts(ten_lines.explanations(found, marks))]


def _table(table: Table, pictures: bool = False) -> list[RenderableType]:
    """Return a table of data behind an empty line, and what a reader has to know of it; with ``pictures`` a bar beside each ratio."""
    columns, drawn = dict(table.columns), list[ScreenColumn]()
    for heading, cells in table.cells():
        column = columns[heading]
        kind: Kind = "number" if drawn and column.unit is not Unit.TEXT and not column.series else "text"
        texts = [Text(units.one_line(cell)) for cell in cells]
        kept = column in _KEPT or (kind == "number" and not column.priority)
        drawn.append(ScreenColumn(heading, texts, kind, kept=kept, priority=column.priority))
        if column in _RATIOS and pictures:
            bars = strips.bars([None if (value := row.get(column.name)) is None else wording.number(value) for row in table.rows])
            drawn.append(ScreenColumn(_BAR, list(map(Text, bars)), "picture", note=_BAR_NOTE))
    return [Text(), ScreenTable(drawn, table.title), *_texts(table.notes)] if drawn else []


def _drawn(tables: Iterable[Table], pictures: bool) -> Iterator[RenderableType]:
    return chain.from_iterable(_table(table, pictures) for table in tables)


def _texts(lines: Iterable[str], style: str = "dim") -> list[RenderableType]:
    return [Note(line, style) for line in lines]


def results_table(
    rows: Sequence[Row],
    *,
    pictures: bool = False,
    dim: Sequence[Row] = (),
    legends: Mapping[str, str] | None = None,
    shared: Collection[str] = (),
    reasons_below: Container[str] = (),
) -> ScreenTable:
    """Return the table of cases.

    Devices that ran the same work stand one below the other. A column with nothing to show is left out; where the screen is too
    narrow for the others, so are some of them, and a line below the table says which. ``dim`` are those of the rows that do not count.
    ``legends``: what a heading means, which stands below the table while its column is shown. ``shared``: marks that no row needs;
    ``reasons_below``: how cases ended that stands below the table.
    """
    rows = case_table.ordered(rows)
    columns = [
        ScreenColumn(
            title,
            [_styled(title, *each, reasons_below) for each in zip(cells, rows, strict=True)],
            "text" if title in case_table.WORDS else "number",
            kept=title == "time",
            note=f"{title}: {legends[title]}" if legends and title in legends else "",
        )
        for title, cells in case_table.columns(rows, shared)
    ]
    provisional = set(map(id, dim))
    for at, row in enumerate(rows):
        if id(row) in provisional:
            for column in columns:
                column.cells[at].stylize("dim")
    reach, drawn = strips.strips([row.rounds.median_s for row in rows]) if pictures else (0.0, [])
    if any(drawn):
        behind_interval = [column.heading for column in columns].index("time") + 2
        strip = f"rounds ±{reach * 100:.0f} %"
        columns.insert(
            behind_interval,
            ScreenColumn(strip, list(map(Text, drawn)), "picture", note=f"{strip}: {_STRIP_NOTE}" if legends is not None else ""),
        )
    return ScreenTable(columns)


_RATIOS = (pair_columns.SPEEDUP, SPEEDUP.column)
"""Columns beside which a bar may stand."""
_KEPT = (*_RATIOS, EFFICIENCY.column)
"""Columns that a table is about."""


def _styled(title: str, text: str, row: Row, reasons_below: Container[str]) -> Text:
    """Return a cell of the table of cases, in colour where something went wrong."""
    if title == "case" and row.ending not in reasons_below and (trouble := case_table.trouble(row)):
        return Text(text).append(f"\n{trouble}", style="yellow")
    if title == "time" and row.case.status and not row.is_ok:
        return Text(text, style="red" if row.is_failure else "yellow")
    return Text(text)
