"""Default: how much faster the same step runs with other switches than the plain defaults, by each alone and by all together."""

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeVar

from dlbench.analysis import pair_columns
from dlbench.analysis.answers.base import Answer, Missing, Question, Table, answered, table
from dlbench.analysis.answers.pair_tables import mark_of, of_ratios
from dlbench.analysis.fields import CASE, RATIO, Field, Fields, of_side, own, place, value_fields
from dlbench.analysis.figures import Figure
from dlbench.analysis.names import by_device, flat, is_unfinished
from dlbench.analysis.pairing import MATH, Pair, both_sides, grouped, pair, root_of, roots_of, settings_named
from dlbench.analysis.ratio import Ratio, among, middle, speedup_of
from dlbench.analysis.read.table import Results
from dlbench.analysis.wording import plural, short, value_name
from dlbench.core.errors import UsageError
from dlbench.core.model import value_text
from dlbench.core.rows.row import Row
from dlbench.core.schema import Column, Unit

Roots = Mapping[str, Collection[str]]
"""Of each switch the values that others extend: each is the plain default of those, and none of another's."""

QUESTION = Question("default", "What does the default leave on the table?")
_SETTING = Column("default.setting", Unit.TEXT, "what it is set to")
_SEARCHED = "whether a search chose that, and not only the best of what a suite planned"
_SPENT = "what is spent once before the first step, beyond what the default spends"
_BREAK_EVEN = "steps after which what is spent once has been saved"
_CASE = Column("default.case", Unit.TEXT, "the case with its plain defaults")
_NEVER = 1e12
"""Steps that nobody takes; an edited file may say anything."""
_CHOSEN_FAST = (
    "the best was chosen for being fast among the same measurements: its interval allows for that, but its ratio is on the high side"
)
_NOT_SEARCHED = "only what a suite planned was compared; dlbench run fastest searches for more"
_CONVERGES = "whether training still converges in another precision or at another batch was not measured"
_PAYS_OFF = "pays off after: steps that save what is spent once, such as compiling; empty where no saving is shown"
_INTERVALS = "A value above 1 is faster than the default; the lines are 95 % intervals over rounds."


@dataclass(frozen=True, slots=True)
class _Beside:
    """A row beside one with the plain defaults, and the ratio of the two."""

    pair: Pair

    @property
    def ratio(self) -> Ratio:
        return self.pair.ratio


S = TypeVar("S", bound=_Beside)


@dataclass(frozen=True, slots=True)
class _Best(_Beside):
    """The fastest row of a work and device, with the ratio of the throughputs."""

    @property
    def searched(self) -> bool:
        """Whether a search chose it, and not only the best of what a suite planned."""
        return bool(self.pair.other.case.found)

    @property
    def choice(self) -> str | None:
        """What it has otherwise than the default, such as ``amp_bf16 batch=64``: a word needs no name."""
        default, best = self.pair.sides
        settings = {name: best.setting(name) for name in _free(best)}
        texts = {name: value_text(value) for name, value in settings.items() if value is not None and value != default.setting(name)}
        return " ".join(text if text[:1].isalpha() else f"{name}={text}" for name, text in texts.items()) or None


@dataclass(frozen=True, slots=True)
class _Effect(_Beside):
    """A row with one switch set, beside the same with its default."""

    switch: str
    alone: bool
    """Whether all other switches are at their defaults."""

    @property
    def setting(self) -> str | None:
        """What the switch is set to."""
        return self.pair.value(self.pair.other)

    @property
    def spent_s(self) -> float | None:
        """What is spent once, beyond what the default spends, seconds; None where that is nothing."""
        base, other = map(_spent_s, self.pair.sides)
        return other - base if other > base else None

    @property
    def steps(self) -> int | None:
        """Steps that save what is spent once at what each of them saves; None where no saving is shown."""
        base_s, other_s = (side.time.mean_s or 0.0 for side in self.pair.sides)
        low = self.ratio.low or self.ratio.speedup
        steps = self.spent_s / (base_s - other_s) if self.spent_s and base_s > other_s and low > 1 else math.inf
        return math.ceil(steps) if steps < _NEVER else None


def _pair(found: _Beside) -> Pair:
    return found.pair


def _other(found: _Beside) -> Row:
    return found.pair.other


