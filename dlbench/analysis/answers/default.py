"""Default: the speed-up of a step by other switches than its plain defaults, each alone and all together."""

import math
from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, starmap
from typing import NamedTuple

from dlbench.analysis.answers.engine.pairs import foremost, median_cases, sides_of
from dlbench.analysis.answers.engine.question import CONVERGENCE, Lack, Question, Section, Tag, detail, shown
from dlbench.analysis.presentation.columns import CASE, RATIO, of_side, pair_cells, place, value_columns
from dlbench.analysis.presentation.names import by_device, flat
from dlbench.analysis.presentation.wording import option, short
from dlbench.analysis.ratios.matching import DTYPE, MATH, Match, MatchRecord, grouped, match_rows, settings_named
from dlbench.analysis.ratios.ratio import median_by_ratio, speedup_of
from dlbench.analysis.read.table import Results
from dlbench.core.errors import UsageError
from dlbench.core.model import ParamValue
from dlbench.core.rows.row import Row

_NEVER = 1e12
"""Number of steps that nobody takes; an edited file may hold any numbers."""
_LACKING = "no step was measured both with its plain defaults and with another tuning option than its precision"
_NOT_SEARCHED = "only what a suite planned was compared; dlbench run fastest searches for more"


@dataclass(frozen=True, slots=True)
class Tuned(MatchRecord):
    """A step with other tuning options, compared with the same step at its plain defaults, or with one option at its default."""

    pair: Match

    @property
    def changed(self) -> dict[str, ParamValue]:
        """Options of the other side that differ from the base."""
        names = (self.switch,) if self.switch else _options(self.row)
        settings = ((name, self.row.setting(name), self.pair.base.setting(name)) for name in names)
        return {name: value for name, value, plain in settings if value is not None and value != plain}

    @property
    def choice(self) -> str | None:
        """These options as text: ``amp_bf16, batch=64``; None if there are none."""
        return ", ".join(starmap(option, self.changed.items())) or None

    @property
    def searched(self) -> bool:
        """Whether a search chose it; else it is the best that a suite planned."""
        return bool(self.row.case.found)

    @property
    def switch(self) -> str | None:
        """The single tuning option that differs; None for a step at its best."""
        return self.pair.by and self.pair.by.name

    @property
    def alone(self) -> bool:
        """Whether all other options are at their defaults."""
        return _is_plain(self.pair.base)

    @property
    def spent_s(self) -> float | None:
        """Seconds spent once, such as for compiling, beyond those of the base; None if there are none."""

        def once_s(side: Row) -> float:
            return max((side.value(each.name) or 0.0 for each in side.declared.values if each.role == "once"), default=0.0)

        more_s = once_s(self.pair.other) - once_s(self.pair.base)
        return more_s if more_s > 0 else None

    @property
    def break_even_steps(self) -> int | None:
        """Number of steps whose savings equal the seconds spent once; None if no saving is shown."""
        base_s, other_s = (side.time.mean_s or 0.0 for side in self.sides)
        if not self.spent_s or base_s <= other_s or (self.ratio.low or self.ratio.speedup) <= 1:
            return None
        steps = self.spent_s / (base_s - other_s)
        return math.ceil(steps) if steps < _NEVER else None


class Tunings(NamedTuple):
    """Steps at their best, and with one tuning option set."""

    bests: Sequence[Tuned] = ()
    effects: Sequence[Tuned] = ()


def _read(results: Results) -> Tunings:
    """Return the effects of tuning options; nothing if precision is the only one, as that is another question."""
    tunable = results.where(lambda row: bool(row.declared.having("switch")))
    # A search changes several options at once, so it shows no effect of one.
    planned = tunable.where(lambda row: row.is_ok and not row.case.found)
    defaults = dict.fromkeys((name, row.declared.plain_default(name)) for row in planned.rows for name in row.declared.having("switch"))
    effects = [Tuned(pair) for name, plain in defaults for pair in _pairs(planned, name, plain)]
    effects.sort(key=lambda each: (not each.alone, each.switch, each.pair.value(each.pair.base) or ""))
    found = Tunings(flat(by_device([*_bests(tunable)])), flat(by_device(effects)))
    changed = {*chain.from_iterable(each.changed for each in chain(*found))}
    return found if changed - {DTYPE.name} else Tunings()


def _pairs(planned: Results, name: str, plain: str | None) -> Sequence[Match]:
    """Return the pairs of rows that differ in one option, whose default is ``plain``; none if no sound row has that value."""
    with suppress(UsageError):
        with_option = planned.where(lambda row: name in row.declared.having("switch") and row.declared.plain_default(name) == plain)
        return match_rows(with_option, name, plain).rows
    return ()


