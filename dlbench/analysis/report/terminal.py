"""Rows and ratios as tables for people. The door to rich."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from dlbench.analysis.answers import answers as every_answer
from dlbench.analysis.answers import cost, devices, health, speedup
from dlbench.analysis.answers.parts.base import Answer, Missing, Table
from dlbench.analysis.answers.parts.pair_tables import same_case
from dlbench.analysis.compare.verdict import Comparison
from dlbench.analysis.presentation import pair_columns, wording
from dlbench.analysis.ratios.pairing import DEVICE, Pairs
from dlbench.analysis.read.merge import merged
from dlbench.analysis.read.table import Results
from dlbench.analysis.report import case_table, compare_terminal, detail_tables, sentences, strips
from dlbench.analysis.report.screen_table import Kind, ScreenColumn, ScreenTable, screen_table
from dlbench.analysis.scaling.columns import EFFICIENCY, SPEEDUP
from dlbench.analysis.scaling.projection import projected
from dlbench.analysis.scaling.speedup import scaling
from dlbench.core import units
from dlbench.core.model import ParamValue
from dlbench.core.rows.row import Row
from dlbench.core.schema import Unit

_LINES = 15
"""Lines that the answers take at most."""
_BESIDE_OTHERS = (cost.QUESTION, health.QUESTION)
_BAR = "bar (log)"
_BAR_NOTE = f"{_BAR}: how many times as fast, on a logarithmic scale; to the right of │ faster, to the left slower"
_STRIP_NOTE = "each round's median beside the case's own, which is in the middle; the higher, the more rounds; ‹ and › are rounds beyond"


def overview(
    results: Results, *, answers: bool = False, details: bool = False, pictures: bool = False, brief: bool = False
) -> RenderableType:
    """Return what result files say to a person: the result in sentences, every case, and the tables that the result stands on.

    With ``answers`` all questions are answered, as far as the rows go; else those on accelerators and on several devices.
    With ``details`` projections, tables of values, and bandwidths come last. With ``pictures`` there are bars and strips of rounds.
    ``brief`` leaves out what sets these rows beside those of others: it may be longer than the cases.
    """
    results = merged(results)
    found = every_answer(results) if answers else (speedup.answer(results), devices.answer(results))
    known = [each for each in found if isinstance(each, Answer)]
    head = [Answers(found)] if answers else _texts([line for each in known for line in each.sentences], "bold")
    tables = [table for each in known for table in each.tables if not brief or each.question not in _BESIDE_OTHERS]
    if details:
        tables += [
            detail_tables.projection(projected(scaling(results), results)),
            *detail_tables.values(results),
            detail_tables.bandwidths(results),
        ]
    return _screen(results, [*head, *_cases(results, pictures)], tables, pictures)


def more_devices(results: Results, *, pictures: bool = False) -> RenderableType:
    """Return what more devices bring in sentences, the table behind it, and what it would be on more of them than were measured."""
    found, steps = devices.answer(results), scaling(results)
    answer = _texts(found.sentences, "bold") if isinstance(found, Answer) else []
    projection = detail_tables.projection(projected(steps, results))
    return _screen(results, answer, [devices.table(steps), projection], pictures)


def paired(results: Results, pairs: Pairs, values: Table, *, pictures: bool = False) -> RenderableType:
    """Return what pairing the rows by one column says, also of those that report ``values`` alone; by device, each at its own best, too."""
    if not (pairs.rows or values.rows):
        return Group(*_texts(sentences.devices(results.rows)), Text("No two ok rows differ in that column alone."))
    found = speedup.answer(results) if pairs.by == DEVICE else None
    answer, tables = (found.sentences, found.tables) if isinstance(found, Answer) else ((), (same_case(pairs), values))
    return _screen(results, [*_texts(answer, "bold"), *_texts(sentences.devices(results.rows))], tables, pictures)


def _screen(results: Results, parts: Sequence[RenderableType], tables: Iterable[Table], pictures: bool) -> RenderableType:
    """Return the parts and the tables behind a line for each run that is not usable."""
    not_usable = _texts(sentences.not_usable(results), "bold red")
    return Group(*not_usable, *parts, *chain.from_iterable(_table(table, pictures) for table in tables))


def verdicts(comparison: Comparison) -> RenderableType:
    """Return the table of a comparison for a screen: what a pipe gets, with names short and in columns that fold."""
    rows = [(units.one_line(wording.placed(case.case)), *compare_terminal.cells(case)[1:]) for case in comparison.cases]
    return screen_table(compare_terminal.HEADINGS, rows, compare_terminal.NUMBERS)


def _cases(results: Results, pictures: bool) -> list[RenderableType]:
    """Return the count of cases, their devices, the table of them, and what was in their way."""
    rows = results.rows
    many = sentences.many_alike(rows)
    shown = [row for row in rows if row.ending not in many]
    marks = sentences.marks(shown, results)
    table = results_table(shown, pictures=pictures, marks=marks)
    of_columns = {column.heading for column in table.columns}
    notes = [units.one_line(line) for line in (*sentences.reasons(rows), *sentences.unstated(results), *results.circumstances)]
    return [
        Text(sentences.count(rows)),
        *_texts(sentences.devices(rows)),
        table,
        *_texts(many.values(), "yellow"),
        *_texts([f"{mark}: {sentence}" for mark, sentence in marks.items() if mark not in of_columns]),
        *_texts(notes),
    ]


@dataclass(frozen=True)
class Answers:
    """Answers in sentences, in fewer than so many lines on a screen of any width."""

    found: Sequence[Answer | Missing]
    lines: int = _LINES

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for cautious in (True, False):
            texts = _paragraphs(self.found, cautious)[: max(0, self.lines - 1)]
            most = [len(_wrapped(text, options.max_width)) for text in texts]
            if sum(most) < self.lines:
                break
        while most and sum(most) >= self.lines:
            most[most.index(max(most))] -= 1
        for text, limit in zip(texts, most, strict=True):
            shown = Text("\n".join(_wrapped(text, options.max_width, limit)))
            shown.stylize("bold", 0, text.index(":") + 1)
            yield shown
        if texts:
            yield Text()


def _paragraphs(found: Sequence[Answer | Missing], cautious: bool) -> list[str]:
    """Return a paragraph for each answer, if wanted with what weakens it, and one for all that are missing."""
    texts, missing = [], []
    for each in found:
        if isinstance(each, Missing):
            missing.append(f"{each.question.topic} ({each.command})" if each.command else each.question.topic)
            continue
        caution = f" Caution: {'; '.join(each.weaknesses)}." if cautious and each.weaknesses else ""
        texts.append(units.one_line(f"{each.question.topic}: {' '.join(each.sentences)}{caution}"))
    reasons = "for the reasons: dlbench show FILE --answers --format md"
    return [*texts, f"not answered: {', '.join(missing)}; {reasons}"] if missing else texts


def _wrapped(text: str, width: int, most: int | None = None) -> list[str]:
    return textwrap.wrap(text, width, max_lines=most, placeholder=" …", break_on_hyphens=False)


def _table(table: Table, pictures: bool = False) -> list[RenderableType]:
    """Return a table of data behind an empty line, and what a reader has to know of it; with ``pictures`` a bar beside each ratio."""
    columns, drawn = dict(table.columns), list[ScreenColumn]()
    for heading, cells in table.cells():
        column = columns[heading]
        kind: Kind = "number" if drawn and column.unit is not Unit.TEXT and not column.series else "text"
        drawn.append(ScreenColumn(heading, list(map(_text, cells)), kind, kept=column in _KEPT))
        if column in _RATIOS and pictures:
            bars = strips.bars([None if (value := row.get(column.name)) is None else wording.number(value) for row in table.rows])
            drawn.append(ScreenColumn(_BAR, list(map(Text, bars)), "picture", note=_BAR_NOTE))
    return [Text(), ScreenTable(drawn, table.title), *_texts(table.notes)] if drawn else []


def _texts(lines: Iterable[str], style: str = "dim") -> list[RenderableType]:
    return [Text(line, style=style) for line in lines]


def results_table(
    rows: Sequence[Row], *, pictures: bool = False, dim: Sequence[Row] = (), marks: Mapping[str, str] | None = None
) -> ScreenTable:
    """Return the table of cases.

    Devices that ran the same work stand one below the other. A column with nothing to show is left out; where the screen is too
    narrow for the others, so are some of them, and a line below the table says which. ``dim`` are those of the rows that do not count.
    ``marks``: what each mark means; that of a heading stands below the table while its column is shown.
    """
    rows = case_table.ordered(rows)
    columns = [
        ScreenColumn(
            title,
            [_styled(title, *each) for each in zip(cells, rows, strict=True)],
            "text" if title in case_table.WORDS else "number",
            kept=title == "time",
            note=f"{title}: {marks[title]}" if marks and title in marks else "",
        )
        for title, cells in case_table.columns(rows)
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
        columns.insert(behind_interval, ScreenColumn(strip, list(map(Text, drawn)), "picture", note=f"{strip}: {_STRIP_NOTE}"))
    return ScreenTable(columns)


_RATIOS = (pair_columns.SPEEDUP, SPEEDUP.column)
"""Columns beside which a bar may stand."""
_KEPT = (*_RATIOS, EFFICIENCY.column)
"""Columns that a table is about."""


def _styled(title: str, text: str, row: Row) -> Text:
    """Return a cell of the table of cases, in colour where something went wrong."""
    if title == "case" and (trouble := case_table.trouble(row)):
        return Text(text).append(f"\n{trouble}", style="yellow")
    if title == "time" and row.case.status and not row.is_ok:
        return Text(text, style="red" if row.is_failure else "yellow")
    return Text(text)


def _text(value: ParamValue) -> Text:
    return Text(units.one_line(str(value)))
