"""Claims of others as records: what is stated, what rows measured, and how the two compare; see `core.reference.claims`."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from statistics import median
from typing import NamedTuple

from dlbench.analysis.answers.engine.costs import devices_of, training_estimates
from dlbench.analysis.answers.engine.pairs import best_pairs
from dlbench.analysis.answers.engine.question import Table, detail, table
from dlbench.analysis.answers.precision import trainings
from dlbench.analysis.presentation import wording
from dlbench.analysis.presentation.columns import at
from dlbench.analysis.presentation.names import device_label, several_runs
from dlbench.analysis.ratios.matching import DEVICE, Match, grouped, match_rows, one_device
from dlbench.analysis.read.runs import merged
from dlbench.analysis.read.table import Results
from dlbench.core.errors import UsageError
from dlbench.core.measurement import OperationKind
from dlbench.core.reference.claims import Claim, ClaimTest, claims
from dlbench.core.rows.row import Cells, Row, cell
from dlbench.core.stats import median_interval
from dlbench.core.units import Unit, percent

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
    lacks: str | None = None
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
        low, high = self.found[3:]
        text = percent if self.claim.unit == "share" else partial(wording.amount, unit=self.claim.measured_in)
        return text(self.found.value) + ("" if low is None or high is None else f" ({wording.span(low, high, text)})")

    @property
    def verdict(self) -> str:
        """Whether that is less or more than stated, or as stated; neither, where its interval holds an end of that."""
        if self.found is None or self.claim.ends is None:
            return self.lacks or "no number stated"
        if self.found.low is None and self.claim.measured_in is not Unit.BYTES:
            return "too few rounds"
        (least, most), (low, high) = self.claim.ends, (self.found.value if end is None else end for end in self.found[3:])
        if high < least or low > most:
            return "less" if high < least else "more"
        return "as stated" if least <= low and high <= most else "no difference shown"


_COLUMNS = (
    detail("claim.id", "text", "claim", "what the claim is called", at("claim.id")),
    detail("claim.stated", "text", "stated", "the number that others state", at("claim.stated")),
    detail("claim.measured", "text", "measured", "the number here, with its 95 % interval"),
    detail("claim.case", "text", "case", "its case: of several the median", at("found.case")),
    detail("claim.among", "count", "among", "how many were measured"),
    detail("claim.device", "text", "device", "where it was measured"),
    detail("claim.verdict", "text", "verdict", "how that compares with the number stated, or why nothing does"),
)


def claims_table(results: Results) -> Table:
    """Return the table of all claims: a row for each device that tests one, accelerators first, or one that says what is lacking.

    Files of one machine count as one.
    """
    results = merged(results)
    found = [record for claim in claims() for record in _tested(claim, results)]
    sources = (f"{each.id}: {each.says} ({each.who}, {each.when}){f'; {each.test.command}' if each.test else ''}" for each in claims())
    return table("Claims of others, and what was measured here", _COLUMNS, found, (_NOTE, *sources), whole=_data)


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
        yield Tested(claim, None, found, len(alike), device_label(found.sides[-1], several))
    if not groups:
        places = {row.is_on_cpu for row in results.rows if row.is_sound}
        lacks = "one side alone" if places and test.by else "not measured"
        yield Tested(claim, "needs prices: --price cpu=1200, …" if len(places) > 1 and test.measure == "items_per_price" else lacks)


def _settings(row: Row) -> dict[str, object]:
    return {each.name: value for each, value in row.settings().items()}


def _evidence(test: ClaimTest, results: Results) -> Iterator[Evidence]:
    """Yield all that rows say to a claim."""
    if test.measure == "training":
        published = (each for each in training_estimates(results) if each.schedule.source)
        yield from (Evidence([each.row], wording.short(each.row.key), each.seconds, *each.ends) for each in published)
    elif test.measure == "accuracy_gap":
        for each in trainings(results.rows):
            if each.base and each.gap:
                interval = (each.gap.interval or (None, None))[:2]
                yield Evidence([each.base, each.row], f"{wording.short(each.case)}: {each.name}", each.gap.shift, *interval)
    elif test.measure in _OF_ROW:
        for row in results.rows:
            value, *ends = _OF_ROW[test.measure](row, test.items)
            if row.is_sound and value:
                yield Evidence([row], wording.short(row.key), value, *ends)
    else:
        for pair in _pairs(test, results):
            sides = "" if pair.by in (None, DEVICE) else f": {pair.value(pair.other)} over {pair.value(pair.base)}"
            yield Evidence(pair.sides, f"{wording.short(pair.case)}{sides}", pair.ratio.speedup, pair.ratio.low, pair.ratio.high)


def _pass(row: Row, items: int) -> Sequence[float | None]:
    """Return the time of so many items, and the ends of its interval."""
    rates = median_interval(row.rounds.items_per_s)
    ends = (items / rates.high, items / rates.low) if rates else ()
    return items / row.throughput if row.has_throughput else None, *ends


def _share_of_products(row: Row, _: int) -> Sequence[float | None]:
    seconds = {each.kind: each.seconds for each in row.profile.kinds} if row.profile else {}
    return (seconds.get(OperationKind.PRODUCTS, 0.0) / (sum(seconds.values()) or 1),)


_OF_ROW: Mapping[str, Callable[[Row, int], Sequence[float | None]]] = {
    "pass": _pass,
    "memory": lambda row, _: (row.peak_bytes,),
    "products": _share_of_products,
}
"""What one row says of a measure, with the ends of its interval."""


def _pairs(test: ClaimTest, results: Results) -> Sequence[Match]:
    """Return the pairs that test a claim, with the speeds of what it measures; rows without them tell nothing."""
    speeds = partial(_SPEEDS[test.measure], prices=results.prices)
    known = results.where(lambda row: min(speeds(row), default=0) > 0)
    if test.best:
        return best_pairs(known, ((speeds, lambda row: median(speeds(row))),))
    with suppress(UsageError):  # no row that went well has the base
        found = (pair for timed in (True, False) for pair in match_rows(known, test.by or "", test.base, timed=timed).rows)
        return [replace(pair, speeds=(speeds(pair.base), speeds(pair.other))) for pair in found]
    return ()


def _data(each: Tested) -> Cells:
    """Return what programs get of a record in front of what is shown, in base units."""
    claim, found = each.claim, each.found
    values: dict[str, object] = {f"claim.{name}": getattr(claim, name) for name in ("says", "who", "when", "is_our_reading")}
    values["claim.low"], values["claim.high"] = claim.ends or (None, None)
    values["claim.unit"], values["claim.command"] = claim.measured_in.value, claim.test and claim.test.command
    values |= {f"measured.{name}": getattr(found, name, None) for name in ("value", "low", "high")}
    values["measured.cases"] = found and [row.case.id for row in found.sides]
    return {name: cell(value) for name, value in values.items()}
