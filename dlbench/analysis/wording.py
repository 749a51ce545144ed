"""Text for rows and ratios: short names, devices, choices, and numbers with their intervals."""

import json
import re
from collections.abc import Callable, Iterable, Sequence

from dlbench.core import schema, units
from dlbench.core.measurement import UNFINISHED
from dlbench.core.model import ParamValue, Status
from dlbench.core.rank_test import rounds_for_interval
from dlbench.core.rows.row import Cells as Row
from dlbench.core.schema import Column, Unit

INTERVAL = "95 % interval"
"""Heading of a column of intervals."""
_LABEL = re.compile(r"(?P<workload>\w+)\[(?P<shown>.*)\]", re.DOTALL)


_FEW = 4
"""Names that a sentence still carries."""


def number(value: ParamValue | None) -> float:
    """Return a cell that must hold a number as one. Raises TypeError if it does not."""
    if value is None or isinstance(value, str):
        raise TypeError(f"{value!r} is not a number")
    return float(value)


def cell(value: ParamValue | Sequence[float] | None, column: Column) -> str:
    """Return a value, or its cell, with its unit; of a series its points where they have names, else its ends and their number."""
    if value is None:
        return ""
    if column.unit in (Unit.TEXT, Unit.FLAG):
        return short(str(value))
    if isinstance(value, int | float):
        return schema.text(value, column.unit)
    points: Sequence[float] = json.loads(value) if isinstance(value, str) else value
    if column.points and len(points) == len(column.points):
        whole = sum(points) if column.unit is Unit.COUNT else 0  # counts are shown as shares of them all
        texts = [units.percent(each / whole) if whole else schema.text(each, column.unit) for each in points]
        return ", ".join(f"{name}: {text}" for name, text, each in zip(column.points, texts, points, strict=True) if each)
    ends = dict.fromkeys(schema.text(each, column.unit) for each in (*points[:1], *points[-1:]))
    return f"{' … '.join(ends)} ({plural(len(points), 'point')})"


def value_name(column: Column) -> str:
    """Return what a workload calls a value."""
    return column.name.partition(".")[2]


def plural(count: int, noun: str) -> str:
    """Return ``1 round`` or ``7 rounds``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def few(names: Iterable[str]) -> str:
    """Return the first names, and how many more there are: ``a, b, c, d and 3 more``."""
    known = list(names)
    more = len(known) - _FEW
    return ", ".join(known) if more <= 0 else f"{', '.join(known[:_FEW])} and {more} more"


def short(label: ParamValue | None) -> str:
    """Return ``train_step resnet18 batch=8 fp32`` for ``train_step[model=resnet18,batch=8,dtype=fp32]``: a word needs no name."""
    ours = _LABEL.fullmatch(str(label))
    parts = [part.partition("=") for part in ours["shown"].split(",") if part] if ours else []
    if not ours or not all(equals for _, equals, _ in parts):
        return str(label)  # a name that another tool's benchmark has
    words = [value if value[:1].isalpha() and value not in ("true", "false") else f"{name}={value}" for name, _, value in parts]
    return " ".join([ours["workload"], *words])


def placed(case: str) -> str:
    """Return ``train_step resnet18 batch=8 fp32 on cpu`` for the id of a case."""
    work, _, device = case.rpartition("@")
    return f"{short(work)} on {device}" if work else short(case)


def key(row: Row) -> str:
    """Return the id without the device: the same work, wherever it runs."""
    return str(row["case.id"]).rpartition("@")[0]


def device_label(row: Row, prefix: str, with_run: bool) -> str:
    """Return where a row, or the side ``prefix`` of a pair, was measured: ``cuda:0``, or with its place ``cuda:0 (torch 2.13.0)``."""
    device = str(row[f"{prefix}.device"])
    return f"{device} ({row[f'{prefix}.run']})" if with_run else device


def several_runs(rows: Iterable[Row], *prefixes: str) -> bool:
    """Whether the rows are of more than one place; see `read.places`, without which each file is one."""
    return len({row[f"{prefix}.run"] for row in rows for prefix in prefixes}) > 1


def machine_name(row: Row, side: str, with_run: bool) -> str:
    """Return what a side of a pair is called in a sentence: ``NVIDIA H200``, or ``the CPU (AMD EPYC 7B13, 2 threads)``."""
    name = hardware(row, side, with_run)
    return f"the CPU ({name})" if row[f"{side}.device"] == "cpu" else name


def hardware(row: Row, prefix: str = "case", with_run: bool = False) -> str:
    """Return what a row was measured on: a CPU with its threads, an accelerator by its maker's name or else as torch calls it.

    With its place, where the name does not say that already: ``NVIDIA H200 (torch 2.13.0)``.
    """
    on_cpu = row[f"{prefix}.device"] == "cpu"
    name = described(row, prefix) if on_cpu else str(row[f"{prefix}.device_name"] or row[f"{prefix}.device"])
    place = str(row[f"{prefix}.run"])
    if not with_run or place == row[f"{prefix}.device_name"]:
        return name
    return f"{name}, {place}" if on_cpu else f"{name} ({place})"


def described(row: Row, prefix: str) -> str:
    """Return the maker's name and, on a CPU, the threads."""
    name, threads = str(row[f"{prefix}.device_name"] or "unnamed"), row[f"{prefix}.threads"]
    return name if threads is None else f"{name}, {plural(int(number(threads)), 'thread')}"


