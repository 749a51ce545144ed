"""Tables for a screen of any width. The door to rich's tables."""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

Kind = Literal["text", "number", "picture"]
_GAP = 2
"""Screen columns around each column of a table."""
_NAME_WIDTH = 22
"""Screen columns in which the name of a case can still be read, and that no word may exceed."""
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

    @cached_property
    def width(self) -> int:
        """Screen columns that it takes unfolded."""
        return max((cell_len(line) for text in self._texts for line in text.splitlines()), default=0)

    @cached_property
    def least_width(self) -> int:
        """Screen columns that it takes at least: those of its longest word where it folds."""
        longest = max((cell_len(word) for text in self._texts for word in text.split()), default=0)
        return min(longest, _NAME_WIDTH) if self.kind == "text" else self.width

    @property
    def _texts(self) -> list[str]:
        return [self.heading, *(cell.plain for cell in self.cells)]


@dataclass(frozen=True)
class ScreenTable:
    """Table that gives up columns on a narrow screen, rather than squeeze a name into a few letters.

    Pictures go first, then numbers from the right; texts fold.
    """

    columns: Sequence[ScreenColumn]
    title: str | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        plain = options.ascii_only
        if plain:  # no ellipsis there; written out before widths are counted, and not by the stream
            for cell in (cell for column in self.columns for cell in column.cells):
                cell.plain = cell.plain.replace("…", "..")
        pictures = [column for column in self.columns if column.kind == "picture"]
        numbers = [column for column in self.columns if column.kind == "number" and not column.kept]
        shown = [column for column in self.columns if not (plain and column in pictures)]
        for column in (*pictures, *reversed(numbers)):
            if column in shown and sum(self._widths(shown, 0)) > options.max_width:
                shown.remove(column)
        dropped = [column.heading for column in numbers if column not in shown]
        table = Table(
            title=Text(self.title, style="bold") if self.title else None,
            title_justify="left",
            box=_PLAIN_HEAD if plain else box.SIMPLE_HEAD,
            pad_edge=False,
            collapse_padding=True,
            show_header=any(column.heading for column in shown),
        )
        for column, width in zip(shown, self._fitting(shown, options.max_width), strict=True):
            justify: Literal["left", "right"] = "right" if column.kind == "number" else "left"
            table.add_column(Text(column.heading), width=width - _GAP, justify=justify, overflow="fold", no_wrap=column.kind != "text")
        for cells in zip(*(column.cells for column in shown), strict=True):
            table.add_row(*cells)
        yield table
        yield from (Text(column.note, style="dim") for column in shown if column.note)
        if dropped:
            yield Text(f"not shown at this width: {', '.join(dropped)}; widen the terminal, or use --format csv\n", style="dim")

    def _widths(self, shown: Sequence[ScreenColumn], text_width: int) -> list[int]:
        """Return how wide each is, with what is around it, where texts get so much: a word, or a name, no less than it needs."""
        name = self.columns[0]
        return [min(each.width, max(each.least_width, _NAME_WIDTH if each is name else 0, text_width)) + _GAP for each in shown]

    def _fitting(self, shown: Sequence[ScreenColumn], max_width: int) -> list[int]:
        """Return the widths with the widest texts that there is room for; where there is none, the name is squeezed."""
        possible = (self._widths(shown, text_width) for text_width in range(max_width, -1, -1))
        widths = next((found for found in possible if sum(found) <= max_width), self._widths(shown, 0))
        return [max(1 + _GAP, min(widths[0], max_width - sum(widths[1:]))), *widths[1:]]


def screen_table(headings: Sequence[str], rows: Sequence[Sequence[str]], numbers: Container[int]) -> ScreenTable:
    """Return the table of plain texts, with numbers in the columns at these places."""
    return ScreenTable(
        [
            ScreenColumn(heading, list(map(Text, cells)), "number" if at in numbers else "text")
            for at, (heading, cells) in enumerate(zip(headings, zip(*rows, strict=True), strict=True))
        ]
    )
