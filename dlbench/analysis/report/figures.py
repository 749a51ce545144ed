"""Figures that no answer has: rounds, what devices read meanwhile, and the changes of a comparison."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any

from dlbench.analysis.answers.parts.base import Answer, Missing
from dlbench.analysis.compare.verdict import Comparison
from dlbench.analysis.presentation.figures import Figure, figure
from dlbench.analysis.presentation.names import device_label, several_runs
from dlbench.analysis.presentation.wording import short
from dlbench.analysis.ratios.matching import grouped
from dlbench.analysis.read.table import Results
from dlbench.core.rows.row import Row
from dlbench.core.stats import fences
from dlbench.core.units import Column, Unit

MOST_CASES = 20
"""Cases whose samples are drawn."""
_ROUND = Column("sample.round", Unit.COUNT, "the round, counted from 1", of=itemgetter(1), heading="round")
_RELATIVE = Column("sample.relative", Unit.RATIO, "time over the median of the case", "lower", of=itemgetter(2)).headed(
    "time over the median"
)
_READINGS = (
    ("clock_hz", "Clock of the CPU", Unit.HERTZ),
    ("clock_sm_hz", "Clock", Unit.HERTZ),
    ("clock_memory_hz", "Memory clock", Unit.HERTZ),
    ("temperature_c", "Temperature", Unit.CELSIUS),
    ("power_w", "Power", Unit.WATTS),
)
_LEVEL = 1.01
"""How many times the lowest reading the highest is at least where a plot shows something."""
_ARROWS = " A time far beyond the others is an arrow at the end of the axis."
_NEAR = (0.98, 1.02)
"""Times over the median that are never far, however alike the others are."""


def samples(results: Results, found: Iterable[Answer | Missing]) -> list[Figure]:
    """Return the figures of some cases, those that most answers rest on."""
    answered = Counter(case for each in found if isinstance(each, Answer) for case in each.cases)
    timed = [row for row in results.rows if row.rounds.median_s and (row.time.median_s or 0) > 0]
    ranked = sorted(timed, key=lambda row: -answered[row.case.id])
    drawn, several = ranked[:MOST_CASES], several_runs(timed)
    named = [(f"{short(row.key)} on {device_label(row, several)}", row) for row in drawn]
    rounds = [_rounds(named, len(timed))] if drawn else []
    return [*rounds, *_readings(results, dict.fromkeys(row.file for row in drawn))]


def forest(comparison: Comparison) -> Figure:
    """Return the figure of the changes of the cases whose times were tested, the worst first."""
    tested = [
        (
            short(case.case),
            case.verdict.value,
            1 + change.change,
            *((1 + ends.low, 1 + ends.high) if (ends := change.change_interval) else (None, None)),
            1 / (1 + limits.time),
            1 + limits.time,
        )
        for case in comparison.cases
        if (change := case.shown) and (limits := case.thresholds)
    ]
    return figure(
        "Change of each case",
        "Right of 1 takes more time than the base. A line is a 95 % interval; in the band a change is smaller than the threshold.",
        "dot",
        tested,
        Column("compare.times", Unit.RATIO, "1.1 is 10 % more", "lower", of=itemgetter(2), heading="time over that of base"),
        Column("compare.case", Unit.TEXT, "the case", of=itemgetter(0), heading="case"),
        Column("compare.verdict", Unit.TEXT, "slower, faster, same or undecided", of=itemgetter(1), heading="verdict"),
        log="x",
        interval=_ends("compare.times", 3),
        band=_ends("compare.band", 5),
        reference=1.0,
    )


def _ends(name: str, at: int) -> list[Column]:
    return [Column(f"{name}_{end}", Unit.RATIO, f"{end} end", of=itemgetter(at + place)) for place, end in enumerate(("low", "high"))]


def _rounds(named: Sequence[tuple[str, Row]], timed: int) -> Figure:
    found = list[tuple[Any, ...]]()
    for name, row in named:
        median = row.time.median_s or 1.0
        ends = [end and end / median for end in (row.time.ci_low_s, row.time.ci_high_s)]
        found += [(name, None, seconds / median, *ends) for seconds in row.rounds.median_s]
    about = "Each dot is the median of one fresh process, over that of all; the line is the 95 % interval, where rounds are enough for one."
    about += _ARROWS + (f" Drawn are the {len(named)} of {timed} cases that most answers rest on." if timed > len(named) else "")
    case = Column("sample.case", Unit.TEXT, "the case, and where it ran", of=itemgetter(0), heading="case")
    ends_of, clip = _ends("sample.time", 3), _clip(found)
    return figure("Rounds and their interval", about, "dot", found, _RELATIVE, case, interval=ends_of, reference=1.0, clip=clip)


def _clip(found: Sequence[tuple[Any, ...]]) -> tuple[float, float]:
    """Return the ends of what is drawn: all, or less where some numbers of a case are far beyond its others, and would flatten these."""
    cases = [sorted(map(itemgetter(2), alike)) for alike in grouped(found, itemgetter(0)).values()]
    lows, highs = zip(_NEAR, *map(fences, cases), strict=True)
    return max(min(cases)[0], min(lows)), min(max(each[-1] for each in cases), max(highs))


def _readings(results: Results, runs: Iterable[str]) -> Iterator[Figure]:
    """Yield a figure for each kind of reading of each of these files that changed: a line a device, a point after each round."""
    about = "Read right after each round, while the measuring process still held the device; one that stayed level is not drawn."
    device = Column("sample.device", Unit.TEXT, "the device", of=itemgetter(0), heading="device")
    for run in runs:
        for kind, title, unit in _READINGS:
            read = {name: of.get(kind, [1.0]) for name, of in results.readings.get(run, {}).items()}
            changed = {name: values for name, values in read.items() if max(values) >= _LEVEL * min(values)}
            found = [(name, at, each) for name, values in changed.items() for at, each in enumerate(values, 1)]
            value = Column("sample.reading", unit, "what the device read right after the round", of=itemgetter(2), heading=title.lower())
            if found:
                yield figure(f"{title} after each round of {run}", about, "line", found, _ROUND, value, device)
