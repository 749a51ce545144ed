"""Implementations: the same work computed in several ways on one device. A part of the answer on the default."""

from dlbench.analysis.answers.parts.base import AnswerPart
from dlbench.analysis.answers.parts.headline import Headline, Tag, cut, limits, names_of, qualifiers
from dlbench.analysis.answers.parts.pair_tables import beside_defaults, furthest, same_case
from dlbench.analysis.presentation.wording import short
from dlbench.analysis.ratios.pairing import Pair, Pairs, both_sides
from dlbench.analysis.ratios.ratio import speedup_of
from dlbench.analysis.read.table import Results

_NAME = 20
"""Characters of the name of an implementation in a headline."""


def findings(results: Results) -> AnswerPart:
    """Return what the fastest implementation brings over the one that its workload declares as the base."""
    found = [pairs for pairs in beside_defaults(results, "way") if pairs.rows]
    if not found:
        return AnswerPart()
    bests = [furthest(pairs.rows)[0] for pairs in found]
    rows = both_sides(results, (each for pairs in found for each in pairs.rows))
    headline = _headline(max(bests, key=speedup_of))
    return AnswerPart([tuple(map(_sentence, bests, found))], rows, list(map(same_case, found)), headline=headline)


def _sentence(best: Pair, pairs: Pairs) -> str:
    name = pairs.by.name if pairs.by else ""
    return f"{short(best.case)} runs {best.ratio} as fast with {name}={best.value(best.other)} as with {name}={pairs.base_value}."


def _headline(best: Pair) -> Headline:
    ratio, other, base = best.ratio, cut(str(best.value(best.other)), _NAME), cut(str(best.value(best.base)), _NAME)
    texts = [f"{other} {ratio.brief} {base}{span}" for span in (ratio.span, "")]
    tags = (*limits(ratio), *((Tag.CHOSEN,) if ratio.among > 1 else ()))
    return Headline(texts, qualifiers(names_of(best.case), ""), ratio.span, best.sides, tags)
