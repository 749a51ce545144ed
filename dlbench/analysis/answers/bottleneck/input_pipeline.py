"""Feeding: what a step keeps of its best throughput by each way to get its batch, and what part of it that takes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dlbench.analysis.answers.parts.base import AnswerPart, of_devices
from dlbench.analysis.answers.parts.headline import Headline
from dlbench.analysis.answers.parts.step_bottleneck import Alone, alone
from dlbench.analysis.presentation.fields import CASE, RATIO, THROUGHPUT, Fields, Headed, own, value_field, whole_row
from dlbench.analysis.presentation.figures import Figure, figure
from dlbench.analysis.presentation.names import by_device, by_workload_and_device
from dlbench.analysis.presentation.wording import INTERVAL, brief, short
from dlbench.analysis.ratios.pairing import grouped, label, settings_named
from dlbench.analysis.ratios.ratio import Ratio, speed_ratio
from dlbench.analysis.read.table import Results
from dlbench.core.declarations import Part
from dlbench.core.rows.row import Row
from dlbench.core.schema import Unit
from dlbench.core.units import item_rate, percent, three_digits

ORDER = 50
HIDDEN = 0.1
"""Share of a call below which a loader keeps up: a batch that is ready takes a moment to be handed over, too."""
SLOWED = 1.1
"""Times a step's own time from which on it is worth a word that something beside it slows it down."""


@dataclass(frozen=True, slots=True)
class Fed:
    """A step that gets its batch in one way."""

    row: Row
    way: str
    ratio: Ratio
    """Over the way of most items a second."""
    others: Sequence["Fed"] = ()
    """Of a step's best way the others, the best first."""
    of_largest: Ratio | None = None
    """Of the smallest batch at its best: over the same step with the largest at its best."""

    @property
    def case(self) -> str:
        """The step, however it gets its batch."""
        return label(self.row, self.row.declared.having("feeding"))

    def share(self, part: Part) -> float | None:
        """Return the share of a call that a part of it takes; None where that was not reported."""
        seconds, call = self.row.in_role(part), self.row.time.median_s
        return None if seconds is None or not call else seconds / call

    @property
    def alone(self) -> Alone | None:
        """What a loader of the user's that feeds it, and the step itself, come to alone."""
        return alone(self.row)


_RATE, *_ENDS = THROUGHPUT
_WAY: Headed[Fed] = own("batches", "feeding.way", Unit.TEXT, "how a step gets its batch")
_RESULTS: Fields[Fed] = (
    ("work", CASE),
    _WAY,
    ("items/s", _RATE),
    *RATIO,
    own(
        "getting them",
        "feeding.input_share",
        Unit.FRACTION,
        "part of a call in which the host gets its batch together or waits for it",
        lambda fed: fed.share("input"),
    ),
    own(
        "copying them",
        "feeding.transfer_share",
        Unit.FRACTION,
        "the copy of a batch, timed alone, over a call",
        lambda fed: fed.share("transfer"),
    ),
    own(
        "of the largest batch",
        "feeding.of_largest",
        Unit.RATIO,
        "throughput of this batch over that of the largest, each at its best",
        lambda fed: fed.of_largest and fed.of_largest.speedup,
    ),
    own(
        INTERVAL, "feeding.of_largest_low", Unit.RATIO, "lower end of its 95 % interval", lambda fed: fed.of_largest and fed.of_largest.low
    ),
    own(INTERVAL, "feeding.of_largest_high", Unit.RATIO, "upper end of it", lambda fed: fed.of_largest and fed.of_largest.high),
)
_ALONE: Fields[Fed] = (
    own(
        "loader alone",
        "feeding.supply_per_s",
        Unit.ITEMS_PER_S,
        "samples that the user's loader gives in a second where no step is made",
        lambda fed: fed.alone and fed.alone.supply_per_s,
    ),
    own(
        "step alone",
        "feeding.need_per_s",
        Unit.ITEMS_PER_S,
        "samples that the step takes in a second of a batch that is there",
        lambda fed: fed.alone and fed.alone.need_per_s,
    ),
)
_NOTES = (
    "ratio: over the way of most items/s, which was chosen for that among the same measurements",
    "getting and copying them: over the time of a call; an accelerator may compute meanwhile, so what they cost there is in the ratio only",
)


def findings(results: Results) -> AnswerPart:
    """Return throughput by the way that steps get their batches, each against the best, and what part of a step that takes."""
    steps = _steps(results)
    every = [fed for step in steps for fed in (step, *step.others)]
    by_place = [fed for found in by_device(steps).values() for step in _beside_largest(found) for fed in (step, *step.others)]
    # What the workloads report that is no part of a call.
    values = (each for fed in every for each in fed.row.declared.values if each.role is None and not each.series)
    reported = {each.name: (each.name, value_field(each.column)) for each in values}
    measured_alone = _ALONE if any(fed.alone for fed in every) else ()
    fields: Fields[Fed] = (*_RESULTS, *measured_alone, *reported.values())
    title, rows = "Throughput by how a step gets its batch", [fed.row for fed in every]
    return of_devices(title, fields, by_place, _sentences, _NOTES, whole=whole_row, rows=rows, figures=_figures(every), headline=_headline)


