"""Tables for a screen of any width. The door to rich's tables."""

from collections.abc import Container, Sequence
from dataclasses import dataclass
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

    @property
    def width(self) -> int:
        """Screen columns that it takes unfolded."""
        return self._longest([line for text in self._texts() for line in text.splitlines()])

    @property
    def least_width(self) -> int:
        """Screen columns that it takes at least: those of its longest word where it folds."""
        return min(self._longest(" ".join(self._texts()).split()), _NAME_WIDTH) if self.kind == "text" else self.width

    def _texts(self) -> list[str]:
        return [self.heading, *(cell.plain for cell in self.cells)]

    def _longest(self, texts: Sequence[str]) -> int:
        return max(map(cell_len, texts), default=0)


@dataclass(frozen=True)
class ScreenTable:
    """Table that gives up columns on a narrow screen, rather than squeeze a name into a few letters.

    Pictures go first, then numbers from the right; texts fold.
    """

    columns: Sequence[ScreenColumn]
    title: str | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if options.ascii_only:  # no ellipsis there; written out before widths are counted, and not by the stream
            for cell in (cell for column in self.columns for cell in column.cells):
                cell.plain = cell.plain.replace("…", "..")
        shown = [column for column in self.columns if not (options.ascii_only and column.kind == "picture")]
        dropped = []
        for column in self._least_missed(shown):
            if self._spare(shown, options.max_width) < 0:
                shown.remove(column)
                dropped += [column.heading] if column.kind == "number" else []
        head = _PLAIN_HEAD if options.ascii_only else box.SIMPLE_HEAD
        named = any(column.heading for column in shown)
        title = Text(self.title, style="bold") if self.title else None
        table = Table(title=title, title_justify="left", box=head, pad_edge=False, collapse_padding=True, show_header=named)
        for column, width in zip(shown, self._widths(shown, options.max_width), strict=True):
            table.add_column(
                Text(column.heading),
                width=width,
                justify="right" if column.kind == "number" else "left",
                no_wrap=column.kind != "text",
                overflow="fold" if column.kind == "text" else "ellipsis",
            )
        for cells in zip(*(column.cells for column in shown), strict=True):
            table.add_row(*cells)
        yield table
        yield from (Text(column.note, style="dim") for column in shown if column.note)
        if dropped:
            yield Text(f"not shown at this width: {', '.join(reversed(dropped))}; widen the terminal, or use --format csv\n", style="dim")

    def _least_missed(self, shown: Sequence[ScreenColumn]) -> list[ScreenColumn]:
        """Return the columns that a narrow screen may do without, the least missed first."""
        pictures = [column for column in shown if column.kind == "picture"]
        return pictures + [column for column in reversed(shown) if column.kind == "number" and not column.kept]

    def _least_width(self, column: ScreenColumn) -> int:
        return max(column.least_width, min(column.width, _NAME_WIDTH)) if column is self.columns[0] else column.least_width

    def _spare(self, shown: Sequence[ScreenColumn], max_width: int) -> int:
        """Return how much wider than the least that they take the screen is; negative where it is too narrow."""
        return max_width - sum(self._least_width(column) + _GAP for column in shown)

    def _widths(self, shown: Sequence[ScreenColumn], max_width: int) -> list[int]:
        """Return how wide each is drawn: what is spare goes to the texts, in equal parts as far as they need it.

        Where even the least is too much, the name is squeezed.
        """
        spare = self._spare(shown, max_width)
        widths = {column: self._least_width(column) for column in shown}
        widths[shown[0]] = max(1, widths[shown[0]] + min(0, spare))
        in_want = sorted((column for column in shown if column.kind == "text"), key=lambda column: column.width - widths[column])
        for others, column in zip(reversed(range(len(in_want))), in_want, strict=True):
            more = max(0, min(column.width - widths[column], spare // (others + 1)))
            widths[column] += more
            spare -= more
        return list(widths.values())


def screen_table(headings: Sequence[str], rows: Sequence[Sequence[str]], numbers: Container[int] = ()) -> ScreenTable:
    """Return the table of plain texts, with numbers in the columns at these places."""
    return ScreenTable(
        [
            ScreenColumn(heading, list(map(Text, cells)), "number" if at in numbers else "text")
            for at, (heading, cells) in enumerate(zip(headings, zip(*rows, strict=True), strict=True))
        ]
    )
