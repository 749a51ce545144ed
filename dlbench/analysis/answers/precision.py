"""Precision: how much faster each is, and how far off its results are."""

from dlbench.analysis.answers.base import Answer, Missing, Question, Table, answered, by_device
from dlbench.analysis.answers.pairs import both_sides, declared_values, ratio_figures, reported, same_case
from dlbench.analysis.figures import Axis, Figure, drawn
from dlbench.analysis.ratios import PAIR_COLUMNS, as_chosen, grouped, pair
from dlbench.analysis.read.table import Results
from dlbench.analysis.wording import among, as_far_as, hedge, is_ahead, middle, number, ratio, several_runs, short
from dlbench.core.rows.row import BY_NAME
from dlbench.core.rows.row import Cells as Row
from dlbench.core.units import fraction

_ERROR, _PRECISION = BY_NAME["check.error"], BY_NAME["case.dtype"]
_SIDES = ("other", "base")
QUESTION = Question("precision", "Which precision; how much faster is it, and how far off are its results?")


def answer(results: Results) -> Answer | Missing:
    """Return the fastest precision of each device beside fp32, in the case in the middle, and how far off its results are."""
    pairs, (values, reports) = pair(results, "dtype"), reported(results, "dtype")
    if not pairs.rows and not reports:
        return Missing(QUESTION, "no two rows differ in their precision alone", "dlbench run precision")
    table = same_case(pairs, results, _ERROR)
    weaknesses = ["whether training still converges in it was not measured"]
    if all(row[f"{side}.{_ERROR.name}"] is None for row in table.rows for side in _SIDES):
        weaknesses.insert(0, "how far off its results are was not checked")
    sentences = [_sentence(where, found, table, results) for where, found in by_device(table.rows, "other").items()]
    rows = both_sides(results, (*pairs.rows, *(values.rows if reports else ())))
    tables = [each for each in (table, values) if each.rows]
    figures = [*ratio_figures(table), *_errors(table)]
    return answered(QUESTION, sentences, rows, weaknesses if sentences else (), *tables, reports=reports, figures=figures)


def _errors(table: Table) -> list[Figure]:
    """Return the figure of how far off results are, a dot for each precision; none where nothing was checked."""
    sides = [(row["pair.case"], row["place"], row[f"{side}.value"], row[f"{side}.{_ERROR.name}"]) for row in table.rows for side in _SIDES]
    names = ("pair.case", "place", _PRECISION.name, _ERROR.name)
    rows: list[Row] = [dict(zip(names, side, strict=True)) for side in dict.fromkeys(sides) if side[-1]]  # zero has no logarithm
    if not rows:
        return []
    if several_runs(table.rows, "other"):  # the same case on two machines is two lines
        rows = [{**row, "pair.case": f"{row['pair.case']} on {row['place']}"} for row in rows]
    shown, left_out = drawn(rows, lambda row: number(row[_ERROR.name]))
    about = f"Relative distance from the result in fp64 on the CPU, in the 2-norm; further left is nearer.{left_out}"
    error, case, series = Axis("error", _ERROR, log=True), Axis("case", PAIR_COLUMNS["pair.case"]), Axis("precision", _PRECISION)
    return [Figure("How far off the results are", about, "dot", error, case, shown, series)]


def _sentence(where: str, rows: list[Row], table: Table, results: Results) -> str:
    others = grouped(rows, lambda row: row["other.value"])
    pairs = max(others.values(), key=lambda pairs: number(middle(pairs)["ratio.speedup"]))
    row = as_chosen(middle(pairs), results, len(others))
    base, other = row["base.value"], row["other.value"]
    if is_ahead(row):
        best = f"the fastest beside {base} is {other}"
    elif row["ratio.ci_high"] is None and number(row["ratio.speedup"]) > 1:
        best = f"the fastest measured beside {base} is {other}{hedge(row, 'no faster')}"
    else:
        told = f" {as_far_as(row)}" if number(row["ratio.ci_high"] or 0) >= 1 else ""
        best = f"nothing is faster than {base}{told}, and nearest comes {other}"
    parts = [f"On {where} {best}: {short(row['pair.case'])} runs {ratio(row)} as fast{among(pairs)}"]
    off = []
    for side in _SIDES:
        errors = [number(error) for pair in pairs if (error := pair[f"{side}.{_ERROR.name}"]) is not None]
        off += [f"{fraction(max(errors))} in {row[f'{side}.value']}"] if errors else []
    parts += [f"results are off by up to {' and '.join(off)}"] if off else []
    return f"{'; '.join([*parts, *declared_values(table, row)])}."
