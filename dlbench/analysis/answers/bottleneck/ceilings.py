"""Rates that each device reaches at most: its ceilings, with the rows below them, and its copies.

Rows and ceilings make the roofline of Williams and others (2009, https://doi.org/10.1145/1498765.1498785).
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple, get_args

from dlbench.analysis.answers.engine.lines import MOST_DEVIATION, Line, fit
from dlbench.analysis.answers.engine.question import Section, Tag, detail, shown
from dlbench.analysis.presentation.columns import CASE, RATIO, THROUGHPUT, Figure, figure, of_row, over_rounds, place
from dlbench.analysis.presentation.names import by_device, by_workload, flat
from dlbench.analysis.presentation.wording import short
from dlbench.analysis.ratios.matching import grouped, label, settings_named
from dlbench.analysis.ratios.ratio import Ratio, throughput_ratio
from dlbench.analysis.read.ceilings import computed_in, from_caches, machine, reached_by
from dlbench.analysis.read.table import Results
from dlbench.core.declarations import Ceiling, ValueRole
from dlbench.core.rows.columns import CaseRounds, MeasuredCeiling
from dlbench.core.rows.row import Row
from dlbench.core.units import Column, byte_rate, flop_rate, three_digits

_FLOPS = of_row(lambda row: row.rate.flops_per_s, "FLOP/s", 0)
_BYTES = of_row(lambda row: row.rate.bytes_per_s, "bytes/s", 0)
_SLOPE_AND_TOP: tuple[Ceiling, Ceiling] = ("memory", "arithmetic")
"""Ceilings that make a roofline: the slope of its left part, and the level of its right one."""
_TRAINED_DOWN = 0.99
"""Share of the rate that device and slot allow; a link below it runs in an older generation or with fewer lanes."""


class Fit(NamedTuple):
    """Latency and bandwidth of copies that differ in size alone, for each round."""

    latency_s: Sequence[float] = ()
    """Time of a copy of no bytes; empty if it is too small to show."""
    bytes_per_s: Sequence[float] = ()
    """Bytes over the time beyond the latency; empty if the sizes follow no line."""


class Top(NamedTuple):
    """The highest rate or shortest time that a device reached in one kind of work."""

    row: Row
    """Row that reached it; the fastest size of a copy."""
    case: str
    ceiling: MeasuredCeiling | None = None
    """None for copies: each direction and kind of memory has its own limit."""
    memory: MeasuredCeiling | None = None
    """Ceiling of the memory of its device; None for copies."""
    rows: Sequence[Row] = ()
    """All rows of its device; of a copy those of all its sizes."""
    fit: Fit = Fit()
    link_share: float | None = None
    """Rate of a copy over that of its link; None if the link was not read, or is another one."""

    @property
    def kind(self) -> Ceiling:
        """Kind of work."""
        return self.ceiling.kind if self.ceiling else "copy"


def fit_latency_and_bandwidth(sizes: Sequence[tuple[float, CaseRounds]]) -> Fit:
    """Return the fit of time = latency + bytes / bandwidth to copies of several sizes; a size is given as its bytes and its rounds.

    The model is Hockney's (The Communication Challenge for MPP, Parallel Computing 20(3), 1994). Each round has a line of its own, as the
    state of the machine changes between rounds. The deviation of points from their lines is a share of the time. The fit is empty if the
    deviation is `lines.MOST_DEVIATION` or more. If the deviation at the smallest size is a longer time than the latency, the fit has no
    latency.
    """
    points_by_round: dict[int, list[tuple[float, float]]] = {}
    for size, rounds in sizes:
        for number, seconds in zip(rounds.numbers, rounds.median_s, strict=False):
            points_by_round.setdefault(number, []).append((size, seconds))
    lines_and_points = [(fit(points), points) for points in points_by_round.values()]
    fitted = [(line, points) for line, points in lines_and_points if line]  # a round with fewer than three sizes has no line
    deviation = statistics.median(line.deviation(points) for line, points in fitted) if fitted else math.inf
    if deviation >= MOST_DEVIATION:
        return Fit()
    latencies_s = [line.fixed for line, _ in fitted]
    slopes = [line.slope for line, _ in fitted]
    median_line = Line(statistics.median(latencies_s), statistics.median(slopes))
    # At least one round has a line here, so three sizes or more are above zero. A size of zero is an unknown one.
    smallest = min(size for size, _ in sizes if size > 0)
    shows_latency = median_line.shows_fixed(smallest, deviation)
    return Fit(latencies_s if shows_latency else (), [1 / slope for slope in slopes])  # a slope is seconds a byte


def tops(results: Results) -> list[Top]:
    """Return the ceilings of each device that has one of memory, then its copies; accelerators first, the fastest precision first."""
    rows = grouped((row for row in results.rows if row.is_sound), lambda row: machine(row, results.environments))
    kinds = get_args(Ceiling)
    found = []
    for where, ceilings in results.ceilings.items():
        if memory := ceilings.get(("memory", "")):
            for ceiling in sorted(ceilings.values(), key=lambda each: (kinds.index(each.kind), -each.per_s)):
                best = reached_by(ceiling, rows[where])
                found.append(Top(best, best.key, ceiling, memory, rows[where]))
    return sorted((*found, *_copies(results)), key=lambda top: top.row.is_on_cpu)


def _copies(results: Results) -> Iterator[Top]:
    """Yield a record for each kind of copy; on each device that with the largest share of its link first, without a link the fastest."""
    sized = [row for row in results.rows if row.declared.ceiling == "copy" and row.declared.having("sweep")]
    measured = (row for row in sized if row.is_sound and _bytes(row))
    by_kind = grouped(measured, lambda row: row.differing_from(settings_named(row.declared.having("sweep"))))
    for copies in by_device([_copy(rows) for rows in by_kind.values()]).values():
        if any((each.link_share or 0.0) > 1 for each in copies):  # they went over another link
            copies = [each._replace(link_share=None) for each in copies]
        yield from sorted(copies, key=lambda each: (each.link_share or 0.0, _bytes_per_s(each.row)), reverse=True)


def _copy(rows: Sequence[Row]) -> Top:
    """Return the record of one kind of copy from its rows, which differ in their size alone."""
    by_size = sorted(rows, key=_bytes)
    fastest = max(rows, key=_bytes_per_s)
    link_per_s = fastest.bound(_BYTES)
    return Top(
        fastest,
        label(fastest, fastest.declared.having("sweep")),
        rows=by_size,
        fit=fit_latency_and_bandwidth([(_bytes(row), row.rounds) for row in by_size]),
        link_share=_bytes_per_s(fastest) / link_per_s if link_per_s else None,
    )


def _bytes_per_s(row: Row) -> float:
    return row.rate.bytes_per_s or 0.0


def _bytes(row: Row) -> float:
    """Return the bytes of a copy; zero if they are not known, or an edited file holds an impossible number."""
    counted = _bytes_per_s(row) * (row.time.median_s or 0.0)
    return counted if 0 < counted < math.inf else 0.0


def _foremost(found: Sequence[Top]) -> list[Top]:
    """Return the first of each kind on the first device."""
    on_first = [top for top in found if top.row.case.device == found[0].row.case.device]
    return [tops[0] for tops in grouped(on_first, lambda top: top.kind).values()]


def _trained_down(found: Sequence[Top]) -> Iterator[str]:
    """Yield a sentence on each PCIe link that stays below the rate of its device and slot.

    It goes by the median over copies, as those in both directions at once have twice the rate.
    """
    for where, copies in by_device([top for top in found if top.link_share]).items():
        now = statistics.median(each.row.bound(_BYTES) or 0.0 for each in copies)
        most = statistics.median(each.row.transfer.link_bytes_per_s or 0.0 for each in copies)
        if now < _TRAINED_DOWN * most:
            carried = f"{byte_rate(now)} of {byte_rate(most)}"
            yield f"the PCIe link of {where} stays trained down at {carried}: see how the card is seated, its slot and the firmware"


def _only_for(column: Column, *kinds: Ceiling) -> Column:
    """Return a column that is empty for all other kinds."""
    return column.by(lambda top: column.value(top) if top.kind in kinds else None)


def _intensity(row: Row) -> float:
    """Return the stated operations for each stated byte; zero if either is missing."""
    return (row.rate.flops_per_s or 0.0) / (row.rate.bytes_per_s or math.inf)


def _rooflines(records: Sequence[Top]) -> Iterator[Figure]:
    """Yield a roofline for each device and precision that has rows below it."""
    for top in records:
        memory, arithmetic = top.memory, top.ceiling
        if not (memory and arithmetic and top.kind == "arithmetic"):
            continue
        rows = [row for row in top.rows if row.is_single_rank and _intensity(row) and computed_in(row) == arithmetic.precision]
        # A row whose bytes come from caches is not bounded by memory.
        below = [Top(row, row.key) for row in rows if not from_caches(row, memory)]
        if below:
            yield _roofline(below, memory.per_s, arithmetic.per_s, f"in {arithmetic.precision}: {place(records).value(top)}")


def _roofline(below: Sequence[Top], bytes_per_s: float, flops_per_s: float, where: str) -> Figure:
    """Return the figure of the rows below a roofline: operations a second by operations a byte.

    The line rises with the ceiling of memory, ``bytes_per_s``, up to the ridge, and stays at that of arithmetic, ``flops_per_s``.
    """
    ridge = flops_per_s / bytes_per_s  # operations a byte from which on arithmetic bounds a row
    drawn = [ridge / 4, ridge * 4, *(_intensity(each.row) for each in below)]  # the ridge shows, with some of the line on either side
    corners = (min(drawn), ridge, max(drawn))
    line = tuple({_INTENSITY.name: at, _FLOPS.name: min(at * bytes_per_s, flops_per_s)} for at in corners)
    about = f"The line is the most that was measured: {byte_rate(bytes_per_s)}, and {flop_rate(flops_per_s)} from {three_digits(ridge)}."
    workload = of_row(lambda row: row.case.workload, "workload")
    return figure(f"Roofline {where}", about, "dot", below, x=_INTENSITY, y=_FLOPS, series=workload, log="xy", bound=line)


def _bandwidths(found: Sequence[Top]) -> Iterator[Figure]:
    """Yield a figure of bandwidth by size for each workload and device, with a line for each kind of copy."""
    about = "One line a way to copy; from where it is level on, bandwidth bounds a copy, and left of that latency."
    line = detail("copies.way", "text", "copy", "the copy, without its size", lambda each: short(each.case))
    points = [Top(row, top.case) for top in found if top.kind == "copy" for row in top.rows]
    size = detail("copies.size", "bytes", "bytes", "bytes that a copy counts", lambda each: _bytes(each.row))
    for where, alike in by_workload(points, by_place=True).items():
        yield figure(f"Bandwidth by size: {where}", about, "line", alike, x=size, y=_BYTES, series=line, log="xy")


_INTENSITY = detail(
    "roofline.intensity", "number", "operations a byte", "stated operations over stated bytes", lambda each: _intensity(each.row)
)
TOPS = Section(
    records=tops,
    title="What each device can do at most",
    columns=[
        place,
        shown("ceiling.kind", "text", "ceiling", "what it is the most of, or takes that time at least"),
        shown("ceiling.precision", "text", "in", "that products are computed in", lambda top: top.ceiling and top.ceiling.precision),
        CASE.headed("reached by"),
        _only_for(_FLOPS, "arithmetic"),
        _only_for(_BYTES, "memory", "copy"),
        _only_for(of_row(lambda row: row.time.median_s, "time", 0), "launch", "synchronisation"),
        _only_for(of_row(lambda row: row.rate.peak_fraction, "peak", 0), *_SLOPE_AND_TOP),
        _only_for(of_row(lambda row: row.rate.peak, "of"), *_SLOPE_AND_TOP),
        over_rounds(
            shown("copies.latency_s", "s", "latency", "what a copy takes however small it is; null where it does not show"),
            attrgetter("fit.latency_s"),
        ),
        over_rounds(
            shown("copies.bandwidth", "bytes/s", "bandwidth", "bytes over the time beyond that; null where sizes follow no line"),
            attrgetter("fit.bytes_per_s"),
        ),
        shown("copies.link_share", "fraction", "of the link", "the fastest size over what the link carries"),
    ],
    rows=lambda top: (top.row,) if top.ceiling else top.rows,
    foremost=_foremost,
    by=lambda top: top.kind,
    headline={
        "arithmetic": ("{flops_per_s} {precision}{more}", "{flops_per_s} {precision}"),
        "memory": "{bytes_per_s} memory at most",
        **dict.fromkeys(("launch", "synchronisation"), "{median_s} at the quickest"),
        "copy": ("copies run at {bandwidth} after {latency_s}", "copies run at {bytes_per_s} at best"),
    },
    more={"memory": ", {bytes_per_s} memory at most"},
    qualifier=(
        "{case}{where}: {link_share} of the link",
        "{short}{where}: {link_share} of the link",
        "{peak_fraction} of the published peak{where}",
    ),
    figures=lambda found: [*_rooflines(found), *_bandwidths(found)],
    cautions=_trained_down,
)


_NETWORK = "model"
"""Parameter of a reading, and of a step, that names a network."""


class Fed(NamedTuple):
    """A step with one source of its batches: how it was fed, or a reading from storage; a reading alone where no step takes it."""

    row: Row
    case: str
    """The step, whatever feeds it."""
    source: str = ""
    """How it gets its batch, or the reading."""
    ratio: Ratio | None = None
    """Throughput over that of the fastest source; of storage, samples supplied over samples needed."""
    reading: Row | None = None
    """Reading from storage."""

    @property
    def sides(self) -> Sequence[Row]:
        """Rows that it rests on."""
        return (self.row, self.reading) if self.reading else (self.row,)

    @property
    def supply_per_s(self) -> float | None:
        """Samples a second of storage, or of the user's loader, without a step."""
        return self.reading.throughput if self.reading else self._alone_per_s("input_alone")

    @property
    def need_per_s(self) -> float | None:
        """Samples a second of the step when batches are there already."""
        return self.row.throughput if self.reading else self._alone_per_s("step_alone")

    def _alone_per_s(self, role: ValueRole) -> float | None:
        """Return the samples a second of a part that was timed alone."""
        seconds = self.row.in_role(role)
        return self.row.throughput * (self.row.time.median_s or 0.0) / seconds if seconds else None

    @property
    def waits(self) -> float | None:
        """Share of a call in which the step waits for the user's loader.

        The host may wait for a batch while an accelerator still computes, so it is at most the share by which a call takes longer than
        a step whose batch is there.
        """
        share, need = self.share("input"), self._alone_per_s("step_alone")
        return None if share is None or not need else max(0.0, min(share, 1 - self.row.throughput / need))

    def share(self, part: ValueRole) -> float | None:
        """Return the share of a call that a part of it takes; None if it was not reported."""
        seconds, call = self.row.in_role(part), self.row.time.median_s
        return None if seconds is None or not call else seconds / call


