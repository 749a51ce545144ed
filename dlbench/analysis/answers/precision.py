"""Precision: how much faster each is, and how far off its results are."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from operator import itemgetter

from dlbench.analysis.answers.parts import convergence, ladder
from dlbench.analysis.answers.parts.base import Answer, AnswerPart, Missing, Question, answered
from dlbench.analysis.answers.parts.convergence import FormatTraining
from dlbench.analysis.answers.parts.headline import (
    Headline,
    Tag,
    by_kind,
    cut,
    foremost,
    kind_of_work,
    limits,
    names_of,
    of_the_middle,
    qualifiers,
    span_of,
)
from dlbench.analysis.answers.parts.ladder import OnDevice, error_of
from dlbench.analysis.answers.parts.pair_tables import (
    declared_values,
    furthest,
    on_its_device,
    ratio_figure,
    reported,
    reported_headline,
    same_case,
)
from dlbench.analysis.presentation.columns import CASE, as_column
from dlbench.analysis.presentation.fields import of_row
from dlbench.analysis.presentation.figures import Figure, figure
from dlbench.analysis.presentation.names import by_device
from dlbench.analysis.presentation.wording import few, plural, short
from dlbench.analysis.ratios.pairing import Pair, both_sides, grouped, match_rows, one_device
from dlbench.analysis.ratios.ratio import speedup_of
from dlbench.analysis.read.table import Results
from dlbench.core.model import Status
from dlbench.core.precision import ARITHMETIC, PRECISIONS
from dlbench.core.rows.row import Row
from dlbench.core.units import fraction

_PRECISION = of_row(lambda row: row.case.dtype)
ORDER = 50
QUESTION = Question("precision", "Which precision; how much faster is it, and how far off are its results?")

_CONVERGES = "whether training still converges in it was not measured"
_PRECISION_NAME = 11
"""Characters of the name of a precision in the headline, so that the ratio begins within the first 30."""
_EACH_ALONE = "95 % interval: of that pair alone; above the table it is wider, as it allows for choosing the best of several"
_MOST_TOLD = 3
"""Kinds of work of a device in sentences; the table has all."""


def answer(results: Results) -> Answer | Missing:
    """Return the fastest precision of each device and kind of work against fp32, in its middle case, and how far off its results are.

    Where trainings in formats of numbers were measured it says whether they converge, too.
    """
    pairs, (with_values, values, reports) = match_rows(results, "dtype"), reported(results, "dtype")
    trained = convergence.trainings(results.rows)
    narrower = [each for each in pairs.rows if not _is_wider(each)]
    if not narrower and not reports and not trained:
        others = ("dlbench run cnn", convergence.COMMAND)
        no_speed = next((f"; {row.rate.reason}" for row in results.rows if row.flag.no_speed), "")
        lacking = "only wider precisions were measured" if pairs.rows else f"no two rows differ in their precision alone{no_speed}"
        return Missing(QUESTION, lacking, "dlbench run precision", others=others)
    table = same_case(pairs, as_column(("error", ladder.ERROR)))
    if len({each.value(each.other) for each in pairs.rows if each.ratio.interval}) > 1:
        table = replace(table, notes=(*table.notes, _EACH_ALONE))
    devices = ladder.on_devices(pairs.rows, trained)
    late = [row for row in results.rows if row.case.status is Status.TIMEOUT and row.case.dtype in ARITHMETIC]
    paragraphs = list(filter(None, (_paragraph(each, late) for each in devices)))
    rows = both_sides(results, (*pairs.rows, *(with_values.rows if reports else ())))
    rungs = ladder.rungs(devices) if trained else []
    of_trained = [*ladder.ladder(rungs), ladder.counts(trained)] if trained else []
    tables = [table, values, ladder.error_table(_with_errors(results, rows)), *of_trained]
    figures = [ratio_figure(table.title, pairs.rows), _errors(pairs.rows), *ladder.speed_and_gap(rungs), *convergence.loss_curves(trained)]
    if narrower:
        headline = _headline(by_device(narrower), trained)
    elif trained:
        headline = convergence.headline(by_device(trained))
    else:
        headline = reported_headline(with_values)
    of_trainings = [each.row for each in trained]
    found = AnswerPart(paragraphs, [*rows, *of_trainings], tables, figures, _cautions(devices), headline)
    return answered(QUESTION, found, reports)


def _is_wider(pair: Pair) -> bool:
    """Whether the other precision has more bits than the base: a reference for errors, and nothing to run in for speed."""
    base, other = (PRECISIONS.get(str(side.case.dtype)) for side in pair.sides)
    return base is not None and other is not None and other.bytes > base.bytes


def _with_errors(results: Results, rows: Iterable[Row]) -> list[Row]:
    """Return these rows with those whose results count and whose time does not, in the order of the table."""
    of_pairs = set(rows)
    return [row for row in results.rows if row in of_pairs or row.flag.no_speed]


def _cautions(devices: Sequence[OnDevice]) -> tuple[str, ...]:
    """Say on which devices no training tells whether it converges in another precision."""
    left = [each.where for each in devices if not each.trained]
    where = f" on {few(left, 3)}" if len(left) < len(devices) else ""
    return (f"{_CONVERGES}{where}: {convergence.COMMAND}",) if left else ()


def _errors(pairs: Sequence[Pair]) -> Figure:
    """Return the figure of how far off results are, a dot for each precision."""
    sides = {(each.case, each.other.case.run, side.case.id): (each, side) for each in pairs for side in reversed(each.sides)}
    return figure(
        "How far off the results are",
        "Relative distance from the result in fp64 on the CPU, in the 2-norm; further left is nearer.",
        "dot",
        [each for each in sides.values() if error_of(each[1])],  # zero has no logarithm
        ("error", ladder.ERROR.on(itemgetter(1))),
        ("case", on_its_device(CASE, pairs).on(itemgetter(0))),
        ("precision", _PRECISION.on(itemgetter(1))),
        log="x",
        spread=lambda each: error_of(each[1]) or 0.0,
    )


def _headline(devices: Mapping[str, list[Pair]], trained: Sequence[FormatTraining]) -> Headline:
    """Return whether another precision is faster, how far off its results are, and whether training converges in it, if that is known."""
    found, where = foremost(devices)
    best, fastest = furthest(found)
    ratio, (base, other) = best.ratio, (cut(str(best.value(side)), _PRECISION_NAME) for side in best.sides)
    errors = _errors_of(each.other for each in fastest)
    spans, gains = (ratio.span, ""), ratio.speedup > 1 and not ratio.is_undecided
    if gains or (ratio.is_behind and max(map(speedup_of, fastest)) > 1):
        off = "".join(f", error {error}" for error in errors)
        trainings = _in_precision(best, trained)
        converges = convergence.verdict(trainings) if trainings else ""
        ends = [(f"{ratio.span}{off}", converges), (off, converges), ("", converges), ("", converges.removesuffix(" trainings"))]
        told = [f"{end}, {how}" for end, how in ends if trainings]
        texts = [f"{other} {ratio.brief} {base}{end}" for end in (*told, f"{ratio.span}{off}", *spans)]
    else:
        texts = [f"none beats {base}: {ratio.brief}{span}, {other}" for span in spans]
    if ratio.is_undecided:
        texts = [f"no gain shown by {other} over {base}"]
    tags = limits(ratio) | {Tag.NOT_CHECKED: not errors}
    return Headline(texts, qualifiers(names_of(best.case), where, span_of(fastest)), ratio.span, best.sides, tags)


def _in_precision(best: Pair, trained: Iterable[FormatTraining]) -> list[FormatTraining]:
    """Return the trainings in the other precision of a pair, on its device."""
    return [each for each in trained if each.name == best.value(best.other) and one_device(each.row) == one_device(best.other)]


def _paragraph(found: OnDevice, late: Iterable[Row]) -> tuple[str, ...]:
    """Return which precision is the fastest in the first kind of work, how far off its results are, and what the other kinds say.

    Behind that stand the trainings of the device. ``late`` has the rows that timed out.
    """
    where, trained = found.where, found.trained
    pairs = [each for each in found.pairs if not _is_wider(each)]
    of_trainings = tuple(convergence.sentences(where, trained)) if trained else ()
    if not pairs:
        return of_trainings
    kinds = by_kind(pairs)
    bests = [furthest(of_kind) for of_kind in kinds.values()]
    more = len(kinds) - _MOST_TOLD
    left_out = [f"The table has {plural(more, 'more kind')} of work: {few([*kinds][_MOST_TOLD:], 3)}."] if more > 0 else []
    devices = {one_device(each.other) for each in pairs}
    of_device = grouped((row for row in late if one_device(row) in devices), kind_of_work)
    told = ((*_case(*best), *_timeouts(of_device.get(kind, ()))) for kind, best in zip(kinds, bests[:_MOST_TOLD], strict=False))
    first = _verdict(where, next(iter(kinds)), bests[0][0])
    line = _with_convergence(first, *bests[0], trained) if trained else first
    return f"{line}.", *chain.from_iterable(told), *left_out, *of_trainings


def _with_convergence(said: str, best: Pair, fastest: Sequence[Pair], trained: Sequence[FormatTraining]) -> str:
    """Return a verdict with speed, error if it has room, and convergence: ``…: 2.00×, error 0.4 %, converges``."""
    trainings = _in_precision(best, trained)
    converges = convergence.verdict(trainings) if trainings else "not trained in"
    errors = (f", error {error}" for error in _errors_of(each.other for each in fastest))
    whole, shorter = (f"{said}: {best.ratio.brief}{error}, {converges}" for error in ("".join(errors), ""))
    return whole if len(whole.split()) <= convergence.MOST_WORDS else shorter


def _verdict(where: str, kind: str, best: Pair) -> str:
    ratio, base, other = best.ratio, best.value(best.base), best.value(best.other)
    if ratio.is_ahead:
        return f"On {where} the fastest precision in {kind} is {other}"
    if ratio.interval is None and ratio.speedup > 1:
        return f"On {where} the fastest precision measured in {kind} is {other}, of too few rounds to tell"
    shown = " is shown to beat" if ratio.is_undecided else " beats"
    return f"On {where} no precision{shown} {base} in {kind}, and the closest is {other}"


def _case(best: Pair, fastest: Sequence[Pair]) -> Iterator[str]:
    """Yield how fast the case in the middle is, how far off the results of all are, and the values that its workload declares."""
    yield f"{short(best.case)} runs {best.ratio} as fast in {best.value(best.other)}."
    yield from of_the_middle(fastest)
    other, base = ((best.value(side), _errors_of(rows)) for side, rows in _sides(best, fastest))
    if other[1]:
        off = " and ".join(f"{error} in {name}" for name, errors in (other, base) for error in errors)
        yield f"Results are off there by up to {off}."
    elif base[1]:
        yield f"How far off results are in {other[0]} was not measured there."
    yield from (f"It reports {each}." for each in declared_values(best))


def _sides(best: Pair, fastest: Sequence[Pair]) -> tuple[tuple[Row, list[Row]], ...]:
    """Return the other side and the base of the case in the middle, each with those of all cases."""
    return (best.other, [each.other for each in fastest]), (best.base, [each.base for each in fastest])


def _timeouts(late: Iterable[Row]) -> Iterator[str]:
    """Yield in which precisions a kind of work timed out: ``fp16 and amp_fp16 did not finish within 60 s.``."""
    for reason, alike in grouped(late, lambda row: row.reason.partition(";")[0]).items():
        *first, last = sorted({str(row.case.dtype) for row in alike}, key=[*ARITHMETIC].index)
        names = f"{', '.join(first)} and {last}" if first else last
        yield f"{names} {reason.replace('not done', 'did not finish') if reason.startswith('not done within') else 'timed out'}."


def _errors_of(rows: Iterable[Row]) -> list[str]:
    """Return how far off the results of rows are at most; nothing where none was checked."""
    errors = [error for row in rows if (error := error_of(row)) is not None]
    return [fraction(max(errors))] if errors else []
