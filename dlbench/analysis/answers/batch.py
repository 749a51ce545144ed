"""Batch size: what a small one costs, and how large a one is needed and fits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dlbench.analysis.answers.parts import memory, small_batches
from dlbench.analysis.answers.parts.base import Answer, AnswerPart, Missing, Question, answered, of_devices, together
from dlbench.analysis.answers.parts.headline import Headline, Tag, by_kind, foremost, limits, names_of, nearer, of_the_middle, qualifiers
from dlbench.analysis.presentation.fields import CASE, RATIO, THROUGHPUT, Field, Fields, of_row, own, place
from dlbench.analysis.presentation.figures import Figure, figure
from dlbench.analysis.presentation.names import by_workload, device_label, several_runs
from dlbench.analysis.presentation.pair_columns import of_ratio
from dlbench.analysis.presentation.wording import short
from dlbench.analysis.ratios.pairing import BATCH, DEVICE, RUN, grouped, label
from dlbench.analysis.ratios.ratio import Ratio, itself, middle, speed_ratio
from dlbench.analysis.read.places import Environments
from dlbench.analysis.read.table import Results
from dlbench.core.model import Status
from dlbench.core.rows.row import MACHINE, Row
from dlbench.core.schema import Column, Unit
from dlbench.core.units import byte_count, item_rate, percent

ORDER = 40
QUESTION = Question("batch", "Which batch size; what is the largest that fits; what does a small batch cost?")
ENOUGH = 0.9
"""Share of the best throughput from which on a larger batch is not worth its memory and its latency."""


@dataclass(frozen=True, slots=True)
class BatchSweep:
    """Work at several batches."""

    rows: Sequence[Row]
    """What went well, the smallest batch first."""
    row: Row
    """Of the smallest batch near the best throughput."""
    ratio: Ratio
    """Its throughput over that of the smallest batch."""
    share: float
    """Its throughput over that of the best."""
    too_large: int | None
    """The smallest batch that ran out of memory."""

    @property
    def is_open(self) -> bool:
        """Whether the largest batch is the one that is enough, so that a larger one may give more."""
        return self.row is self.rows[-1] and not self.too_large

    @property
    def case(self) -> str:
        """The work, whatever its batch."""
        return label(self.rows[0], (BATCH.name,))


_RESULTS: Fields[BatchSweep] = (
    ("work", CASE),
    own("batch", "batch.enough", Unit.COUNT, f"the smallest batch with {ENOUGH:.0%} of the best throughput", lambda sweep: sweep.row.batch),
    ("items/s", THROUGHPUT[0]),
    own("of the best", "batch.share", Unit.FRACTION, "its throughput over that of the best batch"),
    own(
        "smallest",
        "batch.smallest",
        Unit.COUNT,
        "the smallest batch measured, whose throughput the ratio is over",
        lambda sweep: sweep.rows[0].batch,
    ),
    *RATIO,
    own("fits", "batch.fits", Unit.COUNT, "the largest batch that went well", lambda sweep: sweep.rows[-1].batch),
    own("too large", "batch.too_large", Unit.COUNT, "the smallest batch that ran out of memory"),
)
_BATCH: Field[Row] = Field(Column(str(BATCH), Unit.COUNT, "items of one call"), lambda row: row.batch)
_LINE = Column("batch.sweep", Unit.TEXT, "the parameters that stay the same while the batch grows")
_QUANTITIES: Mapping[str, tuple[Field[Row], ...]] = {
    "throughput": THROUGHPUT,
    "latency": (of_row(lambda row: row.time.median_s), of_row(lambda row: row.time.ci_low_s), of_row(lambda row: row.time.ci_high_s)),
    "memory": (
        Field(Column("batch.memory_bytes", Unit.BYTES, "peak on the accelerator, or on a CPU of the process", "lower"), memory.peak_bytes),
    ),
}
"""Of each its field, and those of the ends of its interval."""
_OF_TRIES = " Tries of a search stand on one round each, without an interval."
_INTERVALS = " The vertical lines are 95 % intervals over rounds."
_FREE = {BATCH, *MACHINE} - {DEVICE, RUN}
"""In which the rows of a sweep may differ: of what ran out of memory nobody knows more of the machine."""


def answer(results: Results) -> Answer | Missing:
    """Return the batch that is enough in the middle case of each kind of work on each device, and what it has over the smallest."""
    groups = grouped((row for row in results.rows if row.batch and row.is_single_rank), lambda row: row.differing_from(_FREE))
    sweeps = [sweep for group in groups.values() if (sweep := _sweep(group))]
    swept, searches = [row for sweep in sweeps for row in sweep.rows], memory.searches(results)
    tried = [row for search in searches for row in search.fits if row.has_throughput]
    figures = _figures(swept, tried, results.environments)
    enough = of_devices("Throughput by batch size", _RESULTS, sweeps, _paragraph, whole=of_ratio, rows=swept, headline=_headline)
    memories, learned = memory.findings(searches, (sweep.rows for sweep in sweeps)), small_batches.findings(results)
    found = together((enough, AnswerPart(figures=figures), memories, learned))
    if not found.tables:
        return Missing(QUESTION, "no work was measured at several batch sizes", "dlbench run batch", others=("dlbench run cnn",))
    # One of each where there are both, as there is room for two.
    most = 1 if memories.paragraphs and learned.paragraphs else None
    others = [*memories.paragraphs[:most], *learned.paragraphs[:most]]
    return answered(QUESTION, replace(found, paragraphs=enough.paragraphs or others), others if sweeps else ())


def _sweep(group: Sequence[Row]) -> BatchSweep | None:
    """Return work that differs in its batch alone; None where fewer than two went well and have a throughput."""
    timed = {batch: row for row in group if (batch := row.batch) and row.has_throughput}
    if len(timed) < 2:
        return None
    rows = [timed[batch] for batch in sorted(timed)]
    smallest, most = rows[0].rounds.items_per_s, max(row.throughput for row in rows)
    enough = next(row for row in rows if row.throughput >= ENOUGH * most)
    ratio = itself(len(smallest)) if enough is rows[0] else speed_ratio(smallest, enough.rounds.items_per_s, among=len(rows) - 1)
    too_large = min((batch for row in group if (batch := row.batch) and row.case.status is Status.OOM), default=None)
    return BatchSweep(rows, enough, ratio, enough.throughput / most, too_large)


def _figures(swept: Sequence[Row], tried: Sequence[Row], environments: Environments) -> list[Figure]:
    """Return throughput, latency and memory against the batch, of each workload a figure each, with a line a sweep or search and device."""

    def line(row: Row) -> str:
        named = short(label(row, (BATCH.name,))).partition(" ")[2] or row.case.workload
        return f"{named}, tries" if row in of_tries else named

    of_tries, work = frozenset(tried), ("work", Field(_LINE, line))
    figures = list[Figure]()
    several = several_runs([*swept, *tried])
    for where, found in by_workload([*swept, *tried]).items():
        devices = place([*swept, *tried])
        for title, (quantity, *ends) in _QUANTITIES.items():
            shown = [row for row in found if quantity.of(row) is not None]
            about = f"One line a network or shape; further right is a larger batch.{_INTERVALS if ends else ''}"
            about += _OF_TRIES if not of_tries.isdisjoint(shown) else ""
            named, axes = f"{title.capitalize()} by batch size: {where}", (("batch", _BATCH), (title, quantity), work, devices)
            most = _memory_limits(found, environments, several) if title == "memory" else ()
            figures.append(figure(named, about, "line", shown, *axes, log="xy", interval=ends, limits=most))
    return figures


def _memory_limits(rows: Sequence[Row], environments: Environments, several: bool) -> tuple[tuple[str, float], ...]:
    """Return the memory of each device that rows ran on, with the words for it; of one that is not known none."""
    sizes = {f"memory of {device_label(row, several)}": memory.of_device(row, environments) for row in rows}
    return tuple((f"{name}: {byte_count(size)}", size) for name, size in sizes.items() if size)


def _headline(devices: Mapping[str, list[BatchSweep]]) -> Headline:
    """Return the batch that is enough in the middle case of the first kind of work, or that a larger one may give more."""
    sweeps, where = foremost(devices)
    sweep = middle(sweeps)
    smallest, enough, names = sweep.rows[0], sweep.row, names_of(sweep.case)
    share, batch, least = percent(sweep.share), f"{enough.batch:,}", f"batch {smallest.batch:,}"
    tags = limits(sweep.ratio) if enough is not smallest else {}
    if tags.get(Tag.NOISY):
        text, about = f"no gain shown from {least} to {batch}", qualifiers(names, where)
    elif sweep.is_open:
        text, about = f"{batch} is the largest measured; more may help", qualifiers(names, where, f": {sweep.ratio.brief} {least}")
    else:
        fastest = f"also the fastest of {smallest.batch:,}…{sweep.rows[-1].batch:,}"
        about = [fastest + where, fastest + nearer(where)]
        if sweep.share < 1:
            about = qualifiers((f"{share} of the best", share), where, " throughput")
        text = f"{batch} is enough for {names[0]}"
    return Headline([text], about, rows=sweep.rows, tags=tags)


def _paragraph(where: str, sweeps: Sequence[BatchSweep]) -> tuple[str, ...]:
    """Say which batch is enough in the middle case of each kind of work, the first kind with what it has over the smallest."""
    kinds = by_kind(sweeps).values()
    (first, *_), (sweep, *others) = kinds, map(middle, kinds)
    smallest, enough, largest = sweep.rows[0], sweep.row, sweep.rows[-1]
    over = f"{sweep.ratio} the throughput of batch={smallest.batch}" if enough is not smallest else "the smallest measured"
    shown = sweep.ratio.is_ahead or sweep.ratio.interval is None or enough is smallest
    end = f"batch={sweep.too_large} runs out of memory" if sweep.too_large else f"All up to batch={largest.batch} fit"
    return (
        f"On {where} {_enough(sweep)}.",
        f"It reaches {item_rate(enough.throughput)}, {over}.",
        *(() if shown else ("Its interval shows no gain.",)),
        *of_the_middle(first),
        "A larger one may give more." if sweep.is_open else f"{end}.",
        *(f"{_enough(each)}, at {item_rate(each.row.throughput)}." for each in others),
    )


def _enough(sweep: BatchSweep) -> str:
    return f"batch={sweep.row.batch} is {'the largest measured' if sweep.is_open else 'enough'} for {short(sweep.case)}"
