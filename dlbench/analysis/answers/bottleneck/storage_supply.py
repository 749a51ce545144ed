"""Storage: how fast it supplies samples, against what the training steps of its machine consume."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dlbench.analysis.answers.parts.base import AnswerPart, table
from dlbench.analysis.answers.parts.headline import Headline, Tag
from dlbench.analysis.answers.parts.pair_tables import of_ratios
from dlbench.analysis.presentation.fields import RATIO, THROUGHPUT, WORK_OF_ROW, Fields, Headed, of_row, own, place, whole_row
from dlbench.analysis.presentation.names import device_label
from dlbench.analysis.presentation.pair_columns import of_ratio
from dlbench.analysis.presentation.wording import INTERVAL, brief, short
from dlbench.analysis.ratios.pairing import grouped
from dlbench.analysis.ratios.ratio import Ratio, speed_ratio
from dlbench.analysis.read.ceilings import machine
from dlbench.analysis.read.table import Results
from dlbench.core.rows.row import Row
from dlbench.core.schema import Unit
from dlbench.core.units import item_rate

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
    def consumed_per_s(self) -> float:
        """Samples that the step takes in a second."""
        return self.consumer.throughput


_STEP: Headed[Supplied] = own("step", "supply.step", Unit.TEXT, "the training step, and where it ran")
_WAY: Headed[Supplied] = own("read by", "supply.way", Unit.TEXT, "how the samples are read", lambda each: short(each.row.key))
_BESIDE: Fields[Supplied] = (
    _STEP,
    own("consumes", "supply.consumed_per_s", Unit.ITEMS_PER_S, "samples that the step takes in a second"),
    _WAY,
    ("supplies", THROUGHPUT[0]),
    *RATIO,
)
_NOTES = (
    "ratio: samples supplied over samples consumed; below 1 the step waits for storage however it is fed",
    "of each step the slowest and the fastest way to read from storage itself; decoding and augmenting are not in it",
)


def findings(results: Results) -> AnswerPart:
    """Return how fast storage supplies samples, and how much of what each training step on its machine consumes that is."""
    sound = [row for row in results.rows if row.has_throughput]
    read = [row for row in sound if "supply" in row.declared.tags]
    if not read:
        return AnswerPart()

    def host(row: Row) -> object:
        return machine(row, results.environments)[-1]

    # What comes from memory is no supply.
    stored = (row for row in read if not row.declared.having("supply") or row.declared.stands_out("supply", row.params))
    supplies = grouped(stored, host)
    steps = [row for row in sound if "training" in row.declared.tags and row.is_single_rank]
    several = len(results.environments) > 1
    found = [each for step in steps for each in _beside(step, supplies.get(host(step), []), several)]
    samples = zip(("samples/s", INTERVAL, INTERVAL), THROUGHPUT, strict=True)
    fields = ("reading", WORK_OF_ROW), place(read), ("bandwidth", of_row(lambda row: row.rate.bytes_per_s)), *samples
    of_reading = table("Samples read from storage", fields, read, whole=whole_row)
    if not found:
        slowest, fastest = (choose(read, key=lambda row: row.throughput) for choose in (min, max))
        rates = {row: item_rate(row.throughput) for row in (slowest, fastest)}
        read_at = " to ".join(dict.fromkeys(f"{rate} ({short(row.key)})" for row, rate in rates.items()))
        alone = f"Samples are read at {read_at}.", "No training step that consumes such samples was measured."
        headline = Headline([f"storage feeds {' to '.join(dict.fromkeys(rates.values()))}"], [brief(slowest.key)], rows=list(rates))
        return AnswerPart([alone], read, [of_reading], headline=headline)
    of_steps = table("What storage supplies and what steps consume", _BESIDE, found, _NOTES, whole=of_ratio)
    about = "Bars to the left of 1: the step waits for storage. The lines are 95 % intervals over rounds."
    title, times = "What storage feeds of each training step", "samples supplied over samples consumed"
    drawn = of_ratios(title, about, times, "bar", found, _STEP, _WAY)
    return AnswerPart([_sentences(found)], [*read, *steps], [of_steps, of_reading], [drawn], headline=_headline(found))


def _beside(step: Row, supplies: Iterable[Row], several: bool) -> list[Supplied]:
    """Return the slowest and the fastest way to read what a step consumes, each with how much of that it supplies."""
    alike = [row for row in supplies if not set(step.declared.tags).isdisjoint(row.declared.tags)]
    # Samples as large as the inputs of a network are read for its steps alone, and say more of them than others.
    fit = [row for row in alike if row.setting(_NETWORK) == step.setting(_NETWORK)] if step.setting(_NETWORK) else []
    fit = fit or [row for row in alike if row.setting(_NETWORK) is None]
    ordered = sorted(fit, key=lambda row: row.throughput)
    named, base = f"{short(step.key)} on {device_label(step, several)}", step.rounds.items_per_s
    return [
        Supplied(named, step, row, speed_ratio(base, row.rounds.items_per_s, among=len(fit))) for row in (*ordered[:1], *ordered[1:][-1:])
    ]


def _most_needed(found: Sequence[Supplied]) -> list[Supplied]:
    """Return the slowest and the fastest way to read what the step consumes that consumes most."""
    return max(grouped(found, lambda each: each.step).values(), key=lambda of_step: of_step[0].consumed_per_s)


def _headline(found: Sequence[Supplied]) -> Headline:
    """Return how much of what that step consumes is supplied at worst."""
    slowest, *_ = _most_needed(found)
    ratio, step = slowest.ratio, brief(slowest.consumer.key)
    texts = [f"storage feeds {ratio.brief}{span} the need" for span in (ratio.span, "")]
    if ratio.is_undecided:
        texts = [f"storage feeds {item_rate(slowest.row.throughput)}, the step needs {item_rate(slowest.consumed_per_s)}"]
    qualifiers = f"{step}, {brief(slowest.row.key)}", step
    return Headline(texts, qualifiers, ratio.span, [slowest.row, slowest.consumer], {Tag.NOISY: ratio.is_undecided})


def _sentences(found: Sequence[Supplied]) -> tuple[str, ...]:
    """Say of the step that consumes most how much of that storage supplies."""
    slowest, *fastest = _most_needed(found)
    needs = f"{slowest.step} consumes {item_rate(slowest.consumed_per_s)}."
    return (needs, _fed(slowest, "at worst" if fastest else ""), *(_fed(each, "at best") for each in fastest))


def _fed(found: Supplied, how: str) -> str:
    text = f"Storage feeds {found.ratio} of that{f' {how}' if how else ''}"
    return f"{text}, read by {short(found.row.key)} ({item_rate(found.row.throughput)})."
