"""Default: how much faster the same step runs with other switches than the plain defaults, by each alone and by all together."""

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from dlbench.analysis.answers.parts.base import Answer, AnswerPart, Missing, Question, Table, answered, table
from dlbench.analysis.answers.parts.convergence import SEE_PRECISION, trainings
from dlbench.analysis.answers.parts.headline import (
    Headline,
    Tag,
    by_kind,
    cut,
    foremost,
    limits,
    names_of,
    nearer,
    of_the_middle,
    qualifiers,
    span_of,
)
from dlbench.analysis.answers.parts.pair_tables import beside_defaults, mark_of, of_ratios, over_rounds
from dlbench.analysis.presentation import pair_columns
from dlbench.analysis.presentation.fields import CASE, RATIO, Fields, Headed, of_side, own, place, value_fields
from dlbench.analysis.presentation.figures import Figure
from dlbench.analysis.presentation.names import by_device, by_workload_and_device, flat
from dlbench.analysis.presentation.wording import few, option, plural, short, value_words
from dlbench.analysis.ratios.pairing import DTYPE, MATH, Pair, both_sides, grouped, settings_named
from dlbench.analysis.ratios.ratio import middle, speedup_of
from dlbench.analysis.read.table import Results
from dlbench.core.rows.row import Row
from dlbench.core.schema import Unit

ORDER = 60
QUESTION = Question("default", "What does the default leave on the table?")
_NETWORK = 18
"""Characters of the name of a network in a qualifier that has to name options as well."""
_NEVER = 1e12
"""Steps that nobody takes; an edited file may say anything."""
_DEFAULTS = "its defaults"
_NOTHING = "nothing left on the table"
_LACKING = "no step was measured both with its plain defaults and with another tuning option"
_PRECISIONS_ALONE = "; other precisions alone are told in the answer on precision"
_NOT_SEARCHED = "only what a suite planned was compared; dlbench run fastest searches for more"
_CONVERGES = "whether training still converges in another precision or at another batch was not measured"
_PAYS_OFF = "pays off after: steps that save what is spent once, such as compiling; empty where no saving is shown"
_INTERVALS = "A value above 1 is faster than the default; the lines are 95 % intervals over rounds."


@dataclass(frozen=True)
class _Best(Pair):
    """The fastest row of a work on a device, against the one with the plain defaults."""

    tried: frozenset[str] = frozenset()
    """What any of those that it was chosen among has otherwise than the default."""
    closest: Pair | None = None
    """Where that is itself the fastest, the fastest of the others against it."""


def _as_fast(best: Pair) -> Pair | None:
    """Return the closest other against a default that is the fastest by less than their rounds show; None of any else."""
    closest = best.closest if isinstance(best, _Best) else None
    return closest if closest and closest.ratio.is_undecided else None


def _is_searched(best: Pair) -> bool:
    """Whether a search chose it, and not only the best of what a suite planned."""
    return bool(best.other.case.found)


def _options(best: Pair) -> list[str]:
    """Return what it has otherwise than the default, such as ``amp_bf16`` and ``batch=64``: one where it differs in one switch."""
    settings = {name: best.other.setting(name) for name in ((best.by.name,) if best.by else _free(best.other))}
    return [option(name, value) for name, value in settings.items() if value is not None and value != best.base.setting(name)]


def _choice(best: Pair) -> str | None:
    return " ".join(_options(best)) or None


def _switch(effect: Pair) -> str:
    """Return the name of the switch that is set."""
    return effect.by.name if effect.by else ""


def _setting(effect: Pair) -> str | None:
    """Return what the switch is set to."""
    return effect.value(effect.other)


def _spent_s(effect: Pair) -> float | None:
    """Return what is spent once, beyond what the default spends, in seconds; None where that is nothing."""
    base, other = (
        max((side.value(each.name) or 0.0 for each in side.declared.values if each.role == "once"), default=0.0) for side in effect.sides
    )
    return other - base if other > base else None


