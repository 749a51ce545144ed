"""Figures that others published: what they measured, in which configuration, and when."""

import re
import tomllib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from dlbench.core.model import Params
from dlbench.core.precision import ARITHMETIC
from dlbench.core.units import Json

_TABLE = Path(__file__).with_name("published.toml")


@dataclass(frozen=True, slots=True)
class PublishedFigure:
    """One figure, and what a row must be to be compared with it."""

    column: str
    """Of the tidy table: what it is a figure of, in that column's unit."""
    value: float
    device: str
    """By its maker's name."""
    on_cpu: bool
    tags: frozenset[str]
    """All of them a workload declares that measures the same."""
    params: Params = field(hash=False)
    """Parameters that a row must have, too."""
    dtype: str | None
    """None where precision is no matter."""
    batch: int | None
    """None where it has none, or its source does not state it."""
    source: str
    date: str
    caution: str | None
    update: bool | None
    """Whether the optimizer's update is in a step; None where the source does not say, or what it is a figure of is no step."""

    @property
    def peak(self) -> str | None:
        """The column of the peaks that its products count by."""
        return ARITHMETIC.get(self.dtype or "")

    @property
    def year(self) -> str | None:
        """The last year that its date names."""
        return max(re.findall(r"\b20\d\d\b", self.date), default=None)


@cache
def published_figures() -> tuple[PublishedFigure, ...]:
    """Return all of them, the latest first."""
    table = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
    return tuple(_figure(source, each) for source in table["source"] for each in source["figures"])


def _figure(source: Json, data: Json) -> PublishedFigure:
    return PublishedFigure(
        column=source["column"],
        value=data["value"] if "value" in data else 1000 * data["batch"] / data["ms"],
        device=data["device"],
        on_cpu=data.get("kind") == "cpu",
        tags=frozenset(source["tags"]),
        params=data.get("params", {}),
        dtype=data.get("dtype"),
        batch=data.get("batch"),
        source=source["name"],
        date=source["date"],
        caution=source.get("caution"),
        update=source.get("update"),
    )
