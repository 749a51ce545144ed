"""Precision: how much faster each is, and how far off its results are."""

from collections.abc import Sequence
from operator import itemgetter

from dlbench.analysis.answers.parts.base import Answer, AnswerPart, Missing, Question, answered
from dlbench.analysis.answers.parts.pair_tables import declared_values, furthest, on_its_device, ratio_figure, reported, same_case
from dlbench.analysis.presentation.fields import CASE, of_row
from dlbench.analysis.presentation.figures import Figure, figure
from dlbench.analysis.presentation.names import by_device
from dlbench.analysis.presentation.wording import short
from dlbench.analysis.ratios.pairing import Pair, both_sides, match_rows
from dlbench.analysis.ratios.ratio import among
from dlbench.analysis.read.table import Results
from dlbench.core.units import fraction

_ERROR, _PRECISION = of_row(lambda row: row.check.error), of_row(lambda row: row.case.dtype)
ORDER = 50
QUESTION = Question("precision", "Which precision; how much faster is it, and how far off are its results?")


def answer(results: Results) -> Answer | Missing:
    """Return the fastest precision of each device against fp32, in the case in the middle, and how far off its results are."""
    pairs, (with_values, values, reports) = match_rows(results, "dtype"), reported(results, "dtype")
    if not pairs.rows and not reports:
        return Missing(QUESTION, "no two rows differ in their precision alone", "dlbench run precision")
    table = same_case(pairs, _ERROR)
    weaknesses = ["whether training still converges in it was not measured"]
    if all(side.check.error is None for each in pairs.rows for side in each.sides):
        weaknesses.insert(0, "how far off its results are was not checked")
    sentences = [_sentence(where, found) for where, found in by_device(pairs.rows).items()]
    rows = both_sides(results, (*pairs.rows, *(with_values.rows if reports else ())))
    figures = [ratio_figure(table.title, pairs), _errors(pairs.rows)]
    return answered(QUESTION, AnswerPart(sentences, rows, [table, values], figures, weaknesses if sentences else ()), reports)


def _errors(pairs: Sequence[Pair]) -> Figure:
    """Return the figure of how far off results are, a dot for each precision."""
    sides = {(each.case, each.other.case.run, side.case.id): (each, side) for each in pairs for side in reversed(each.sides)}
    return figure(
        "How far off the results are",
        "Relative distance from the result in fp64 on the CPU, in the 2-norm; further left is nearer.",
        "dot",
        [each for each in sides.values() if each[1].check.error],  # zero has no logarithm
        ("error", _ERROR.on(itemgetter(1))),
        ("case", on_its_device(CASE, pairs).on(itemgetter(0))),
        ("precision", _PRECISION.on(itemgetter(1))),
        log="x",
        spread=lambda each: each[1].check.error or 0.0,
    )


def _sentence(where: str, pairs: list[Pair]) -> str:
    best, fastest = furthest(pairs)
    ratio, base, other = best.ratio, best.value(best.base), best.value(best.other)
    if ratio.is_ahead:
        fastest_is = f"the fastest beside {base} is {other}"
    elif ratio.interval is None and ratio.speedup > 1:
        fastest_is = f"the fastest measured beside {base} is {other}{ratio.hedge('no faster')}"
    else:
        limit = f" {ratio.as_far_as}" if ratio.interval and ratio.interval.high >= 1 else ""
        fastest_is = f"nothing is faster than {base}{limit}, and nearest comes {other}"
    parts = [f"On {where} {fastest_is}: {short(best.case)} runs {ratio} as fast{among(fastest)}"]
    off = []
    for precision, sides in ((other, [each.other for each in fastest]), (base, [each.base for each in fastest])):
        errors = [side.check.error for side in sides if side.check.error is not None]
        off += [f"{fraction(max(errors))} in {precision}"] if errors else []
    parts += [f"results are off by up to {' and '.join(off)}"] if off else []
    return f"{'; '.join([*parts, *declared_values(best)])}."
