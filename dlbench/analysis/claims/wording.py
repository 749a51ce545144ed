"""Words for claims of others and for what was measured, and tables of all that a claim was held against."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain

from dlbench.analysis.answers.parts.base import Table, table
from dlbench.analysis.answers.parts.convergence import Convergence, FormatTraining
from dlbench.analysis.answers.parts.headline import Tag, tags_of
from dlbench.analysis.claims.evidence import ClaimFinding, Evidence, Held
from dlbench.analysis.presentation.fields import CASE, RATIO, Field, Fields, Headed, own, place, whole_row
from dlbench.analysis.presentation.pair_columns import cells
from dlbench.analysis.presentation.wording import INTERVAL, brief, middle_of, with_interval
from dlbench.analysis.ratios.pairing import DEVICE, grouped
from dlbench.core import units
from dlbench.core.reference.claims import Claim, ClaimTest
from dlbench.core.schema import Column, Unit, text

_MOST_TOLD = 4
"""Findings in a sentence; the table has all."""
_OF_AN_INTERVAL = (Tag.FEW_ROUNDS, Tag.UNFINISHED)
"""Limits that a number says itself."""


def sentence(found: Held) -> str:
    """Return ``others say 20×; here 13.1× (12.8…13.4) on cuda:0 (train resnet18 b8)``, or what is lacking and what would measure it."""
    said = _said(found.claim)
    if not found.findings:
        where = ", on a machine with both" if found.claim.test and found.claim.test.by == DEVICE.name else ""
        return f"{said}; {found.lacking}{f'; to measure it{where}: {found.command}' if found.command else ''}"
    more = len(found.findings) - _MOST_TOLD
    told = "; ".join(map(_finding, found.findings[:_MOST_TOLD]))
    return f"{said}; here {told}{f'; {more} more in the table' if more > 0 else ''}"


def source(claim: Claim) -> str:
    """Return who said it, and when."""
    return f"{claim.who}, {claim.when}"


def value_text(found: Evidence) -> str:
    """Return its number with the interval: ``13.1× (12.8…13.4)``, ``63 days (60 days…66 days)``, ``2.46 GiB``."""
    if found.pair:
        return str(found.ratio).replace(" ×", "×", 1)
    if found.training:
        return found.training.gap_text
    if found.unit is Unit.BYTES:
        return text(found.value, found.unit)
    return with_interval(found.value, found.low, found.high, partial(text, unit=found.unit))


def _said(claim: Claim) -> str:
    if claim.test and claim.test.converge:
        return f"others say that {_said_of_formats(claim.test)}"
    if claim.is_our_reading:
        return f"others state no number (read here as {claim.stated})"
    return f"others say {_stated(claim)}" if claim.stated else "others state no number"


def _stated(claim: Claim) -> str:
    """Return the number stated; of decimal bytes also as memory is told of here."""
    return f"{claim.stated} ({units.byte_count(claim.low * 1e9)})" if claim.unit == "GB" and claim.low else claim.stated


def _said_of_formats(test: ClaimTest) -> str:
    """Return ``dynamic_10_12 converges``, or ``a and b converge where c and d do not``."""
    one = len(test.converge) == 1
    where = f" where {' and '.join(test.stall)} {'does' if one else 'do'} not" if test.stall else ""
    return f"{' and '.join(test.converge)} {'converges' if one else 'converge'}{where}"


_DOES: Mapping[Convergence | None, str] = {
    Convergence.YES: "converges",
    Convergence.NO: "does not converge",
    Convergence.OPEN: "is not shown to converge",
}


def _converge(trained: Sequence[FormatTraining], place: str) -> str:
    """Return ``bf16 does not converge: -40.5 points (-42.0…-39.0), bf16_stochastic … on cpu (mlp at rate=0.001, the worst of 3)``.

    The training is the first, and so the worst, of those in most of the formats.
    """
    cases = list(grouped(trained, lambda each: each.case).values())
    worst = max(cases, key=len)
    told = ", ".join(f"{each.name} {_DOES.get(each.converges, 'has too few seeds to tell')}: {each.gap_text}" for each in worst)
    alike = sum(len(each) == len(worst) for each in cases)
    return f"{told} on {place} ({worst[0].brief}{f', the worst of {alike}' if alike > 1 else ''})"


def _finding(found: ClaimFinding) -> str:
    if trained := [each.training for each in found.evidence if each.training]:
        return _converge(trained, found.place)
    middle, ends = found.middle, [_bare(each) for each in (found.evidence[0], found.evidence[-1])]
    among = f", {middle_of(len(found.evidence))} from {ends[0]} to {ends[1]}" if ends[0] != ends[1] else ""
    tags = dict.fromkeys(tag for row in middle.sides for tag in tags_of(row) if tag not in _OF_AN_INTERVAL)
    sides = () if middle.pair is None or middle.pair.by == DEVICE else [f"{_side(middle, 1)} over {_side(middle, 0)}"]
    about = ", ".join([brief(middle.case), *sides, *tags])
    at = f" at {found.part}" if "=" in found.part else ""  # a word stands in the case already
    return f"{value_text(middle)}{at} on {found.place} ({about}{among})"


def _bare(found: Evidence) -> str:
    return found.ratio.brief if found.pair else text(found.value, found.unit)


_ID: Headed[Evidence] = own("claim", "claim.id", Unit.TEXT, "the claim that it tests", lambda each: each.claim.id)
_SIDES: Fields[Evidence] = (
    own("from", "claim.base", Unit.TEXT, "what the one side has of the setting in which they differ", lambda each: _side(each, 0)),
    own("to", "claim.other", Unit.TEXT, "and what the other", lambda each: _side(each, 1)),
)


def _side(found: Evidence, at: int) -> str | None:
    if found.training:
        return (found.test.base, found.training.name)[at]
    return found.pair.value(found.pair.sides[at]) if found.pair else None


def tables(held: Sequence[Held]) -> list[Table]:
    """Return all that claims were held against: a table of pairs, and one for each unit that others have."""
    every = [each for found in held for each in chain.from_iterable(finding.evidence for finding in found.findings)]
    pairs = [each for each in every if each.pair]
    # A claim on what a joule does is held against no ratio of times, so a column says what is measured.
    measured: Headed[Evidence] = own(
        "of", "claim.measure", Unit.TEXT, "what the ratio is of", lambda each: each.test.measure.replace("_", " ")
    )
    of_pairs: Fields[Evidence] = (_ID, ("case", CASE), place(pairs), *_SIDES, measured, *RATIO)
    made = [table("Claims of others: pairs of rows", of_pairs, pairs, whole=lambda each: cells(each.pair) if each.pair else {})]
    for unit, heading in ((Unit.SECONDS, "time to train"), (Unit.BYTES, "memory")):
        rows = [each for each in every if each.unit is unit]
        fields: Fields[Evidence] = (_ID, ("case", CASE), place(rows), *_numbers(heading, unit))
        made.append(table(f"Claims of others: {heading}", fields, rows, whole=whole_row))
    trained = [each for each in every if each.training]
    of_trained: Fields[Evidence] = (_ID, ("case", CASE), place(trained), *_SIDES, *_numbers("gap, points", Unit.NUMBER, 100))
    made.append(table("Claims of others: accuracy less that in the plain format", of_trained, trained, whole=whole_row))
    return [each for each in made if each.rows]


def _numbers(heading: str, unit: Unit, scale: float = 1) -> Fields[Evidence]:
    """Return the columns of the value and of the ends of its interval, each so many times as large."""
    meanings = {"value": heading, "low": "lower end of its 95 % interval", "high": "upper end of it"}

    def number(name: str, found: Evidence) -> float | None:
        value = getattr(found, name)
        return value if value is None else scale * value

    return tuple(
        (heading if name == "value" else INTERVAL, Field(Column(f"claim.{name}", unit, meaning), partial(number, name)))
        for name, meaning in meanings.items()
    )
