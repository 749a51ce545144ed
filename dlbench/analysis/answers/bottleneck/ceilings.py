"""Rates that each device reaches at most: its ceilings, with the rows below them, and its copies.

Rows and ceilings make the roofline of Williams and others (2009, https://doi.org/10.1145/1498765.1498785).
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple, get_args

from dlbench.analysis.answers.engine.lines import MOST_OFF, Line, fit
from dlbench.analysis.answers.engine.question import Section, Tag, detail, shown
from dlbench.analysis.presentation.columns import CASE, RATIO, THROUGHPUT, Figure, figure, of_row, over_rounds, place
from dlbench.analysis.presentation.names import by_device, by_workload, flat
from dlbench.analysis.presentation.wording import short
from dlbench.analysis.ratios.matching import grouped, label, settings_named
from dlbench.analysis.ratios.ratio import Ratio, ratio_to_itself, speed_ratio
from dlbench.analysis.read.ceilings import computed_in, from_caches, machine, reached_by
from dlbench.analysis.read.table import Results
from dlbench.core.declarations import Ceiling, ValueRole
from dlbench.core.rows.columns import CaseRounds, MeasuredCeiling
from dlbench.core.rows.row import Row
from dlbench.core.units import Column, byte_rate, flop_rate, three_digits

_FLOPS = of_row(lambda row: row.rate.flops_per_s, "FLOP/s", 0)
_BYTES = of_row(lambda row: row.rate.bytes_per_s, "bytes/s", 0)
_SLOPE_AND_TOP: tuple[Ceiling, Ceiling] = ("memory", "arithmetic")
"""Of a roof."""
_MOST_FIGURES = 4
_TRAINED_DOWN = 0.99
"""Of what device and slot can have: a link that carries less has another generation, or fewer lanes."""


class Fit(NamedTuple):
    """What each round says of copies that differ in their size alone."""

    latency_s: Sequence[float] = ()
    """What a copy takes however small it is; none where it does not show."""
    bytes_per_s: Sequence[float] = ()
    """Bytes over the time beyond the latency; none where the sizes follow no line."""


class Top(NamedTuple):
    """The most that a device does of one kind."""

    row: Row
    """That reached it; of copies the fastest size."""
    case: str
    ceiling: MeasuredCeiling | None = None
    """None of copies, which have more than one: of each way and kind of memory."""
    rows: Sequence[Row] = ()
    """All of its device; of copies all sizes."""
    fit: Fit = Fit()
    link_share: float | None = None
    """Its rate over the most that its link carries as it was while copying; None where that was not read, or is of another link."""

    @property
    def kind(self) -> Ceiling:
        """What it is the most of."""
        return self.ceiling.kind if self.ceiling else "copy"


def latency_and_bandwidth(sizes: Sequence[tuple[float, CaseRounds]]) -> Fit:
    """Fit copies that differ in their size alone: of each the bytes, and what its rounds gave.

    A copy takes latency + bytes / bandwidth (Hockney, The Communication Challenge for MPP, Parallel Computing 20(3), 1994). A line is
    fitted in each round, whose sizes one state of the machine has in common. Of a line that fits nothing neither is said
    (`lines.MOST_OFF`), nor a latency that is less than the line is off at the smallest size.
    """
    points = [(number, (size, seconds)) for size, each in sizes for number, seconds in zip(each.numbers, each.median_s, strict=False)]
    by_round = [[point for _, point in found] for found in grouped(points, lambda each: each[0]).values()]
    fitted = [(line, each) for each in by_round if (line := fit(each))]
    off = statistics.median(line.off(each) for line, each in fitted) if fitted else math.inf
    if off >= MOST_OFF:
        return Fit()
    fixed, slopes = [line.fixed for line, _ in fitted], [line.slope for line, _ in fitted]
    middle = Line(statistics.median(fixed), statistics.median(slopes))
    shows = middle.shows_fixed(min(size for size, _ in sizes if size > 0), off)
    return Fit(fixed if shows else (), [1 / slope for slope in slopes])


def tops(results: Results) -> list[Top]:
    """Return the best of each kind on each device, the fastest precision first, then the ways to copy; accelerators first."""
    rows = grouped((row for row in results.rows if row.is_sound), lambda row: machine(row, results.environments))
    kinds, found = get_args(Ceiling), list[Top]()
    for where, ceilings in results.ceilings.items():
        for each in sorted(ceilings.values(), key=lambda each: (kinds.index(each.kind), -each.per_s)):
            if ("memory", "") in ceilings:
                best = reached_by(each, rows[where])
                found.append(Top(best, best.key, each, rows[where]))
    return sorted((*found, *_copies(results)), key=lambda top: top.row.is_on_cpu)


def _copies(results: Results) -> Iterator[Top]:
    """Yield the ways to copy that were measured over sizes, of each device the one first that has most of its link, or else is fastest."""
    rows = (row for row in results.rows if row.declared.ceiling == "copy" and row.declared.having("sweep") and row.is_sound and _bytes(row))
    found = list[Top]()
    for alike in grouped(rows, lambda row: row.differing_from(settings_named(row.declared.having("sweep")))).values():
        fastest = max(alike, key=lambda row: row.rate.bytes_per_s or 0.0)
        link, by_size = fastest.bound(_BYTES), sorted(alike, key=_bytes)
        share = (fastest.rate.bytes_per_s or 0.0) / link if link else None
        fitted = latency_and_bandwidth([(_bytes(row), row.rounds) for row in by_size])
        found.append(Top(fastest, label(fastest, fastest.declared.having("sweep")), None, by_size, fitted, share))
    for on_device in by_device(found).values():
        if any((each.link_share or 0.0) > 1 for each in on_device):  # such a link is not that of these copies
            on_device = [each._replace(link_share=None) for each in on_device]
        yield from sorted(on_device, key=lambda each: (each.link_share or 0.0, each.row.rate.bytes_per_s or 0.0), reverse=True)


def _bytes(row: Row) -> float:
    """Return the bytes that a copy counts; zero where it does not say, or an edited file says what can't be."""
    counted = (row.rate.bytes_per_s or 0.0) * (row.time.median_s or 0.0)
    return counted if 0 < counted < math.inf else 0.0


