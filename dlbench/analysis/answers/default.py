"""Default: how much faster the same step runs with other switches than the plain defaults, by each alone and by all together."""

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from dlbench.analysis.answers.parts.base import Lack, Question, Section
from dlbench.analysis.answers.parts.convergence import SEE_PRECISION, trainings
from dlbench.analysis.answers.parts.headline import Tag, by_kind, foremost
from dlbench.analysis.answers.parts.pair_tables import beside_defaults, mark_of, of_ratios, over_rounds
from dlbench.analysis.presentation import pair_columns
from dlbench.analysis.presentation.columns import CASE, RATIO, of_side, place, value_columns
from dlbench.analysis.presentation.figures import Figure
from dlbench.analysis.presentation.names import by_device, by_workload_and_device
from dlbench.analysis.presentation.wording import option, short
from dlbench.analysis.ratios.pairing import DTYPE, MATH, OfPair, Pair, grouped, settings_named
from dlbench.analysis.ratios.ratio import middle, speedup_of
from dlbench.analysis.read.table import Results
from dlbench.core.rows.row import Row
from dlbench.core.schema import Column, Unit

_NEVER = 1e12
"""Steps that nobody takes; an edited file may say anything."""
_LACKING = "no step was measured both with its plain defaults and with another tuning option"
_PRECISIONS_ALONE = "; other precisions alone are told in the answer on precision"
_NOT_SEARCHED = "only what a suite planned was compared; dlbench run fastest searches for more"
_CONVERGES = "whether training still converges in another precision or at another batch was not measured"
_INTERVALS = "A value above 1 is faster than the default; the lines are 95 % intervals over rounds."


def _options(pair: Pair) -> str | None:
    """Return what the other side has otherwise than the base, such as ``amp_bf16 batch=64``; None where it has nothing."""
    settings = {name: pair.other.setting(name) for name in ((pair.by.name,) if pair.by else _free(pair.other))}
    told = [option(name, value) for name, value in settings.items() if value is not None and value != pair.base.setting(name)]
    return ", ".join(told) or None


@dataclass(frozen=True, slots=True)
class Best(OfPair):
    """The fastest row of a work on a device, against the one with the plain defaults."""

    pair: Pair
    tried: frozenset[str]
    """What any of those that it was chosen among has otherwise than the default."""
    closest: Pair | None = None
    """Where the default is itself the fastest, the fastest of the others against it."""

    @property
    def choice(self) -> str | None:
        """What it has otherwise than the default."""
        return _options(self.pair)

    @property
    def options(self) -> str | None:
        """The same; where the default is the fastest by less than its rounds show, those of the closest other."""
        return _options(self.closest) if self.closest and self.outcome == "open" else self.choice

    @property
    def searched(self) -> bool:
        """Whether a search chose it, and not only the best of what a suite planned."""
        return bool(self.row.case.found)

    @property
    def outcome(self) -> str:
        """Whether a gain is shown."""
        ratio = self.closest.ratio if self.closest else self.ratio
        return "open" if ratio.is_undecided else "loss" if self.closest else ratio.outcome


@dataclass(frozen=True, slots=True)
class Effect(OfPair):
    """A step with one switch set, against the same without."""

    pair: Pair

    @property
    def switch(self) -> str:
        """The name of the switch."""
        return self.pair.by.name if self.pair.by else ""

    @property
    def setting(self) -> str | None:
        """What it is set to."""
        return self.pair.value(self.row)

    @property
    def options(self) -> str | None:
        """The same where there is little room."""
        return _options(self.pair)

    @property
    def alone(self) -> bool:
        """Whether all other switches are at their defaults."""
        return _is_plain(self.pair.base)

    @property
    def spent_s(self) -> float | None:
        """What is spent once, beyond what the default spends, in seconds; None where that is nothing."""
        base, other = (max((s.value(v.name) or 0.0 for v in s.declared.values if v.role == "once"), default=0.0) for s in self.sides)
        return other - base if other > base else None

    @property
    def break_even_steps(self) -> int | None:
        """The steps that save what is spent once at what each of them saves; None where no saving is shown."""
        base_s, other_s = (side.time.mean_s or 0.0 for side in self.sides)
        low = self.ratio.low or self.ratio.speedup
        steps = self.spent_s / (base_s - other_s) if self.spent_s and base_s > other_s and low > 1 else math.inf
        return math.ceil(steps) if steps < _NEVER else None


class BesideDefaults(NamedTuple):
    """Steps at their best, and with one switch set, against their plain defaults."""

    bests: Sequence[Best]
    effects: Sequence[Effect]


