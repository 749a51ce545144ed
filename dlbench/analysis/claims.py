"""Claims of others as records: the number stated, the number measured, and how they compare; see `core.reference.claims`."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from statistics import median
from typing import NamedTuple

from dlbench.analysis.answers.engine.costs import devices_of, training_estimates
from dlbench.analysis.answers.engine.pairs import SpeedMeasure, best_pairs
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
from dlbench.core.stats import known, median_interval
from dlbench.core.units import Unit, percent

_SPEEDS: Mapping[str, Callable[..., Sequence[float]]] = {
    "time": lambda row, prices: [1 / each for each in row.rounds.median_s if each > 0] or row.paid_rates,  # at one batch they differ alike
    "throughput": lambda row, prices: row.rounds.items_per_s,
    "items_per_joule": lambda row, prices: [1 / each for each in row.rounds.joules_per_item if each > 0],
    "items_per_price": lambda row, prices: [rate / (prices.to_buy(devices_of(row)) or math.inf) for rate in row.paid_rates],
}
"""Speed of each round of a row by the measure of a claim; zeros if it is not known."""
_NOTE = (
    "verdict: whether the interval lies below the number stated, above it, or within it; the hardware of a claim is another. Each claim, "
    "who said it, and the command that measures what tests it:"
)


class Evidence(NamedTuple):
    """A measured number that tests a claim, and the row, or the two sides of a ratio, that it comes from."""

    sides: Sequence[Row]
    case: str
    value: float
    """Ratio of the last side to the first, or seconds, bytes, or a share."""
    low: float | None = None
    """Lower end of the 95 % interval; None for too few rounds, and for memory."""
    high: float | None = None

    @property
    def row(self) -> Row:
        """The row, or the last side."""
        return self.sides[-1]


class Tested(NamedTuple):
    """A claim with the evidence of one device, or with the reason why there is none."""

    claim: Claim
    lacks: str | None = None
    """Reason why there is no evidence."""
    found: Evidence | None = None
    """The typical evidence: the lower median; the worst for accuracies."""
    among: int | None = None
    """Number of all evidence on that device."""
    device: str | None = None

    @property
    def measured(self) -> str | None:
        """The number with its interval: ``13.1 × (12.8…13.4 ×)``; None without evidence."""
        if self.found is None:
            return None
        low, high = self.found.low, self.found.high
        text = percent if self.claim.unit == "share" else partial(wording.amount, unit=self.claim.measured_in)
        return text(self.found.value) + ("" if low is None or high is None else f" ({wording.span(low, high, text)})")

    @property
    def verdict(self) -> str:
        """The number compared with the range stated: ``less``, ``more`` or ``as stated`` if its whole interval is, or why none holds."""
        if self.found is None or self.claim.ends is None:
            return self.lacks or "no number stated"
        if self.found.low is None and self.claim.measured_in is not Unit.BYTES:
            return "too few rounds"
        least, most = self.claim.ends
        low, high = (self.found.value if end is None else end for end in (self.found.low, self.found.high))
        if high < least:
            return "less"
        if low > most:
            return "more"
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
    """Return the table of all claims: a row for each device with evidence, accelerators first, or one with the reason for none.

    Files of one machine count as one.
    """
    results = merged(results)
    found = [record for claim in claims() for record in _test(claim, results)]
    sources = (f"{each.id}: {each.says} ({each.who}, {each.when}){f'; {each.test.command}' if each.test else ''}" for each in claims())
    return table("Claims of others, and what was measured here", _COLUMNS, found, (_NOTE, *sources), whole=_hidden_cells)


def _test(claim: Claim, results: Results) -> Iterator[Tested]:
    """Yield a claim with the typical evidence of each device, accelerators first; once without evidence if there is none."""
    test = claim.test
    if test is None:
        yield Tested(claim, "untested")
        return
    name_the_run = several_runs(results.rows)
    results_for_test = results.where(lambda row: test.is_of(_settings(row).get))  # rows with the settings that the test names
    # Sorted by value, too, as `_typical` takes the one in the middle.
    evidence = sorted(_evidence(test, results_for_test), key=lambda each: (each.row.is_on_cpu, each.value))
    # A record for each device, and for each value of the setting ``split``, if the claim has one.
    groups = grouped(evidence, lambda each: (*map(one_device, each.sides), _settings(each.row).get(test.split or "")))
    for alike in groups.values():
        typical = _typical(test, alike)
        yield Tested(claim, lacks=None, found=typical, among=len(alike), device=device_label(typical, name_the_run))
    if not groups:
        yield Tested(claim, _lack(test, results_for_test))


def _lack(test: ClaimTest, results: Results) -> str:
    """Return the reason why results have no evidence for a claim."""
    are_on_cpu = {row.is_on_cpu for row in results.rows if row.is_sound}
    if len(are_on_cpu) == 2 and test.measure == "items_per_price":
        return "needs prices: --price cpu=1200, …"
    return "one side alone" if are_on_cpu and test.by else "not measured"


def _typical(test: ClaimTest, alike: Sequence[Evidence]) -> Evidence:
    """Return one of the evidence of a device, sorted by value: at the largest of a parameter, the worst accuracy, or the lower median."""
    if largest := test.largest:
        return max(alike, key=lambda each: each.row.count(largest) or 0)
    return alike[0 if test.measure == "accuracy_gap" else (len(alike) - 1) // 2]


def _settings(row: Row) -> dict[str, object]:
    """Return the values of all settings of a row by their short names: ``dtype``, ``batch``."""
    return {each.name: value for each, value in row.settings().items()}


def _evidence(test: ClaimTest, results: Results) -> Iterator[Evidence]:
    """Yield the evidence for a claim: times of published trainings, gaps in accuracy, numbers of single rows, or ratios of pairs."""
    match test.measure:
        case "training":
            yield from _evidence_of_trainings(results)
        case "accuracy_gap":
            yield from _evidence_of_accuracy(results)
        case "pass" | "memory" | "products":
            yield from known(_evidence_of_row(test, row) for row in results.rows if row.is_sound)
        case _:
            yield from map(_evidence_of_pair, _pairs(test, results))


def _evidence_of_trainings(results: Results) -> Iterator[Evidence]:
    """Yield the estimated seconds of each training whose schedule is published."""
    for each in training_estimates(results):
        if each.schedule.source:
            yield Evidence([each.row], wording.short(each.row.key), each.seconds, *each.ends)


def _evidence_of_accuracy(results: Results) -> Iterator[Evidence]:
    """Yield the gap in accuracy of each training in a format other than the plain one."""
    for each in trainings(results.rows):
        if each.base and each.gap:
            low, high = each.gap.interval[:2] if each.gap.interval else (None, None)
            yield Evidence([each.base, each.row], f"{wording.short(each.case)}: {each.name}", each.gap.shift, low, high)


def _evidence_of_pair(pair: Match) -> Evidence:
    """Return the ratio of a pair; its case names both values of the setting in which the sides differ, except for devices."""
    values = "" if pair.by in (None, DEVICE) else f": {pair.value(pair.other)} over {pair.value(pair.base)}"
    return Evidence(pair.sides, f"{wording.short(pair.case)}{values}", pair.ratio.speedup, pair.ratio.low, pair.ratio.high)


def _evidence_of_row(test: ClaimTest, row: Row) -> Evidence | None:
    """Return the evidence of a single row: its time for so many items, its memory, or the share of products; None if it has none."""
    case = wording.short(row.key)
    if test.measure == "memory":
        return Evidence([row], case, row.peak_bytes) if row.peak_bytes else None
    if test.measure == "pass":
        rates = median_interval(row.rounds.items_per_s)
        ends = (test.items / rates.high, test.items / rates.low) if rates else ()
        return Evidence([row], case, test.items / row.throughput, *ends) if row.has_throughput else None
    seconds = {each.kind: each.seconds for each in row.profile.kinds} if row.profile else {}
    products_s = seconds.get(OperationKind.PRODUCTS)
    return Evidence([row], case, products_s / sum(seconds.values())) if products_s else None


def _pairs(test: ClaimTest, results: Results) -> Sequence[Match]:
    """Return the pairs of rows that test a claim, with their speeds by its measure; rows without a speed are left out."""
    speeds = partial(_SPEEDS[test.measure], prices=results.prices)
    with_speed = results.where(lambda row: min(speeds(row), default=0) > 0)
    if test.best:
        return best_pairs(with_speed, [SpeedMeasure(speeds, lambda row: median(speeds(row)))])
    with suppress(UsageError):  # no row that went well has the base
        pairs = (pair for timed in (True, False) for pair in match_rows(with_speed, test.by or "", test.base, timed=timed).rows)
        return [replace(pair, speeds=(speeds(pair.base), speeds(pair.other))) for pair in pairs]
    return ()


def _hidden_cells(each: Tested) -> Cells:
    """Return the cells of a record that only programs get, in base units."""
    claim, found = each.claim, each.found
    values: dict[str, object] = {f"claim.{name}": getattr(claim, name) for name in ("says", "who", "when", "is_our_reading")}
    values["claim.low"], values["claim.high"] = claim.ends or (None, None)
    values["claim.unit"], values["claim.command"] = claim.measured_in.value, claim.test and claim.test.command
    values |= {f"measured.{name}": getattr(found, name, None) for name in ("value", "low", "high")}
    values["measured.cases"] = found and [row.case.id for row in found.sides]
    return {name: cell(value) for name, value in values.items()}
