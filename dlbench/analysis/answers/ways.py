"""Ways to compute the same, such as loops and one call: how many times as fast each is on one device."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from dlbench.analysis.answers.base import Findings, Table
from dlbench.analysis.answers.pairs import both_sides, same_case
from dlbench.analysis.ratios import as_chosen, entries, grouped, pair
from dlbench.analysis.read.table import Results
from dlbench.analysis.wording import among, middle, number, ratio, short
from dlbench.core.errors import UsageError
from dlbench.core.rows.row import Cells as Row


def in_other_ways(results: Results) -> Findings:
    """Return what is computed in several ways on one device, each beside the one that its workload declares as the base."""
    declared = [(each, sweep.ways) for each in entries(results) if (sweep := results.declaration(each.row).sweep) and sweep.ways]
    sentences: list[str] = []
    tables: list[Table] = []
    rows: list[Row] = []
    for name, base in dict.fromkeys(way for _, ways in declared for way in ways.items()):
        chosen = [each for each, ways in declared if ways.get(name) == base]
        of_way = replace(results, rows=tuple(each.row for each in chosen), rounds=tuple(each.rounds for each in chosen))
        with suppress(UsageError):  # no row has the base, or such a column
            pairs = pair(of_way, name, base)
            if pairs.rows:
                tables.append(same_case(pairs, of_way))
                sentences.append(_faster(name, base, pairs.rows, of_way))
                rows += both_sides(of_way, pairs.rows)
    whole = [f"The same work in other ways: {'; '.join(sentences)}."] if sentences else []
    return Findings(tuple(whole), tuple({id(row): row for row in rows}.values()), tuple(tables))


def _faster(name: str, base: str, pairs: Sequence[Row], results: Results) -> str:
    """Return the ratio in the middle of the way that is furthest ahead of the base."""
    others = grouped(pairs, lambda row: row["other.value"])
    found = max(others.values(), key=lambda rows: number(middle(rows)["ratio.speedup"]))
    row = as_chosen(middle(found), results, len(others))
    return f"{short(row['pair.case'])} runs {ratio(row)} as fast with {name}={row['other.value']} as with {name}={base}{among(found)}"
