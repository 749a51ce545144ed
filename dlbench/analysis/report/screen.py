"""Tables and notes on screens of any width, down to a few columns. The door to rich."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment

from dlbench.core.units import Unit, fold, one_line

if TYPE_CHECKING:
    from dlbench.analysis.answers.engine.question import Table

_GAP = 2
"""Blanks between columns; below headings there is one before the first."""


@dataclass(frozen=True, eq=False)
class ScreenColumn:
    """Column of a table as people see it. Texts fold between words; a number never does: half of one is another number."""

    heading: str
    texts: Sequence[str]
    number: bool = False
    priority: int = 1
    """The greatest goes first where there is no room, and of those alike the last."""
    note: str = ""
    """Sentence below the table while the column is shown."""


def columns_of(table: "Table") -> list[ScreenColumn]:
    """Return a table of data as columns of a screen. Columns of priority 0 are left out last, and then texts before numbers.

    Among the others numbers are left out first, as texts can be folded.
    """
    columns, shown = dict(table.columns), list[ScreenColumn]()
    for heading, texts in table.cells():
        column = columns[heading]
        number = column.unit not in (Unit.TEXT, Unit.FLAG) and not column.series
        shown.append(ScreenColumn(heading, texts, number, 2 * column.priority + (bool(column.priority) == number)))
    return shown


@dataclass(frozen=True)
class ScreenTable:
    """Table that gives up columns, but never the first, where the screen is too narrow for all."""

    columns: Sequence[ScreenColumn]
    styles: Mapping[int, str] = field(default_factory=dict)
    """Styles of rows, by their number."""
    below: Mapping[int, str] = field(default_factory=dict)
    """Texts below rows, such as why a case failed, by their number."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the headings between an empty line and a rule, the rows with the texts below them, and the notes of its columns.

        If no column shown has a heading, the table has neither the rule nor the empty lines.
        """
        if not self.columns:
            return
        texts = {each: [each.heading, *map(one_line, each.texts)] for each in self.columns}
        widths = _widths(texts, options.max_width)
        headings, *rows = zip(*(texts[each] for each in widths), strict=True)
        has_headings = any(headings)
        margin = " " if has_headings else ""
        if has_headings:
            rule = ("-" if options.ascii_only else "─") * (sum(widths.values()) + _GAP * (len(widths) - 1))
            yield Segment.line()
            yield from _lines(console, _row(headings, widths, margin), "bold")
            yield from _lines(console, [f" {rule}"])
        for number, cells in enumerate(rows):
            yield from _lines(console, _row(cells, widths, margin), self.styles.get(number, ""))
            if below := one_line(self.below.get(number, "")):
                yield from _lines(console, fold(f"   {below}", options.max_width), "yellow")
        if has_headings:
            yield Segment.line()
        yield from (Note(each.note) for each in widths if each.note)
        left_out = [each.heading for each in texts if each not in widths and each.heading]
        if left_out:
            yield Note(f"not shown at this width: {', '.join(left_out)}; widen the terminal, or use --format csv")


_NAME_MOST, _NAME_LEAST = 22, 5
"""Columns of the screen that the name of a case may take where there is too little room: a fifth of it, between these."""
_WORD_MOST, _WORD_LEAST = 30, 12
"""Columns that another text may take there, half of the screen between these; a longer word is broken."""


def _widths(texts: Mapping[ScreenColumn, Sequence[str]], room: int) -> dict[ScreenColumn, int]:
    """Return the columns of a table that have room on a screen ``room`` wide, with their widths.

    ``texts`` are those of each column, its heading included. Texts are folded, and columns left out, only if not all have room.
    """
    unfolded = {column: max(map(cell_len, lines)) for column, lines in texts.items()}
    if _room_left(unfolded, room) >= 0:
        return unfolded
    widths = _least_widths(texts, unfolded, room)
    while len(widths) > 1 and _room_left(widths, room) < 0:
        _, *others = widths  # the first column is never left out
        highest = max(column.priority for column in others)
        last_of_highest = [column for column in others if column.priority == highest][-1]
        del widths[last_of_highest]
    # Widen all columns to the largest limit with which the table has room. No column becomes wider than its texts.
    for limit in range(room, 0, -1):
        widened = {column: min(unfolded[column], max(width, limit)) for column, width in widths.items()}
        if _room_left(widened, room) >= 0:
            return widened
    return widths


def _least_widths(texts: Mapping[ScreenColumn, Sequence[str]], unfolded: Mapping[ScreenColumn, int], room: int) -> dict[ScreenColumn, int]:
    """Return the least width of each column: for numbers their whole width, for texts their longest word, within limits."""
    first, *others = texts
    widths = {first: min(unfolded[first], max(_NAME_LEAST, min(_NAME_MOST, room // 5)))}
    for column in others:
        longest_word = max((cell_len(word.strip()) for text in texts[column] for word in fold(text, 1)), default=0)
        most = max(_WORD_LEAST, min(_WORD_MOST, room // 2))
        widths[column] = unfolded[column] if column.number else min(unfolded[column], most, longest_word)
    return widths


def _room_left(widths: Mapping[ScreenColumn, int], room: int) -> int:
    """Return the room that columns of these widths leave; below 0 they don't fit."""
    return room + 1 - sum(width + _GAP for width in widths.values())  # the last gap is none, and one blank is the margin


def _row(cells: Sequence[str], widths: Mapping[ScreenColumn, int], margin: str) -> Iterator[str]:
    """Yield the lines of a row."""
    parts = [fold(text, width, cell=True) if cell_len(text) > width else [text] for text, width in zip(cells, widths.values(), strict=True)]
    for line in zip_longest(*parts, fillvalue=""):
        padded = [(text, " " * (widths[each] - cell_len(text)), each.number) for text, each in zip(line, widths, strict=True)]
        yield margin + (" " * _GAP).join(blanks + text if number else text + blanks for text, blanks, number in padded).rstrip()


def _lines(console: Console, lines: Iterable[str], style: str = "") -> Iterator[Segment]:
    for line in lines:
        yield from (Segment(line, console.get_style(style)), Segment.line())


@dataclass(frozen=True)
class Note:
    """Text that breaks between words alone, so that a path or a command can be copied."""

    text: str
    style: str = "dim"
    indent: int = 0

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from _lines(console, fold(" " * self.indent + one_line(self.text), options.max_width), self.style)


def fitting(console: Console, table: Callable[[int], ScreenTable], most: int, room: int) -> tuple[int, ScreenTable]:
    """Return the number of rows, from one to ``most``, with which a table takes at most ``room`` lines, and the table with them."""
    count = max(1, min(most, room))
    while (lines := lines_of(console, found := table(count))) > room and count > 1:
        count = min(count - 1, 1 + count * room // lines)  # a name is folded, and a reason has a line of its own
    return count, found


def lines_of(console: Console, part: RenderableType) -> int:
    """Return the number of lines that a part takes on a screen."""
    return len(console.render_lines(part, pad=False))
