"""Precision: how much faster each is, and how far off its results are."""

from dataclasses import replace

from dlbench.analysis.answers.base import Answer, Missing, Question, answered, by_place
from dlbench.analysis.answers.pairs import both_sides, same_case
from dlbench.analysis.findings import pair
from dlbench.analysis.table import Results, records
from dlbench.analysis.wording import among, middle, number, ratio, short
from dlbench.core.model import ParamValue
from dlbench.core.schema import BY_NAME
from dlbench.core.summary import Row
from dlbench.core.units import fraction

QUESTION = Question("precision", "Which precision; how much faster is it, and how far off are its results?")


def answer(results: Results) -> Answer | Missing:
    """Return the fastest precision of each device beside fp32, in the case in the middle, and how far off its results are."""
    pairs = pair(results, "dtype")
    if pairs.frame.empty:
        return Missing(QUESTION, "no two rows differ in their precision alone", "dlbench run precision")
    table = same_case(pairs)
    errors = {(row["case.run"], row["case.id"]): row["check.error"] for row in results.rows}
    sides = {f"{side}.error": side for side in ("other", "base")}
    rows = [{**row, **{name: errors[row[f"{side}.run"], row[f"{side}.id"]] for name, side in sides.items()}} for row in table.rows]
    columns = tuple((f"error of {side}", replace(BY_NAME["check.error"], name=name)) for name, side in sides.items())
    unchecked = all(error is None for row in rows for error in (row[name] for name in sides))
    weaknesses = ["how far off its results are was not checked"] if unchecked else []
    weaknesses.append("whether training still converges in it was not measured")
    sentences = [_sentence(where, found) for where, found in by_place(rows, "other").items()]
    shown = replace(table, columns=table.columns + columns, rows=tuple(rows))
    return answered(QUESTION, sentences, both_sides(results, records(pairs.frame)), weaknesses, shown)


def _sentence(where: str, rows: list[Row]) -> str:
    by_precision: dict[ParamValue | None, list[Row]] = {}
    for row in rows:
        by_precision.setdefault(row["other.value"], []).append(row)
    pairs = max(by_precision.values(), key=lambda pairs: number(middle(pairs)["ratio.speedup"]))
    row = middle(pairs)
    told = f"On {where} the fastest beside {row['base.value']} is {row['other.value']}: "
    told += f"{short(row['pair.case'])} runs {ratio(row)} as fast{among(pairs)}"
    off = []
    for side in ("other", "base"):
        errors = [number(pair[f"{side}.error"]) for pair in pairs if pair[f"{side}.error"] is not None]
        off += [f"{fraction(max(errors))} in {row[f'{side}.value']}"] if errors else []
    return f"{told}; results are off by up to {' and '.join(off)}." if off else f"{told}."
