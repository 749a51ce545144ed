"""Figures of what was measured: rounds beside their interval, samples in the order taken, and what the devices read meanwhile."""

from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from dlbench.analysis.answers.base import Answer, Missing
from dlbench.analysis.figures import Axis, Figure
from dlbench.analysis.ratios import Entry, entries
from dlbench.analysis.read.places import file_of
from dlbench.analysis.read.table import Results
from dlbench.analysis.wording import device_label, key, number, several_runs, short
from dlbench.core.rows.row import Cells as Row
from dlbench.core.schema import Column, Unit

MOST_CASES = 20
"""Cases whose samples are drawn."""
_FLAGS = ("flag.implausible", "flag.throttled", "flag.not_steady", "flag.disturbed", "flag.noisy", "flag.power_capped")
_CASE = Column("sample.case", Unit.TEXT, "the case, and where it ran")
_KIND = Column("sample.kind", Unit.TEXT, "one round, or the median of all")
_RELATIVE = Column("sample.relative", Unit.RATIO, "time over the median of the case", "lower")
_ENDS = (Column("sample.low", Unit.RATIO, "lower end of the interval"), Column("sample.high", Unit.RATIO, "upper end of it"))
_ROUND = Column("sample.round", Unit.NUMBER, "the round, counted from 1, and how far its blocks had got")
_READINGS = {
    "clock_hz": ("Clock", Unit.HERTZ),
    "clock_sm_hz": ("Clock", Unit.HERTZ),
    "clock_memory_hz": ("Memory clock", Unit.HERTZ),
    "temperature_c": ("Temperature", Unit.CELSIUS),
    "power_w": ("Power", Unit.WATTS),
}


@dataclass(frozen=True, slots=True)
class SampleFigures:
    """Figures of some cases, and the ids of the cases that are left out."""

    figures: tuple[Figure, ...]
    left_out: tuple[str, ...]


def samples(results: Results, found: Iterable[Answer | Missing]) -> SampleFigures:
    """Return the figures of so many cases at most: those first that most answers rest on, and of these those with the gravest flag."""
    answered = Counter(case for each in found if isinstance(each, Answer) for case in each.cases)
    timed = [each for each in entries(results) if each.rounds.median_s and number(each.row["time.median_s"]) > 0]
    ranked = sorted(range(len(timed)), key=lambda at: (-answered[str(timed[at].row["case.id"])], _gravest_flag(timed[at].row)))
    drawn = [timed[at] for at in sorted(ranked[:MOST_CASES])]
    left_out = tuple(str(timed[at].row["case.id"]) for at in sorted(ranked[MOST_CASES:]))
    if not drawn:
        return SampleFigures((), left_out)
    several = several_runs([each.row for each in drawn], "case")
    names = [f"{short(key(each.row))} on {device_label(each.row, 'case', several)}" for each in drawn]
    in_order = [_in_order(name, each) for name, each in zip(names, drawn, strict=True)]
    return SampleFigures((_rounds(names, drawn), *in_order, *_readings(results, {file_of(each.row) for each in drawn})), left_out)


def _gravest_flag(row: Row) -> int:
    return next((at for at, flag in enumerate(_FLAGS) if row[flag]), len(_FLAGS))


def _rounds(names: Sequence[str], drawn: Sequence[Entry]) -> Figure:
    rows: list[Row] = []
    for name, each in zip(names, drawn, strict=True):
        median = number(each.row["time.median_s"])
        ends = [each.row[f"time.ci_{end}_s"] for end in ("low", "high")]
        interval = {column.name: None if end is None else number(end) / median for column, end in zip(_ENDS, ends, strict=True)}
        rows += [{_CASE.name: name, _KIND.name: "one round", _RELATIVE.name: seconds / median} for seconds in each.rounds.median_s]
        rows.append({_CASE.name: name, _KIND.name: "median of the rounds", _RELATIVE.name: 1.0, **interval})
    about = "Each dot is the median of one fresh process, over that of all; the line is the 95 % interval, where rounds are enough for one."
    time, case, kind = Axis("time over the median", _RELATIVE), Axis("case", _CASE), Axis("what", _KIND)
    return Figure("Every round beside its interval", about, "dot", time, case, tuple(rows), kind, _ENDS, 1.0)


def _in_order(name: str, entry: Entry) -> Figure:
    """Return the figure of every timed block of a case, by the round that it was taken in."""
    rows: list[Row] = []
    blocks = entry.rounds.blocks.first(max(entry.rounds.blocks.counts))
    for round_number, of_round in zip(entry.rounds.numbers, blocks, strict=True):
        at = [round_number + 1 + position / len(of_round) for position in range(len(of_round))]
        rows += [{_ROUND.name: place, "time.median_s": seconds} for place, seconds in zip(at, of_round, strict=True)]
    about = "Each dot is a timed block, seconds a call; a trend or steps show a machine that changes while it is measured."
    time = Column("time.median_s", Unit.SECONDS, "one call, in one block", "lower")
    return Figure(f"Samples of {name}", about, "dot", Axis("round", _ROUND), Axis("time of a call", time), tuple(rows))


def _readings(results: Results, runs: Container[str]) -> list[Figure]:
    """Return a figure for each kind of reading of each of these files that has any: a line a device, a point after each round."""
    found = []
    for run, devices in results.readings.items():
        if run not in runs:
            continue
        for title, unit in dict.fromkeys(_READINGS.values()):
            column = Column("sample.reading", unit, "what the device read right after the round")
            device = Column("sample.device", Unit.TEXT, "the device")
            rows: list[Row] = [
                {"sample.device": name, _ROUND.name: at, column.name: value}
                for name, readings in devices.items()
                for reading, values in readings.items()
                if _READINGS[reading] == (title, unit) and len(values) > 1
                for at, value in enumerate(values, 1)
            ]
            about = "Read right after each round, while the measuring process still held the device."
            axes = Axis("round", _ROUND), Axis(title.lower(), column)
            found += (
                [Figure(f"{title} after each round of {run}", about, "line", *axes, tuple(rows), Axis("device", device))] if rows else []
            )
    return found
