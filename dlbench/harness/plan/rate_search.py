"""The search for the highest rate of requests at which an open loop keeps its bound. All of it follows from the tries alone."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from dlbench.core.declarations import ValueRole
from dlbench.core.measurement import Measurement
from dlbench.core.model import Case, ParamValue, Signature, Status
from dlbench.core.open_loop import CLIENT_BOUND, RUNS, OpenRun, RateVerdict, verdict

FIRST, LEAST = 1 / 4, 1 / 64
"""Of the rate of a closed loop, which no try reaches: where a search begins, and where it gives up."""
CURVE = (0.25, 0.5, 0.75, 0.9)
"""Of the highest rate that held: where a run each gives the curve of latencies."""
TARGETS = {"p90": (0.1, 0.1), "p99": (0.01, 0.25)}
"""Of a percentile the share that may miss the bound, and how close, relative, the highest rate that holds and the lowest that fails are
brought: finer would take many thousands of requests a rate."""
_USUAL_TRIES = 20
Tries = Sequence[Measurement]


class _Stop(Exception):  # no error: what a search lacks is measured, and the search then made again
    """The next case to try, or the status and reason with which a search ends."""


@dataclass(slots=True)
class _RatesTried:
    """What a search has come to so far."""

    saturation: float = 0.0
    verdicts: dict[float, RateVerdict] = field(default_factory=dict)
    curve: list[float | None] = field(default_factory=list)
    wanted: Case | None = None
    ended: tuple[Status, str] | None = None

    @property
    def failed(self) -> float:
        """The lowest rate that failed, or else that of the closed loop."""
        return min((rate for rate, each in self.verdicts.items() if each.is_failure), default=self.saturation)

    @property
    def held(self) -> float:
        """The highest rate below that held; 0 of none."""
        return max((rate for rate, each in self.verdicts.items() if each is RateVerdict.HOLDS and rate < self.failed), default=0.0)

    def between(self, resolution: float) -> float | None:
        """Return the middle, on a logarithmic scale, of the lowest gap that is too wide; None where none is.

        Between two undecided rates no other would be decided.
        """
        undecided = [rate for rate, each in self.verdicts.items() if each is RateVerdict.UNDECIDED and self.held < rate < self.failed]
        gaps = pairwise([self.held, *sorted(undecided), self.failed])
        wide = (low * high for low, high in gaps if high > (1 + resolution) * low and not {low, high} <= {*undecided})
        return next(map(math.sqrt, wide), None)


@dataclass(frozen=True, slots=True)
class RateSearch:
    """The tries of one case that leaves its rate open: a closed loop, runs at one rate after the other, and those of the curve."""

    case: Case
    signature: Signature

    def is_try(self, case: Case) -> bool:
        """Whether a case is one of its tries."""
        return self._with(*(case.params.get(name) for name in self._changed)).id == case.id

    def values(self, tried: Measurement) -> dict[str, ParamValue]:
        """Return the rate of a try and the number of its pattern; of the closed loop no rate."""
        return {name: tried.case.params[name] for name in self._changed if name in tried.case.params}

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
        if not found.held:
            reason = f"not even {min(found.verdicts):g} requests a second keep the bound, where a closed loop does {found.saturation:.3g}"
            return replace(outcome, status=Status.UNSUPPORTED, reason=reason)
        of_role: Mapping[ValueRole | None, Any] = {
            "saturation": found.saturation,
            "highest_rate": found.held,
            "failing_rate": found.failed,
            "rate_curve": None if None in found.curve else tuple(found.curve),  # an overload has no latencies
        }
        values = {value.name: each for value in self.signature.declared.values if (each := of_role.get(value.role)) is not None}
        return replace(outcome, found={self._changed[0]: found.held}, values=values)

    def unfinished(self, ended: Measurement, tries: Tries) -> Measurement:
        """Return how a search ended that was cut short: ``ended`` says by what, and gets the highest rate that held so far, if any."""
        if not (held := self._searched(tries).held):
            return ended
        reason = f"unfinished: {held:g} requests a second keep the bound so far; {ended.reason}"
        return replace(ended, found={self._changed[0]: held}, unfinished=True, reason=reason)

    @property
    def _changed(self) -> tuple[str, ...]:
        """The parameters that tries differ in: the rate, and the number of the pattern of arrivals."""
        return (*self.signature.declared.searched, *self.signature.declared.having("pattern"))

    def _with(self, *changed: ParamValue | None) -> Case:
        given = dict(zip(self._changed, changed, strict=False))
        return Case.of(self.case.suite, self.signature, {**self.case.params, **given}, self.case.device)

    def _searched(self, tries: Tries) -> _RatesTried:
        found = _RatesTried()
        try:
            self._search({each.case.id: each for each in tries}, found)
        except _Stop as stop:
            found.wanted, found.ended = stop.args
        return found

    def _search(self, known: Mapping[str, Measurement], found: _RatesTried) -> None:
        """Search by the tries that are known, and note what they come to. Raises _Stop where one is lacking, and at its end before time."""
        percentile: Any = self.case.params[str(self.signature.declared.parameter("percentile"))]
        allowed, resolution = TARGETS[percentile]

        def measured(at: str, roles: Sequence[ValueRole], *changed: float) -> list[Any]:
            """Return what a try reported for these roles."""
            if (tried := known.get((case := self._with(*changed)).id)) is None:
                raise _Stop(case, None)
            if tried.status is not Status.OK:
                raise _Stop(None, (tried.status, f"{at}{tried.reason}"))
            reported = {value.role: tried.values.get(value.name) for value in self.signature.declared.values}
            return [reported[role] for role in roles]

        def holds(rate: float) -> bool:
            at, runs, came_to = f"at {rate:g} requests a second: ", list[OpenRun](), RateVerdict.UNDECIDED
            while len(runs) < RUNS and came_to in (RateVerdict.UNDECIDED, RateVerdict.CLIENT_BOUND):
                runs.append(OpenRun(*measured(at, ("missed", "queries", "late", "backlog"), rate, len(runs) + 1)))
                came_to = verdict(runs, allowed)
            if came_to is RateVerdict.CLIENT_BOUND:
                late = f"the client is bound: it was late by more than {CLIENT_BOUND:.0%} of the bound; leave it a core, or raise the bound"
                raise _Stop(None, (Status.UNSUPPORTED, at + late))
            found.verdicts[rate] = came_to
            return came_to is RateVerdict.HOLDS

        (found.saturation,) = measured("", ("saturation",))
        rate = rounded(FIRST * found.saturation)
        while rate < found.saturation and holds(rate):
            rate = rounded(2 * rate)
        while not found.held and rate > LEAST * found.saturation:
            holds(rate := rounded(rate / 2))
        while found.held and (middle := found.between(resolution)):
            holds(rounded(middle))
        for share in CURVE if found.held else ():
            found.curve += measured(f"at {share:.0%} of that: ", (percentile,), rounded(share * found.held), 1)


def rounded(rate: float) -> float:
    """Return a rate in three digits: more of them would only make ids long."""
    return float(f"{rate:.3g}")
