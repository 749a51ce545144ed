"""Figures of a card: the few numbers that say most of a machine, each with its interval, or of too few rounds with its spread."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice, zip_longest
from typing import NamedTuple

from dlbench.analysis.answers.parts.convergence import headline, trainings
from dlbench.analysis.answers.parts.headline import Tag, by_kind, foremost, tags_of
from dlbench.analysis.answers.parts.pair_tables import furthest
from dlbench.analysis.answers.parts.sustained import sustained_steps
from dlbench.analysis.answers.parts.training_time import best_steps, estimates
from dlbench.analysis.answers.speedup import families
from dlbench.analysis.presentation.fields import value_fields
from dlbench.analysis.presentation.names import by_device, device_label, several_runs
from dlbench.analysis.presentation.wording import brief, middle_of, value_words
from dlbench.analysis.ratios.pairing import Pair, match_rows
from dlbench.analysis.read.table import Results
from dlbench.core import units
from dlbench.core.declarations import OF_DLBENCH_ITSELF
from dlbench.core.reference.schedules import schedules
from dlbench.core.rows.row import Row
from dlbench.core.schema import Unit
from dlbench.core.schema import text as unit_text
from dlbench.core.stats import median_interval

MOST_FIGURES = 5
ROUNDS_SPREAD, BLOCKS_SPREAD = "min–max", "p10–p90"
_STEPS = ("training", "inference")
_SAID = (Tag.FEW_ROUNDS, Tag.UNFINISHED)
"""Limits that a figure says itself."""

_Text = Callable[[float], str]
_Ends = tuple[float, float, str]
"""Ends of an interval or of a spread, and what kind of spread it is; an empty text for a 95 % interval."""


class CardFigure(NamedTuple):
    """One number of a card."""

    text: str
    spread: str | None = None
    """What kind of spread stands in it in place of a 95 % interval, an empty text for that; None where neither is known."""


def figures(results: Results) -> list[CardFigure]:
    """Return the first five of what rows tell.

    In this order: speed-up, throughput, arithmetic, memory, precision, time to train, sustained steps, formats, then other cases.
    """
    sound = [row for row in results.rows if row.is_sound and not row.flag.no_speed]
    rows = [row for row in sound if OF_DLBENCH_ITSELF not in row.declared.tags] or sound
    several, devices = several_runs(rows), {(row.case.run, row.case.device) for row in rows}

    def where(row: Row) -> str:
        return f" on {device_label(row, several)}" if len(devices) > 1 else ""

    told = list[Row]()
    first = (
        _of_speed(results, where),
        _of_rows(_best(rows), where, told),
        _of_precision(results, where),
        _of_training(results, where),
        _of_sustained(rows, where),
        _of_formats(rows),
    )
    others = (each for row in _others([row for row in rows if not row.declared.having("format")], told) if (each := _of_row(row, where)))
    found = {each.text: each for each in chain(*first)}
    return list(islice({**found, **{each.text: each for each in others}}.values(), MOST_FIGURES))


_Where = Callable[[Row], str]


def _of_speed(results: Results, where: _Where) -> Iterator[CardFigure]:
    """Yield how many times as fast as the CPU the accelerator of the speed-up's headline is, in its first two kinds of work."""
    for family in next(iter(families(results)), [])[:2]:
        pair, many = family.pair, len(family.pairs)
        among = f", {middle_of(many)}" if many > 1 else ""
        yield _of_pair(pair, f"{family.name} {{}} as fast as the CPU: {brief(pair.case)}{where(pair.other)}{among}")


def _of_precision(results: Results, where: _Where) -> Iterator[CardFigure]:
    if pairs := match_rows(results, "dtype").rows:
        best, _ = furthest(foremost(by_device(pairs))[0])
        base, other = best.value(best.base), best.value(best.other)
        yield _of_pair(best, f"{other} {{}} as fast as {base}: {brief(best.case)}{where(best.other)}")