def _read(results: Results) -> BesideDefaults:
    found = _measured(results)
    tried = _tried(found) - {DTYPE.name}
    return found if tried else BesideDefaults((), ())


def _measured(results: Results) -> BesideDefaults:
    switched = results.where(lambda row: bool(row.declared.having("switch")))
    # Of a search nobody knows what its switches bring alone.
    planned = switched.where(lambda row: row.is_ok and not row.case.found)
    effects = [Effect(pair) for pairs in beside_defaults(planned, "switch") for pair in pairs.rows]
    effects.sort(key=lambda effect: (not effect.alone, effect.switch, effect.pair.value(effect.pair.base) or ""))
    by_place = by_device(_bests(switched)), by_device(effects)
    return BesideDefaults([*chain(*by_place[0].values())], [*chain(*by_place[1].values())])


def _tried(found: BesideDefaults) -> set[str]:
    """Return the switches that were set to something else."""
    return {*(effect.switch for effect in found.effects), *chain.from_iterable(best.tried for best in found.bests)}


def _nothing(results: Results) -> Lack:
    alone = _PRECISIONS_ALONE if _tried(_measured(results)) else ""
    return Lack("; ".join((f"{_LACKING}{alone}", *_unfinished(results))))


def _unfinished(results: Results) -> list[str]:
    searches = [row for row in results.rows if row.case.unfinished and row.declared.having("switch") and row.declared.searched]
    fastest = [row for row in searches if not row.declared.value("largest")]
    return [f"the search for the fastest {short(row.key)}: {row.case.reason}" for row in fastest]


def _bests(results: Results) -> list[Best]:
    """Return of each work and device its fastest row against the one with the plain defaults, where both were measured."""

    def work(row: Row) -> Hashable:
        return row.differing_from((MATH, *settings_named(_free(row))))

    found = list[Best]()
    for group in grouped((row for row in results.rows if row.has_throughput), work).values():
        defaults = [row for row in group if not row.case.found and _is_plain(row)]
        if not defaults or len(group) == 1:
            continue
        # Of several batches the best default.
        default, best = (max(rows, key=lambda row: row.throughput) for rows in (defaults, group))
        among, others = max(1, len(group) - len(defaults)), [row for row in group if row is not default]
        tried = frozenset(name for row in others for name in _free(default) if row.setting(name) != default.setting(name))
        closest = _over(default, max(others, key=lambda row: row.throughput), among) if best is default else None
        found.append(Best(_over(default, best, among), tried, closest))
    return found


def _over(default: Row, other: Row, among: int) -> Pair:
    return Pair(default, other, None, _free(default), (default.rounds.items_per_s, other.rounds.items_per_s), among=among)


def _free(row: Row) -> tuple[str, ...]:
    """Return the parameters that rows of one work may differ in."""
    return tuple(dict.fromkeys((*row.declared.having("switch"), *row.declared.searched)))


def _is_plain(row: Row) -> bool:
    """Whether all switches of a row are at their defaults."""
    settings = ((row.setting(name), row.declared.plain_default(name)) for name in row.declared.having("switch"))
    return all(value is None or str(value) == plain for value, plain in settings)


def _foremost_bests(found: Sequence[Best]) -> list[Best]:
    """Return the case in the middle of the first kind of work, of those that a search chose if any, and that of each other kind."""
    alike = foremost(found)
    # Of a step that was tried in another precision alone little is known.
    chosen = [best for best in alike if best.searched] or [best for best in alike if best.pair.among > 1] or alike
    kinds = by_kind([best for best in found if best.row.case.device == alike[0].row.case.device]).values()
    return [middle(chosen), *(middle(kind) for kind in kinds if alike[0] not in kind)]


def _foremost_effects(found: Sequence[Effect]) -> list[Effect]:
    """Return of each switch what its best setting brings in its middle case, that which brings most first; without one the first."""
    alike = foremost(found)
    alone = [effect for effect in alike if effect.alone] or alike
    middles = [middle(each) for each in grouped(alone, lambda effect: (effect.switch, effect.setting)).values()]
    of_switch = grouped(middles, lambda effect: effect.switch).values()
    return sorted((max(each, key=speedup_of) for each in of_switch), key=speedup_of, reverse=True)


def _best_ratios(found: Sequence[Best]) -> Iterator[Figure]:
    series = [place(found)] if mark_of(CASE, found) == "dot" else []
    yield of_ratios(_AT_BEST, _INTERVALS, "times as fast as the default", mark_of(CASE, found), found, CASE.headed("work"), *series)