def _foremost(found: Sequence[Top]) -> list[Top]:
    """Return the first of each kind on the first device."""
    alike = [top for top in found if top.row.case.device == found[0].row.case.device]
    return [tops[0] for tops in grouped(alike, lambda top: top.kind).values()]


def _trained_down(found: Sequence[Top]) -> Iterator[str]:
    """Yield the links that stay trained down. The median counts: copies both ways at once have twice the rate."""
    for where, copies in by_device([top for top in found if top.link_share]).items():
        now = statistics.median(each.row.bound(_BYTES) or 0.0 for each in copies)
        most = statistics.median(each.row.transfer.link_bytes_per_s or 0.0 for each in copies)
        if now < _TRAINED_DOWN * most:
            carried = f"{byte_rate(now)} of {byte_rate(most)}"
            yield f"the PCIe link of {where} stays trained down at {carried}: see how the card is seated, its slot and the firmware"


def _of(column: Column, *kinds: Ceiling) -> Column:
    """Return a column for these kinds."""
    return column.by(lambda top: column.value(top) if top.kind in kinds else None)


def _intensity(row: Row) -> float:
    """Return stated operations over stated bytes; zero where it does not state both."""
    return (row.rate.flops_per_s or 0.0) / (row.rate.bytes_per_s or math.inf)


