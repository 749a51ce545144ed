"""Text for rows and ratios: short names, devices, choices, and numbers with their intervals."""

import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial

from dlbench.core import units
from dlbench.core.model import ParamValue, value_text
from dlbench.core.stats import Interval
from dlbench.core.units import Column, Unit

INTERVAL = "95 % interval"
"""Heading of a column of intervals."""
_UNITS_IN_NAMES = {Unit.SECONDS: "_s", Unit.BYTES: "_bytes"}
_NAMELESS = ("true", "false", "none")
"""Words that say nothing without the name of their parameter."""
_YES_NO = {"true": "yes", "false": "no"}
_OF_UNIT = {"bytes": units.byte_count, "hz": units.hertz, "w": "{:.0f} W".format, "c": "{:.0f} °C".format}
"""Text of a fact about a machine, by the unit at the end of its name."""
_MOST_NAMED = 4
"""Points of a series that are each shown with their name, at most."""
_NUMBERED = re.compile(r"[ _]?\d+")
"""Number at the end of a name, as in ``seed_0``."""
_NUMBER = re.compile(r"(?<![\w.:'+-])[+-]?\d+(?:,\d{3})*(?:\.\d+)?(?![\w.:'])")
_LABEL = re.compile(r"(?P<workload>\w+)\[(?P<shown>.*)\](@(?P<device>[^]]+))?", re.DOTALL)
"""A case as its id shows it, with or without its device."""


def number(value: ParamValue | None) -> float:
    """Return a cell that must hold a number as one. Raises TypeError if it does not."""
    if value is None or isinstance(value, str):
        raise TypeError(f"{value!r} is not a number")
    return float(value)


def cell(value: ParamValue | Sequence[float] | None, column: Column) -> str:
    """Return a value, or the cell of one, as text with its unit; empty for None."""
    if value is None:
        return ""
    if column.unit in (Unit.TEXT, Unit.FLAG):
        return _YES_NO.get(str(value).lower()) or short(str(value))
    if isinstance(value, int | float):
        return units.text(value, column.unit)
    return _series_text(json.loads(value) if isinstance(value, str) else value, column)


def _series_text(points: Sequence[float], column: Column) -> str:
    """Return a series as text: each of a few points with its name, or else a range and the number of points.

    Named counts are shown as shares of their sum, without those that are zero. The range of many points with names, such as seeds, is
    from the least to the greatest. The range of points without names is from the first to the last.
    """
    if not points:
        return plural(0, "value")
    text = partial(units.text, unit=column.unit)
    if len(column.points) != len(points):  # the column has no name for each point
        return f"{span(points[0], points[-1], text)} ({plural(len(points), 'value')})"
    named = list(zip(column.points, points, strict=True))
    total = sum(points)
    if column.unit is Unit.COUNT and total:  # nothing is a share of zero
        return ", ".join(f"{name}: {units.percent(each / total)}" for name, each in named if each)
    if len(points) <= _MOST_NAMED:
        return ", ".join(f"{name}: {text(each)}" for name, each in named)
    extremes = span(min(points), max(points), text)
    nouns = {_NUMBERED.sub("", name) for name in column.points}  # ``seed`` of seed_0, seed_1, …
    if len(nouns) == 1:
        return f"{extremes} over {plural(len(points), nouns.pop())}"
    return f"{extremes} ({plural(len(points), 'value')})"


def value_name(column: Column) -> str:
    """Return the name that a workload has for a value."""
    return column.name.partition(".")[2]


def value_words(column: Column) -> str:
    """Return the name of a value as words, without the unit that its cells have: ``compile warm`` of ``compile_warm_s``."""
    name = value_name(column)
    if not column.declared:
        return name  # the only thing that tells its unit
    return name.removesuffix(_UNITS_IN_NAMES.get(column.unit, "")).replace("_", " ").strip() or name


