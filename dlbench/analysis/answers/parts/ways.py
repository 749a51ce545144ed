"""Ways to compute the same, such as loops and one call: how many times as fast each is on one device."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from dlbench.analysis.answers.parts.base import Findings
from dlbench.analysis.answers.parts.pair_tables import furthest, same_case
from dlbench.analysis.presentation.wording import short
from dlbench.analysis.ratios.pairing import Pair, Pairs, both_sides, grouped, pair
from dlbench.analysis.ratios.ratio import among
from dlbench.analysis.read.table import Results
from dlbench.core.errors import UsageError


def in_other_ways(results: Results) -> Findings:
    """Return what is computed in several ways on one device, each beside the one that its workload declares as the base."""
    found: dict[tuple[str, str | None], Pairs] = {}
    declared = (((name, row.declared.plain_default(name)), row) for row in results.rows for name in row.declared.having("way"))
    for (name, base), of_way in grouped(declared, lambda each: each[0]).items():
        with suppress(UsageError):  # no row has the base, or such a parameter
            if (pairs := pair(replace(results, rows=tuple(row for _, row in of_way)), name, base)).rows:
                found[name, base] = pairs
    told = "; ".join(_faster(name, base, pairs.rows) for (name, base), pairs in found.items())
    rows = both_sides(results, [each for pairs in found.values() for each in pairs.rows])
    return Findings([f"The same work in other ways: {told}."] if told else (), rows, list(map(same_case, found.values())))


def _faster(name: str, base: str | None, pairs: Sequence[Pair]) -> str:
    """Return the ratio in the middle of the way that is furthest ahead of the base."""
    best, found = furthest(pairs)
    return f"{short(best.case)} runs {best.ratio} as fast with {name}={best.value(best.other)} as with {name}={base}{among(found)}"