def inputs(results: Results) -> list[Fed]:
    """Return the supply from storage for each training step, then each step with the sources of its batches.

    The step of most need comes first, with its fastest source. Where no step takes what was read, readings are returned alone.
    """
    readings = sorted((row for row in results.rows if row.has_throughput and "supply" in row.declared.tags), key=lambda row: row.throughput)
    supplied = sorted(_supplied(results, readings), key=lambda each: -each.row.throughput)
    fed_rows = [row for row in results.rows if row.declared.having("feeding") and row.has_throughput]
    by_step = grouped(fed_rows, lambda row: row.differing_from(settings_named(row.declared.having("feeding"))))
    largest_first = sorted(by_step.values(), key=lambda rows: -(rows[0].batch or 0))
    fed = flat(by_device([each for rows in largest_first for each in _sources(rows)]))
    return [*(supplied or [Fed(row, row.key) for row in readings]), *fed]


def _supplied(results: Results, readings: Sequence[Row]) -> Iterator[Fed]:
    """Yield each training step with its slowest and its fastest reading from storage; ``readings`` are sorted by throughput."""
    stored = [row for row in readings if not row.declared.having("supply") or row.declared.stands_out("supply", row.params)]
    steps = [row for row in results.rows if row.has_throughput and row.is_single_rank and "training" in row.declared.tags]
    for step in steps:
        host, tags = machine(step, results.environments)[-1], set(step.declared.tags)
        usable = [row for row in stored if machine(row, results.environments)[-1] == host and not tags.isdisjoint(row.declared.tags)]
        # Readings of samples as large as the inputs of a network count for its steps alone, and before all others.
        own = [row for row in usable if row.setting(_NETWORK) == step.setting(_NETWORK)]
        found = own or [row for row in usable if row.setting(_NETWORK) is None]
        for row in found if len(found) < 2 else (found[0], found[-1]):
            ratio = throughput_ratio(step, row, among=len(found))
            yield Fed(step, step.key, short(row.key), ratio, row)


