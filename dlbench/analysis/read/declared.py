"""Columns of the values that rows have."""

from dlbench.core.rows.row import Row
from dlbench.core.schema import Column, Unit


def columns(row: Row) -> tuple[Column, ...]:
    """Return the columns of the values that a row has: as declared, then as plain numbers those that nothing describes."""
    described = {each.name: each.column for each in row.described if each.name in row.values}
    about = "nothing is declared of it"
    others = (
        Column(f"value.{name}", Unit.NUMBER, about, series=not isinstance(value, int | float), declared=False)
        for name, value in row.values.items()
        if name not in described
    )
    return (*described.values(), *others)
