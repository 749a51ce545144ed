"""Rows of one file that differ in a size: throughput that grows more than the size does is implausible."""

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import replace
from itertools import pairwise

from dlbench.core import units
from dlbench.core.rank_test import shift_interval
from dlbench.core.rows.rates import together
from dlbench.core.rows.row import Row, Setting

_MARGINS = {"batch": 4.0, "ranks": 1.1}
"""How much more than the size throughput may grow. A library may take a better algorithm for a larger batch, as oneDNN leaves Winograd's to
them (https://github.com/uxlfoundation/oneDNN/issues/929), and that needs up to 4 times fewer operations (F(4 x 4, 3 x 3): Lavin and Gray,
https://arxiv.org/abs/1509.09308, section 4). More ranks do the same work with the same kernels, in caches that are theirs alone."""


def flag_super_linear(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of a file, those flagged implausible too whose throughput grew more than their batch or their ranks did.

    Compared are neighbours in size that are equal in all else. It takes an interval of the ratio, hence four rounds a side,
    that lies beyond the ratio of the sizes.
    """
    found: dict[Row, list[str]] = defaultdict(list)
    for size in _MARGINS:
        for group in _alike(rows, size):
            for smaller, larger in pairwise(group):
                if sentence := _super_linear(size, smaller, larger):
                    found[larger].append(sentence)
    return [_doubted(row, found[row]) if row in found else row for row in rows]


def _doubted(row: Row, sentences: Sequence[str]) -> Row:
    known = filter(None, [row.flag.implausible_reason])
    return replace(row, flag=replace(row.flag, implausible=True, implausible_reason=together([*known, *sentences])))


def _alike(rows: Sequence[Row], size: str) -> list[list[Row]]:
    """Return the rows that differ in the size alone, the smallest first."""
    if len({row.count(size) for row in rows}) < 2:
        return []
    # The more ranks, the fewer threads each has; they still do no more than as many times what one with more threads does.
    free = {Setting("param", size), *([Setting("case", "threads")] if size == "ranks" else [])}
    groups: dict[Hashable, list[Row]] = defaultdict(list)
    for row in rows:
        if row.is_ok and row.count(size) and min(row.rounds.items_per_s, default=0) > 0:
            groups[row.differing_from(free)].append(row)
    return [sorted(group, key=lambda row: row.count(size) or 0) for group in groups.values()]


def _super_linear(size: str, smaller: Row, larger: Row) -> str | None:
    less, more = float(smaller.count(size) or 0), float(larger.count(size) or 0)
    least = math.log(more / less * _MARGINS[size])
    rates, larger_rates = ([math.log(rate) for rate in each.rounds.items_per_s] for each in (smaller, larger))
    if max(larger_rates) - min(rates) <= least:  # most are; the exact interval is not worth its time then
        return None
    shift, interval = shift_interval(rates, larger_rates)
    if interval is None or interval.low <= least:
        return None
    grew = f"{units.three_digits(math.exp(shift))} times the throughput of {size} {less:g} at {more / less:.3g} times the {size}"
    return f"{grew}; see that the larger one does all its work"
