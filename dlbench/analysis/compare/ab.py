"""Comparison of the two sides of an A/B, and of the cases that were measured again to confirm a change."""

from dataclasses import replace
from types import MappingProxyType

from dlbench.analysis.compare.doubts import summed_up
from dlbench.analysis.compare.judge import Verdict
from dlbench.analysis.compare.pairs import compare
from dlbench.analysis.compare.verdict import CaseVerdict, Comparison, attention
from dlbench.analysis.ratios.pairing import DEVICE_NAME, MATH, THREADS
from dlbench.analysis.read.table import Results
from dlbench.core.measurement import CONFIRMING
from dlbench.core.thresholds import WITHIN_A_RUN, ThresholdSettings

# An interpreter or an environment may set these: then they are part of what is compared.
_FREE = (MATH, THREADS, DEVICE_NAME)


def are_sides(results: Results) -> bool:
    """Whether these are the rows of one A/B."""
    return len(_first(results)) == 2 and any_sides(results)


def any_sides(results: Results) -> bool:
    """Whether an A/B is among the files."""
    return any("side" in environment for environment in results.environments.values())


def compare_sides(results: Results, given: ThresholdSettings = MappingProxyType({})) -> Comparison:
    """Compare side b of an A/B with side a, case by case, as two files are compared; ``given`` are thresholds as there.

    Rounds are also compared pair by pair, as both sides of a case were measured next to each other, and every case has to be able to
    show the change that must be detected. A case that was measured again is decided by those rounds alone, corrected for no more cases than
    were measured again; only where they could not have decided anything the first verdict stands. `are_sides` must hold.
    """
    base, new = _first(results)
    again = base + CONFIRMING, new + CONFIRMING
    first = _compared(results, base, new, given)
    if not set(again) <= results.environments.keys():
        return first
    fresh = _compared(results, *again, given)
    anew = {case.case: case for case in fresh.cases}
    decided = [_decided(case, anew[case.case], fresh.powerless) if case.case in anew else case for case in first.cases]
    cases = tuple(sorted(decided, key=attention))
    return replace(first, cases=cases, unseen=summed_up(cases, results.budgets.values()))


def _compared(results: Results, base: str, new: str, given: ThresholdSettings) -> Comparison:
    sides = results.of_run(base), results.of_run(new)
    return compare(*sides, WITHIN_A_RUN, free=_FREE, given=given, paired=True, insist=True)


def _first(results: Results) -> list[str]:
    return [name for name in results.environments if not name.endswith(CONFIRMING)]


def _decided(was: CaseVerdict, now: CaseVerdict, powerless: str | None) -> CaseVerdict:
    change = f" by {was.shown.change * 100:+.1f} %" if was.shown else ""
    if powerless and now.verdict is not Verdict.FAILED:
        return was.because(f"not confirmed: {powerless}")
    return now.because("measured again", f"the first rounds said {was.verdict}{change}")