def _feeding(row: Row) -> str:
    """Return how a row gets its batch: ``loader workers=2``, with names in front of numbers only."""
    values = {name: row.params.get(name) for name in row.declared.having("feeding")}
    return " ".join(str(value) if isinstance(value, str) else f"{name}={value}" for name, value in values.items() if value)


def _sources(rows: Sequence[Row]) -> Iterator[Fed]:
    """Yield one step with each source of its batches, the fastest first."""
    fastest, *others = sorted(rows, key=lambda row: -row.throughput)
    pairs = math.comb(len(rows), 2)  # base and other are the best pair of all
    for row in (fastest, *others):
        ratio = throughput_ratio(fastest, row, among=pairs)
        yield Fed(row, label(row, row.declared.having("feeding")), _feeding(row), ratio)


_SOURCE = shown("feeding.way", "text", "batches", "how a step gets its batch, or how storage is read", attrgetter("source"))
INPUT = Section(
    records=inputs,
    title="Throughput by how a step gets its batch",
    columns=[
        CASE.headed("work"),
        place,
        _SOURCE,
        THROUGHPUT,
        RATIO,
        shown(
            "feeding.input_share",
            "fraction",
            "getting them",
            "of a call, waits for its batch included",
            lambda each: each.share("input"),
        ),
        detail("feeding.transfer_share", "fraction", "copying them", "of a call, timed alone", lambda each: each.share("transfer")),
        shown("feeding.supply_per_s", "items/s", "supply", "samples that storage or the user's loader gives alone"),
        shown("feeding.need_per_s", "items/s", "need", "samples that the step takes of batches that are there"),
        shown("feeding.waits", "fraction", "waits", "share of a call in which it waits for the user's loader"),
    ],
    notes=[
        "ratio: over the way of most items/s, which was chosen for that among the same measurements; of storage supply over need: "
        "below 1 the step waits however it is fed",
        "getting and copying them: over the time of a call; an accelerator may compute meanwhile, so what they cost there is in the "
        "ratio only",
    ],
    by=lambda each: "read" if not each.ratio else "fed" if not each.reading else "open" if each.ratio.is_undecided else "stored",
    headline={
        "fed": ("{items_per_s} at best, fed by {way}", "{items_per_s} at best"),
        "stored": "storage feeds {speedup}{span} the need",
        "open": "storage feeds {supply_per_s}, the step needs {need_per_s}",
        "read": "storage feeds {items_per_s} at worst",
    },
    tags={Tag.NOISY: lambda each: bool(each.reading and each.ratio and each.ratio.is_undecided)},
)
