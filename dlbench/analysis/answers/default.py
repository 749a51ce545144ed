"""Default: how much faster the same step runs with other switches than the plain defaults, by each alone and by all together."""

import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain

from dlbench.analysis.answers.base import DEVICE, RATIO, Answer, Columns, Missing, Question, Table, answered, by_device
from dlbench.analysis.answers.pairs import both_sides
from dlbench.analysis.figures import Axis, Figure, drawn
from dlbench.analysis.ratios import PAIR_COLUMNS, Entry, chosen, entries, grouped, identifying, pair, root_of, roots_of, sides, speed_ratio
from dlbench.analysis.read.table import Results
from dlbench.analysis.wording import among, hedge, is_unfinished, key, middle, number, plural, ratio, short, times, value_name
from dlbench.core.errors import UsageError
from dlbench.core.model import Status
from dlbench.core.rows.row import Cells as Row
from dlbench.core.schema import Column, Unit

QUESTION = Question("default", "What does the default leave on the table?")
_SWITCH = Column("default.switch", Unit.TEXT, "the parameter that differs from its default")
_SETTING = Column("default.setting", Unit.TEXT, "what it is set to")
_ALONE = Column("default.alone", Unit.FLAG, "whether all other switches are at their defaults")
_CHOICE = Column("default.choice", Unit.TEXT, "what the fastest row has otherwise than the default")
_SEARCHED = Column("default.searched", Unit.FLAG, "whether a search chose that, and not only the best of what a suite planned")
_SPENT = Column("default.spent_s", Unit.SECONDS, "what is spent once before the first step, beyond what the default spends", "lower")
_BREAK_EVEN = Column("default.break_even_steps", Unit.COUNT, "steps after which what is spent once has been saved", "lower")
_ALONE_COLUMNS: Columns = (
    ("case", PAIR_COLUMNS["pair.case"]),
    DEVICE,
    ("switch", _SWITCH),
    ("set to", _SETTING),
    ("alone", _ALONE),
    ("default", PAIR_COLUMNS["base.median_s"]),
    ("time", PAIR_COLUMNS["other.median_s"]),
    *RATIO,
    ("spent once", _SPENT),
    ("pays off after", _BREAK_EVEN),
)
_BEST_COLUMNS: Columns = (
    ("work", PAIR_COLUMNS["pair.case"]),
    DEVICE,
    ("batch", PAIR_COLUMNS["base.batch"]),
    ("default", PAIR_COLUMNS["base.items_per_s"]),
    ("best", PAIR_COLUMNS["other.items_per_s"]),
    ("at", _CHOICE),
    ("searched", _SEARCHED),
    *RATIO,
)
_NEVER = 1e12
"""Steps that nobody takes; an edited file may say anything."""
_CHOSEN_FAST = (
    "the best was chosen for being fast among the same measurements: its interval allows for that, but its ratio is on the high side"
)
_NOT_SEARCHED = "only what a suite planned was compared; dlbench run fastest searches for more"
_CONVERGES = "whether training still converges in another precision or at another batch was not measured"
_PAYS_OFF = "pays off after: steps that save what is spent once, such as compiling; empty where no saving is shown"
_INTERVALS = "A value above 1 is faster than the default; the lines are 95 % intervals over rounds."


def answer(results: Results) -> Answer | Missing:
    """Return how many times as fast each device runs the same step at its best, and what each switch brings."""
    switched = results.where(lambda row: bool(results.declaration(row).switches))
    effects, bests, unfinished = _effects(switched), _bests(switched), _unfinished(switched)
    if not effects and not bests:
        lacking = "no step was measured both with its plain defaults and with another switch"
        return Missing(QUESTION, "; ".join((lacking, *unfinished)), "dlbench run modes")
    best_of, effects_of = by_device(bests, "other"), by_device(effects, "other")
    places = dict.fromkeys((*best_of, *effects_of))
    sentences = [_sentence(where, best_of.get(where, ()), effects_of.get(where, ())) for where in places]
    rows = both_sides(results, (*bests, *effects))
    declared = {each.name: each for row in rows for each in results.declared(row) if not each.series}
    values = tuple((value_name(each), each) for each in declared.values())
    notes = (_PAYS_OFF,) if any(_SPENT.name in row for row in effects) else ()
    tables = (
        Table("Each step at its best beside its plain default: how many times the throughput", _BEST_COLUMNS, _flat(best_of)),
        Table("The same case with one switch set: how many times as fast", (*_ALONE_COLUMNS, *values), _flat(effects_of), notes),
    )
    searched = unfinished or any(row[_SEARCHED.name] for row in bests)
    weaknesses = (*unfinished, *((_CHOSEN_FAST,) if bests else ()), *(() if searched else (_NOT_SEARCHED,)), _CONVERGES)
    shown = [each for each in tables if each.rows]
    return answered(QUESTION, sentences, rows, weaknesses, *shown, figures=[*_best_figures(tables[0]), *_effect_figures(tables[1])])


