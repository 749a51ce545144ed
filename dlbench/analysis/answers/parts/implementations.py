"""Implementations: the same work computed in several ways on one device. A part of the answer on the default."""

from dlbench.analysis.answers.parts.base import AnswerPart
from dlbench.analysis.answers.parts.headline import Headline, Tag, cut, limits, names_of, of_the_middle, qualifiers
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
    sentences = [sentence for best, pairs in zip(bests, found, strict=True) for sentence in _sentences(best, pairs)]
    return AnswerPart([tuple(sentences)], rows, list(map(same_case, found)), headline=headline)


def _sentences(best: Pair, pairs: Pairs) -> tuple[str, ...]:
    name = _name(best)
    runs = f"{short(best.case)} runs {best.ratio} as fast with {name}={best.value(best.other)} as with {name}={pairs.base_value}."
    return runs, *of_the_middle(furthest(pairs.rows)[1])


def _name(pair: Pair) -> str:
    return pair.by.name if pair.by else ""


def _headline(best: Pair) -> Headline:
    ratio, other, base = best.ratio, cut(str(best.value(best.other)), _NAME), cut(str(best.value(best.base)), _NAME)
    ways = (f"as fast with {_name(best)}={other} as {base}", f"by {_name(best)}={other}", f"by {other}")
    texts = [f"{ratio.brief}{span} {way}" for span in (ratio.span, "") for way in ways]
    if ratio.is_undecided:
        texts = [f"no gain shown by {_name(best)}={other} over {base}", f"no gain shown by {other}"]
    tags = limits(ratio) | {Tag.CHOSEN: ratio.among > 1}
    return Headline(texts, qualifiers(names_of(best.case), ""), ratio.span, best.sides, tags)
