"""Evidence for claims of others: of each claim the pairs of rows, or the rows, that test it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from operator import attrgetter
from statistics import median

from dlbench.analysis.answers.parts.convergence import FormatTraining, trainings
from dlbench.analysis.answers.parts.memory import peak_bytes
from dlbench.analysis.answers.parts.money import devices_of
from dlbench.analysis.answers.parts.training_time import best_steps, estimates
from dlbench.analysis.presentation.names import device_label, several_runs
from dlbench.analysis.presentation.wording import few, option
from dlbench.analysis.ratios.pairing import DEVICE, Pair, grouped, match_rows, one_device, pair_of, settings_named
from dlbench.analysis.ratios.ratio import Ratio
from dlbench.analysis.read.merge import merged
from dlbench.analysis.read.table import Results
from dlbench.core.errors import UsageError
from dlbench.core.model import ParamValue
from dlbench.core.prices import Prices
from dlbench.core.reference.claims import Claim, ClaimMeasure, ClaimTest, claims
from dlbench.core.rows.row import MACHINE, Row
from dlbench.core.schema import Unit

_Speeds = Callable[[Row], Sequence[float]]
_SPEEDS: Mapping[ClaimMeasure, _Speeds] = {
    "throughput": lambda row: row.rounds.items_per_s,
    "items_per_joule": lambda row: [1 / each for each in row.rounds.joules_per_item if each > 0],
}
"""What each round of a side has of a measure that is not the time of a call."""
_NO_PRICES = "what the devices cost is not said: give --price cpu=…, and --price cuda=… or the like"
UNITS: Mapping[ClaimMeasure, Unit] = {"training": Unit.SECONDS, "memory": Unit.BYTES, "accuracy_gap": Unit.FRACTION}
"""Units of the measures that are no ratios."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """A pair of rows that tests a claim, or a row that does by itself."""

    claim: Claim
    test: ClaimTest
    row: Row
    """Of a pair the other side."""
    value: float
    """How many times as much the other side has, or seconds or bytes."""
    low: float | None = None
    """Lower end of its 95 % interval; None of too few rounds, and of memory."""
    high: float | None = None
    pair: Pair | None = None
    training: FormatTraining | None = None
    """Of a claim on convergence."""

    @property
    def unit(self) -> Unit:
        """Unit of the value."""
        return UNITS.get(self.test.measure, Unit.RATIO)

    @property
    def case(self) -> str:
        """What was measured, without the device."""
        return self.pair.case if self.pair else self.training.case if self.training else self.row.key

    @property
    def ratio(self) -> Ratio:
        """How many times as much the other side of the pair has. Raises TypeError for what is no pair."""
        if self.pair is None:
            raise TypeError("a row by itself has no ratio")
        return self.pair.ratio

    @property
    def sides(self) -> tuple[Row, ...]:
        """The rows that it stands on."""
        if self.training and self.training.base:
            return self.training.base, self.row
        return self.pair.sides if self.pair else (self.row,)


@dataclass(frozen=True, slots=True)
class ClaimFinding:
    """What was found on one device, or of one device over another, and of one value of what a test tells apart."""

    evidence: tuple[Evidence, ...]
    """The least first."""
    part: str
    """Which value that is: ``batch=128``, of two formats the one said to stall; an empty text where nothing is told apart."""
    place: str
    """Where the rows ran, of pairs of devices the other."""

    @property
    def middle(self) -> Evidence:
        """The one in the middle, of an even number the lower."""
        return self.evidence[(len(self.evidence) - 1) // 2]


@dataclass(frozen=True, slots=True)
class Held:
    """A claim, and what rows say to it."""

    claim: Claim
    findings: tuple[ClaimFinding, ...] = ()
    lacking: str = ""
    """Why nothing was found; empty where something was."""
    is_measured: bool = False
    """Whether rows have all that they can tell, and what is lacking is for the user to say."""

    @property
    def command(self) -> str | None:
        """What would measure it; None where it was measured, or where nothing does."""
        return self.claim.test.command if self.claim.test and not (self.findings or self.is_measured) else None


def held(results: Results) -> tuple[Held, ...]:
    """Return every claim with what rows say to it, or what is lacking. Files of one machine count as one."""
    results = merged(results)
    return tuple(_held(claim, claim.test, results) if claim.test else Held(claim, lacking="nothing measures it yet") for claim in claims())


def _held(claim: Claim, test: ClaimTest, results: Results) -> Held:
    if test.measure == "training":
        of_models = estimates(best_steps(results), results.prices).values()
        # Of several trainings of a network the published one comes last.
        found = [each for works in of_models for each in works[-1] if each.schedule.source and test.is_of(_settings(each.row))]
        evidence = [Evidence(claim, test, each.row, each.seconds, *each.ends) for each in found]
        return Held(claim, _findings(test, evidence), "" if evidence else "no training step of it was measured")
    of_interest = results.where(lambda row: test.is_of(_settings(row)))
    if test.measure == "accuracy_gap":
        evidence = list(_converging(claim, test, of_interest))
    elif test.by is None:
        peaks = [(row, peak) for row in of_interest.rows if row.is_sound and (peak := peak_bytes(row))]
        evidence = [Evidence(claim, test, row, peak) for row, peak in peaks]
    else:
        evidence = [
            Evidence(claim, test, pair.other, pair.ratio.speedup, pair.ratio.low, pair.ratio.high, pair)
            for pair in _largest(test, _pairs(test, of_interest))
        ]
    if not evidence and (unpriced := _unpriced(test, of_interest.rows, results.prices)):
        return Held(claim, lacking=unpriced, is_measured=True)
    return Held(claim, _findings(test, evidence), "" if evidence else _lacking(test, of_interest.rows))


def _converging(claim: Claim, test: ClaimTest, results: Results) -> Iterator[Evidence]:
    """Yield the trainings whose seeds tell how far their accuracy lies from that of the plain format."""
    for each in trainings(results.rows):
        if each.name in test.others and each.gap:
            interval = each.gap.interval
            low, high = (interval.low, interval.high) if interval else (None, None)
            yield Evidence(claim, test, each.row, each.gap.shift, low, high, training=each)


def _settings(row: Row) -> dict[str, object]:
    return {each.name: value for each, value in row.settings().items()}


def _pairs(test: ClaimTest, results: Results) -> Iterator[Pair]:
    """Yield the pairs that test a claim, with the speeds of what it measures; those without them tell nothing."""
    speeds_of = _for_its_price(results.prices) if test.measure == "items_per_price" else _SPEEDS.get(test.measure)
    if speeds_of is None:
        yield from _matched(test, results)
    elif test.best:
        yield from _at_their_best(test, results, speeds_of)
    else:
        for pair in _matched(test, results):
            speeds = speeds_of(pair.base), speeds_of(pair.other)
            if all(min(each, default=0) > 0 for each in speeds):
                yield replace(pair, speeds=speeds)


def _for_its_price(prices: Prices) -> _Speeds:
    """Return what gives the throughput of each round for what the device costs to buy; nothing where that is not said, or free."""

    def speeds(row: Row) -> Sequence[float]:
        price = prices.to_buy(devices_of(row))
        return [rate / price for rate in row.paid_rates] if price else ()

    return speeds


def _matched(test: ClaimTest, results: Results) -> Iterator[Pair]:
    with suppress(UsageError):  # no row went well that has the base
        found = match_rows(results, test.by or "", test.base).rows
        yield from (pair for pair in found if not test.others or pair.value(pair.other) in test.others)


def _at_their_best(test: ClaimTest, results: Results, speeds_of: _Speeds) -> Iterator[Pair]:
    """Yield pairs of an accelerator and a CPU, each at its best in some settings; the interval allows for the choice."""
    fit = [row for row in results.rows if row.is_sound and row.is_single_rank and min(speeds_of(row), default=0) > 0]
    for group in grouped(fit, lambda row: row.differing_from((*MACHINE, *settings_named(test.best)))).values():
        champions = [(max(rows, key=lambda row: median(speeds_of(row))), len(rows)) for rows in grouped(group, one_device).values()]
        for (cpu, of_cpu), (other, of_other) in product(champions, repeat=2):
            if cpu.is_on_cpu and not other.is_on_cpu:
                pair = pair_of(cpu, other, DEVICE, *test.best, timed=False)
                yield replace(pair, speeds=(speeds_of(cpu), speeds_of(other)), among=of_cpu * of_other)


def _largest(test: ClaimTest, pairs: Iterable[Pair]) -> Iterator[Pair]:
    """Yield the pairs of each two devices that have the largest value of what only that counts of; all where there is no such thing."""
    for found in grouped(pairs, lambda pair: tuple(map(one_device, pair.sides))).values():
        most = max((pair.other.count(test.largest) or 0 for pair in found), default=0) if test.largest else 0
        yield from (pair for pair in found if not test.largest or pair.other.count(test.largest) == most)


def _findings(test: ClaimTest, evidence: Sequence[Evidence]) -> tuple[ClaimFinding, ...]:
    """Return evidence by device and by what is told apart, accelerators first."""
    several = several_runs([side for each in evidence for side in each.sides])

    def part(each: Evidence) -> ParamValue | None:
        found = _settings(each.row).get(test.split or "")
        return test.pair_of(found) if isinstance(found, str) else found if isinstance(found, int | float) else None

    ordered = sorted(evidence, key=lambda each: (each.row.is_on_cpu, *_by_size(part(each))))
    groups = grouped(
        ordered, lambda each: (tuple(map(one_device, each.sides)) if test.by == DEVICE.name else one_device(each.row), part(each))
    )
    return tuple(
        ClaimFinding(
            tuple(sorted(found, key=attrgetter("value"))),
            option(test.split, value) if test.split and value is not None else "",
            device_label(found[0], several),
        )
        for (_, value), found in groups.items()
    )


def _by_size(value: ParamValue | None) -> tuple[float, str]:
    return (float(value), "") if isinstance(value, int | float) else (0.0, value or "")


def _unpriced(test: ClaimTest, rows: Sequence[Row], prices: Prices) -> str:
    """Say what prices rows lack that have both kinds of devices; an empty text where they lack none."""
    sound = [row for row in rows if row.is_sound]
    if test.measure != "items_per_price" or len({row.is_on_cpu for row in sound}) < 2:
        return ""
    costs = {row.case.device: prices.to_buy(devices_of(row)) for row in sound}
    if None in costs.values():
        return _NO_PRICES
    free = [device for device, cost in costs.items() if cost == 0]
    return f"{few(free, 3)}: what costs nothing has no throughput for its price; give --price {free[0]}=AMOUNT" if free else ""


def _lacking(test: ClaimTest, rows: Sequence[Row]) -> str:
    """Say why rows do not test a claim."""
    if not rows:
        return "not measured here"
    if not any(row.is_sound for row in rows):
        return f"none of its cases went well, such as {rows[0].case.id} ({rows[0].ending})"
    if test.by == DEVICE.name:
        kinds = {row.is_on_cpu for row in rows if row.is_sound}
        if len(kinds) == 1:
            return "no accelerator took part" if kinds == {True} else "no CPU took part"
        return "no case ran on both"
    if test.by and test.base:
        *first, last = [option(test.by, each) for each in test.others] or [f"another {test.by}"]
        others = f"{', '.join(first)} or {last}" if first else last
        return f"no case with {others} and the same with {option(test.by, test.base)}"
    return "its memory is not known"