def _steps(effect: Pair) -> int | None:
    """Return the steps that save what is spent once at what each of them saves; None where no saving is shown."""
    base_s, other_s = (side.time.mean_s or 0.0 for side in effect.sides)
    low, spent_s = effect.ratio.low or effect.ratio.speedup, _spent_s(effect)
    steps = spent_s / (base_s - other_s) if spent_s and base_s > other_s and low > 1 else math.inf
    return math.ceil(steps) if steps < _NEVER else None


_SET_TO: Headed[Pair] = own("set to", "default.setting", Unit.TEXT, "what it is set to", _setting)
_DEFAULT: Headed[Pair] = own("default", "default.case", Unit.TEXT, "the case with its plain defaults", lambda effect: effect.base.key)
_BEST_FIELDS: Fields[Pair] = (
    ("batch", of_side("base", lambda row: row.batch)),
    ("default", of_side("base", lambda row: row.rate.items_per_s)),
    ("best", of_side("other", lambda row: row.rate.items_per_s)),
    own(
        "at",
        "default.choice",
        Unit.TEXT,
        "what the fastest row has otherwise than the default",
        _choice,
    ),
    own(
        "searched",
        "default.searched",
        Unit.FLAG,
        "whether a search chose that, and not only the best of what a suite planned",
        _is_searched,
    ),
    *RATIO,
)


def answer(results: Results) -> Answer | Missing:
    """Return how many times as fast each device runs the same step at its best, and what each switch brings."""
    switched = results.where(lambda row: bool(row.declared.having("switch")))
    # Of a search nobody knows what its switches bring alone.
    planned = switched.where(lambda row: row.is_ok and not row.case.found)
    effects = [effect for pairs in beside_defaults(planned, "switch") for effect in pairs.rows]
    effects.sort(key=lambda effect: (not _is_alone(effect), _switch(effect), effect.value(effect.base) or ""))
    bests = _bests(switched)
    searches = [row for row in switched.rows if row.declared.searched and not row.declared.value("largest")]
    cut_short = [f"the search for the fastest {short(row.key)}: {row.case.reason}" for row in searches if row.case.unfinished]
    unfinished = "; ".join(cut_short).split("; ") if cut_short else []
    tried = {*map(_switch, effects), *chain.from_iterable(best.tried for best in bests)}
    if not tried - {DTYPE.name}:
        lacking = f"{_LACKING}{_PRECISIONS_ALONE if tried else ''}"
        return Missing(QUESTION, "; ".join((lacking, *cut_short)), "dlbench run modes", others=("dlbench run cnn",))
    paragraphs = [_paragraph(where, found) for where, found in by_device([*bests, *effects]).items()]
    headline = _headline(bests or list(filter(_is_alone, effects)) or effects, bool(unfinished))
    rows = both_sides(results, (*bests, *effects))
    bests, effects = flat(by_device(bests)), flat(by_device(effects))
    title = "Each step at its best against its plain default: how many times the throughput"
    by_work: Fields[Pair] = (("work", CASE), place(bests), *_BEST_FIELDS)
    tables = table(title, by_work, bests, whole=pair_columns.cells), _effect_table(effects, rows)
    searched = unfinished or any(map(_is_searched, bests))
    converges = SEE_PRECISION if trainings(results.rows) else _CONVERGES
    weaknesses = (*unfinished, *(() if searched else (_NOT_SEARCHED,)), converges)
    figures = [_ratios(title, bests, ("work", CASE), *([place(bests)] if mark_of(CASE, bests) == "dot" else []))]
    for where, found in by_workload_and_device(list(filter(_is_alone, effects))).items():
        # A row an option, or where several steps have it, a row a step.
        named = (_SET_TO,) if mark_of(_SET_TO[1], found) == "bar" else (_DEFAULT, _SET_TO)
        figures.append(_ratios(f"What each tuning option brings alone: {where}", found, *named))
    return answered(QUESTION, AnswerPart(paragraphs, rows, tables, figures, weaknesses, headline))


