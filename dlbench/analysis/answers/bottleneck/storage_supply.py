"""Storage: how fast it supplies samples, against what the training steps of its machine consume."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dlbench.analysis.answers.parts.base import Section
from dlbench.analysis.answers.parts.headline import Tag
from dlbench.analysis.answers.parts.pair_tables import of_ratios
from dlbench.analysis.presentation.columns import CASE, RATIO, THROUGHPUT, of_ratio, of_row, place
from dlbench.analysis.presentation.figures import Figure
from dlbench.analysis.presentation.names import device_label
from dlbench.analysis.presentation.wording import short
from dlbench.analysis.ratios.pairing import grouped
from dlbench.analysis.ratios.ratio import Ratio, speed_ratio
from dlbench.analysis.read.ceilings import machine
from dlbench.analysis.read.table import Results
from dlbench.core.rows.row import Row, cells
from dlbench.core.schema import Column, Unit

ORDER = 40
_NETWORK = "model"
"""Parameter of a reading, and of a step, that names a network."""


@dataclass(frozen=True, slots=True)
class Supplied:
    """A way to read samples from storage, and a training step that consumes such."""

    step: str
    """That, and where it ran."""
    consumer: Row
    """The training step."""
    row: Row
    """The reading."""
    ratio: Ratio
    """Samples supplied over samples consumed."""

    @property
    def case(self) -> str:
        """The training step."""
        return self.consumer.key

    @property
    def sides(self) -> tuple[Row, Row]:
        """The reading and the step."""
        return self.row, self.consumer

    @property
    def way(self) -> str:
        """How the samples are read."""
        return short(self.row.key)

    @property
    def consumed_per_s(self) -> float:
        """Samples that the step takes in a second."""
        return self.consumer.throughput


def readings(results: Results) -> list[Row]:
    """Return the cases that read samples, the slowest first."""
    found = [row for row in results.rows if row.has_throughput and "supply" in row.declared.tags]
    return sorted(found, key=lambda row: row.throughput)


def unneeded(results: Results) -> list[Row]:
    """Return them where no training step consumes such samples."""
    return [] if supplied(results) else readings(results)


def supplied(results: Results) -> list[Supplied]:
    """Return of each training step the slowest and the fastest way to read what it consumes, of the one first that consumes most."""

    def host(row: Row) -> object:
        return machine(row, results.environments)[-1]

    # What comes from memory is no supply.
    stored = (row for row in readings(results) if not row.declared.having("supply") or row.declared.stands_out("supply", row.params))
    supplies = grouped(stored, host)
    steps = [row for row in results.rows if row.has_throughput and "training" in row.declared.tags and row.is_single_rank]
    several = len(results.environments) > 1
    found = [each for step in steps for each in _beside(step, supplies.get(host(step), []), several)]
    return sorted(found, key=lambda each: -each.consumed_per_s)


def _beside(step: Row, supplies: Iterable[Row], several: bool) -> list[Supplied]:
    """Return the slowest and the fastest way to read what a step consumes, each with how much of that it supplies."""
    alike = [row for row in supplies if not set(step.declared.tags).isdisjoint(row.declared.tags)]
    # Samples as large as the inputs of a network are read for its steps alone, and say more of them than others.
    fit = [row for row in alike if row.setting(_NETWORK) == step.setting(_NETWORK)] if step.setting(_NETWORK) else []
    fit = fit or [row for row in alike if row.setting(_NETWORK) is None]
    named, base = f"{short(step.key)} on {device_label(step, several)}", step.rounds.items_per_s
    return [Supplied(named, step, row, speed_ratio(base, row.rounds.items_per_s, among=len(fit))) for row in (*fit[:1], *fit[1:][-1:])]


def _figures(found: Sequence[Supplied]) -> Iterator[Figure]:
    about = "Bars to the left of 1: the step waits for storage. The lines are 95 % intervals over rounds."
    title, times = "What storage feeds of each training step", "samples supplied over samples consumed"
    yield of_ratios(title, about, times, "bar", found, _STEP, _WAY)


_STEP = Column("supply.step", Unit.TEXT, "the training step, and where it ran", of=lambda each: each.step, heading="step", priority=0)
_WAY = Column("supply.way", Unit.TEXT, "how the samples are read", of=lambda each: each.way, heading="read by", priority=0)
SECTIONS = [
    Section(
        records=supplied,
        title="What storage supplies and what steps consume",
        columns=[
            _STEP,
            _WAY,
            Column("supply.consumed_per_s", Unit.ITEMS_PER_S, "samples that the step takes in a second", heading="consumes", priority=0),
            of_row(lambda row: row.rate.items_per_s, "supplies", 0),
            RATIO,
        ],
        notes=[
            "ratio: samples supplied over samples consumed; below 1 the step waits for storage however it is fed",
            "of each step the slowest and the fastest way to read from storage itself; decoding and augmenting are not in it",
        ],
        whole=of_ratio,
        foremost=lambda found: [each for each in found if each.step == found[0].step],
        by=lambda each: "open" if each.ratio.is_undecided else "",
        headline={
            "": "storage feeds {speedup}{span} the need",
            "open": "storage feeds {items_per_s}, the step needs {consumed_per_s}",
        },
        qualifier="{case}{where}, {way}",
        tags={Tag.NOISY: lambda each: each.ratio.is_undecided, Tag.FEW_ROUNDS: lambda each: each.ratio.interval is None},
        figures=[_figures],
    ),
    Section(
        records=unneeded,
        title="Samples read from storage",
        columns=[
            CASE.by(lambda row: row.key, "reading"),
            place,
            of_row(lambda row: row.rate.bytes_per_s, "bandwidth"),
            THROUGHPUT.headed("samples/s"),
        ],
        whole=lambda row: cells(row),
        headline={"": "storage feeds {items_per_s} at worst"},
    ),
]
