"""Rows and ratios as tables for people. The door to rich tables."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table as RichTable
from rich.text import Text

from dlbench.analysis import pair_columns, wording
from dlbench.analysis.answers import answers as every_answer
from dlbench.analysis.answers import cost, devices, health, speedup
from dlbench.analysis.answers.base import Answer, Missing, Table
from dlbench.analysis.answers.pair_tables import same_case
from dlbench.analysis.compare.verdict import Comparison
from dlbench.analysis.pairing import DEVICE, Pairs
from dlbench.analysis.read.merge import merged
from dlbench.analysis.read.table import Results
from dlbench.analysis.report import case_table, compare_terminal, detail_tables, sentences, strips
from dlbench.analysis.scaling.columns import SPEEDUP
from dlbench.analysis.scaling.projection import projected
from dlbench.analysis.scaling.speedup import scaling
from dlbench.core import units
from dlbench.core.model import ParamValue
from dlbench.core.rows.row import Row
from dlbench.core.schema import Unit

_Columns = list[tuple[str, list[Text]]]
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

    With ``answers`` all nine questions are answered, as far as the rows go; else those on accelerators and on several devices.
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
    return Group(*_not_usable(results), *head, *_cases(results, pictures), *(part for table in tables for part in _table(table, pictures)))


def more_devices(results: Results, *, pictures: bool = False) -> RenderableType:
    """Return what more devices bring in sentences, the table behind it, and what it would be on more of them than were measured."""
    found, steps = devices.answer(results), scaling(results)
    answer = _texts(found.sentences, "bold") if isinstance(found, Answer) else []
    projection = detail_tables.projection(projected(steps, results))
    return Group(*_not_usable(results), *answer, *_table(devices.table(steps), pictures), *_table(projection))


def paired(results: Results, pairs: Pairs, values: Table, *, pictures: bool = False) -> RenderableType:
    """Return what pairing the rows by one column says, also of those that report ``values`` alone; by device, each at its own best, too."""
    if not (pairs.rows or values.rows):
        return Group(*_texts(sentences.devices(results.rows)), Text("No two ok rows differ in that column alone."))
    found = speedup.answer(results) if pairs.by == DEVICE else None
    answer, tables = (found.sentences, found.tables) if isinstance(found, Answer) else ((), (same_case(pairs), values))
    return Group(
        *_not_usable(results),
        *_texts(answer, "bold"),
        *_texts(sentences.devices(results.rows)),
        *(part for table in tables for part in _table(table, pictures)),
    )


def _not_usable(results: Results) -> list[RenderableType]:
    return _texts(sentences.not_usable(results), "bold red")


def verdicts(comparison: Comparison) -> RenderableType:
    """Return the table of a comparison for a screen: what a pipe gets, with names short and in columns that fold."""
    rows = [(wording.placed(case.case), *compare_terminal.cells(case)[1:]) for case in comparison.cases]
    columns = [(heading, [_text(row[at]) for row in rows]) for at, heading in enumerate(compare_terminal.HEADINGS)]
    return _Fitting(None, columns, frozenset({"case", "verdict", "note"}))


def _cases(results: Results, pictures: bool) -> list[RenderableType]:
    """Return the count of cases, their devices, the table of them, and what was in their way."""
    rows = results.rows
    many = sentences.many_alike(rows)
    shown = [row for row in rows if row.ending not in many]
    notes = [units.one_line(line) for line in (*sentences.reasons(rows), *sentences.unstated(results), *results.circumstances)]
    return [
        Text(sentences.count(rows)),
        *_texts(sentences.devices(rows)),
        results_table(shown, pictures=pictures),
        *_texts(many.values(), "yellow"),
        *_texts([f"{mark}: {sentence}" for mark, sentence in sentences.marks(shown, results.budgets).items()]),
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
    columns = [(heading, [_text(cell) for cell in cells]) for heading, cells in table.cells()]
    words = frozenset(heading for heading, column in table.columns if column.unit is Unit.TEXT)
    series = frozenset(heading for heading, column in table.columns if column.series)
    drawn: dict[str, str] = {}
    ratio = next((each for each in table.columns if each[1] in _RATIOS), None)
    if ratio and pictures and (place := next((n for n, (heading, _) in enumerate(columns, 1) if heading == ratio[0]), 0)):
        found = [row.get(ratio[1].name) for row in table.rows]
        bars = strips.bars([None if each is None else wording.number(each) for each in found])
        columns.insert(place, (_BAR, [Text(bar) for bar in bars]))
        drawn = {_BAR: _BAR_NOTE}
    return [Text(), _Fitting(table.title, columns, words | {"case"}, series, drawn), *_texts(table.notes)] if columns else []


def _texts(lines: Iterable[str], style: str = "dim") -> list[RenderableType]:
    return [Text(line, style=style) for line in lines]


def results_table(rows: Sequence[Row], *, pictures: bool = False, dim: Sequence[Row] = ()) -> RenderableType:
    """Return the table of cases.

    Devices that ran the same work stand one below the other. A column with nothing to show is left out; where the screen is too
    narrow for the others, so are some of them, and a line below the table says which. ``dim`` are those of the rows that do not count.
    """
    rows = case_table.ordered(rows)
    styled = {"case": _case_cell, "time": _time_cell}
    columns = [
        (title, [styled.get(title, _plain_cell)(text, row) for text, row in zip(cells, rows, strict=True)])
        for title, cells in case_table.columns(rows)
    ]
    provisional = set(map(id, dim))
    for at, row in enumerate(rows):
        if id(row) in provisional:
            for _, cells in columns:
                cells[at].stylize("dim")
    reach, drawn = strips.strips([row.rounds.median_s for row in rows]) if pictures else (0.0, [])
    if not any(drawn):
        return _Fitting(None, columns, case_table.WORDS)
    strip = f"rounds ±{reach * 100:.0f} %"
    behind_interval = [title for title, _ in columns].index("time") + 2
    columns.insert(behind_interval, (strip, [Text(each) for each in drawn]))
    return _Fitting(None, columns, case_table.WORDS, pictures={strip: f"{strip}: {_STRIP_NOTE}"})


@dataclass(frozen=True)
class _Fitting:
    """A table that drops columns on a narrow screen, the least missed first, rather than squeeze the case into a few letters."""

    title: str | None
    columns: _Columns
    words: frozenset[str]
    """Headings of columns that fold where the screen is narrow; a number never does: half of one is another number."""
    series: frozenset[str] = frozenset()
    """Headings of columns that fold between their numbers."""
    pictures: Mapping[str, str] = field(default_factory=dict)
    """Headings of columns that are drawn, which are the first to go, and what a reader has to know of each."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if options.ascii_only:  # no ellipsis there; written out before widths are counted, and not by the stream
            for cell in chain.from_iterable(cells for _, cells in self.columns):
                cell.plain = cell.plain.replace("…", "...")
        shown, dropped = self.columns, []
        numbers = [
            title for title, _ in reversed(self.columns) if title not in {*self.words, *self.pictures, *_LEAST_MISSED, *_MOST_MISSED}
        ]
        for title in (*self.pictures, *_LEAST_MISSED, *numbers):
            if self._least_width(shown, title not in numbers) > options.max_width and title in dict(shown):
                shown = [column for column in shown if column[0] != title]
                dropped += [title] if title not in self.pictures else []
        table = RichTable(
            title=self.title,
            title_justify="left",
            title_style="bold",
            box=_PLAIN_HEAD if options.ascii_only else box.SIMPLE_HEAD,
            pad_edge=False,
        )
        table.collapse_padding = True
        fold = self._least_width(shown, True) > options.max_width
        for name, column in shown:
            words, width = name in self.words, self._width(name, column, False) if fold and name in self.series else None
            still = not words and not width
            table.add_column(
                _text(name),
                justify="right" if still and name not in self.pictures else "left",
                overflow="ellipsis" if still else "fold",
                no_wrap=still,
                width=width,
            )
        for cells in zip(*(cells for _, cells in shown), strict=True):
            table.add_row(*cells)
        yield table
        yield from _texts([note for title, note in self.pictures.items() if title in dict(shown)])
        if dropped:
            yield Text(f"not shown at this width: {', '.join(reversed(dropped))}; widen the terminal, or use --format csv\n", style="dim")

    def _least_width(self, columns: _Columns, whole: bool) -> int:
        """Return the screen columns that all of them take where the case has no more than it needs to be read; if not whole, texts fold."""
        return _CASE_WIDTH + sum(self._width(title, cells, whole) + 2 for title, cells in columns[1:])

    def _width(self, title: str, cells: Sequence[Text], whole: bool) -> int:
        parts = [] if title in self.words and not whole else [cell.plain for cell in cells]
        parts = " ".join(parts).split() if title in self.series and not whole else parts
        return max(Text(part).cell_len for part in (title, *parts))