def _effect_table(effects: Sequence[Pair], rows: Sequence[Row]) -> Table:
    """Return the table of what switches bring, with the values that the workloads of these rows report."""
    fields: Fields[Pair] = (
        ("case", CASE),
        place(effects),
        own("option", "default.switch", Unit.TEXT, "the parameter that differs from its default", _switch),
        _SET_TO,
        own("alone", "default.alone", Unit.FLAG, "whether all other options are at their defaults", _is_alone),
        ("default", of_side("base", lambda row: row.time.median_s)),
        ("time", of_side("other", lambda row: row.time.median_s)),
        *RATIO,
        own(
            "spent once",
            "default.spent_s",
            Unit.SECONDS,
            "what is spent once before the first step, beyond what the default spends",
            _spent_s,
            "lower",
        ),
        own(
            "pays off after", "default.break_even_steps", Unit.COUNT, "steps after which what is spent once has been saved", _steps, "lower"
        ),
        *((value_words(each.column), each) for each in value_fields(rows)),
    )
    notes = (*((_PAYS_OFF,) if any(map(_spent_s, effects)) else ()), *over_rounds(effects))
    return table("The same case with one tuning option set: how many times as fast", fields, effects, notes, whole=pair_columns.cells)


def _bests(results: Results) -> list[_Best]:
    """Return of each work and device its fastest row against the one with the plain defaults, where both were measured."""

    def work(row: Row) -> Hashable:
        return row.differing_from((MATH, *settings_named(_free(row))))

    found = list[_Best]()
    for group in grouped((row for row in results.rows if row.has_throughput), work).values():
        defaults = [row for row in group if not row.case.found and _is_plain(row)]
        if not defaults or len(group) == 1:
            continue
        # Of several batches the best default.
        default, best = (max(rows, key=lambda row: row.throughput) for rows in (defaults, group))
        among, others = max(1, len(group) - len(defaults)), [row for row in group if row is not default]
        tried = frozenset(name for row in others for name in _free(default) if row.setting(name) != default.setting(name))
        closest = _over(default, max(others, key=lambda row: row.throughput), among, tried) if best is default else None
        found.append(replace(_over(default, best, among, tried), closest=closest))
    return found


def _over(default: Row, other: Row, among: int, tried: frozenset[str]) -> _Best:
    rates = (default.rounds.items_per_s, other.rounds.items_per_s)
    return _Best(default, other, None, _free(default), rates, among=among, tried=tried)


def _free(row: Row) -> tuple[str, ...]:
    """Return the parameters that rows of one work may differ in."""
    return tuple(dict.fromkeys((*row.declared.having("switch"), *row.declared.searched)))


def _is_plain(row: Row) -> bool:
    """Whether all switches of a row are at their defaults."""
    settings = ((row.setting(name), row.declared.plain_default(name)) for name in row.declared.having("switch"))
    return all(value is None or str(value) == plain for value, plain in settings)


def _is_alone(effect: Pair) -> bool:
    """Whether the switch that is set is the only one."""
    return _is_plain(effect.base)


def _headline(pairs: Sequence[Pair], unfinished: bool) -> Headline:
    """Return what the default leaves on the table: by the best of the case in the middle, of those that a search chose if any."""
    found, where = foremost(by_device(pairs))
    found = _of_several(list(filter(_is_searched, found)) or found)
    best = middle(found) if found[0].by is None else max(_each_alone(found), key=speedup_of)
    best = _as_fast(best) or best
    ratio, (name, network), tags = best.ratio, names_of(best.case), {Tag.UNFINISHED: unfinished}
    if best.other is best.base:
        text = f"{ratio.brief}: {_NOTHING}"
        return Headline([text], qualifiers((name, network), where, span_of(found)), rows=best.sides, tags=tags)
    if ratio.speedup > 1 and not ratio.is_undecided:
        text = f"{ratio.brief} left on the table{ratio.span}"
    else:
        text = "no gain shown over the default" if ratio.is_undecided else f"{ratio.brief}{ratio.span}: {_NOTHING}"
    choice = ", ".join(_options(best)) or _DEFAULTS
    near = nearer(where)
    about = [f"{each}: {choice}" for each in (name + where, network + where, network + near, cut(network, _NETWORK) + near)]
    tags |= limits(ratio) | {Tag.CHOSEN: any(each.among > 1 for each in pairs)}
    return Headline([text], about, ratio.span, best.sides, tags)


