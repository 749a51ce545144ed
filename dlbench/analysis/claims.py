"""Claims of others as records: what is stated, what rows measured, and how the two compare; see `core.reference.claims`."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from statistics import median
from typing import NamedTuple

from dlbench.analysis.answers.engine.costs import devices_of, estimates
from dlbench.analysis.answers.engine.pairs import best
from dlbench.analysis.answers.engine.question import Table, table
from dlbench.analysis.answers.precision import trainings
from dlbench.analysis.presentation import wording
from dlbench.analysis.presentation.names import device_label, several_runs
from dlbench.analysis.ratios.matching import DEVICE, Match, grouped, match_rows, one_device
from dlbench.analysis.read.runs import merged
from dlbench.analysis.read.table import Results
from dlbench.core.errors import UsageError
from dlbench.core.measurement import OperationKind
from dlbench.core.reference.claims import Claim, ClaimTest, claims
from dlbench.core.rows.row import Cells, Row, cell
from dlbench.core.stats import median_interval
from dlbench.core.units import Column, Unit, percent

_SPEEDS: Mapping[str, Callable[..., Sequence[float]]] = {
    "time": lambda row, prices: [1 / each for each in row.rounds.median_s if each > 0] or row.paid_rates,  # at one batch they differ alike
    "throughput": lambda row, prices: row.rounds.items_per_s,
    "items_per_joule": lambda row, prices: [1 / each for each in row.rounds.joules_per_item if each > 0],
    "items_per_price": lambda row, prices: [rate / (prices.to_buy(devices_of(row)) or math.inf) for rate in row.paid_rates],
}
"""What each round of a side has of a measure that two sides are compared by; zeros where that is not known."""
_NOTE = (
    "verdict: whether the interval lies below the number stated, above it, or within it; the hardware of a claim is another. Each claim, "
    "who said it, and the command that measures what tests it:"
)


class Evidence(NamedTuple):
    """A row that tests a claim, or two sides that do."""

    sides: Sequence[Row]
    case: str
    value: float
    """How many times as much the last side has, or seconds, bytes, or a share."""
    low: float | None = None
    """Lower end of its 95 % interval; None of too few rounds, and of memory."""
    high: float | None = None


class Tested(NamedTuple):
    """A claim, and what one device says to it, or why none does."""

    claim: Claim
    verdict: str
    found: Evidence | None = None
    """The one that counts: the median, of an even number the lower; of trainings the worst."""
    among: int | None = None
    """Of how many."""
    device: str | None = None

    @property
    def measured(self) -> str | None:
        """The number with its interval: ``13.1 × (12.8…13.4 ×)``; None where nothing was measured."""
        if self.found is None:
            return None
        is_share, (low, high) = self.claim.unit == "share", self.found[3:]
        text = percent if is_share else partial(wording.amount, unit=self.claim.measured_in)
        return text(self.found.value) + ("" if low is None or high is None else f" ({wording.span(low, high, text)})")


_COLUMNS = (
    Column("claim.id", Unit.TEXT, "what the claim is called", heading="claim", of=lambda each: each.claim.id),
    Column("claim.stated", Unit.TEXT, "the number that others state", heading="stated", of=lambda each: each.claim.stated),
    Column("claim.measured", Unit.TEXT, "the number here, with its 95 % interval", heading="measured"),
    Column("claim.case", Unit.TEXT, "its case: of several the median", heading="case", of=lambda each: each.found and each.found.case),
    Column("claim.among", Unit.COUNT, "how many were measured", heading="among"),
    Column("claim.device", Unit.TEXT, "where it was measured", heading="device"),
    Column("claim.verdict", Unit.TEXT, "how that compares with the number stated, or why nothing does", heading="verdict"),
)


def claims_table(results: Results) -> Table:
    """Return the table of all claims: a row for each device that tests one, accelerators first, or one that says what is lacking.

    Files of one machine count as one.
    """
    results = merged(results)
    found = [record for claim in claims() for record in _tested(claim, results)]
    said = (f"{each.id}: {each.says} ({each.who}, {each.when}){f'; {each.test.command}' if each.test else ''}" for each in claims())
    return table("Claims of others, and what was measured here", _COLUMNS, found, (_NOTE, *said), whole=_data)


def _tested(claim: Claim, results: Results) -> Iterator[Tested]:
    if (test := claim.test) is None:
        yield Tested(claim, "untested")
        return
    several, results = several_runs(results.rows), results.where(lambda row: test.is_of(_settings(row).get))
    ordered = sorted(_evidence(test, results), key=lambda each: (each.sides[-1].is_on_cpu, each.value))
    groups = grouped(ordered, lambda each: (*map(one_device, each.sides), _settings(each.sides[-1]).get(test.split or "")))
    for alike in groups.values():
        found = alike[0 if test.measure == "accuracy_gap" else (len(alike) - 1) // 2]
        if largest := test.largest:
            found = max(alike, key=lambda each: each.sides[-1].count(largest) or 0)
        yield Tested(claim, _verdict(claim, found), found, len(alike), device_label(found.sides[-1], several))
    if not groups:
        places = {row.is_on_cpu for row in results.rows if row.is_sound}
        lacking = "one side alone" if places and test.by else "not measured"
        yield Tested(claim, "needs prices: --price cpu=1200, …" if len(places) > 1 and test.measure == "items_per_price" else lacking)


def _settings(row: Row) -> dict[str, object]:
    return {each.name: value for each, value in row.settings().items()}


def _evidence(test: ClaimTest, results: Results) -> Iterator[Evidence]:
    """Yield all that rows say to a claim."""
    if test.measure == "training":
        published = (each for each in estimates(results) if each.schedule.source)
        yield from (Evidence([each.row], wording.short(each.row.key), each.seconds, *each.ends) for each in published)
    elif test.measure == "pass":
        for row in results.rows:
            if row.has_throughput:
                rates = median_interval(row.rounds.items_per_s)
                ends = (test.items / rates.high, test.items / rates.low) if rates else (None, None)
                yield Evidence([row], wording.short(row.key), test.items / row.throughput, *ends)
    elif test.measure == "memory":
        yield from (Evidence([row], wording.short(row.key), peak) for row in results.rows if row.is_sound and (peak := row.peak_bytes))
    elif test.measure == "products":
        for row in results.rows:
            seconds = {each.kind: each.seconds for each in row.profile.kinds} if row.profile else {}
            if products := seconds.get(OperationKind.PRODUCTS):
                yield Evidence([row], wording.short(row.key), products / sum(seconds.values()))
    elif test.measure == "accuracy_gap":
        for each in trainings(results.rows):
            if each.base and each.gap:
                ends = (each.gap.interval or (None, None))[:2]
                yield Evidence([each.base, each.row], f"{wording.short(each.case)}: {each.name}", each.gap.shift, *ends)
    else:
        for pair in _pairs(test, results):
            sides = "" if pair.by in (None, DEVICE) else f": {pair.value(pair.other)} over {pair.value(pair.base)}"
            yield Evidence(pair.sides, f"{wording.short(pair.case)}{sides}", pair.ratio.speedup, pair.ratio.low, pair.ratio.high)


def _pairs(test: ClaimTest, results: Results) -> Sequence[Match]:
    """Return the pairs that test a claim, with the speeds of what it measures; rows without them tell nothing."""
    speeds = partial(_SPEEDS[test.measure], prices=results.prices)
    known = results.where(lambda row: min(speeds(row), default=0) > 0)
    if test.best:
        return best(known, ((speeds, lambda row: median(speeds(row))),)).rows
    with suppress(UsageError):  # no row that went well has the base
        found = (pair for timed in (True, False) for pair in match_rows(known, test.by or "", test.base, timed=timed).rows)
        return [replace(pair, speeds=(speeds(pair.base), speeds(pair.other))) for pair in found]
    return ()


def _verdict(claim: Claim, found: Evidence) -> str:
    """Say whether what was measured is less or more than stated, or as stated; neither, where its interval holds an end of that."""
    if claim.ends is None:
        return "no number stated"
    if found.low is None and claim.measured_in is not Unit.BYTES:
        return "too few rounds"
    (least, most), (low, high) = claim.ends, (found.value if end is None else end for end in found[3:])
    if high < least or low > most:
        return "less" if high < least else "more"
    return "as stated" if least <= low and high <= most else "no difference shown"


def _data(each: Tested) -> Cells:
    """Return what programs get of a record in front of what is shown, in base units."""
    claim, found = each.claim, each.found
    low, high = claim.ends or (None, None)
    values = {f"claim.{name}": getattr(claim, name) for name in ("says", "who", "when", "is_our_reading")}
    values |= {
        "claim.low": low,
        "claim.high": high,
        "claim.unit": claim.measured_in.value,
        "claim.command": claim.test and claim.test.command,
    }
    values |= {f"measured.{name}": getattr(found, name, None) for name in ("value", "low", "high")}
    values["measured.cases"] = found and [row.case.id for row in found.sides]
    return {name: cell(value) for name, value in values.items()}