def _of_training(results: Results, where: _Where) -> Iterator[CardFigure]:
    of_models = estimates(best_steps(results), results.prices)
    if network := next((each for each in schedules() if each in of_models), None):
        published = of_models[network][-1]
        found = min(published, key=lambda each: (not each.is_alone, each.seconds))
        low, high = found.ends
        ends = (low, high, "") if low and high else _over_rounds(sorted(map(found.schedule.seconds, found.row.paid_rates)))
        yield _figure(f"ImageNet with {network}{where(found.row)}, steps alone: {{}}", found.seconds, ends, units.seconds, found.row)


def _of_sustained(rows: Sequence[Row], where: _Where) -> Iterator[CardFigure]:
    """Yield the energy of an item, where it was metered, and what sustained steps kept of their burst."""
    for found in sustained_steps(rows):
        row, energy, rounds = found.row, found.row.energy, _over_rounds(sorted(found.rounds))
        if energy.joules_per_item is not None:
            low, high = energy.joules_per_item_low, energy.joules_per_item_high
            ends = (low, high, "") if low is not None and high is not None else _over_rounds(sorted(row.rounds.joules_per_item))
            yield _figure(f"{brief(row.key)}{where(row)}: {{}} a sample", energy.joules_per_item, ends, _joules, row)
        ends = (found.interval.low, found.interval.high, "") if found.interval else rounds
        yield _figure(f"{brief(row.key)}{where(row)}: kept {{}} of its burst", found.kept, ends, units.percent, row)


def _of_formats(rows: Sequence[Row]) -> Iterator[CardFigure]:
    """Yield how many formats of numbers a training converges in."""
    if trained := trainings(rows):
        found = headline(by_device(trained))
        yield CardFigure(f"{found.text}: {found.qualifier}")


def _joules(joules: float) -> str:
    return unit_text(joules, Unit.JOULES)


def _of_pair(pair: Pair, words: str) -> CardFigure:
    """Return a ratio in words; of too few rounds with the least and the most that two rounds give."""
    ratio, speeds = pair.ratio, pair.speeds or ((1.0,), (1.0,))
    spread = (min(speeds[1]) / max(speeds[0]), max(speeds[1]) / min(speeds[0]), ROUNDS_SPREAD) if max(map(len, speeds)) > 1 else None
    ends = (ratio.interval.low, ratio.interval.high, "") if ratio.interval else spread
    return _figure(words, ratio.speedup, ends, lambda value: f"{units.three_digits(value)}×", *pair.sides)


def _best(rows: Sequence[Row]) -> Iterator[Row]:
    """Yield the fastest training and inference step of the network that a summary would name first, and the ceilings of one device."""
    accelerators = [row for row in rows if not row.is_on_cpu] or list(rows)
    order = {model: place for place, model in enumerate(schedules())}
    for tag in _STEPS:
        steps = [row for row in accelerators if row.declared.is_step and tag in row.declared.tags and row.throughput and row.is_single_rank]
        yield from sorted(steps, key=lambda row: (order.get(str(row.params.get("model")), len(order)), -row.throughput))[:1]
    for ceiling, rate in (("arithmetic", _flops), ("memory", _bytes)):
        known = [row for row in accelerators if row.declared.ceiling == ceiling and rate(row)]
        yield from sorted(known, key=lambda row: -(rate(row) or 0.0))[:1]


def _of_rows(rows: Iterable[Row], where: _Where, told: list[Row]) -> Iterator[CardFigure]:
    """Yield the figure of each row, and note that it was told."""
    for row in rows:
        told.append(row)
        if found := _of_row(row, where):
            yield found


def _others(rows: Sequence[Row], told: Sequence[Row]) -> Iterator[Row]:
    """Yield the rows that were not told, accelerators first: one of each kind of work, then the next of each; the fastest first."""
    left = sorted((row for row in rows if row not in told), key=lambda row: (row.is_on_cpu, -(_flops(row) or 0.0), -(_bytes(row) or 0.0)))
    yield from filter(None, chain.from_iterable(zip_longest(*by_kind(left).values())))


def _flops(row: Row) -> float | None:
    return row.rate.flops_per_s