def status(row: Row) -> str:
    """Return how a case ended: its status, or of a search that was cut short with something found that it is unfinished."""
    return "unfinished" if is_unfinished(row) else str(row["case.status"])


def is_unfinished(row: Row) -> bool:
    """Whether a row is of a search that was cut short with something found, by whatever ended it."""
    return row["case.status"] != Status.OK and str(row["case.reason"]).startswith(UNFINISHED)


_USUAL = {"layout": "nchw", "mode": "eager", "optimizer": "sgd"}


def choice(row: Row, side: str) -> str:
    """Return batch, precision, and layout, mode and optimizer if not the usual, of a side of a pair: ``batch=64 bf16 channels_last``."""
    batch = row[f"{side}.batch"]
    others = (value for name, usual in _USUAL.items() if (value := row.get(f"{side}.{name}")) != usual)
    return " ".join(str(part) for part in (None if batch is None else f"batch={batch}", row[f"{side}.dtype"], *others) if part)


def times(row: Row) -> str:
    """Return the ratio of a pair: ``41.2 ×``."""
    return units.ratio(number(row["ratio.speedup"]))


def ratio(row: Row) -> str:
    """Return the ratio of a pair with its interval: ``41.2 × (40.1…42.0)``; of too few rounds with how many it takes to have one."""
    low, high = row["ratio.ci_low"], row["ratio.ci_high"]
    if low is not None and high is not None:
        return f"{times(row)} ({interval(low, high, units.three_digits)})"
    enough, rounds = rounds_for_interval(int(number(row.get("ratio.among") or 1))), _rounds(row)
    return f"{times(row)} (no interval{f' before {enough} rounds' if rounds is not None and rounds < enough else ''})"


def hedge(row: Row, denial: str) -> str:
    """Return what limits that the other side is faster: ``, no faster as far as 7 rounds tell``, or that rounds are too few to tell."""
    if is_ahead(row):
        return ""
    return ", too few rounds to tell" if row["ratio.ci_low"] is None else f", {denial} {as_far_as(row)}"


def is_ahead(row: Row) -> bool:
    """Whether the interval of a ratio shows that the other side is faster."""
    return row["ratio.ci_low"] is not None and number(row["ratio.ci_low"]) > 1


def as_far_as(row: Row) -> str:
    """Return what limits a ratio that shows nothing: ``as far as 7 rounds tell``."""
    rounds = _rounds(row)
    return f"as far as {'these rounds tell' if rounds is None else '1 round tells' if rounds == 1 else f'{rounds} rounds tell'}"


def _rounds(row: Row) -> int | None:
    """Return the rounds of a pair, of the side that has fewer, or of one row of a sweep."""
    known = [row.get(name) for name in ("base.rounds", "other.rounds", "time.rounds")]
    return min((int(number(each)) for each in known if each is not None), default=None)


def interval(low: ParamValue | None, high: ParamValue | None, text: Callable[[float], str]) -> str:
    """Return an interval in a sentence, ``40.1…42.0``, or why there is none; ``text`` writes its ends."""
    if low is None or high is None:
        return "too few rounds for an interval"
    return f"{text(number(low))}…{text(number(high))}"


def middle(pairs: Sequence[Row]) -> Row:
    """Return the pair with the median ratio, of an even number the lower."""
    return sorted(pairs, key=lambda row: number(row["ratio.speedup"]))[(len(pairs) - 1) // 2]


def among(pairs: Sequence[Row]) -> str:
    """Return between which ratios that pair stands, of several: ``, in the middle of 4 cases from 40.0 × to 100 ×``."""
    ordered = sorted(pairs, key=lambda row: number(row["ratio.speedup"]))
    first, last = times(ordered[0]), times(ordered[-1])
    return f", in the middle of {len(pairs)} cases from {first} to {last}" if first != last else ""
