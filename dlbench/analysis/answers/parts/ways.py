"""Ways to compute the same, such as loops and one call: how many times as fast each is on one device."""

from dlbench.analysis.answers.parts.base import Findings
from dlbench.analysis.answers.parts.pair_tables import beside_defaults, furthest, same_case
from dlbench.analysis.presentation.wording import short
from dlbench.analysis.ratios.pairing import Pairs, both_sides
from dlbench.analysis.ratios.ratio import among
from dlbench.analysis.read.table import Results


def in_other_ways(results: Results) -> Findings:
    """Return what is computed in several ways on one device, each against the one that its workload declares as the base."""
    found = [pairs for pairs in beside_defaults(results, "way") if pairs.rows]
    if not found:
        return Findings()
    rows = both_sides(results, (each for pairs in found for each in pairs.rows))
    return Findings([f"The same work in other ways: {'; '.join(map(_faster, found))}."], rows, list(map(same_case, found)))


def _faster(pairs: Pairs) -> str:
    """Return the ratio in the middle of the way that is furthest ahead of the base."""
    best, found = furthest(pairs.rows)
    name = pairs.by and pairs.by.name
    return (
        f"{short(best.case)} runs {best.ratio} as fast with {name}={best.value(best.other)} as with {name}={pairs.base_value}{among(found)}"
    )
