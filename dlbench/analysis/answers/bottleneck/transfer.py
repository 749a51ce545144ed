"""Copies: their latency and bandwidth, and what of the link that is. A part of the answer on the bottleneck."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

from dlbench.analysis.answers.parts.base import AnswerPart, of_devices
from dlbench.analysis.answers.parts.headline import Headline, qualifiers
from dlbench.analysis.answers.parts.lines import LEAST_SIZES, MOST_OFF, Line, fit
from dlbench.analysis.presentation.fields import Field, Fields, Headed, of_row, own
from dlbench.analysis.presentation.figures import Figure, figure
from dlbench.analysis.presentation.names import by_device, by_workload_and_device
from dlbench.analysis.presentation.wording import INTERVAL, brief, short, with_interval
from dlbench.analysis.ratios.pairing import grouped, label, settings_named
from dlbench.analysis.read.table import Results
from dlbench.core import units
from dlbench.core.rows.rounds import CaseRounds
from dlbench.core.rows.row import Row
from dlbench.core.schema import Column, Unit
from dlbench.core.stats import median_interval

ORDER = 30
_RATE = of_row(lambda row: row.rate.bytes_per_s)
_WAY = Column("copies.way", Unit.TEXT, "the copy, without its size")
_LATENCY = "what a copy takes however small it is: median of the rounds' lines; null where it does not show"
_BANDWIDTH = "bytes over the time beyond the latency: median of the rounds' lines"
_LINK = "the most that the link carries as it was while copying; null where not read"
_OFF = "how far a size is from its round's line, in the median: caches and protocols bend it"
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


class Way(NamedTuple):
    """Copies that differ in their size alone."""

    name: str
    """The case's id without its device and its size."""
    row: Row
    """The fastest size."""
    fit: Fit
    link_bytes_per_s: float | None
    """The most that its link carries as it was while copying; None where not read."""
    link_share: float | None
    """The rate over that; None where copies go over another link."""

    @property
    def rate(self) -> float:
        """Bytes a second of the fastest size."""
        return _rate(self.row)

    def sentences(self, which: str) -> list[str]:
        """Return a sentence each on its bandwidth, its latency, and the share of the link, with intervals."""
        found = []
        if (of := self.fit.bytes_per_s) is not None:
            found.append(f"{which} copies at {with_interval(*of, units.byte_rate)}.")
        if (of := self.fit.latency_s) is not None:
            found.append(f"Its latency is {with_interval(*of, units.seconds)}.")
        else:
            found.append("No latency shows at these sizes.")
        if self.link_share is not None:
            found.append(f"At best it has {units.percent(self.link_share)} of what its link carries.")
        return found


def _with_interval(heading: str, column: Column, of: Callable[[Way], OverRounds | None]) -> Fields[Way]:
    """Return the columns of a median over rounds and of the ends of its interval."""
    ends = {"low": "lower end of its 95 % interval; null below six rounds", "high": "upper end of it"}
    low, high = (Column(f"{column.name}_{end}", column.unit, meaning) for end, meaning in ends.items())
    return (
        (heading, Field(column, lambda way: found.value if (found := of(way)) else None)),
        (INTERVAL, Field(low, lambda way: found.low if (found := of(way)) else None)),
        (INTERVAL, Field(high, lambda way: found.high if (found := of(way)) else None)),
    )


_FIELDS: Fields[Way] = (
    ("copy", Field(_WAY, lambda way: way.name)),
    own("sizes", "copies.sizes", Unit.COUNT, "sizes whose times the line is fitted to", lambda way: way.fit.sizes),
    *_with_interval("latency", Column("copies.latency_s", Unit.SECONDS, _LATENCY, "lower"), lambda way: way.fit.latency_s),
    *_with_interval("bandwidth", Column("copies.bytes_per_s", Unit.BYTES_PER_S, _BANDWIDTH, "higher"), lambda way: way.fit.bytes_per_s),
    own("off the line", "copies.off", Unit.FRACTION, _OFF, lambda way: way.fit.off),
    ("fastest size", _RATE),
    own("link", "copies.link_bytes_per_s", Unit.BYTES_PER_S, _LINK),
    own("of the link", "copies.link_share", Unit.FRACTION, "the fastest size over that", better="higher"),
    own("no line", "copies.reason", Unit.TEXT, "why there is no line", lambda way: way.fit.reason),
)


def findings(results: Results) -> AnswerPart:
    """Return latency and bandwidth of each way to copy that was measured over sizes, and what of its link that is."""
    groups = _groups(results)
    ways, doubts = list[Way](), list[str]()
    for where, found in by_device(list(map(_way, groups))).items():
        beyond = _over_another_link(where, found)
        ways += [way._replace(link_share=None) for way in found] if beyond else found
        if doubt := beyond or _trained_down(where, found):
            doubts.append(doubt)
        worst = max(found, key=lambda way: way.fit.off or 0.0)
        if (off := worst.fit.off or 0.0) >= MOST_OFF:
            doubts.append(
                f"on {where} the sizes of {short(worst.name)} are {units.percent(off)} off their line in the median, as caches bend it"
            )
    copies = list(chain.from_iterable(groups))
    title = "Copies: latency and bandwidth"
    return of_devices(title, _FIELDS, ways, _sentences, rows=copies, figures=_figures(copies), weaknesses=doubts, headline=_headline)


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


