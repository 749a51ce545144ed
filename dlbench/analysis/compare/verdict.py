"""Verdicts of a comparison: of each case, and of all of them together."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, Self

from dlbench.analysis.compare.judge import RankTest, Tests, Verdict
from dlbench.analysis.compare.values import ValueChange
from dlbench.analysis.ratios.pairing import Unpaired
from dlbench.core.rows.row import Row
from dlbench.core.thresholds import Thresholds


class CaseVerdict(NamedTuple):
    """Verdict of one case, and why."""

    case: str
    verdict: Verdict
    reasons: tuple[str, ...] = ()
    """Why, and what to do about it."""
    regressed: tuple[str, ...] = ()
    """What got worse: ``time``, ``memory``, ``value.p99_s``."""
    base: Row | None = None
    new: Row | None = None
    tests: Tests = MappingProxyType({})
    """Of its times, among those of all other cases."""
    values: tuple[ValueChange, ...] = ()
    """Of memory, energy and each value, as far as both sides report them."""
    thresholds: Thresholds | None = None
    """Its smallest relevant changes; None where nothing was compared."""
    detect: float | None = None
    """Slowdown that must be called or excluded, as a fraction; None where nothing was compared, or none has to be."""
    asked: bool = False
    """Whether the comparison decides nothing where it was not: somebody set it, or the times alone would say slower."""
    unseen: str | None = None
    """Why it is neither called nor excluded; None where it is, or none has to be."""
    what: str = "slowdown"
    """That is unseen; a worsening where it is one of memory or a value as well."""
    remedy: str = ""
    """Of what is unseen, other than more rounds; empty where they are all there is to do."""
    rounds_to_see: int | None = None
    """The rounds a side in which it probably would be seen, whatever the verdict is; None where these are enough, or none are."""
    detectable: float | None = None
    """The smallest change that would be called in four of five comparisons; None where nothing was tested, or none would."""
    possible: float | None = None
    """The largest slowdown that is not excluded, as a fraction; None where nothing was tested, or nothing is excluded."""
    lost: bool = False
    """Whether damaged lines may have had rounds of it, or a budget left it out, so that whoever is strict takes it for undecided."""

    @property
    def note(self) -> str:
        """Its reasons as one text."""
        return "; ".join(self.reasons)

    @property
    def statistic(self) -> str:
        """Whose change to show: the median's, unless slower or faster stands on another test alone."""
        changed = self.tests if self.verdict.is_change else {}
        return next((name for name, each in changed.items() if each.verdict is self.verdict), "median")

    @property
    def shown(self) -> RankTest | None:
        """The test of that statistic, if the times could be tested."""
        return self.tests.get(self.statistic)

    def because(self, *reasons: str) -> Self:
        """Return it with these reasons behind its own; empty ones are left out."""
        return self._replace(reasons=(*self.reasons, *filter(None, reasons)))


@dataclass(frozen=True, slots=True)
class Undetectable:
    """Cases in which a slowdown that must be detected is neither called nor excluded."""

    cases: tuple[str, ...]
    sentence: str
    """How many they are, and what to do."""
    decisive: bool
    """Whether the comparison is undecidable because of them."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A verdict for every case of two sides, the worst first."""

    title: str
    cases: tuple[CaseVerdict, ...]
    powerless: str | None
    """Why no case could have been called slower, however slow; None where one could."""
    unseen: Undetectable | None = None
    """Where a slowdown that must be detected is neither called nor excluded."""
    report_only: bool = False
    """Whether the sides are of different machines, so that slower says nothing about the program."""
    unpaired: tuple[Unpaired, ...] = ()
    """Rows of the same file that stand in no pair."""
    other_occasion: str | None = None
    """For whoever is strict: that the files are of two occasions, and nothing tells how these differ; None where it does."""

    @property
    def undecidable(self) -> str | None:
        """Why it decides nothing where no case is slower, missing or failed; None where it does."""
        if self.powerless and not self.report_only:
            return self.powerless
        return self.unseen.sentence if self.unseen and self.unseen.decisive else self.other_occasion

    @property
    def doubt(self) -> str | None:
        """What was neither called nor excluded, if anything, whether or not the exit code depends on it."""
        return self.powerless or (self.unseen.sentence if self.unseen else None)

    @property
    def nothing_in_common(self) -> bool:
        """Whether both sides have cases, and none is on both."""
        return {(case.base is None, case.new is None) for case in self.cases} == {(True, False), (False, True)}


def attention(case: CaseVerdict) -> tuple[int, float]:
    """Return what sorts cases: the worst verdict first, and of one verdict that says there is a change the largest."""
    changed = case.shown if case.verdict.is_change else None
    return [*Verdict].index(case.verdict), -abs(changed.change) if changed else 0.0
