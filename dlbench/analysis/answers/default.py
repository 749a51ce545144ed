"""Default: how much faster the same step runs with other switches than the plain defaults, by each alone and by all together."""

import math
from collections.abc import Hashable, Sequence
from itertools import starmap

from dlbench.analysis.answers.parts.base import Answer, AnswerPart, Missing, Question, Table, answered, table
from dlbench.analysis.answers.parts.pair_tables import beside_defaults, mark_of, of_ratios
from dlbench.analysis.presentation import pair_columns
from dlbench.analysis.presentation.fields import CASE, RATIO, Fields, Headed, of_side, own, place, value_fields
from dlbench.analysis.presentation.figures import Figure
from dlbench.analysis.presentation.names import by_device, by_workload, flat
from dlbench.analysis.presentation.wording import plural, short, value_name
from dlbench.analysis.ratios.pairing import MATH, Pair, both_sides, grouped, settings_named
from dlbench.analysis.ratios.ratio import among, middle, speedup_of
from dlbench.analysis.read.table import Results
from dlbench.core.model import value_text
from dlbench.core.rows.row import Row
from dlbench.core.schema import Unit

ORDER = 60
QUESTION = Question("default", "What does the default leave on the table?")
_NEVER = 1e12
"""Steps that nobody takes; an edited file may say anything."""
_CHOSEN_FAST = (
    "the best was chosen for being fast among the same measurements: its interval allows for that, but its ratio is on the high side"
)
_NOT_SEARCHED = "only what a suite planned was compared; dlbench run fastest searches for more"
_CONVERGES = "whether training still converges in another precision or at another batch was not measured"
_PAYS_OFF = "pays off after: steps that save what is spent once, such as compiling; empty where no saving is shown"
_INTERVALS = "A value above 1 is faster than the default; the lines are 95 % intervals over rounds."


def _is_searched(best: Pair) -> bool:
    """Whether a search chose it, and not only the best of what a suite planned."""
    return bool(best.other.case.found)


