"""Tables as lines of text, each column as wide as its longest cell. By rich a row takes a millisecond, and there may be twenty thousand."""

from collections.abc import Container, Iterable, Sequence

LEAST_WIDTH = 40
"""Columns that the numbers of a row or a few words need; a narrower terminal breaks the lines itself, which loses nothing."""


def padded(rows: Iterable[Sequence[str]], numbers: Container[int] = ()) -> list[str]:
    """Return a line for each row, one at least, of which nothing is folded or cut; columns at the places ``numbers`` are flush right."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    layout = "  ".join(f"{{:{'>' if at in numbers else '<'}{width}}}" for at, width in enumerate(widths))
    return [layout.format(*row).rstrip() for row in rows]