def _steps(results: Results) -> list[Fed]:
    """Return the best way of each step that declares which settings only say how it gets its batch, the largest batch first."""
    fit = [row for row in results.rows if row.declared.having("feeding") and row.has_throughput]
    alike = grouped(fit, lambda row: row.differing_from(settings_named(row.declared.having("feeding"))))
    return [_step(rows) for rows in sorted(alike.values(), key=lambda rows: -(rows[0].batch or 0))]


def _step(rows: Sequence[Row]) -> Fed:
    """Return the best way of a step, with the others."""
    best, *others = sorted(rows, key=lambda row: -row.throughput)
    base, pairs = best.rounds.items_per_s, math.comb(len(rows), 2)  # the best is chosen, and the worst
    slower = [Fed(row, _way(row, rows), speed_ratio(base, row.rounds.items_per_s, among=pairs)) for row in others]
    return Fed(best, _way(best, rows), Ratio(1.0, None, (len(base), len(base))), slower)


def _way(row: Row, rows: Sequence[Row]) -> str:
    """Return how a row gets its batch: ``loader workers=2``. A word needs no name, and a number is left out that tells nothing apart."""
    words = _words(row)
    alike = [each.params for each in rows if _words(each) == words]
    values = {name: row.params.get(name) for name in row.declared.having("feeding")}
    varied = {name: value for name, value in values.items() if any(each.get(name) != value for each in alike)}
    return " ".join([*words, *(f"{name}={value}" for name, value in varied.items() if not isinstance(value, str))]) or "the only way"


def _words(row: Row) -> list[str]:
    return [value for name in row.declared.having("feeding") if isinstance(value := row.params.get(name), str)]


def _beside_largest(steps: list[Fed]) -> list[Fed]:
    """Return the steps of a device, that of the smallest batch with its throughput over that of the same step with the largest."""
    largest = steps[0]
    smallest = [step for step in steps if _but_batch(step.row) == _but_batch(largest.row)][-1]
    if smallest is largest or not smallest.row.batch:
        return steps
    ways = (1 + len(largest.others)) * (1 + len(smallest.others))  # both are the best of their step's ways
    ratio = speed_ratio(largest.row.rounds.items_per_s, smallest.row.rounds.items_per_s, among=ways)
    return [replace(step, of_largest=ratio) if step is smallest else step for step in steps]


def _but_batch(row: Row) -> str:
    return label(row, (*row.declared.having("feeding"), "batch"))


def _headline(devices: Mapping[str, Sequence[Fed]]) -> Headline:
    """Return by which way the largest batch of the first device is fed best."""
    where, (best, *_) = next(iter(devices.items()))
    rate, name = f"{item_rate(best.row.throughput)} at best", " on ".join([brief(best.case), where][: len(devices)])
    return Headline([f"{rate}, fed by {best.way}", rate], [name], rows=[best])


def _sentences(where: str, found: Sequence[Fed]) -> tuple[str, ...]:
    """Say of the step with the largest batch by which way it is fed best and worst, and what the smallest batch gives."""
    best = found[0]
    told = [f"On {where} {short(best.case)} is fed best by {best.way}: {item_rate(best.row.throughput)}.", *_getting(best)]
    if best.others:
        worst = best.others[-1]
        told.append(f"By {worst.way} it is {worst.ratio} as fast{'' if worst.ratio.is_behind else ', and no way is shown to be worse'}.")
        told += _getting(worst)
    smallest = [(fed, fed.of_largest) for fed in found if fed.of_largest]
    told += [f"At its best batch={fed.row.batch} has {ratio} the throughput of this step at its best." for fed, ratio in smallest]
    return tuple(told)


def _getting(fed: Fed) -> list[str]:
    """Say what getting its batch takes, and of a loader of the user's whether the step waits for it."""
    share, own = fed.share("input"), fed.alone
    if share is None:
        return []
    if own is None:
        return [f"Getting its batch takes {percent(share)} of a call."]
    # On an accelerator the host may wait for a batch while the device still computes: what that costs is what the call takes longer.
    waits = max(0.0, min(share, 1 - fed.row.throughput / own.need_per_s))
    if waits < HIDDEN:
        said = f"The loader keeps up: for {own.loader} the step waits {percent(waits)} of a call."
    else:
        said = f"For {own.loader} the step waits {percent(waits)} of a call."
    told = [said, own.rates]
    if (times := (1 - waits) * own.need_per_s / fed.row.throughput) >= SLOWED:
        told.append(f"The rest of a call takes {three_digits(times)} times as long as the step alone: copies, or workers in its way.")
    return told


def _figures(every: Sequence[Fed]) -> list[Figure]:
    """Return throughput by the way of batches, of each workload and device a figure."""
    found = list[Figure]()
    for where, ways in by_workload_and_device(every).items():
        one = len({fed.case for fed in ways}) == 1
        found.append(
            figure(
                f"Throughput by how a step gets its batch: {where}",
                "Further right is better; the lines are 95 % intervals over rounds.",
                "bar" if one else "dot",
                ways,
                ("throughput", _RATE),
                _WAY,
                *([] if one else [("work", CASE)]),
                interval=_ENDS,
                spread=lambda fed: fed.row.throughput,
            )
        )
    return found