def _roofs(found: Sequence[Top]) -> Iterator[Figure]:
    """Yield a roofline for each device and precision that has a roof and rows below it, those with the most rows first.

    Rows are of one rank and state both operations and bytes, of which caches have none.
    """
    memories = {id(top.rows): top.ceiling for top in found if top.ceiling and top.kind == "memory"}
    drawn = list[tuple[MeasuredCeiling, float, list[Top]]]()
    for top in found:
        if (roof := top.ceiling) and top.kind == "arithmetic" and (memory := memories.get(id(top.rows))):
            below = [row for row in top.rows if row.is_single_rank and computed_in(row) == roof.precision and not from_caches(row, memory)]
            drawn.append((roof, memory.per_s, [Top(row, row.key) for row in below if _intensity(row)]))
    for roof, bandwidth, alike in sorted(filter(itemgetter(2), drawn), key=lambda each: -len(each[2]))[:_MOST_FIGURES]:
        ridge = roof.per_s / bandwidth
        ends = [ridge / 4, ridge * 4, *(_intensity(each.row) for each in alike)]
        about = f"The line is the most that was measured: {byte_rate(bandwidth)}, and {flop_rate(roof.per_s)} from {three_digits(ridge)}."
        line = tuple({_INTENSITY.name: at, _FLOPS.name: min(at * bandwidth, roof.per_s)} for at in (min(ends), ridge, max(ends)))
        title, workload = f"Roofline in {roof.precision}: {place(found).value(alike[0])}", of_row(lambda row: row.case.workload, "workload")
        yield figure(title, about, "dot", alike, _INTENSITY, _FLOPS, workload, log="xy", bound=line)


def _sizes(found: Sequence[Top]) -> Iterator[Figure]:
    """Yield bandwidth against size, of each workload and device a figure, with a line a way."""
    about = "One line a way to copy; from where it is level on, bandwidth bounds a copy, and left of that latency."
    way = detail("copies.way", "text", "copy", "the copy, without its size", lambda each: short(each.case))
    ways = [Top(row, top.case) for top in found if top.kind == "copy" for row in top.rows]
    size = detail("copies.size", "bytes", "bytes", "bytes that a copy counts", lambda each: _bytes(each.row))
    for where, alike in by_workload(ways, by_place=True).items():
        yield figure(f"Bandwidth by size: {where}", about, "line", alike, size, _BYTES, way, log="xy")


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
        _of(_FLOPS, "arithmetic"),
        _of(_BYTES, "memory", "copy"),
        _of(of_row(lambda row: row.time.median_s, "time", 0), "launch", "synchronisation"),
        _of(of_row(lambda row: row.rate.peak_fraction, "peak", 0), *_SLOPE_AND_TOP),
        _of(of_row(lambda row: row.rate.peak, "of"), *_SLOPE_AND_TOP),
        over_rounds(
            detail("copies.latency_s", "s", "", "what a copy takes however small it is; null where it does not show"),
            lambda top: top.fit.latency_s,
        ).headed("latency", 0),
        over_rounds(
            detail("copies.bandwidth", "bytes/s", "", "bytes over the time beyond that; null where sizes follow no line"),
            lambda top: top.fit.bytes_per_s,
        ).headed("bandwidth", 0),
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
    figures=[_roofs, _sizes],
    cautions=_trained_down,
)


_NETWORK = "model"
"""Parameter of a reading, and of a step, that names a network."""


class Fed(NamedTuple):
    """A step that gets its batch in one way, or would from storage; where no step takes what was read, the reading alone."""

    row: Row
    case: str
    """The step, however it gets its batch."""
    way: str = ""
    ratio: Ratio | None = None
    """Over the way of most items a second; of storage, samples supplied over samples needed."""
    reading: Row | None = None
    """From storage."""

    @property
    def sides(self) -> Sequence[Row]:
        """What it rests on."""
        return (self.row, self.reading) if self.reading else (self.row,)

    @property
    def supply_per_s(self) -> float | None:
        """Samples that storage, or a loader of the user's, gives in a second where no step is made."""
        return self.reading.throughput if self.reading else self._alone("input_alone")

    @property
    def need_per_s(self) -> float | None:
        """Samples that the step takes in a second of batches that are there."""
        return self.row.throughput if self.reading else self._alone("step_alone")

    def _alone(self, role: ValueRole) -> float | None:
        seconds = self.row.in_role(role)
        return self.row.throughput * (self.row.time.median_s or 0.0) / seconds if seconds else None

    @property
    def waits(self) -> float | None:
        """Share of a call in which the step waits for a loader of the user's.

        On an accelerator the host may wait for a batch while the device still computes: what that costs is what the call takes longer.
        """
        share, need = self.share("input"), self._alone("step_alone")
        return None if share is None or not need else max(0.0, min(share, 1 - self.row.throughput / need))

    def share(self, part: ValueRole) -> float | None:
        """Return the share of a call that a part of it takes; None where that was not reported."""
        seconds, call = self.row.in_role(part), self.row.time.median_s
        return None if seconds is None or not call else seconds / call


