"""Precision: how much faster each is, and how far off its results are."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, starmap
from operator import itemgetter

from dlbench.analysis.answers.parts.base import Answer, AnswerPart, Missing, Question, answered
from dlbench.analysis.answers.parts.headline import (
    Headline,
    Tag,
    by_kind,
    cut,
    foremost,
    limits,
    names_of,
    of_the_middle,
    qualifiers,
    span_of,
)
from dlbench.analysis.answers.parts.pair_tables import (
    declared_values,
    furthest,
    on_its_device,
    ratio_figure,
    reported,
    reported_headline,
    same_case,
)
from dlbench.analysis.presentation.fields import CASE, of_row
from dlbench.analysis.presentation.figures import Figure, figure
from dlbench.analysis.presentation.names import by_device
from dlbench.analysis.presentation.wording import plural, short
from dlbench.analysis.ratios.pairing import Pair, both_sides, match_rows
from dlbench.analysis.ratios.ratio import speedup_of
from dlbench.analysis.read.table import Results
from dlbench.core.rows.row import Row
from dlbench.core.units import fraction

_ERROR, _PRECISION = of_row(lambda row: row.check.error), of_row(lambda row: row.case.dtype)
ORDER = 50
QUESTION = Question("precision", "Which precision; how much faster is it, and how far off are its results?")

_CONVERGES = "whether training still converges in it was not measured"
_PRECISION_NAME = 11
"""Characters of the name of a precision in the headline, so that the ratio begins within the first 30."""
_MOST_TOLD = 3
"""Kinds of work of a device in sentences; the table has all."""


def answer(results: Results) -> Answer | Missing:
    """Return the fastest precision of each device and kind of work against fp32, in its middle case, and how far off its results are."""
    pairs, (with_values, values, reports) = match_rows(results, "dtype"), reported(results, "dtype")
    if not pairs.rows and not reports:
        return Missing(QUESTION, "no two rows differ in their precision alone", "dlbench run precision", others=("dlbench run cnn",))
    table = same_case(pairs, _ERROR)
    devices = by_device(pairs.rows)
    paragraphs = [_paragraph(where, found) for where, found in devices.items()]
    rows = both_sides(results, (*pairs.rows, *(with_values.rows if reports else ())))
    figures = [ratio_figure(table.title, pairs), _errors(pairs.rows)]
    headline = _headline(devices) if devices else reported_headline(with_values)
    found = AnswerPart(paragraphs, rows, [table, values], figures, (_CONVERGES,) if devices else (), headline)
    return answered(QUESTION, found, reports)


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


def _headline(devices: Mapping[str, list[Pair]]) -> Headline:
    """Return whether another precision is faster, and how far off its results are."""
    found, where = foremost(devices)
    best, fastest = furthest(found)
    ratio, (base, other) = best.ratio, (cut(str(best.value(side)), _PRECISION_NAME) for side in best.sides)
    errors = _errors_of(each.other for each in fastest)
    spans, gains = (ratio.span, ""), ratio.speedup > 1 and not ratio.is_undecided
    if gains or (ratio.is_behind and max(map(speedup_of, fastest)) > 1):
        off = "".join(f", error {error}" for error in errors)
        texts = [f"{other} {ratio.brief} {base}{end}" for end in (f"{ratio.span}{off}", *spans)]
    else:
        start = "no gain shown" if ratio.is_undecided else f"none beats {base}"
        texts = [f"{start}: {ratio.brief}{span}, {other}" for span in spans]
    tags = limits(ratio) | {Tag.NOT_CHECKED: not errors}
    return Headline(texts, qualifiers(names_of(best.case), where, span_of(fastest)), ratio.span, best.sides, tags)


def _paragraph(where: str, pairs: Sequence[Pair]) -> tuple[str, ...]:
    """Return which precision is the fastest in the first kind of work, how far off its results are, and what the other kinds say."""
    kinds = by_kind(pairs)
    bests = [furthest(found) for found in kinds.values()]
    more = len(kinds) - _MOST_TOLD
    left_out = [f"The table has {plural(more, 'more kind')} of work."] if more > 0 else []
    return _verdict(where, next(iter(kinds)), bests[0][0]), *chain.from_iterable(starmap(_case, bests[:_MOST_TOLD])), *left_out


def _verdict(where: str, kind: str, best: Pair) -> str:
    ratio, base, other = best.ratio, best.value(best.base), best.value(best.other)
    if ratio.is_ahead:
        return f"On {where} the fastest precision in {kind} is {other}."
    if ratio.interval is None and ratio.speedup > 1:
        return f"On {where} the fastest precision measured in {kind} is {other}, of too few rounds to tell."
    shown = " is shown to beat" if ratio.is_undecided else " beats"
    return f"On {where} no precision{shown} {base} in {kind}, and the closest is {other}."


def _case(best: Pair, fastest: Sequence[Pair]) -> Iterator[str]:
    """Yield how fast the case in the middle is, how far off the results of all are, and the values that its workload declares."""
    yield f"{short(best.case)} runs {best.ratio} as fast in {best.value(best.other)}."
    yield from of_the_middle(fastest)
    sides = (best.other, [each.other for each in fastest]), (best.base, [each.base for each in fastest])
    if off := [f"{error} in {best.value(side)}" for side, rows in sides for error in _errors_of(rows)]:
        yield f"Results are off there by up to {' and '.join(off)}."
    yield from (f"It reports {each}." for each in declared_values(best))


def _errors_of(rows: Iterable[Row]) -> list[str]:
    """Return how far off the results of rows are at most; nothing where none was checked."""
    errors = [error for row in rows if (error := row.check.error) is not None]
    return [fraction(max(errors))] if errors else []