def _unfinished(results: Results) -> list[str]:
    """Return a sentence on each search for the fastest step that was cut short."""
    searches = [row for row in results.rows if row.case.unfinished and row.declared.having("switch") and row.declared.searched]
    fastest = [row for row in searches if not row.declared.value("largest")]
    return [f"the search for the fastest {short(row.key)}: {row.case.reason}" for row in fastest]


def _bests(results: Results) -> Iterator[Tuned]:
    """Yield for each work and device the fastest row with other options, compared with the fastest at the plain defaults."""
    for rows in grouped((row for row in results.rows if row.has_throughput), _work).values():
        plain = [row for row in rows if not row.case.found and _is_plain(row)]
        tuned = [row for row in rows if row.case.found or not _is_plain(row)]
        if plain and tuned:
            base, other = (max(side, key=lambda row: row.throughput) for side in (plain, tuned))  # batches may differ
            speeds = base.rounds.items_per_s, other.rounds.items_per_s
            yield Tuned(Match(base, other, None, _options(base), speeds, among=len(tuned)))


def _options(row: Row) -> tuple[str, ...]:
    """Return the tuning options of a row: its switches, and the parameters that a search may choose."""
    return tuple(dict.fromkeys((*row.declared.having("switch"), *row.declared.searched)))


def _work(row: Row) -> Hashable:
    """Return a key of all settings of a row other than its tuning options."""
    return row.differing_from((MATH, *settings_named(_options(row))))


def _is_plain(row: Row) -> bool:
    """Whether all switches of a row are at their defaults."""
    settings = ((row.setting(name), row.declared.plain_default(name)) for name in row.declared.having("switch"))
    return all(value is None or str(value) == plain for value, plain in settings)


def _preferred(found: Sequence[Tuned]) -> Sequence[Tuned]:
    """Return the steps chosen by a search, or else the best of several: a single other setting says little."""
    return [each for each in found if each.searched] or [each for each in found if each.ratio.among > 1] or found


def _foremost_effects(found: Sequence[Tuned]) -> list[Tuned]:
    """Return the median case of each option at its best setting, that of the largest speed-up first."""
    of_headline = foremost(found)
    alone = [each for each in of_headline if each.alone] or of_headline
    medians = [median_by_ratio(each) for each in grouped(alone, lambda each: (each.switch, each.pair.value(each.row))).values()]
    return [each[0] for each in grouped(sorted(medians, key=speedup_of, reverse=True), lambda each: each.switch).values()]


def _cautions(results: Results) -> Iterator[str]:
    yield from _unfinished(results) or ([] if any(each.searched for each in _read(results).bests) else [_NOT_SEARCHED])
    yield CONVERGENCE


_section = partial(
    Section,
    whole=lambda each: pair_cells(each.pair),
    headline={
        "gain": "{speedup} left on the table{span}",
        "loss": "{speedup}{span}: nothing left on the table",
        "open": "no gain shown over the default",
    },
    qualifier=("{case}{where}: {choice}", "{short}{where}: {choice}", "{short:18}{where}: {choice}"),
    tags={Tag.ESTIMATE: lambda each: each.ratio.outcome == "gain" and each.ratio.among > 1},
)
ORDER = 70
QUESTION = Question(
    "default",
    "What does the default leave on the table?",
    command="dlbench run modes",
    others=("dlbench run cnn",),
    missing=[lambda results: Lack("; ".join((_LACKING, *_unfinished(results))))],
    read=_read,
    cautions=_cautions,
    tags={Tag.UNFINISHED: lambda results: bool(_unfinished(results))},
    sections=[
        _section(
            records="bests",
            title="Each step in its fastest other setting against its plain default: how many times the throughput",
            columns=[
                CASE.headed("work"),
                place,
                of_side("base", lambda row: row.batch, "batch"),
                of_side("base", lambda row: row.rate.items_per_s, "default"),
                of_side("other", lambda row: row.rate.items_per_s, "fastest other", 0),
                shown("default.choice", "text", "at", "what the fastest row has otherwise than the default"),
                detail("default.searched", "flag", "searched", "whether a search chose that, not only the best of what a suite planned"),
                RATIO,
            ],
            foremost=lambda found: median_cases(found, _preferred),
        ),
        _section(
            records="effects",
            title="The same case with one tuning option set: how many times as fast",
            columns=[
                CASE,
                place,
                shown("default.switch", "text", "option", "the parameter that differs from its default"),
                shown("default.setting", "text", "set to", "what it is set to", lambda each: each.pair.value(each.row)),
                detail("default.alone", "flag", "alone", "whether all other options are at their defaults"),
                of_side("base", lambda row: row.time.median_s, "default"),
                of_side("other", lambda row: row.time.median_s, "time"),
                RATIO,
                shown("default.spent_s", "s", "spent once", "what is spent once, beyond what the default spends"),
                shown("default.break_even_steps", "count", "pays off after", "steps after which what is spent once has been saved"),
                lambda found: value_columns(sides_of(found)),
            ],
            foremost=_foremost_effects,
        ),
    ],
)