_PLAIN_HEAD = box.Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
"""rich's SIMPLE_HEAD in plain characters."""
_CASE_WIDTH = 24
_RATIOS = (pair_columns.SPEEDUP, SPEEDUP.column)
"""Columns beside which a bar may stand."""
_LEAST_MISSED: tuple[str, ...] = (
    "file",
    "p after Holm",
    "of",
    "error in fp32",
    "ceiling",
    "peak",
    "copies",
    "in theory",
    "smallest",
    "memory",
    "FLOP/s",
)
_LEAST_MISSED += ("of a step", "epochs", "scaling", "items/s", "items/s, projected", wording.INTERVAL, "bubble", "waits")
"""The first is the first to go; where that is not enough, so are other numbers, from the right."""
_MOST_MISSED = ("time", "ratio", "speed-up")
"""What a table is about: rather than these the case is squeezed."""


def _case_cell(text: str, row: Row) -> Text:
    cell = Text(text)
    if trouble := case_table.trouble(row):
        cell.append(f"\n{trouble}", style="yellow")
    return cell


def _time_cell(text: str, row: Row) -> Text:
    if not row.case.status or row.is_ok:
        return Text(text)
    return Text(text, style="red" if row.is_failure else "yellow")


def _plain_cell(text: str, _: Row) -> Text:
    return Text(text)


def _text(value: ParamValue) -> Text:
    return Text(units.one_line(str(value)))