def _bytes(row: Row) -> float | None:
    return row.rate.bytes_per_s


def _of_row(row: Row, where: _Where) -> CardFigure | None:
    """Return what a case is about: a rate of a step or a ceiling, else its time, else the first value that it reports."""
    named, time = f"{brief(row.key)}{where(row)}: {{}}", row.time
    low, high = row.rate.items_per_s_low, row.rate.items_per_s_high
    if time.median_s is None and not row.throughput:
        return _of_value(row, where)
    if row.throughput and (row.declared.is_step or time.median_s is None):
        ends = (low, high, "") if low and high else _rate_ends(row, row.throughput) or _over_rounds(sorted(row.paid_rates))
        return _figure(named, row.throughput, ends, _samples, row)
    arithmetic = row.declared.ceiling == "arithmetic"
    rate = _flops(row) if arithmetic else _bytes(row) if row.declared.ceiling in ("memory", "copy") else None
    if rate is None:
        return _figure(named, time.median_s or 0.0, _time_ends(row), units.seconds, row)
    share = f", {units.percent(row.rate.peak_fraction)} of the published peak" if row.rate.peak_fraction else ""
    return _figure(named + share, rate, _rate_ends(row, rate), units.flop_rate if arithmetic else units.byte_rate, row)


def _samples(rate: float) -> str:
    return f"{units.item_rate(rate).removesuffix('/s').rstrip()} samples/s"


def _of_value(row: Row, where: _Where) -> CardFigure | None:
    # Those that can be better or worse say more than those that only describe.
    for field in sorted(value_fields([row]), key=lambda each: each.column.better is None):
        value, column = field.of(row), field.column
        if isinstance(value, int | float):
            rounds = row.rounds.values.get(column.name.partition(".")[2], ())
            interval = median_interval(rounds)
            ends = (interval.low, interval.high, "") if interval else _over_rounds(sorted(rounds))
            words = f"{brief(row.key)}{where(row)}: {value_words(column)} {{}}"
            return _figure(words, value, ends, partial(unit_text, unit=column.unit), row)
    return None


def _time_ends(row: Row) -> _Ends | None:
    """Return the interval of the time of a case, below six rounds their spread, of one round that of its blocks."""
    time = row.time
    if time.ci_low_s is not None and time.ci_high_s is not None:
        return time.ci_low_s, time.ci_high_s, ""
    if ends := _over_rounds(sorted(row.rounds.median_s)):
        return ends
    return (time.p10_s, time.p90_s, BLOCKS_SPREAD) if time.p10_s is not None and time.p90_s is not None else None


def _rate_ends(row: Row, rate: float) -> _Ends | None:
    """Return the same of a rate, which is the higher the shorter the time."""
    ends, median = _time_ends(row), row.time.median_s
    return (rate * median / ends[1], rate * median / ends[0], ends[2]) if ends and median and ends[0] > 0 else None


def _over_rounds(ordered: Sequence[float]) -> _Ends | None:
    return (ordered[0], ordered[-1], ROUNDS_SPREAD) if len(ordered) > 1 else None


def _figure(words: str, value: float, ends: _Ends | None, text: _Text, *rows: Row) -> CardFigure:
    """Put a number with its interval or spread where the words have ``{}``, and behind them the limits that its rows tell."""
    tags = dict.fromkeys(str(tag) for row in rows for tag in tags_of(row) if tag not in _SAID)
    before, after = words.split("{}", 1)
    limits = "".join(f", {tag}" for tag in tags)
    if ends is None:
        return CardFigure(f"{before}{text(value)} (no interval){after}{limits}")
    low, high = text(ends[0]), text(ends[1])
    number, unit = low.partition(" ")[::2]
    alike = high.endswith(f" {unit}") and not any(map(str.isdigit, unit))
    first = number if unit and alike else low.removesuffix("×")
    kind = f"{ends[2]} " if ends[2] else ""
    return CardFigure(f"{before}{text(value)} ({kind}{first}…{high.removesuffix('×')}){after}{limits}", ends[2])