_ALONE_FIELDS: Fields[_Effect] = (
    own("switch", "default.switch", Unit.TEXT, "the parameter that differs from its default", lambda effect: effect.switch),
    ("set to", Field(_SETTING, lambda effect: effect.setting)),
    own("alone", "default.alone", Unit.FLAG, "whether all other switches are at their defaults", lambda effect: effect.alone),
    ("default", of_side("base", lambda row: row.time.median_s).on(_pair)),
    ("time", of_side("other", lambda row: row.time.median_s).on(_pair)),
    *RATIO,
    own("spent once", "default.spent_s", Unit.SECONDS, _SPENT, lambda effect: effect.spent_s, "lower"),
    own("pays off after", "default.break_even_steps", Unit.COUNT, _BREAK_EVEN, lambda effect: effect.steps, "lower"),
)
_BEST_FIELDS: Fields[_Best] = (
    ("batch", of_side("base", lambda row: row.batch).on(_pair)),
    ("default", of_side("base", lambda row: row.rate.items_per_s).on(_pair)),
    ("best", of_side("other", lambda row: row.rate.items_per_s).on(_pair)),
    own("at", "default.choice", Unit.TEXT, "what the fastest row has otherwise than the default", lambda best: best.choice),
    own("searched", "default.searched", Unit.FLAG, _SEARCHED, lambda best: best.searched),
    *RATIO,
)


def answer(results: Results) -> Answer | Missing:
    """Return how many times as fast each device runs the same step at its best, and what each switch brings."""
    switched = results.where(lambda row: bool(row.declared.having("switch")))
    effects, bests, unfinished = _effects(switched), _bests(switched), _unfinished(switched)
    if not effects and not bests:
        lacking = "no step was measured both with its plain defaults and with another switch"
        return Missing(QUESTION, "; ".join((lacking, *unfinished)), "dlbench run modes")
    best_of, effects_of = by_device(bests, _other), by_device(effects, _other)
    sentences = [_sentence(where, best_of.get(where, ()), effects_of.get(where, ())) for where in {**best_of, **effects_of}]
    rows = both_sides(results, [each.pair for each in (*bests, *effects)])
    bests, effects = flat(best_of), flat(effects_of)
    values = tuple((value_name(each.column), each.on(_other)) for each in value_fields(rows))
    notes = (_PAYS_OFF,) if any(each.spent_s for each in effects) else ()
    title = "Each step at its best beside its plain default: how many times the throughput"
    best_table = _table(title, "work", bests, _BEST_FIELDS)
    effect_table = _table("The same case with one switch set: how many times as fast", "case", effects, (*_ALONE_FIELDS, *values), notes)
    searched = unfinished or any(best.searched for best in bests)
    weaknesses = (*unfinished, *((_CHOSEN_FAST,) if bests else ()), *(() if searched else (_NOT_SEARCHED,)), _CONVERGES)
    shown = [each for each in (best_table, effect_table) if each.rows]
    figures = [*_bars(title, bests, ("work", CASE.on(_pair)), place(bests, _other)), *_effect_figures(effects_of)]
    return answered(QUESTION, sentences, rows, weaknesses, *shown, figures=figures)


def _table(title: str, heading: str, found: Sequence[S], fields: Fields[S], notes: Sequence[str] = ()) -> Table:
    """Return the table of rows beside their default, behind what both have in common under the heading."""
    shown: Fields[S] = ((heading, CASE.on(_pair)), place(found, _other), *fields)
    return table(title, shown, found, notes, whole=lambda each: pair_columns.cells(each.pair))


def _unfinished(results: Results) -> list[str]:
    """Say of each search for the fastest that was cut short what is the fastest so far, and why it went no further."""
    searches = [row for row in results.rows if row.declared.searched and not row.declared.value("largest")]
    return [f"the search for the fastest {short(row.key)}: {row.case.reason}" for row in searches if is_unfinished(row)]


def _bests(results: Results) -> list[_Best]:
    """Return of each work and device its fastest row beside the one with the plain defaults, where both were measured."""
    roots = _roots(results)

    def work(row: Row) -> Hashable:
        of_others = tuple(root_of(row, name, roots[name]) for name in row.declared.having("switch"))
        return of_others, row.differing_from((MATH, *settings_named(_free(row))))

    found = []
    for group in grouped((row for row in results.rows if row.has_throughput), work).values():
        defaults = [row for row in group if not row.case.found and _is_plain(row, roots)]
        if not defaults or len(group) == 1:
            continue
        # Of several batches the best default.
        default, best = (max(rows, key=lambda row: row.throughput) for rows in (defaults, group))
        # A default that others extend, such as adamw beside sgd, tells one work from another.
        hidden = tuple(name for name in _free(default) if not root_of(default, name, roots.get(name, ())))
        rates = (default.rounds.items_per_s, best.rounds.items_per_s)
        found.append(_Best(Pair(default, best, None, hidden, rates, among=max(1, len(group) - len(defaults)))))
    return found


def _free(row: Row) -> tuple[str, ...]:
    """Return the parameters that rows of one work may differ in."""
    return tuple(dict.fromkeys((*row.declared.having("switch"), *row.declared.searched)))