def plural(count: int, noun: str) -> str:
    """Return ``1 round`` or ``7 rounds``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def few(names: Iterable[str], most: int = 4, noun: str = "") -> str:
    """Return the first ``most`` names and the number of the others, with a ``noun`` if given: ``a, b, c, d and 3 more devices``."""
    known = list(names)
    named, more = ", ".join(known[:most]), len(known) - most
    if more <= 0:
        return named
    return f"{named} and {plural(more, f'more {noun}') if noun else f'{more} more'}"


def option(name: str, value: ParamValue) -> str:
    """Return a setting as text: ``bf16``, ``batch=64``, ``pinned`` or ``no pinned``. A word needs no name, and a flag no value."""
    if isinstance(value, bool):
        return name if value else f"no {name}"
    text = value_text(value)
    return text if text[:1].isalpha() and text not in _NAMELESS else f"{name}={text}"


def short(label: ParamValue | None, width: float = math.inf, *, device: bool = True) -> str:
    """Return the name of a case for people: in full where it is at most ``width`` long, else in its shortest form.

    ``train_step[model=resnet18,batch=8,dtype=fp32]`` is in full ``train_step resnet18 batch=8 fp32``, and shortest ``train resnet18 b8``.
    With ``device`` the device follows, if the label has one: `` on cpu``.
    """
    match = _LABEL.fullmatch(str(label))
    texts = match["shown"].split(",") if match else []
    settings = [text.partition("=") for text in texts if text]  # each a name, "=" and a value
    if not match or not all(equals_sign for _, equals_sign, _ in settings):
        return str(label)  # not a case of dlbench, but a benchmark of another tool
    place = f" on {match['device']}" if match["device"] and device else ""
    words = [option(name, value) for name, _, value in settings]
    full = " ".join([match["workload"], *words]) + place
    if len(full) <= width:
        return full
    shortest = [re.sub("^batch=", "b", word) for word in words if word != "fp32"]  # that precision goes without saying
    return " ".join([match["workload"].removesuffix("_step"), *shortest]) + place


def brief(label: ParamValue | None, *, device: bool = True) -> str:
    """Return ``train resnet18 b8``: for a line that has little room."""
    return short(label, 0, device=device)


def entry(name: str, value: object) -> tuple[str, str]:
    """Return a fact about a machine as two texts, the unit moved from name to value: ``memory`` and ``140 GiB`` for ``memory_bytes``."""
    stem, _, unit = name.rpartition("_")
    if isinstance(value, bool):
        return name, "yes" if value else "no"
    if isinstance(value, tuple):
        return name, ", ".join(value) or "none"
    if unit in _OF_UNIT and isinstance(value, int | float):
        with suppress(OverflowError):  # an integer of a file may be larger than any float
            return stem, _OF_UNIT[unit](value)
    return stem if unit in _OF_UNIT else name, "–" if value is None else str(value)


def amount(number: float, unit: Unit) -> str:
    """Return the size of a difference: ``20.0 points`` of fractions, as a share of one would be another number."""
    return f"{round(100 * number, 1) + 0.0:.1f} points" if unit is Unit.FRACTION else units.text(number, unit)  # -0.0 + 0.0 has no sign


def numberless(text: str) -> str:
    """Return a text with a sign in place of each number."""
    return _NUMBER.sub("#", text)


def merged(texts: Iterable[str]) -> str:
    """Return texts that differ in their numbers alone as one, each number as a span: ``up to +3.1…+9.4 % is possible``."""
    known = [*dict.fromkeys(texts)]
    columns = zip(*map(_NUMBER.findall, known), strict=True)
    ends = ((min(each, key=_value), max(each, key=_value)) for each in columns)
    spans = ("…".join(dict.fromkeys(each)) for each in ends)
    return _NUMBER.sub(lambda _: next(spans), known[0])


def _value(number: str) -> float:
    return float(number.replace(",", ""))


def span(low: float, high: float, text: Callable[[float], str]) -> str:
    """Return a range, with the unit once where both ends have the same, ``98.7…99.1 %``; of ends that read alike the one text."""
    one, other = text(low), text(high)
    _, gap, unit = other.partition(" ")
    return other if one == other else f"{one.removesuffix(f'{gap}{unit}')}…{other}"


def difference(value: float, interval: Interval | None, unit: Unit) -> str:
    """Return how far a number is from another, with its interval if there is one: ``-0.2 points (-0.6…0.1)`` of fractions."""
    found = f"{'+' if value > 0 else ''}{amount(value, unit)}"
    if interval is None:
        return found
    low, high = (amount(each, unit).removesuffix(" points") for each in (interval.low, interval.high))
    return f"{found} ({low}…{high})"
