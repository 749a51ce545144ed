"""Searches, and the one for the highest rate of requests at which an open loop keeps its bound. It follows from the tries alone."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from dlbench.core.declarations import ValueRole
from dlbench.core.measurement import Measurement
from dlbench.core.model import Case, Params, ParamValue, Signature, Status
from dlbench.core.stats import CLIENT_BOUND, RUNS, OpenRun, RateVerdict, verdict

FIRST, LEAST = 1 / 4, 1 / 64
"""Where a search begins, and where it gives up, as shares of the rate of a closed loop, which no try reaches."""
CURVE = (0.25, 0.5, 0.75, 0.9)
"""Shares of the highest rate that held: a run at each gives the curve of latencies."""
TARGETS = {"p90": (0.1, 0.1), "p99": (0.01, 0.25)}
"""By percentile, the share of requests that may miss the bound, and the relative gap at which a search ends between the highest rate that
holds and the lowest that fails: a smaller one would take many thousands of requests a rate."""
Tries = Sequence[Measurement]
"""Those of one case so far, in order."""


class _Stop(Exception):  # no error: what a search lacks is measured, and the search then made again
    """The values to try next, or the status and reason with which a search ends."""


@dataclass(slots=True)
class _SearchState:
    """State of a search after its tries so far."""

    values: dict[ValueRole, Any] = field(default_factory=dict)
    """Values of the row, by their roles."""
    verdicts: dict[float, RateVerdict] = field(default_factory=dict)
    wanted: Params | None = None
    """Values of the next try."""
    ended: tuple[Status, str] | None = None
    """Status and reason of a search that ended early."""

    def note(self, rate: float, result: RateVerdict) -> bool:
        """Note the verdict on a rate; return whether the rate holds."""
        self.verdicts[rate] = result
        failed = min((rate for rate, each in self.verdicts.items() if each.is_failure), default=self.values["saturation"])
        held = [rate for rate, each in self.verdicts.items() if each is RateVerdict.HOLDS and rate < failed]
        self.values |= {"failing_rate": failed, "highest_rate": max(held, default=None)}
        return result is RateVerdict.HOLDS

    def between(self, resolution: float) -> float | None:
        """Return the geometric mean of the lowest gap that is wider than ``resolution``; None if there is none.

        A gap between two undecided rates is left as it is: no rate within would be decided either.
        """
        held, failed = self.values["highest_rate"], self.values["failing_rate"]
        undecided = sorted(rate for rate, each in self.verdicts.items() if each is RateVerdict.UNDECIDED and held < rate < failed)
        for low, high in pairwise([held, *undecided, failed]):
            if high > (1 + resolution) * low and not (low in undecided and high in undecided):
                return math.sqrt(low * high)
        return None


@dataclass(frozen=True, slots=True)
class Search:
    """The tries of one case that leaves parameters open."""

    case: Case
    signature: Signature

    @property
    def names(self) -> Sequence[str]:
        """The parameters that its tries differ in."""
        raise NotImplementedError

    def next(self, tries: Tries) -> Case | None:
        """Return the next case to try; None where the search has ended."""
        values = self._next_values(tries)
        return None if values is None else self.with_values(values)

    def _next_values(self, tries: Tries) -> Params | None:
        """Return the values of the next try; None where the search has ended."""
        raise NotImplementedError

    def outcome(self, tries: Tries, number: int) -> Measurement:
        """Return the result of the tries, one or more, as the measurement of the case in round ``number``."""
        raise NotImplementedError

    def _so_far(self, tries: Tries) -> tuple[Params, str]:
        """Return the best values so far, if any, and the sentence that says so."""
        raise NotImplementedError

    def unfinished(self, ended: Measurement, tries: Tries) -> Measurement:
        """Return ``ended``, the measurement that cut the search short, with what was found so far, if anything."""
        found, sentence = self._so_far(tries)
        return replace(ended, found=found, unfinished=True, reason=f"unfinished: {sentence} so far; {ended.reason}") if found else ended

    def with_values(self, values: Params) -> Case:
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

    @property
    def names(self) -> Sequence[str]:
        """The rate, which a closed loop does not have, and the number of the pattern of arrivals."""
        return (*self.signature.declared.searched, *self.signature.declared.having("pattern"))

    def _next_values(self, tries: Tries) -> Params | None:
        return self._state_after(tries).wanted

    def outcome(self, tries: Tries, number: int) -> Measurement:
        """Return the result of the tries, one or more, as the measurement of the case in round ``number``."""
        state = self._state_after(tries)
        outcome = replace(tries[-1], case=self.case, round=number, status=Status.OK, reason=None, values={})
        if state.ended:
            status, reason = state.ended
            return self.unfinished(replace(outcome, status=status, reason=reason), tries)
        highest = state.values["highest_rate"]
        if not highest:
            lowest, saturation = min(state.verdicts), state.values["saturation"]
            reason = f"not even {lowest:g} requests a second keep the bound, where a closed loop does {saturation:.3g}"
            return replace(outcome, status=Status.UNSUPPORTED, reason=reason)
        values = {value.name: each for value in self.signature.declared.values if (each := state.values.get(value.role))}  # type: ignore[arg-type]  # a value without a role has no entry
        return replace(outcome, found={self.names[0]: highest}, values=values)

    def _so_far(self, tries: Tries) -> tuple[Params, str]:
        highest = self._state_after(tries).values.get("highest_rate")
        return ({self.names[0]: highest}, f"{highest:g} requests a second keep the bound") if highest else ({}, "")

    def _state_after(self, tries: Tries) -> _SearchState:
        state = _SearchState()
        try:
            self._replay({each.case.id: each for each in tries}, state)
        except _Stop as stop:
            state.wanted, state.ended = stop.args
        return state

    def _replay(self, known: Mapping[str, Measurement], state: _SearchState) -> None:
        """Repeat the search from its beginning with the known tries, by the id of their case, and note their verdicts in ``state``.

        1. A closed loop gives the saturation: the rate that no try reaches.
        2. Beginning at a quarter of it, double the rate until one does not hold.
        3. As long as none has held, halve the rate, down to a 64th of the saturation.
        4. Bisect the gap between the highest rate that held and the lowest that failed, then measure the curve below the former.

        Raises _Stop at the first try that is not known, and where the search ends early.
        """
        percentile: Any = self.case.params[str(self.signature.declared.parameter("percentile"))]
        allowed, resolution = TARGETS[percentile]

        saturation = self._reported(known, "")["saturation"]
        if not saturation:
            raise _Stop(None, (Status.FAILED, "its closed loop reports no requests a second"))
        state.values |= {"saturation": saturation, "highest_rate": None}

        rate = rounded(FIRST * saturation)
        while rate < saturation and state.note(rate, self._verdict_on(rate, known, allowed)):
            rate = rounded(2 * rate)

        while not state.values["highest_rate"] and rate > LEAST * saturation:
            rate = rounded(rate / 2)
            state.note(rate, self._verdict_on(rate, known, allowed))
        if not state.values["highest_rate"]:
            return

        while between := state.between(resolution):
            rate = rounded(between)
            state.note(rate, self._verdict_on(rate, known, allowed))
        highest = state.values["highest_rate"]
        curve = [self._reported(known, f"at {share:.0%} of that: ", rounded(share * highest), 1)[percentile] for share in CURVE]
        state.values["rate_curve"] = None if None in curve else tuple(curve)  # an overload has no latencies

    def _verdict_on(self, rate: float, known: Mapping[str, Measurement], allowed: float) -> RateVerdict:
        """Return the verdict on one rate, by as few runs as decide it. Raises _Stop where the client is too slow for any."""
        place = f"at {rate:g} requests a second: "
        runs: list[OpenRun] = []
        result = RateVerdict.UNDECIDED
        while len(runs) < RUNS and result in (RateVerdict.UNDECIDED, RateVerdict.CLIENT_BOUND):
            run = self._reported(known, place, rate, len(runs) + 1)
            runs.append(OpenRun(run["missed"], run["queries"], run["late"], run["backlog"]))
            result = verdict(runs, allowed)
        if result is RateVerdict.CLIENT_BOUND:
            late = f"the client is bound: it was late by more than {CLIENT_BOUND:.0%} of the bound; leave it a core, or raise the bound"
            raise _Stop(None, (Status.UNSUPPORTED, place + late))
        return result

    def _reported(self, known: Mapping[str, Measurement], place: str, *settings: float) -> dict[ValueRole | None, Any]:
        """Return what the try with these `names` reported, by role. Raises _Stop if it is not known, or not ok: the reason begins with
        ``place``.
        """
        values = dict(zip(self.names, settings, strict=False))
        tried = known.get(self.with_values(values).id)
        if tried is None:
            raise _Stop(values, None)
        if tried.status is not Status.OK:
            raise _Stop(None, (tried.status, f"{place}{tried.reason}"))
        return {value.role: tried.values.get(value.name) for value in self.signature.declared.values}


def rounded(rate: float) -> float:
    """Return a rate in three digits: more of them would only make ids long."""
    return float(f"{rate:.3g}")