def _choice(best: Pair) -> str | None:
    """Return what it has otherwise than the default, such as ``amp_bf16 batch=64``: a word needs no name."""
    settings = {name: best.other.setting(name) for name in _free(best.other)}
    texts = {name: value_text(value) for name, value in settings.items() if value is not None and value != best.base.setting(name)}
    return " ".join(text if text[:1].isalpha() else f"{name}={text}" for name, text in texts.items()) or None


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
_DEFAULT: Headed[Pair] = own("default", "default.case", Unit.TEXT, "the case with its plain defaults", lambda effect: effect.base.case.id)
_BEST_FIELDS: Fields[Pair] = (
    ("batch", of_side("base", lambda row: row.batch)),
    ("default", of_side("base", lambda row: row.rate.items_per_s)),
    ("best", of_side("other", lambda row: row.rate.items_per_s)),
    own("at", "default.choice", Unit.TEXT, "what the fastest row has otherwise than the default", _choice),
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
    unfinished = [f"the search for the fastest {short(row.key)}: {row.case.reason}" for row in searches if row.case.unfinished]
    if not effects and not bests:
        lacking = "no step was measured both with its plain defaults and with another switch"
        return Missing(QUESTION, "; ".join((lacking, *unfinished)), "dlbench run modes")
    sentences = list(starmap(_sentence, by_device([*bests, *effects]).items()))
    rows = both_sides(results, (*bests, *effects))
    bests, effects = flat(by_device(bests)), flat(by_device(effects))
    title = "Each step at its best beside its plain default: how many times the throughput"
    by_work: Fields[Pair] = (("work", CASE), place(bests), *_BEST_FIELDS)
    tables = table(title, by_work, bests, whole=pair_columns.cells), _effect_table(effects, rows)
    searched = unfinished or any(map(_is_searched, bests))
    weaknesses = (*unfinished, *((_CHOSEN_FAST,) if bests else ()), *(() if searched else (_NOT_SEARCHED,)), _CONVERGES)
    figures = [_bars(title, bests, ("work", CASE), place(bests))]
    for (workload, where), found in by_workload(list(filter(_is_alone, effects))).items():
        figures.append(_bars(f"What each switch brings alone: {workload} on {where}", found, _SET_TO, _DEFAULT))
    return answered(QUESTION, AnswerPart(sentences, rows, tables, figures, weaknesses))


def _effect_table(effects: Sequence[Pair], rows: Sequence[Row]) -> Table:
    """Return the table of what switches bring, with the values that the workloads of these rows report."""
    fields: Fields[Pair] = (
        ("case", CASE),
        place(effects),
        own("switch", "default.switch", Unit.TEXT, "the parameter that differs from its default", _switch),
        _SET_TO,
        own("alone", "default.alone", Unit.FLAG, "whether all other switches are at their defaults", _is_alone),
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
        *((value_name(each.column), each) for each in value_fields(rows)),
    )
    notes = (_PAYS_OFF,) if any(map(_spent_s, effects)) else ()
    return table("The same case with one switch set: how many times as fast", fields, effects, notes, whole=pair_columns.cells)


def _bests(results: Results) -> list[Pair]:
    """Return of each work and device its fastest row against the one with the plain defaults, where both were measured."""

    def work(row: Row) -> Hashable:
        return row.differing_from((MATH, *settings_named(_free(row))))

    found = []
    for group in grouped((row for row in results.rows if row.has_throughput), work).values():
        defaults = [row for row in group if not row.case.found and _is_plain(row)]
        if not defaults or len(group) == 1:
            continue
        # Of several batches the best default.
        default, best = (max(rows, key=lambda row: row.throughput) for rows in (defaults, group))
        rates = (default.rounds.items_per_s, best.rounds.items_per_s)
        found.append(Pair(default, best, None, _free(default), rates, among=max(1, len(group) - len(defaults))))
    return found


def _free(row: Row) -> tuple[str, ...]:
    """Return the parameters that rows of one work may differ in."""
    return tuple(dict.fromkeys((*row.declared.having("switch"), *row.declared.searched)))


def _is_plain(row: Row) -> bool:
    """Whether all switches of a row are at their defaults."""
    return all(row.setting(name) in (None, row.declared.plain_default(name)) for name in row.declared.having("switch"))


def _is_alone(effect: Pair) -> bool:
    """Whether the switch that is set is the only one."""
    return _is_plain(effect.base)


def _sentence(where: str, found: Sequence[Pair]) -> str:
    """Say what the best of a device has over the default, what each switch brings alone, and whether compiling pays off.

    ``found``: its pairs of the best and the default, which differ in no one setting, and those of which one switch is set.
    """
    bests, effects = [pair for pair in found if pair.by is None], [pair for pair in found if pair.by]
    searched, measured = ([best for best in bests if _is_searched(best) is chosen] for chosen in (True, False))
    parts = [f"{_of_best(searched)}, found by a search"] if searched else []
    parts += [f"{_of_best(measured)}, the best of what was planned"] if measured else []
    alone = filter(_is_alone, effects)
    middles = [middle(alike) for alike in grouped(alone, lambda effect: (_switch(effect), _setting(effect))).values()]
    of_switch = grouped(middles, _switch)
    most = sorted((max(alike, key=speedup_of) for alike in of_switch.values()), key=speedup_of, reverse=True)
    parts += [f"alone {', '.join(f'{_setting(effect)} {effect.ratio.times}' for effect in most)}"] if most else []
    not_alone = [effect for effect in effects if not _is_alone(effect) and _switch(effect) not in of_switch]
    parts += [f"{_setting(effect)} {effect.ratio.times} beside {short(effect.case)}" for effect in not_alone[:1]]
    if spending := next(filter(_spent_s, (*middles, *not_alone)), None):
        steps = _steps(spending)
        when = "never pays off there" if steps is None else f"pays off there after {plural(steps, 'step')}"
        parts.append(f"{_setting(spending)} {when}")
    return f"On {where} beside the default: {'; '.join(parts) or 'the table has what switches bring beside others'}."


def _of_best(found: Sequence[Pair]) -> str:
    best = middle(found)
    work, batch = short(best.case), best.base.batch
    if best.other is best.base:
        return f"{work} runs fastest as it is{among(found)}"
    at = f" of its default{'' if batch is None else f' at batch={batch}'}"
    return f"{work} has {best.ratio} the throughput{at} with {_choice(best)}{best.ratio.hedge('no faster')}{among(found)}"


def _bars(title: str, found: Sequence[Pair], named: Headed[Pair], series: Headed[Pair]) -> Figure:
    """Return ratios over the default as bars, or as dots where several share a line."""
    mark = mark_of(named[1], found)
    told_apart = (named, series) if mark == "dot" else (named,)
    return of_ratios(title, _INTERVALS, "times as fast as the default", mark, found, *told_apart)
