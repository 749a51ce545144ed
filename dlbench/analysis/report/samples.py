"""Figures of what was measured: rounds beside their interval, samples in the order taken, and what the devices read meanwhile."""

import math
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from dlbench.analysis.answers.parts.base import Answer, Missing
from dlbench.analysis.presentation.figures import Axis, Figure
from dlbench.analysis.presentation.names import device_label, several_runs
from dlbench.analysis.presentation.wording import short
from dlbench.analysis.read.table import Results
from dlbench.core.rows.columns import Flags
from dlbench.core.rows.row import Cells, Row
from dlbench.core.schema import Column, Unit
from dlbench.core.stats import fences, quantile
from dlbench.core.units import hertz

MOST_CASES = 20
"""Cases whose samples are drawn."""
_CASE = Column("sample.case", Unit.TEXT, "the case, and where it ran")
_KIND = Column("sample.kind", Unit.TEXT, "one round, or the median of all")
_RELATIVE = Column("sample.relative", Unit.RATIO, "time over the median of the case", "lower")
_ENDS = (Column("sample.low", Unit.RATIO, "lower end of the interval"), Column("sample.high", Unit.RATIO, "upper end of it"))
_ROUND = Column("sample.round", Unit.NUMBER, "the round, counted from 1, and how far its blocks had got")
_TIME = Column("time.median_s", Unit.SECONDS, "one call, in one block", "lower")
_DEVICE = Column("sample.device", Unit.TEXT, "the device")
_READINGS = {
    "clock_hz": ("Clock", Unit.HERTZ),
    "clock_sm_hz": ("Clock", Unit.HERTZ),
    "clock_memory_hz": ("Memory clock", Unit.HERTZ),
    "temperature_c": ("Temperature", Unit.CELSIUS),
    "power_w": ("Power", Unit.WATTS),
}
_LEVEL = 0.01
"""Relative difference of the highest clock from the lowest below which a plot of it shows nothing."""
_NEAR = 0.02
"""Relative distance from the median within which no time is far, however alike the others are."""
_ARROWS = " Times far beyond the others are arrows at the end of the axis."


@dataclass(frozen=True, slots=True)
class SampleFigures:
    """Figures of some cases, the ids of the cases that are left out, and a sentence on each clock that is drawn by none as it is level."""

    figures: tuple[Figure, ...]
    left_out: tuple[str, ...]
    level: tuple[str, ...] = ()


def samples(results: Results, found: Iterable[Answer | Missing]) -> SampleFigures:
    """Return the figures of so many cases at most: those first that most answers rest on, and of these those with the gravest flag."""
    answered = Counter(case for each in found if isinstance(each, Answer) for case in each.cases)
    timed = [row for row in results.rows if row.rounds.median_s and (row.time.median_s or 0) > 0]
    ranked = sorted(range(len(timed)), key=lambda at: (-answered[timed[at].case.id], _gravest_flag(timed[at].flag)))
    drawn = [timed[at] for at in sorted(ranked[:MOST_CASES])]
    left_out = tuple(timed[at].case.id for at in sorted(ranked[MOST_CASES:]))
    if not drawn:
        return SampleFigures((), left_out)
    several = several_runs(drawn)
    names = [f"{short(row.key)} on {device_label(row, several)}" for row in drawn]
    in_order = [_in_order(name, row) for name, row in zip(names, drawn, strict=True)]
    readings, level = _readings(results, {row.file for row in drawn})
    return SampleFigures((_rounds(names, drawn), *in_order, *readings), left_out, tuple(level))


def _gravest_flag(flag: Flags) -> int:
    """Return the place of the gravest among the flags, the first the gravest."""
    flags = (flag.implausible, flag.throttled, flag.not_steady, flag.disturbed, flag.noisy, flag.power_capped)
    return next((at for at, is_set in enumerate(flags) if is_set), len(flags))