def inputs(results: Results) -> list[Fed]:
    """Return what storage supplies of each training step, that of most need first, and each step by its ways, the best of these first."""
    readings = sorted((row for row in results.rows if row.has_throughput and "supply" in row.declared.tags), key=lambda row: row.throughput)
    stored = sorted(_supplied(results, readings), key=lambda each: -each.row.throughput)
    fit = [row for row in results.rows if row.declared.having("feeding") and row.has_throughput]
    alike = grouped(fit, lambda row: row.differing_from(settings_named(row.declared.having("feeding"))))
    steps = sorted(alike.values(), key=lambda rows: -(rows[0].batch or 0))
    fed = flat(by_device([each for rows in steps for each in _ways(rows)]))
    return [*(stored or [Fed(row, row.key) for row in readings]), *fed]


def _supplied(results: Results, readings: Sequence[Row]) -> Iterator[Fed]:
    """Yield of each training step the slowest and the fastest reading of what it takes. What comes from memory is no supply."""
    stored = [row for row in readings if not row.declared.having("supply") or row.declared.stands_out("supply", row.params)]
    for step in (row for row in results.rows if row.has_throughput and "training" in row.declared.tags and row.is_single_rank):
        host, tags = machine(step, results.environments)[-1], set(step.declared.tags)
        alike = [row for row in stored if machine(row, results.environments)[-1] == host and not tags.isdisjoint(row.declared.tags)]
        # Samples as large as the inputs of a network are read for its steps alone, and say more of them than others.
        fit = [row for row in alike if row.setting(_NETWORK) == step.setting(_NETWORK)]
        fit = fit or [row for row in alike if row.setting(_NETWORK) is None]
        for row in (*fit[:1], *fit[1:][-1:]):
            yield Fed(step, step.key, short(row.key), speed_ratio(step.rounds.items_per_s, row.rounds.items_per_s, among=len(fit)), row)


def _feeding(row: Row) -> str:
    """Return how a row gets its batch: ``loader workers=2``. A word needs no name."""
    values = {name: row.params.get(name) for name in row.declared.having("feeding")}
    return " ".join(str(value) if isinstance(value, str) else f"{name}={value}" for name, value in values.items() if value)


def _ways(rows: Sequence[Row]) -> Iterator[Fed]:
    """Yield the ways of a step, the best first."""
    best = max(rows, key=lambda row: row.throughput)
    base, pairs = best.rounds.items_per_s, math.comb(len(rows), 2)  # the best is chosen, and the worst
    for row in sorted(rows, key=lambda row: -row.throughput):
        ratio = ratio_to_itself(len(base)) if row is best else speed_ratio(base, row.rounds.items_per_s, among=pairs)
        yield Fed(row, label(row, row.declared.having("feeding")), _feeding(row), ratio)


_WAY = shown("feeding.way", "text", "batches", "how a step gets its batch, or how storage is read")
INPUT = Section(
    records=inputs,
    title="Throughput by how a step gets its batch",
    columns=[
        CASE.headed("work"),
        place,
        _WAY,
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
ORDER = 20
SECTIONS = [TOPS, INPUT]
