"""Copies: their latency and bandwidth, and what of the link that is. A part of the answer on the bottleneck."""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import NamedTuple

from dlbench.analysis.answers.parts.base import Section
from dlbench.analysis.answers.parts.lines import LEAST_SIZES, MOST_OFF, Line, fit
from dlbench.analysis.presentation.columns import of_row, place, with_ends
from dlbench.analysis.presentation.figures import Figure, figure
from dlbench.analysis.presentation.names import by_device, by_workload
from dlbench.analysis.presentation.wording import short
from dlbench.analysis.ratios.pairing import grouped, label, settings_named
from dlbench.analysis.read.table import Results
from dlbench.core import units
from dlbench.core.rows.rounds import CaseRounds
from dlbench.core.rows.row import Row
from dlbench.core.schema import Column, Direction, Unit
from dlbench.core.stats import median_interval

ORDER = 30
_RATE = of_row(lambda row: row.rate.bytes_per_s, "fastest size")
_TRAINED_DOWN = 0.99
"""Of what device and slot can have: a link that carries less has another generation, or fewer lanes."""


class OverRounds(NamedTuple):
    """The median of what each round gave, and its 95 % interval, without ends below six rounds."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Fit:
    """Latency and bandwidth of copies that differ in their size alone."""

    sizes: int
    """How many there are."""
    latency_s: OverRounds | None = None
    """What a copy takes however small it is; None where it does not show."""
    bytes_per_s: OverRounds | None = None
    """Bytes over the time beyond the latency."""
    off: float | None = None
    """How far a size is from its round's line, relative, in the median."""
    reason: str | None = None
    """Why there is no line."""


def latency_and_bandwidth(sizes: Sequence[tuple[float, CaseRounds]]) -> Fit:
    """Fit copies that differ in their size alone: of each the bytes, and what its rounds gave.

    A copy takes latency + bytes / bandwidth (Hockney, The Communication Challenge for MPP, Parallel Computing 20(3), 1994). A line is
    fitted in each round, whose sizes one state of the machine has in common; the intervals are over rounds. Of a line that fits nothing
    neither is told (`lines.MOST_OFF`), nor a latency that is less than the line is off at the smallest size.
    """
    count = len({size for size, _ in sizes})
    points = [(number, (size, seconds)) for size, each in sizes for number, seconds in zip(each.numbers, each.median_s, strict=False)]
    by_round = [[point for _, point in found] for found in grouped(points, lambda each: each[0]).values()]
    fitted = [(line, each) for each in by_round if (line := fit(each))]
    if not fitted:
        return Fit(count, reason=f"no round has {LEAST_SIZES} sizes, the fewest that tell latency from bandwidth")
    off = statistics.median(line.off(each) for line, each in fitted)
    if off >= MOST_OFF:
        return Fit(
            count, off=off, reason=f"the sizes are {units.percent(off)} off the best line in the median, so it tells nothing of them"
        )
    fixed, slopes = [line.fixed for line, _ in fitted], [line.slope for line, _ in fitted]
    middle = Line(statistics.median(fixed), statistics.median(slopes))
    shows = middle.shows_fixed(min(size for size, _ in sizes if size > 0), off)
    return Fit(count, _over_rounds(fixed) if shows else None, _over_rounds([1 / slope for slope in slopes]), off)


def _over_rounds(values: Sequence[float]) -> OverRounds:
    interval = median_interval(values)
    low, high = (interval.low, interval.high) if interval else (None, None)
    return OverRounds(statistics.median(values), low, high)


@dataclass(frozen=True, slots=True)
class Way:
    """Copies that differ in their size alone."""

    row: Row
    """The fastest size."""
    copies: Sequence[Row]
    fit: Fit
    link_bytes_per_s: float | None
    """The most that its link carries as it was while copying; None where not read."""
    link_share: float | None
    """The rate over that; None where copies go over another link."""

    @property
    def case(self) -> str:
        """The case's id without its device and its size."""
        return _name(self.row)

    @property
    def rate(self) -> str:
        """Its bandwidth, or that of the fastest size of a way that follows no line, in words."""
        return units.byte_rate(self.fit.bytes_per_s.value if self.fit.bytes_per_s else _rate(self.row))

    @property
    def latency(self) -> str | None:
        """What a copy takes however small it is, in words; None where it does not show."""
        return self.fit.latency_s and units.seconds(self.fit.latency_s.value)


def ways(results: Results) -> list[Way]:
    """Return the ways to copy that were measured over sizes, of each device the one first that has most of its link, or else is fastest."""
    found = list[Way]()
    for of_device in by_device(_ways(results)).values():
        other_link = any((way.link_share or 0.0) > 1 for way in of_device)  # it is not that of these copies
        shown = [replace(way, link_share=None) for way in of_device] if other_link else of_device
        found += sorted(shown, key=_standing, reverse=True)
    return found


def _standing(way: Way) -> tuple[bool, float, float]:
    rate = way.fit.bytes_per_s.value if way.fit.bytes_per_s else 0.0
    return bool(rate), way.link_share or 0.0, rate or _rate(way.row)


def _ways(results: Results) -> list[Way]:
    found = []
    for copies in _groups(results):
        fastest = max(copies, key=_rate)
        link = fastest.bound(_RATE)
        fitted = latency_and_bandwidth([(_bytes(row), row.rounds) for row in copies])
        found.append(Way(fastest, copies, fitted, link, _rate(fastest) / link if link else None))
    return found


