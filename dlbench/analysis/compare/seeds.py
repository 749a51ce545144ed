"""Values of seeds on two sides: each seed is compared with itself, apart from the tests of rounds, as it would give the same again."""

import statistics
from collections.abc import Sequence
from dataclasses import replace

from dlbench.analysis.compare.judge import Verdict
from dlbench.analysis.compare.values import ValueChange
from dlbench.analysis.presentation.wording import few, plural, value_name
from dlbench.analysis.ratios.ratio import ENOUGH_PAIRS, PairedDifference, paired_difference
from dlbench.core.declarations import Value
from dlbench.core.rows.row import Row


def of_seeds(shown: ValueChange, base: Row, new: Row) -> ValueChange:
    """Return a value judged by its seeds, if a side declares it so; any other as it is.

    The margin is that of base, if it declares one: a new file can't loosen its own gate.
    """
    name = value_name(shown.column)
    declared = [each for row in (base, new) for each in row.described if each.name == name]
    before, after = shown.base, shown.new
    value = next((each for each in declared if each.paired), None)
    if shown.remark or value is None or not isinstance(before, Sequence) or not isinstance(after, Sequence):
        return shown
    found = paired_difference(before, after)
    if found is None or len({each.points for each in declared}) > 1:
        sides = [plural(len(each), "seed") for each in (before, after)] if found is None else [few(each.points, 2) for each in declared]
        unlike = f"not judged, as its seeds are others: {' against '.join(sides)}"
        return replace(shown, verdict=Verdict.INCONCLUSIVE, remark=unlike)
    too_few = f"{plural(found.pairs, 'seed')} are too few, {ENOUGH_PAIRS} would do" if found.interval is None else ""
    one, other = statistics.median(before), statistics.median(after)
    column = replace(shown.column, margin=value.margin)
    return replace(shown, column=column, base=one, new=other, verdict=_verdict(found, value), seeds=found, remark=too_few)


def _verdict(found: PairedDifference, value: Value) -> Verdict:
    """Return slower (worse), faster (better), same or inconclusive, by one interval and the margin."""
    margin, interval = value.margin or 0.0, found.interval
    if found.is_at_least(-margin) and found.is_at_most(margin):
        return Verdict.SAME
    if interval is None or interval.low <= 0 <= interval.high or abs(found.shift) <= margin:
        return Verdict.INCONCLUSIVE
    return Verdict.FASTER if (found.shift > 0) is (value.direction == "higher") else Verdict.SLOWER
