"""The search for the highest rate of requests at which an open loop keeps its bound. All of it follows from the tries alone."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from dlbench.core.declarations import ValueRole
from dlbench.core.measurement import Measurement
from dlbench.core.model import Case, ParamValue, Signature, Status
from dlbench.core.stats import CLIENT_BOUND, RUNS, OpenRun, RateVerdict, verdict

FIRST, LEAST = 1 / 4, 1 / 64
"""Where a search begins, and where it gives up, as shares of the rate of a closed loop, which no try reaches."""
CURVE = (0.25, 0.5, 0.75, 0.9)
"""Shares of the highest rate that held: a run at each gives the curve of latencies."""
TARGETS = {"p90": (0.1, 0.1), "p99": (0.01, 0.25)}
"""By percentile, the share of requests that may miss the bound, and the relative gap at which a search ends between the highest rate that
holds and the lowest that fails: a smaller one would take many thousands of requests a rate."""
_USUAL_TRIES = 20
Tries = Sequence[Measurement]


class _Stop(Exception):  # no error: what a search lacks is measured, and the search then made again
    """The next case to try, or the status and reason with which a search ends."""


@dataclass(slots=True)
class _Search:
    """The result of a search so far."""

    values: dict[ValueRole, Any] = field(default_factory=dict)
    """Values of the row, by their roles."""
    verdicts: dict[float, RateVerdict] = field(default_factory=dict)
    wanted: Case | None = None
    ended: tuple[Status, str] | None = None

    def note(self, rate: float, came_to: RateVerdict) -> bool:
        """Note the verdict on a rate; return whether it holds."""
        self.verdicts[rate] = came_to
        failed = min((rate for rate, each in self.verdicts.items() if each.is_failure), default=self.values["saturation"])
        held = [rate for rate, each in self.verdicts.items() if each is RateVerdict.HOLDS and rate < failed]
        self.values |= {"failing_rate": failed, "highest_rate": max(held, default=None)}
        return came_to is RateVerdict.HOLDS

    def between(self, resolution: float) -> float | None:
        """Return the middle, on a logarithmic scale, of the lowest gap that is too wide; None where none is.

        Between two undecided rates no other would be decided.
        """
        held, failed = self.values["highest_rate"], self.values["failing_rate"]
        undecided = [rate for rate, each in self.verdicts.items() if each is RateVerdict.UNDECIDED and held < rate < failed]
        gaps = pairwise([held, *sorted(undecided), failed])
        wide = (low * high for low, high in gaps if high > (1 + resolution) * low and not {low, high} <= {*undecided})
        return next(map(math.sqrt, wide), None)


@dataclass(frozen=True, slots=True)
class Search:
    """The tries of one case that leaves parameters open."""

    case: Case
    signature: Signature

    @property
    def names(self) -> Sequence[str]:
        """The parameters that its tries differ in."""
        raise NotImplementedError

    def with_values(self, values: Mapping[str, ParamValue]) -> Case:
        """Return the case with values for what it leaves open."""
        return Case.of(self.case.suite, self.signature, {**self.case.params, **values}, self.case.device)

    def values(self, tried: Case) -> dict[str, ParamValue]:
        """Return the values of a try for what the case leaves open."""
        return {name: tried.params[name] for name in self.names if name in tried.params}

    def is_try(self, case: Case) -> bool:
        """Whether a case is one of its tries."""
        return self.with_values(self.values(case)).id == case.id


class RateSearch(Search):
    """The tries of one case that leaves its rate open: a closed loop, runs at one rate after the other, and those of the curve."""

    def usual_tries(self) -> int:
        """Return about how many tries the search makes."""
        return _USUAL_TRIES

    def next(self, tries: Tries) -> Case | None:
        """Return the next case to try; None where the search has ended."""
        return self._searched(tries).wanted

    def outcome(self, tries: Tries, number: int) -> Measurement:
        """Return what the tries come to, as the measurement of the case in that round; at least one was made."""
        found = self._searched(tries)
        outcome = replace(tries[-1], case=self.case, round=number, status=Status.OK, reason=None, values={})
        if found.ended:
            status, reason = found.ended
            return self.unfinished(replace(outcome, status=status, reason=reason), tries)
        if not (held := found.values["highest_rate"]):
            least, closed = min(found.verdicts), found.values["saturation"]
            reason = f"not even {least:g} requests a second keep the bound, where a closed loop does {closed:.3g}"
            return replace(outcome, status=Status.UNSUPPORTED, reason=reason)
        values = {value.name: each for value in self.signature.declared.values if (each := found.values.get(value.role))}  # type: ignore[arg-type]  # of no role nothing is found
        return replace(outcome, found={self.names[0]: held}, values=values)

    def unfinished(self, ended: Measurement, tries: Tries) -> Measurement:
        """Return how a search ended that was cut short: ``ended`` says by what, and gets the highest rate that held so far, if any."""
        if not (held := self._searched(tries).values.get("highest_rate")):
            return ended
        reason = f"unfinished: {held:g} requests a second keep the bound so far; {ended.reason}"
        return replace(ended, found={self.names[0]: held}, unfinished=True, reason=reason)

    @property
    def names(self) -> Sequence[str]:
        """The rate, which a closed loop has not, and the number of the pattern of arrivals."""
        return (*self.signature.declared.searched, *self.signature.declared.having("pattern"))

    def _searched(self, tries: Tries) -> _Search:
        found = _Search()
        try:
            self._search({each.case.id: each for each in tries}, found)
        except _Stop as stop:
            found.wanted, found.ended = stop.args
        return found

    def _search(self, known: Mapping[str, Measurement], found: _Search) -> None:
        """Search by the tries that are known, and note what they come to. Raises _Stop where one is lacking, and at its end before time."""
        percentile: Any = self.case.params[str(self.signature.declared.parameter("percentile"))]
        allowed, resolution = TARGETS[percentile]

        def reported(at: str, *changed: float) -> dict[ValueRole | None, Any]:
            """Return what a try reported, by role."""
            if (tried := known.get((case := self.with_values(dict(zip(self.names, changed, strict=False)))).id)) is None:
                raise _Stop(case, None)
            if tried.status is not Status.OK:
                raise _Stop(None, (tried.status, f"{at}{tried.reason}"))
            return {value.role: tried.values.get(value.name) for value in self.signature.declared.values}

        def holds(rate: float) -> bool:
            at, runs, came_to = f"at {rate:g} requests a second: ", list[OpenRun](), RateVerdict.UNDECIDED
            while len(runs) < RUNS and came_to in (RateVerdict.UNDECIDED, RateVerdict.CLIENT_BOUND):
                run = reported(at, rate, len(runs) + 1)
                runs.append(OpenRun(run["missed"], run["queries"], run["late"], run["backlog"]))
                came_to = verdict(runs, allowed)
            if came_to is RateVerdict.CLIENT_BOUND:
                late = f"the client is bound: it was late by more than {CLIENT_BOUND:.0%} of the bound; leave it a core, or raise the bound"
                raise _Stop(None, (Status.UNSUPPORTED, at + late))
            return found.note(rate, came_to)

        found.values["saturation"] = saturation = reported("")["saturation"]
        rate = rounded(FIRST * saturation)
        while rate < saturation and holds(rate):
            rate = rounded(2 * rate)
        while not found.values["highest_rate"] and rate > LEAST * saturation:
            holds(rate := rounded(rate / 2))
        if held := found.values["highest_rate"]:
            while between := found.between(resolution):
                holds(rounded(between))
            held = found.values["highest_rate"]
            curve = [reported(f"at {share:.0%} of that: ", rounded(share * held), 1)[percentile] for share in CURVE]
            found.values["rate_curve"] = None if None in curve else tuple(curve)  # an overload has no latencies


def rounded(rate: float) -> float:
    """Return a rate in three digits: more of them would only make ids long."""
    return float(f"{rate:.3g}")