def doubts(results: Results) -> Iterator[str]:
    """Yield what is odd about a link."""
    for where, of_device in by_device(_ways(results)).items():
        links = [(link, way) for way in of_device if (link := way.link_bytes_per_s)]
        beyond = max(links, key=lambda each: _rate(each[1].row) / each[0], default=None)
        most = [most for _, way in links if (most := way.row.transfer.link_bytes_per_s)]
        if beyond and _rate(beyond[1].row) > beyond[0]:
            rates = f"{units.byte_rate(_rate(beyond[1].row))}, and its PCIe link reports {units.byte_rate(beyond[0])}"
            yield f"on {where} {short(beyond[1].case)} reaches {rates}: another link is used, or a virtual machine reports a false one"
        # The median: copies both ways at once have twice the rate.
        elif most and (now := statistics.median(map(itemgetter(0), links))) < _TRAINED_DOWN * statistics.median(most):
            carried = f"{units.byte_rate(now)} of {units.byte_rate(statistics.median(most))}"
            yield f"the PCIe link of {where} stays trained down at {carried}: see how the card is seated, its slot and the firmware"


def _groups(results: Results) -> list[list[Row]]:
    """Return the copies that went well, in groups that differ in their size alone, the smallest first."""
    copies = [
        row for row in results.rows if row.declared.ceiling == "copy" and row.declared.having("sweep") and row.is_sound and _bytes(row)
    ]
    groups = grouped(copies, lambda row: row.differing_from(settings_named([_size(row)])))
    return [sorted(group, key=_bytes) for group in groups.values()]


def _size(row: Row) -> str:
    """Return the parameter that is the size of a copy."""
    return row.declared.parameter("sweep") or ""


def _name(row: Row) -> str:
    """Return the case's id without its device and its size."""
    return label(row, (_size(row),))


def _rate(row: Row) -> float:
    return row.rate.bytes_per_s or 0.0


def _bytes(row: Row) -> float:
    """Return the bytes that a copy counts; zero where it does not say, or an edited file says what can't be."""
    counted = _rate(row) * (row.time.median_s or 0.0)
    return counted if 0 < counted < math.inf else 0.0


def _foremost(found: Sequence[Way]) -> list[Way]:
    """Return the first way of the first device and, of those over its link that follow a line, the last."""
    fitted = [way for way in next(iter(by_device(found).values())) if way.fit.bytes_per_s]
    alike = [way for way in fitted if way.link_share is not None] or fitted
    return [*alike[:1], *alike[1:][-1:]] or [found[0]]


def _figures(found: Sequence[Way]) -> Iterator[Figure]:
    """Yield bandwidth against size, of each workload and device a figure, with a line a way."""
    about = "One line a way to copy; from where it is level on, bandwidth bounds a copy, and left of that latency."
    about += " The vertical lines are 95 % intervals over rounds."
    rate = with_ends(
        _RATE.headed("bytes a second"),
        Column("copies.rate_low", Unit.BYTES_PER_S, "lower end of its 95 % interval", of=lambda row: _rate_at(row, row.time.ci_high_s)),
        Column("copies.rate_high", Unit.BYTES_PER_S, "upper end of it", of=lambda row: _rate_at(row, row.time.ci_low_s)),
    )
    size = Column("copies.size", Unit.BYTES, "bytes that a copy counts", of=_bytes, heading="bytes")
    for where, alike in by_workload([row for way in found for row in way.copies], by_place=True).items():
        yield figure(f"Bandwidth by size: {where}", about, "line", alike, size, rate, _WAY.by(lambda row: short(_name(row))), log="xy")


def _rate_at(row: Row, seconds: float | None) -> float | None:
    """Return the bandwidth of a copy, had it taken that long."""
    return _bytes(row) / seconds if seconds else None


def _of_fit(name: str, unit: Unit, meaning: str, heading: str, better: Direction) -> Column:
    """Return the column of a median over rounds with its interval."""

    def end(which: str, said: str) -> Column:
        return Column(f"copies.{name}{which and f'_{which}'}", unit, said).by(
            lambda way: (found := getattr(way.fit, name)) and getattr(found, which or "value")
        )

    ends = end("low", "lower end of its 95 % interval; null below six rounds"), end("high", "upper end of it")
    return replace(end("", meaning), better=better, heading=heading, priority=0, ends=ends)


_WAY = Column("copies.way", Unit.TEXT, "the copy, without its size", heading="copy", priority=0)
SECTIONS = [
    Section(
        records=ways,
        title="Copies: latency and bandwidth",
        columns=[
            _WAY.by(lambda way: way.case),
            place,
            Column("copies.sizes", Unit.COUNT, "sizes whose times the line is fitted to", of=lambda way: way.fit.sizes, heading="sizes"),
            _of_fit(
                "latency_s",
                Unit.SECONDS,
                "what a copy takes however small it is: median of the rounds' lines; null where it does not show",
                "latency",
                "lower",
            ),
            _of_fit(
                "bytes_per_s",
                Unit.BYTES_PER_S,
                "bytes over the time beyond the latency: median of the rounds' lines",
                "bandwidth",
                "higher",
            ),
            Column(
                "copies.off",
                Unit.FRACTION,
                "how far a size is from its round's line, in the median: caches and protocols bend it",
                of=lambda way: way.fit.off,
                heading="off the line",
            ),
            _RATE,
            Column(
                "copies.link_bytes_per_s",
                Unit.BYTES_PER_S,
                "the most that the link carries as it was while copying; null where not read",
                heading="link",
            ),
            Column("copies.link_share", Unit.FRACTION, "the fastest size over that", "higher", heading="of the link", priority=0),
            Column("copies.reason", Unit.TEXT, "why there is no line", of=lambda way: way.fit.reason, heading="no line"),
        ],
        rows=lambda way: way.copies,
        foremost=_foremost,
        headline={"": ("copies run at {rate} after {latency}", "copies run at {rate} at best")},
        qualifier=("{case}{where}: {link_share} of the link", "{short}{where}: {link_share} of the link"),
        figures=[_figures],
    )
]
