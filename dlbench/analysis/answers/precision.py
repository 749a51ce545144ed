"""Precision: how much faster each is, and how far off its results are."""

from collections.abc import Mapping
from dataclasses import replace

from dlbench.analysis.answers.base import Answer, Missing, Question, Table, answered, both_sides, doubts
from dlbench.analysis.answers.pairs import same_case
from dlbench.analysis.findings import pair
from dlbench.analysis.table import Results, records
from dlbench.analysis.wording import among, middle, number, place, ratio, several_runs, short
from dlbench.core.model import Value
from dlbench.core.schema import BY_NAME
from dlbench.core.summary import Row
from dlbench.core.units import fraction

QUESTION = Question("precision", "Which precision; how much faster is it, and how far off are its results?")
_Errors = Mapping[tuple[Value | None, Value | None], float]


def answer(results: Results) -> Answer | Missing:
    """Return the fastest precision of each device beside fp32, in the case in the middle, and how far off its results are."""
    pairs = pair(results, "dtype")
    found = records(pairs.frame)
    if not found:
        return Missing(QUESTION, "no two rows differ in their precision alone", "dlbench run precision")
    known = [row for row in results.rows if row["check.error"] is not None]
    errors = {(row["case.run"], row["case.id"]): number(row["check.error"]) for row in known}
    several = several_runs(found, "base", "other")
    places: dict[str, dict[str, list[Row]]] = {}
    for row in sorted(found, key=lambda row: row["other.device"] == "cpu"):
        places.setdefault(place(row, "other", several), {}).setdefault(str(row["other.value"]), []).append(row)
    sentences = [_sentence(name, by_precision, errors) for name, by_precision in places.items()]
    rows = both_sides(results, found)
    weak = doubts(rows)
    weak += [] if errors else ["how far off its results are was not checked"]
    weak += ["whether training still converges in it was not measured"]
    return answered(QUESTION, sentences, rows, weak, _with_errors(same_case(pairs), errors))


def _sentence(where: str, by_precision: Mapping[str, list[Row]], errors: _Errors) -> str:
    pairs = max(by_precision.values(), key=lambda pairs: number(middle(pairs)["ratio.speedup"]))
    row = middle(pairs)
    base, other = row["base.value"], row["other.value"]
    told = f"On {where} the fastest beside {base} is {other}: {short(row['pair.case'])} runs {ratio(row)} as fast{among(pairs)}"
    off = [(value, _error(pairs, side, errors)) for side, value in (("other", other), ("base", base))]
    words = [f"{fraction(error)} in {value}" for value, error in off if error is not None]
    return f"{told}; results are off by up to {' and '.join(words)}." if words else f"{told}."


def _error(pairs: list[Row], side: str, errors: _Errors) -> float | None:
    """Return the largest of the errors on one side of pairs, where any was checked."""
    keys = [(row[f"{side}.run"], row[f"{side}.id"]) for row in pairs]
    return max([errors[key] for key in keys if key in errors], default=None)


def _with_errors(table: Table, errors: _Errors) -> Table:
    error = BY_NAME["check.error"]
    columns, rows = list(table.columns), list(table.rows)
    for side in ("base", "other"):
        columns.append((f"error of {side}", replace(error, name=f"{side}.error")))
        rows = [{**row, f"{side}.error": errors.get((row[f"{side}.run"], row[f"{side}.id"]))} for row in rows]
    return replace(table, columns=tuple(columns), rows=tuple(rows))