def _rounds(names: Sequence[str], drawn: Sequence[Row]) -> Figure:
    rows: list[Cells] = []
    for name, row in zip(names, drawn, strict=True):
        median = row.time.median_s or math.nan
        ends = zip(_ENDS, (row.time.ci_low_s, row.time.ci_high_s), strict=True)
        interval = {column.name: end and end / median for column, end in ends}
        rows += [{_CASE.name: name, _KIND.name: "one round", _RELATIVE.name: seconds / median} for seconds in row.rounds.median_s]
        rows.append({_CASE.name: name, _KIND.name: "median of the rounds", _RELATIVE.name: 1.0, **interval})
    about = "Each dot is the median of one fresh process, over that of all; the line is the 95 % interval, where rounds are enough for one."
    time, case, kind = Axis("time over the median", _RELATIVE), Axis("case", _CASE), Axis("what", _KIND)
    relative = [[seconds / (row.time.median_s or math.nan) for seconds in row.rounds.median_s] for row in drawn]
    clip = _clip(relative)
    about += _ARROWS if clip else ""
    return Figure("Rounds and their interval", about, "dot", time, case, tuple(rows), kind, _ENDS, 1.0, clip=clip)


def _clip(cases: Sequence[Sequence[float]]) -> tuple[float, float] | None:
    """Return the ends of what is drawn, where some numbers of a case are far beyond its others; None where none is."""
    ends, known = [_far(sorted(numbers)) for numbers in cases], [each for numbers in cases for each in numbers]
    low, high, least, most = min(low for low, _ in ends), max(high for _, high in ends), min(known), max(known)
    return (max(low, least), min(high, most)) if least < low or high < most else None


def _far(numbers: Sequence[float]) -> tuple[float, float]:
    """Return from where on a number would flatten the others, which are ascending: from the outer fences, if these are not near."""
    (low, high), centre = fences(numbers), quantile(numbers, 0.5)
    return min(low, (1 - _NEAR) * centre), max(high, (1 + _NEAR) * centre)


def _in_order(name: str, row: Row) -> Figure:
    """Return the figure of every timed block of a case, by the round that it was taken in."""
    rows: list[Cells] = []
    for round_number, of_round in zip(row.rounds.numbers, row.rounds.blocks, strict=True):
        at = [round_number + 1 + position / len(of_round) for position in range(len(of_round))]
        rows += [{_ROUND.name: place, _TIME.name: seconds} for place, seconds in zip(at, of_round, strict=True)]
    about = "Each dot is a timed block, seconds a call; a trend or steps show a machine that changes while it is measured."
    clip = _clip([[seconds for of_round in row.rounds.blocks for seconds in of_round]])
    about += _ARROWS if clip else ""
    return Figure(f"Samples of {name}", about, "dot", Axis("round", _ROUND), Axis("time of a call", _TIME), tuple(rows), clip=clip)


def _readings(results: Results, runs: Container[str]) -> tuple[list[Figure], list[str]]:
    """Return a figure for each kind of reading of each of these files that has any: a line a device, a point after each round.

    A clock that stays level has a sentence instead.
    """
    found, level = list[Figure](), list[str]()
    for run, devices in results.readings.items():
        if run not in runs:
            continue
        for title, unit in dict.fromkeys(_READINGS.values()):
            column = Column("sample.reading", unit, "what the device read right after the round")
            rows: list[Cells] = []
            for name, readings in devices.items():
                for values in (of for reading, of in readings.items() if _READINGS[reading] == (title, unit) and len(of) > 1):
                    if unit is Unit.HERTZ and max(values) < (1 + _LEVEL) * min(values):
                        level.append(f"{title} of {name} after each round of {run}: {hertz(quantile(sorted(values), 0.5))}, within 1 %.")
                    else:
                        rows += [{_DEVICE.name: name, _ROUND.name: at, column.name: value} for at, value in enumerate(values, 1)]
            about = "Read right after each round, while the measuring process still held the device."
            axes = Axis("round", _ROUND), Axis(title.lower(), column)
            if rows:
                found.append(Figure(f"{title} after each round of {run}", about, "line", *axes, tuple(rows), Axis("device", _DEVICE)))
    return found, level