def _unfinished(results: Results) -> list[str]:
    """Say of each search for the fastest that was cut short what is the fastest so far, and why it went no further."""
    cut = [row for row in results.rows if (search := results.declaration(row).search) and search.aim == "fastest" and is_unfinished(row)]
    return [f"the search for the fastest {short(key(row))}: {row['case.reason']}" for row in cut]


def _flat(devices: Mapping[str, Sequence[Row]]) -> tuple[Row, ...]:
    return tuple(chain.from_iterable(devices.values()))


def _bests(results: Results) -> list[Row]:
    """Return of each work and device its fastest row beside the one with the plain defaults, where both were measured."""
    columns, roots = identifying(results.columns), _roots(results)

    def work(each: Entry) -> tuple[object, ...]:
        of_others = tuple(root_of(each.row, name, roots.get(name, ())) for name in results.declaration(each.row).switches)
        free = {"case.math", *(f"{group}.{name}" for name in _free(each.row, results) for group in ("case", "param"))}
        return *of_others, *(None if name in free else each.row[name] for name in columns)

    found = []
    for group in grouped((each for each in entries(results) if _is_fit(each)), work).values():
        defaults = [each for each in group if each.row["case.found"] is None and not _changed(each.row, results, roots)]
        if not defaults or len(group) == 1:
            continue
        default = max(defaults, key=lambda each: number(each.row["rate.items_per_s"]))  # of several batches the best
        best = max(group, key=lambda each: number(each.row["rate.items_per_s"]))
        # A default that others extend, such as adamw beside sgd, tells one work from another.
        hidden = [name for name in _free(default.row, results) if not root_of(default.row, name, roots.get(name, ()))]
        row = sides(default, best, "case.id", hidden)
        rates = (default.rounds.items_per_s, best.rounds.items_per_s)
        row |= {"pair.by": "best", "pair.time": "wall", **speed_ratio(*rates, among=max(1, len(group) - len(defaults)))}
        found.append({**row, _CHOICE.name: _otherwise(default.row, best.row, results), _SEARCHED.name: best.row["case.found"] is not None})
    return found


def _free(row: Row, results: Results) -> tuple[str, ...]:
    """Return the parameters that rows of one work may differ in."""
    declared = results.declaration(row)
    return tuple(dict.fromkeys((*declared.switches, *(declared.search.over if declared.search else ()))))


def _otherwise(default: Row, best: Row, results: Results) -> str | None:
    """Return for example ``amp_bf16 batch=64``: what a row has otherwise than its default; a word needs no name."""
    differing = {name: value for name in _free(best, results) if (value := chosen(best, name)) not in (None, chosen(default, name))}
    return " ".join(str(value) if str(value)[:1].isalpha() else f"{name}={value}" for name, value in differing.items()) or None


def _is_fit(each: Entry) -> bool:
    return each.row["case.status"] == Status.OK and not each.row["flag.implausible"] and min(each.rounds.items_per_s, default=0) > 0


def _roots(results: Results) -> dict[str, frozenset[str]]:
    """Return of each switch the values that others extend: each is the plain default of those, and none of another's."""
    return {name: roots_of(results.rows, name) for row in results.rows for name in results.declaration(row).switches}


def _plain(row: Row, name: str, results: Results, roots: Mapping[str, Collection[str]]) -> str:
    """Return the plain default that a row's value of a switch is held against."""
    return root_of(row, name, roots.get(name, ())) or results.declaration(row).switches[name]


def _changed(row: Row, results: Results, roots: Mapping[str, Collection[str]]) -> list[str]:
    """Return the switches of a row that are not at their defaults."""
    return [name for name in results.declaration(row).switches if chosen(row, name) not in (None, _plain(row, name, results, roots))]


def _effects(results: Results) -> list[Row]:
    """Return the pairs of rows that differ in one switch only, each beside its default."""
    planned, roots = results.where(lambda row: row["case.found"] is None and row["case.status"] == Status.OK), _roots(results)
    by_id = {(row["case.run"], row["case.id"]): row for row in planned.rows}
    defaults = {(name, _plain(row, name, results, roots)) for row in planned.rows for name in results.declaration(row).switches}
    found = []
    for name, plain in sorted(defaults):
        having = planned.where(partial(_has_default, name=name, plain=plain, results=results, roots=roots))
        pairs: tuple[Row, ...] = ()
        with suppress(UsageError):  # no row that went well has the default
            pairs = pair(having, name, plain).rows
        for each in pairs:
            base, other = (by_id[each[f"{side}.run"], each[f"{side}.id"]] for side in ("base", "other"))
            of_other: Row = {column.name: other[column.name] for column in results.declared(other)}
            told: Row = {_SWITCH.name: name, _SETTING.name: each["other.value"], _ALONE.name: not _changed(base, results, roots)}
            saved_s = number(base["time.mean_s"]) - number(other["time.mean_s"])
            cost = _cost(each, _spent_s(other, results) - _spent_s(base, results), saved_s)
            found.append({**each, **of_other, **told, **cost})
    return sorted(found, key=lambda row: not row[_ALONE.name])


