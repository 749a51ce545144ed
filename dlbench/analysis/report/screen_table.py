"""Tables and notes for a screen of any size. The door to rich's tables."""

import re
import textwrap
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from dlbench.analysis.report.text_table import LEAST_WIDTH

Kind = Literal["text", "number", "picture"]
_GAP = 2
"""Screen columns around each column of a table."""
_NAME_WIDTH = 22
"""Screen columns in which the name of a case can still be read."""
_LEAST_NAME = 6
"""Screen columns to which the name is squeezed at most, for the sake of several numbers that are kept."""
_LONGEST_WORD = 30
"""Screen columns of a word that is not broken, such as a path."""
_GLUE = "\ue000"
"""Stands for the blank between a number and its unit while lines are broken, which rich does at any blank."""
_UNIT = re.compile(r"(?<![\w=.])([\d.,…–+-]+) (?=(?:[%×]|[a-zA-Zµ/]{1,7}(?![\w=])))")
_PLAIN_HEAD = box.Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
"""rich's SIMPLE_HEAD in plain characters."""


@dataclass(frozen=True, eq=False)
class ScreenColumn:
    """One column of a table on a screen. Texts fold between words; a number never does: half of one is another number."""

    heading: str
    cells: Sequence[Text]
    kind: Kind = "text"
    kept: bool = False
    """Whether the table is about these numbers, so that they stay on the narrowest screen."""
    note: str = ""
    """Sentence below the table while the column is shown."""
    priority: int = 1
    """Of numbers that are not kept the greatest goes first, of one the one furthest right."""

    @cached_property
    def width(self) -> int:
        """Screen columns that it takes unfolded."""
        return max((cell_len(line) for text in self._texts for line in text.splitlines()), default=0)

    @cached_property
    def least_width(self) -> int:
        """Screen columns that it takes at least: those of its longest word where it folds."""
        longest = max((cell_len(word) for text in self._texts for word in text.split()), default=0)
        return min(longest, _LONGEST_WORD) if self.kind == "text" else self.width

    @property
    def _texts(self) -> list[str]:
        return [self.heading, *(cell.plain for cell in self.cells)]


@dataclass(frozen=True)
class ScreenTable:
    """Table that gives up columns on a narrow screen, rather than squeeze a name into a few letters.

    Pictures go first, then numbers by their priority and from the right; texts fold. Of several that are kept one is, where the name has
    hardly room.
    """

    columns: Sequence[ScreenColumn]
    title: str | None = None
    name_width: int = _NAME_WIDTH
    """Screen columns in which the first column, a name, can still be read."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        plain, max_width = options.ascii_only, max(LEAST_WIDTH, options.max_width)
        for kind, cell in ((column.kind, cell) for column in self.columns for cell in column.cells):
            if plain:  # no ellipsis there; written out before widths are counted, and not by the stream
                cell.plain = cell.plain.replace("…", "..")
            if kind == "text":
                cell.plain = _UNIT.sub(rf"\1{_GLUE}", cell.plain)
        pictures = [column for column in self.columns if column.kind == "picture"]
        numbers = sorted((each for each in self.columns if each.kind == "number" and not each.kept), key=lambda each: each.priority)
        shown = [column for column in self.columns if not (plain and column in pictures)]
        for column in (*pictures, *reversed(numbers)):
            if column in shown and sum(self._widths(shown, 0)) > max_width:
                shown.remove(column)
        kept = [column for column in shown if column.kept]
        while len(kept) > 1 and self._fitting(shown, max_width)[0] < _LEAST_NAME + _GAP:
            shown.remove(kept.pop())
        dropped = [column.heading for column in self.columns if column.kind == "number" and column not in shown]
        table = Table(
            box=_PLAIN_HEAD if plain else box.SIMPLE_HEAD,
            pad_edge=False,
            collapse_padding=True,
            show_header=any(column.heading for column in shown),
        )
        for column, width in zip(shown, self._fitting(shown, max_width), strict=True):
            justify: Literal["left", "right"] = "right" if column.kind == "number" else "left"
            table.add_column(Text(column.heading), width=width - _GAP, justify=justify, overflow="fold", no_wrap=column.kind != "text")
        for cells in zip(*(column.cells for column in shown), strict=True):
            table.add_row(*cells)
        if self.title:  # in the table it would be as narrow as that
            yield from console.render(Text(self.title, style="bold"), options.update(width=max_width))
        for part in console.render(table, options.update(width=max_width)):
            yield Segment(part.text.replace(_GLUE, " "), part.style, part.control)
        yield from (Note(column.note) for column in shown if column.note)
        if dropped:
            yield Note(f"not shown at this width: {', '.join(dropped)}; widen the terminal, or use --format csv")

    def _widths(self, shown: Sequence[ScreenColumn], text_width: int) -> list[int]:
        """Return how wide each is, with what is around it, where texts get so much: a word, or a name, no less than it needs."""
        name = self.columns[0]
        return [min(each.width, max(each.least_width, self.name_width if each is name else 0, text_width)) + _GAP for each in shown]

    def _fitting(self, shown: Sequence[ScreenColumn], max_width: int) -> list[int]:
        """Return the widths with the widest texts that there is room for; where there is none, the name is squeezed."""
        possible = (self._widths(shown, text_width) for text_width in range(max_width, -1, -1))
        widths = next((found for found in possible if sum(found) <= max_width), self._widths(shown, 0))
        return [max(1 + _GAP, min(widths[0], max_width - sum(widths[1:]))), *widths[1:]]


def screen_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    numbers: Container[int],
    kept: Container[int] = (),
    name_width: int = _NAME_WIDTH,
) -> ScreenTable:
    """Return the table of plain texts, with numbers in the columns at these places, of which some are ``kept``."""
    columns = [
        ScreenColumn(heading, list(map(Text, cells)), "number" if at in numbers else "text", kept=at in kept)
        for at, (heading, cells) in enumerate(zip(headings, zip(*rows, strict=True), strict=True))
    ]
    return ScreenTable(columns, name_width=name_width)


@dataclass(frozen=True)
class Note:
    """Text that breaks between words alone, so that a path or a command can be copied, and never between a number and its unit."""

    text: str
    style: str = "dim"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        indent = self.text[: len(self.text) - len(self.text.lstrip())]
        glued = _UNIT.sub(rf"\1{_GLUE}", self.text)
        for line in textwrap.wrap(glued, options.max_width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False):
            yield Text(line.replace(_GLUE, " "), style=self.style, no_wrap=True, overflow="ignore")


def lines_of(console: Console, part: RenderableType) -> int:
    """Return how many lines something takes on a screen."""
    return len(console.render_lines(part, pad=False))


def fitting(console: Console, table: Callable[[int], ScreenTable], most: int, room: int) -> tuple[int, ScreenTable]:
    """Return how many rows of a table, ``most`` at most and one at least, take no more lines than there is room for; and the table."""
    count = max(1, min(most, room))
    while True:
        found = table(count)
        lines = lines_of(console, found)
        if lines <= room or count == 1:
            return count, found
        count = max(1, min(count - 1, count * room // lines))  # a name is folded, and a reason has a line of its own