def _roots(results: Results) -> Roots:
    return {name: roots_of(results.rows, name) for name in {name for row in results.rows for name in row.declared.having("switch")}}


def _plain(row: Row, name: str, roots: Roots) -> str:
    """Return the plain default that a row's value of a switch is held against."""
    return root_of(row, name, roots[name]) or row.declared.plain_default(name) or ""


def _is_plain(row: Row, roots: Roots) -> bool:
    """Whether all switches of a row are at their defaults."""
    return all(row.setting(name) in (None, _plain(row, name, roots)) for name in row.declared.having("switch"))


def _effects(results: Results) -> list[_Effect]:
    """Return the pairs of rows that differ in one switch only, each beside its default."""
    roots = _roots(results)
    planned = [row for row in results.rows if row.is_ok and not row.case.found]
    having = grouped(
        (((name, _plain(row, name, roots)), row) for row in planned for name in row.declared.having("switch")), lambda each: each[0]
    )
    found: list[_Effect] = []
    for name, plain in sorted(having):
        with suppress(UsageError):  # no row that went well has the default
            pairs = pair(replace(results, rows=tuple(row for _, row in having[name, plain])), name, plain).rows
            found += [_Effect(each, name, _is_plain(each.base, roots)) for each in pairs]
    return sorted(found, key=lambda effect: not effect.alone)


def _spent_s(row: Row) -> float:
    """Return the most that a row reports as spent once, in seconds."""
    return max((row.value(each.name) or 0.0 for each in row.declared.values if each.role == "once"), default=0.0)


def _sentence(where: str, bests: Sequence[_Best], effects: Sequence[_Effect]) -> str:
    """Say what the best of a device is beside the default, what each switch brings alone, and whether compiling pays off."""
    searched = [best for best in bests if best.searched]
    measured = [best for best in bests if not best.searched]
    parts = [f"{_of_best(searched)}, found by a search"] if searched else []
    parts += [f"{_of_best(measured)}, the best of what was planned"] if measured else []
    alone = grouped((effect for effect in effects if effect.alone), lambda effect: (effect.switch, effect.setting))
    middles = [middle(found) for found in alone.values()]
    of_switch = grouped(middles, lambda effect: effect.switch)
    most = sorted((max(found, key=speedup_of) for found in of_switch.values()), key=speedup_of, reverse=True)
    parts += [f"alone {', '.join(f'{effect.setting} {effect.ratio.times}' for effect in most)}"] if most else []
    beside = [effect for effect in effects if not effect.alone and effect.switch not in of_switch]
    parts += [f"{effect.setting} {effect.ratio.times} beside {short(effect.pair.case)}" for effect in beside[:1]]
    parts += [_pays_off(effect) for effect in (*middles, *beside) if effect.spent_s][:1]
    if not parts:
        parts = ["the table has what switches bring beside others"]
    return f"On {where} beside the default: {'; '.join(parts)}."


def _of_best(found: Sequence[_Best]) -> str:
    best = middle(found)
    default, work = best.pair.base, short(best.pair.case)
    if best.pair.other is default:
        return f"{work} runs fastest as it is{among(found)}"
    at = f" of its default{'' if default.batch is None else f' at batch={default.batch}'}"
    return f"{work} has {best.ratio} the throughput{at} with {best.choice}{best.ratio.hedge('no faster')}{among(found)}"


def _pays_off(effect: _Effect) -> str:
    when = "never pays off there" if effect.steps is None else f"pays off there after {plural(effect.steps, 'step')}"
    return f"{effect.setting} {when}"


def _effect_figures(devices: Mapping[str, Sequence[_Effect]]) -> list[Figure]:
    """Return what each switch alone brings, of each workload and device a figure."""
    setting: Field[_Effect] = Field(_SETTING, lambda effect: effect.setting)
    default: Field[_Effect] = Field(_CASE, lambda effect: effect.pair.base.case.id)
    figures = []
    for where, effects in devices.items():
        for workload, found in grouped((each for each in effects if each.alone), lambda each: each.pair.base.case.workload).items():
            figures += _bars(f"What each switch brings alone: {workload} on {where}", found, ("set to", setting), ("default", default))
    return figures


def _bars(title: str, found: Sequence[S], named: tuple[str, Field[S]], series: tuple[str, Field[S]]) -> list[Figure]:
    """Return ratios over the default as bars, or as dots where several share a line."""
    if not found:
        return []
    mark = mark_of(named[1], found)
    told_apart = (named, series) if mark == "dot" else (named,)
    return [of_ratios(title, _INTERVALS, "times as fast as the default", mark, found, *told_apart)]
