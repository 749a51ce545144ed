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
        if not self.columns:
            return
        texts = {each: [each.heading, *map(one_line, each.texts)] for each in self.columns}
        widths = _widths(texts, options.max_width)
        headings, *rows = zip(*(texts[each] for each in widths), strict=True)
        margin = " " * any(headings)
        if margin:
            rule = ("-" if options.ascii_only else "─") * (sum(widths.values()) + _GAP * (len(widths) - 1))
            yield Segment.line()
            yield from _lines(console, _row(headings, widths, margin), "bold")
            yield from _lines(console, [f" {rule}"])
        for number, cells in enumerate(rows):
            yield from _lines(console, _row(cells, widths, margin), self.styles.get(number, ""))
            if why := one_line(self.below.get(number, "")):
                yield from _lines(console, fold(f"   {why}", options.max_width), "yellow")
        if margin:
            yield Segment.line()
        yield from (Note(each.note) for each in widths if each.note)
        if gone := [each.heading for each in texts if each not in widths and each.heading]:
            yield Note(f"not shown at this width: {', '.join(gone)}; widen the terminal, or use --format csv")


def _widths(texts: Mapping[ScreenColumn, Sequence[str]], room: int) -> dict[ScreenColumn, int]:
    """Return the columns of a table that have room, with their widths.

    ``texts``: those of each column, its heading included. ``room``: the width of the screen.
    """
    unfolded = {each: max(map(cell_len, found)) for each, found in texts.items()}
    if _left(unfolded, room) >= 0:
        return unfolded
    first, *others = texts
    widths = {first: min(unfolded[first], max(5, min(22, room // 5)))}  # enough to read the name of a case
    for each in others:
        longest_word = max((cell_len(word.strip()) for text in texts[each] for word in fold(text, 1)), default=0)
        most = min(unfolded[each], max(12, min(30, room // 2)))  # a longer word is broken
        widths[each] = unfolded[each] if each.number else min(most, longest_word)
    while len(widths) > 1 and _left(widths, room) < 0:
        del widths[max(reversed([*widths][1:]), key=lambda each: each.priority)]
    # Widen the narrowest first: each column to the largest limit with which all fit.
    for limit in range(room, 0, -1):
        widened = {each: min(unfolded[each], max(width, limit)) for each, width in widths.items()}
        if _left(widened, room) >= 0:
            return widened
    return widths


def _left(widths: Mapping[ScreenColumn, int], room: int) -> int:
    """Return the room that columns of these widths leave; below 0 they don't fit."""
    return room + 1 - sum(width + _GAP for width in widths.values())


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
