"""Changes between files whose devices ran at different clocks: a clock explains no more than its own ratio."""

import math
from collections.abc import Mapping, Sequence

from dlbench.analysis.compare.judge import Change, RankTest, judge_family, shifted, together
from dlbench.analysis.read.readings import ClockDifference


def beyond_clocks(
    clocks: Sequence[ClockDifference | None],
    tests: Sequence[Mapping[str, RankTest]],
    changes: Sequence[Mapping[str, Change]],
    thresholds: Sequence[float],
) -> list[bool]:
    """Return of each case whether it would be slower, or faster, however much of its change its clocks explain.

    The times of new are taken once as if the clocks had made them longer by all they can, and once shorter; whatever the true effect, it
    lies between, so a verdict that is the same both times stands.
    """
    called = [bool(apart) and together(each).is_change for apart, each in zip(clocks, changes, strict=True)]
    for longest in (True, False):
        if not any(called):
            break
        left = []
        for apart, each, test in zip(clocks, called, tests, strict=True):
            by = -math.log(apart.slower if longest else apart.faster) if apart and each else 0.0
            left.append({name: shifted(one, by) for name, one in test.items()} if by else test)
        judged = judge_family(left, thresholds)
        called = [each and together(before) is together(after) for each, before, after in zip(called, changes, judged, strict=True)]
    return called