def _has_default(row: Row, name: str, plain: str, results: Results, roots: Mapping[str, Collection[str]]) -> bool:
    return name in results.declaration(row).switches and _plain(row, name, results, roots) == plain


def _spent_s(row: Row, results: Results) -> float:
    """Return the most that a row reports as spent once, in seconds."""
    once = [row.get(value.column.name) for value in results.declaration(row).values if value.once]
    return max((seconds for seconds in once if isinstance(seconds, int | float)), default=0.0)


def _cost(each: Row, spent_s: float, saved_s: float) -> Row:
    """Return what the other side of a pair spends once, and the steps that save it at so much a step, None where no saving is shown."""
    if not spent_s > 0:
        return {}
    low = each["ratio.speedup"] if each["ratio.ci_low"] is None else each["ratio.ci_low"]
    steps = spent_s / saved_s if saved_s > 0 and number(low) > 1 else math.inf
    return {_SPENT.name: spent_s, _BREAK_EVEN.name: math.ceil(steps) if steps < _NEVER else None}


def _sentence(where: str, bests: Sequence[Row], effects: Sequence[Row]) -> str:
    """Say what the best of a device is beside the default, what each switch brings alone, and whether compiling pays off."""
    searched = [row for row in bests if row[_SEARCHED.name]]
    measured = [row for row in bests if not row[_SEARCHED.name]]
    parts = [f"{_of_best(searched)}, found by a search"] if searched else []
    parts += [f"{_of_best(measured)}, the best of what was planned"] if measured else []
    alone = [row for row in effects if row[_ALONE.name]]
    middles = [middle(rows) for rows in grouped(alone, lambda row: (row[_SWITCH.name], row[_SETTING.name])).values()]
    most = [max(rows, key=lambda row: number(row["ratio.speedup"])) for rows in grouped(middles, lambda row: row[_SWITCH.name]).values()]
    brought = [f"{row[_SETTING.name]} {times(row)}" for row in sorted(most, key=lambda row: -number(row["ratio.speedup"]))]
    parts += [f"alone {', '.join(brought)}"] if brought else []
    beside = [row for row in effects if not row[_ALONE.name] and row[_SWITCH.name] not in {each[_SWITCH.name] for each in middles}]
    parts += [f"{row[_SETTING.name]} {times(row)} beside {short(row['pair.case'])}" for row in beside[:1]]
    parts += [_pays_off(row) for row in (*middles, *beside) if _SPENT.name in row][:1]
    if not parts:
        parts = ["the table has what switches bring beside others"]
    return f"On {where} beside the default: {'; '.join(parts)}."


def _of_best(rows: Sequence[Row]) -> str:
    row = middle(rows)
    if row["base.id"] == row["other.id"]:
        return f"{short(row['pair.case'])} runs fastest as it is{among(rows)}"
    at = f" of its default at batch={row['base.batch']}" if row["base.batch"] is not None else " of its default"
    told = f"{hedge(row, 'no faster')}{among(rows)}"
    return f"{short(row['pair.case'])} has {ratio(row)} the throughput{at} with {row[_CHOICE.name]}{told}"


def _pays_off(row: Row) -> str:
    steps = row.get(_BREAK_EVEN.name)
    when = "never pays off there" if steps is None else f"pays off there after {plural(int(number(steps)), 'step')}"
    return f"{row[_SETTING.name]} {when}"


def _best_figures(table: Table) -> list[Figure]:
    """Return the figure of the best of each work over its default; none where there is none."""
    return _bars(table, "pair.case", Axis("work", PAIR_COLUMNS["pair.case"]), Axis("device", DEVICE[1]))


def _effect_figures(table: Table) -> list[Figure]:
    """Return what each switch alone brings, of each workload and device a figure."""
    alone = [{**row, "default.case": str(row["base.id"])} for row in table.rows if row[_ALONE.name]]
    found = []
    for (workload, where), rows in grouped(alone, lambda row: (str(row["base.id"]).partition("[")[0], str(row["place"]))).items():
        of_device = Table(f"What each switch brings alone: {workload} on {where}", table.columns, tuple(rows))
        series = Axis("default", Column("default.case", Unit.TEXT, "the case with its plain defaults"))
        found += _bars(of_device, _SETTING.name, Axis("set to", _SETTING), series)
    return found


def _bars(table: Table, name: str, y: Axis, series: Axis) -> list[Figure]:
    """Return ratios over the default as bars, or as dots where several share a line."""
    if not table.rows:
        return []
    shown, left_out = drawn(table.rows, lambda row: number(row["ratio.speedup"]))
    several = len({row[name] for row in shown}) < len(shown)
    x = Axis("times as fast as the default", PAIR_COLUMNS["ratio.speedup"], log=True)
    ends = (PAIR_COLUMNS["ratio.ci_low"], PAIR_COLUMNS["ratio.ci_high"])
    series_shown = series if several else None
    return [Figure(table.title, f"{_INTERVALS}{left_out}", "dot" if several else "bar", x, y, shown, series_shown, ends, 1.0)]
