"""Claims of others: what a GPU, a precision or a batch is said to bring, who says so, and the rows that test it."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

from dlbench.core.model import ParamValue
from dlbench.core.quantities import Json

_TABLE = Path(__file__).with_name("claims.toml")

ClaimUnit = Literal["x", "s", "days", "GB", "converges", "share", "money"]
ClaimMeasure = Literal["time", "throughput", "items_per_joule", "items_per_price", "training", "memory", "accuracy_gap"]
_TEXTS: Mapping[ClaimUnit, str] = {"x": "×", "s": " s", "days": " days", "GB": " GB"}
"""What stands behind the number of a unit that has one."""


@dataclass(frozen=True, slots=True)
class ClaimTest:
    """Rows that test a claim, as data: the same work on two sides, or one row by itself."""

    measure: ClaimMeasure
    command: str
    """That measures them."""
    rows: tuple[Mapping[str, tuple[ParamValue, ...]], ...] = field(hash=False)
    """Of each alternative the values that a setting may have, by its name; none where a row may not have the setting."""
    by: str | None = None
    """The setting in which two sides differ; None where one row is enough."""
    base: str | None = None
    """What the one side has of it, as text."""
    others: tuple[str, ...] = ()
    """What the other may have; empty: anything else."""
    converge: tuple[str, ...] = ()
    """Formats that are said to converge; they and the next are the others."""
    stall: tuple[str, ...] = ()
    """Formats that are said not to, each where the one at its place above does."""
    best: tuple[str, ...] = ()
    """Settings in which the sides may differ, too, as each is taken at its own best."""
    split: str | None = None
    """The setting whose values are told apart."""
    largest: str | None = None
    """The parameter of which only the largest value counts."""

    def pair_of(self, name: str) -> str:
        """Return of two formats that are held against each other the one that is said to stall; of any other value itself."""
        return dict(zip(self.converge, self.stall, strict=False)).get(name, name)

    def is_of(self, settings: Mapping[str, object]) -> bool:
        """Whether a row with these settings takes part."""
        return any(all(_fits(settings.get(name), values) for name, values in each.items()) for each in self.rows)


def _fits(value: object, values: tuple[ParamValue, ...]) -> bool:
    return value in values if values else value is None


@dataclass(frozen=True, slots=True)
class Claim:
    """What somebody says, in our words, and how it is tested."""

    id: str
    says: str
    low: float | None
    """The least of the number stated, in its unit; None where it states none."""
    high: float | None
    """The most of it; None where there is no upper end."""
    unit: ClaimUnit
    who: str
    when: str
    test: ClaimTest | None
    """None where nothing measures it yet."""
    is_our_reading: bool = False
    """Whether they state no number, and ``low`` is how a word of theirs is read here."""

    @property
    def stated(self) -> str:
        """The number stated: ``20×``, ``28 to 56×``, ``more than 1×``; an empty text where there is none."""
        if self.low is None:
            return ""
        unit = _TEXTS[self.unit]
        if self.high is None:
            return f"more than {self.low:g}{unit}"
        return f"{self.low:g}{unit}" if self.low == self.high else f"{self.low:g} to {self.high:g}{unit}"


@cache
def claims() -> tuple[Claim, ...]:
    """Return all of them, in the order in which they are told."""
    table = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
    return tuple(_claim(each) for each in table["claim"])


def _claim(data: Json) -> Claim:
    test = data.get("test")
    numbers = data.get("low"), data.get("high")
    tested, ours = _test(test) if test else None, data.get("is_our_reading", False)
    return Claim(data["id"], data["says"], *numbers, data["unit"], data["who"], data["when"], tested, ours)


def _test(data: Json) -> ClaimTest:
    rows = tuple({name: tuple(values) for name, values in each.items()} for each in data["rows"])
    lists = {name: tuple(data.get(name, ())) for name in ("others", "converge", "stall", "best")}
    lists["others"] = lists["others"] or (*lists["stall"], *lists["converge"])
    return ClaimTest(**{**data, **lists, "rows": rows})
