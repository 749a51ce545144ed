"""Reasons of a verdict, in words."""

from collections.abc import Mapping, Sequence

from dlbench.analysis.compare.judge import Change, Verdict, statistic_name, together
from dlbench.analysis.compare.power import SIDES
from dlbench.analysis.ratios import Entry


def stands_on(changes: Mapping[str, Change]) -> str:
    """Name the test that calls a case slower or faster where its median by ranks does not."""
    called = together(changes)
    if called not in (Verdict.SLOWER, Verdict.FASTER) or changes["median"].verdict is called:
        return ""
    by = next(name for name, each in changes.items() if each.verdict is called)
    return f"by its {statistic_name(by)}; by its median {changes['median'].verdict}"


def spoiled(sides: Sequence[Entry]) -> str:
    """Say how many rounds were unsteady or throttled, where that changes nothing."""
    said = [
        f"{sum(spoiled)} of {len(spoiled)} rounds in {side} {'was' if sum(spoiled) == 1 else 'were'} unsteady, throttled or disturbed"
        for side, each in zip(SIDES, sides, strict=True)
        if any(spoiled := each.rounds.spoiled)
    ]
    return f"{' and '.join(said)}, and without the verdict is the same"


def opposite(changes: Mapping[str, Change]) -> str:
    """Say which test calls a case slower and which faster, where they do not agree."""
    called = {name: each.verdict for name, each in changes.items() if each.verdict in (Verdict.SLOWER, Verdict.FASTER)}
    if len(set(called.values())) < 2:
        return ""
    return ", ".join(f"{verdict} by its {statistic_name(name)}" for name, verdict in called.items())