def _of_several(bests: list[Pair]) -> list[Pair]:
    """Return those chosen among several settings, if any: of a step that was tried in another precision alone little is known."""
    return [best for best in bests if best.among > 1] or bests


def _paragraph(where: str, found: Sequence[Pair]) -> tuple[str, ...]:
    """Say what the best of each kind of work has over the default, what each switch brings alone, and whether compiling pays off.

    ``found``: the pairs of the best and the default of a device, which differ in no one setting, and those of which one switch is set.
    """
    of_works = [pair for pair in found if pair.by is None]
    plain = sum(best.other is best.base for best in of_works)
    first = f"the plain default is the fastest in {plain} of {len(of_works)} cases"
    sentences = [f"On {where} {first if of_works else 'no throughput is known to choose the best by'}."]
    for bests in by_kind(of_works).values():
        searched, planned = ([best for best in bests if _is_searched(best) is chosen] for chosen in (True, False))
        sentences += _of_best(searched, "A search found it.") if searched else ()
        sentences += _of_best(_of_several(planned), "It is the best of what was planned.") if planned else ()
    effects = [pair for pair in found if pair.by]
    alone = by_kind(filter(_is_alone, effects))
    for kind, of_kind in alone.items():
        told = (f"{_choice(effect)} {effect.ratio.brief}" for effect in _each_alone(of_kind))
        sentences.append(f"Alone in {kind}: {few(told, 6)}.")
    switches = set(map(_switch, flat(alone)))
    with_others = [effect for effect in effects if not _is_alone(effect) and _switch(effect) not in switches]
    sentences += [f"With {short(effect.case)}, {_choice(effect)} brings {effect.ratio.times}." for effect in with_others[:1]]
    if spending := next(filter(_spent_s, (*chain.from_iterable(map(_middles, alone.values())), *with_others)), None):
        steps = _steps(spending)
        when = "never pays off" if steps is None else f"pays off after {plural(steps, 'step')}"
        sentences.append(f"{_choice(spending)} {when} in {short(spending.case)}.")
    return tuple(sentences)


def _middles(alone: Iterable[Pair]) -> list[Pair]:
    """Return of each setting of each switch the effect in the middle."""
    return [middle(alike) for alike in grouped(alone, lambda effect: (_switch(effect), _setting(effect))).values()]


def _each_alone(alone: Iterable[Pair]) -> list[Pair]:
    """Return of each switch what its best setting brings in its middle case, the most first."""
    of_switch = grouped(_middles(alone), _switch).values()
    return sorted((max(alike, key=speedup_of) for alike in of_switch), key=speedup_of, reverse=True)


def _of_best(found: Sequence[Pair], chosen: str) -> tuple[str, ...]:
    best = middle(found)
    work, batch = short(best.case), best.base.batch
    if best.other is best.base:
        closest = _as_fast(best)
        shown = f"With {few(_options(closest), 6)} it has {closest.ratio} the throughput, which shows no gain." if closest else None
        return f"{work} runs fastest as it is.", *filter(None, [shown]), *of_the_middle(found)
    at = "" if batch is None else f" at batch={batch}"
    return (
        f"{work} runs fastest with {few(_options(best), 6) or _DEFAULTS}.",
        f"That is {best.ratio} the throughput of its default{at}.",
        *of_the_middle(found),
        chosen,
    )


def _ratios(title: str, found: Sequence[Pair], named: Headed[Pair], *series: Headed[Pair]) -> Figure:
    """Return ratios over the default as bars, or as dots where several share a line."""
    return of_ratios(title, _INTERVALS, "times as fast as the default", mark_of(named[1], found), found, named, *series)