def _way(copies: Sequence[Row]) -> Way:
    fastest = max(copies, key=_rate)
    link = fastest.bound(_RATE.column)
    fit = latency_and_bandwidth([(_bytes(row), row.rounds) for row in copies])
    return Way(_name(fastest), fastest, fit, link, _rate(fastest) / link if link else None)


def _fastest(ways: Sequence[Way]) -> Way:
    return max(ways, key=lambda way: way.rate)


def _fitted(ways: Sequence[Way]) -> list[Way]:
    """Return those over the link that follow a line, the least share of it first; where none was read, all by bandwidth."""
    of_link = [way for way in ways if way.link_share is not None] or ways
    fitted = [(found.value if way.link_share is None else way.link_share, way) for way in of_link if (found := way.fit.bytes_per_s)]
    return [way for _, way in sorted(fitted, key=itemgetter(0))]


def _headline(devices: Mapping[str, Sequence[Way]]) -> Headline:
    """Return bandwidth and latency of the fastest way of the first device, or its fastest copy where no way follows a line."""
    where, ways = next(iter(devices.items()))
    fitted = _fitted(ways)
    way = fitted[-1] if fitted else _fastest(ways)
    name = " on ".join([brief(way.name), where][: len(devices)])
    if not fitted or way.fit.bytes_per_s is None:
        return Headline([f"copies reach {units.byte_rate(way.rate)} at best"], [name], rows=[way])
    after = f" after {units.seconds(way.fit.latency_s.value)}" if way.fit.latency_s else ""
    share = "" if way.link_share is None else f": {units.fraction(way.link_share)} of the link"
    return Headline([f"copies run at {units.byte_rate(way.fit.bytes_per_s.value)}{after}"], qualifiers([name], share), rows=[way])


def _sentences(where: str, ways: Sequence[Way]) -> tuple[str, ...]:
    """Say how quick copies over the link are, at the largest share of it and the smallest."""
    fitted = _fitted(ways)
    if not fitted:
        best = _fastest(ways)
        line = (
            "To tell latency from bandwidth it takes more sizes."
            if best.fit.off is None
            else "Its times follow no line of latency and bandwidth."
        )
        return f"On {where} {short(best.name)} reaches {units.byte_rate(best.rate)} at best.", line
    slowest, *_, fastest = fitted[0], fitted[-1]
    told = fastest.sentences(f"On {where} {short(fastest.name)}")
    if slowest is not fastest:
        told += slowest.sentences(f"The slowest of {len(fitted)} ways, {short(slowest.name)},")
    return tuple(told)


def _trained_down(where: str, ways: Sequence[Way]) -> str | None:
    """Say of a link that was slower while copying than device and slot can have it; None where it was not, or nothing tells."""
    read = [(way.link_bytes_per_s, most) for way in ways if way.link_bytes_per_s and (most := way.row.transfer.link_bytes_per_s)]
    if not read:
        return None
    # The median: copies both ways at once have twice the rate.
    link, most = statistics.median(now for now, _ in read), statistics.median(most for _, most in read)
    if link >= _TRAINED_DOWN * most:
        return None
    carried = f"{units.byte_rate(link)} of {units.byte_rate(most)}"
    return f"the PCIe link of {where} stays trained down at {carried}: see how the card is seated, its slot and the firmware"


def _over_another_link(where: str, ways: Sequence[Way]) -> str | None:
    """Say that copies are faster than the link that was read, which then is not theirs; None where none is."""
    beyond = [(way.rate / link, link, way) for way in ways if (link := way.link_bytes_per_s) and way.rate > link]
    if not beyond:
        return None
    _, link, fastest = max(beyond, key=itemgetter(0))
    rates = f"{units.byte_rate(fastest.rate)}, and its PCIe link reports {units.byte_rate(link)}"
    return f"on {where} {short(fastest.name)} reaches {rates}: another link is used, or a virtual machine reports a false one"


def _figures(copies: Sequence[Row]) -> list[Figure]:
    """Return bandwidth against size, of each workload and device a figure, with a line a way."""
    about = "One line a way to copy; from where it is level on, bandwidth bounds a copy, and left of that latency."
    about += " The vertical lines are 95 % intervals over rounds."
    size: Headed[Row] = own("bytes", "copies.size", Unit.BYTES, "bytes that a copy counts", _bytes)
    way: Field[Row] = Field(_WAY, lambda row: short(_name(row)))
    ends: list[Field[Row]] = [
        Field(Column("copies.rate_low", Unit.BYTES_PER_S, "lower end of its 95 % interval"), lambda row: _rate_at(row, row.time.ci_high_s)),
        Field(Column("copies.rate_high", Unit.BYTES_PER_S, "upper end of it"), lambda row: _rate_at(row, row.time.ci_low_s)),
    ]
    axes = size, ("bytes a second", _RATE), ("copy", way)
    return [
        figure(f"Bandwidth by size: {where}", about, "line", alike, *axes, log="xy", interval=ends)
        for where, alike in by_workload_and_device(copies).items()
    ]


def _rate_at(row: Row, seconds: float | None) -> float | None:
    """Return the bandwidth of a copy, had it taken that long."""
    return _bytes(row) / seconds if seconds else None