def _effect_ratios(found: Sequence[Effect]) -> Iterator[Figure]:
    """Yield what each option brings alone: a row an option, or where several steps have it, a row a step."""
    for where, alike in by_workload_and_device([effect for effect in found if effect.alone]).items():
        named = (_SET_TO,) if mark_of(_SET_TO, alike) == "bar" else (_DEFAULT, _SET_TO)
        title = f"What each tuning option brings alone: {where}"
        yield of_ratios(title, _INTERVALS, "times as fast as the default", mark_of(named[0], alike), alike, *named)


def _cautions(results: Results) -> Iterator[str]:
    unfinished = "; ".join(_unfinished(results))
    if unfinished:
        yield from unfinished.split("; ")
    elif not any(best.searched for best in _read(results).bests):
        yield _NOT_SEARCHED
    yield SEE_PRECISION if trainings(results.rows) else _CONVERGES


def _notes(found: Sequence[Effect]) -> Iterator[str]:
    if any(effect.spent_s for effect in found):
        yield "pays off after: steps that save what is spent once, such as compiling; empty where no saving is shown"
    yield from over_rounds([effect.pair for effect in found])


_AT_BEST = "Each step at its best against its plain default: how many times the throughput"
_SET_TO = Column("default.setting", Unit.TEXT, "what it is set to", of=lambda effect: effect.setting, heading="set to", priority=0)
_DEFAULT = Column("default.case", Unit.TEXT, "the case with its plain defaults", of=lambda effect: effect.pair.base.key, heading="default")
_HEADLINE = {
    "gain": "{speedup} left on the table{span}",
    "loss": "{speedup}{span}: nothing left on the table",
    "open": "no gain shown over the default",
}
_QUALIFIER = ("{case}{where}: {options}", "{short}{where}: {options}", "{short:18}{where}: {options}")
ORDER = 70
QUESTION = Question(
    "default",
    "What does the default leave on the table?",
    command="dlbench run modes",
    others=("dlbench run cnn",),
    missing=[_nothing],
    read=_read,
    cautions=_cautions,
    tags={Tag.UNFINISHED: lambda results: bool(_unfinished(results))},
    sections=[
        Section(
            records="bests",
            title=_AT_BEST,
            columns=[
                CASE.headed("work"),
                place,
                of_side("base", lambda row: row.batch, "batch"),
                of_side("base", lambda row: row.rate.items_per_s, "default"),
                of_side("other", lambda row: row.rate.items_per_s, "best", 0),
                Column("default.choice", Unit.TEXT, "what the fastest row has otherwise than the default", heading="at", priority=0),
                Column("default.searched", Unit.FLAG, "whether a search chose that, and not only the best of what a suite planned").by(
                    lambda best: best.searched, "searched"
                ),
                RATIO,
            ],
            whole=lambda best: pair_columns.cells(best.pair),
            foremost=_foremost_bests,
            by=lambda best: best.outcome,
            headline=_HEADLINE,
            qualifier=_QUALIFIER,
            tags={
                Tag.FEW_ROUNDS: lambda best: best.ratio.reason is not None,
                Tag.NOISY: lambda best: best.outcome == "open",
                Tag.ESTIMATE: lambda best: best.outcome == "gain" and best.ratio.among > 1,
            },
            figures=[_best_ratios],
        ),
        Section(
            records="effects",
            title="The same case with one tuning option set: how many times as fast",
            columns=[
                CASE,
                place,
                Column("default.switch", Unit.TEXT, "the parameter that differs from its default", heading="option", priority=0),
                _SET_TO,
                Column("default.alone", Unit.FLAG, "whether all other options are at their defaults", heading="alone"),
                of_side("base", lambda row: row.time.median_s, "default"),
                of_side("other", lambda row: row.time.median_s, "time"),
                RATIO,
                Column(
                    "default.spent_s",
                    Unit.SECONDS,
                    "what is spent once before the first step, beyond what the default spends",
                    "lower",
                    heading="spent once",
                    priority=0,
                ),
                Column(
                    "default.break_even_steps",
                    Unit.COUNT,
                    "steps after which what is spent once has been saved",
                    "lower",
                    heading="pays off after",
                    priority=0,
                ),
                lambda found: value_columns([side for effect in found for side in effect.sides]),
            ],
            notes=_notes,
            whole=lambda effect: pair_columns.cells(effect.pair),
            foremost=_foremost_effects,
            by=lambda effect: effect.ratio.outcome,
            headline=_HEADLINE,
            qualifier=_QUALIFIER,
            tags={
                Tag.FEW_ROUNDS: lambda effect: effect.ratio.interval is None,
                Tag.NOISY: lambda effect: effect.ratio.is_undecided,
            },
            figures=[_effect_ratios],
        ),
    ],
)
