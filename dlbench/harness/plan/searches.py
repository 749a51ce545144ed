"""Searches for the largest size, the fastest settings and the highest rate: by the tries so far alone, the next one and the result."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dlbench.core.declarations import SEARCH_RESOLUTION, ValueRole
from dlbench.core.measurement import Measurement
from dlbench.core.model import Case, Parameter, Params, ParamValue, Signature, Status, settings_text
from dlbench.core.stats import CLIENT_BOUND, RUNS, OpenRun, RateVerdict, quantile, verdict
from dlbench.harness.plan.rates import CURVE, FIRST, LEAST, TARGETS, RateState, rounded

Tries = Sequence[Measurement]
"""The tries of one case so far, in order."""


class _Stop(Exception):  # no error: the try is made, and the search then repeated with it
    """A search can't go on. Its arguments are the values to try next, or None, and the status and reason with which it ends, or None."""


@dataclass(frozen=True)
class Search:
    """The search for values of the parameters that a case leaves open, by tries: cases with values for these."""

    case: Case
    signature: Signature

    @property
    def names(self) -> Sequence[str]:
        """The parameters that its tries differ in."""
        return self.signature.declared.searched

    def usual_tries(self) -> int:
        """Return about how many tries the search makes."""
        raise NotImplementedError

    def next(self, tries: Tries) -> Case | None:
        """Return the next case to try; None where the search has ended."""
        values = self._next_values(tries)
        return None if values is None else self.with_values(values)

    def _next_values(self, tries: Tries) -> Params | None:
        """Return the values of the next try; None where the search has ended."""
        raise NotImplementedError

    def _best_so_far(self, tries: Tries) -> tuple[Params, str]:
        """Return the best values so far and the sentence that says so; no values if no try is good."""
        raise NotImplementedError

    def unfinished(self, ended: Measurement, tries: Tries) -> Measurement:
        """Return ``ended``, the measurement that cut the search short, with the best values so far, if any."""
        found, sentence = self._best_so_far(tries)
        return replace(ended, found=found, unfinished=True, reason=f"unfinished: {sentence}; {ended.reason}") if found else ended

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
    """The search for the highest rate that keeps a bound of latency: by a closed loop, runs at one rate after the other, and a curve."""

    @property
    def names(self) -> Sequence[str]:
        """The rate, which a closed loop does not have, and the number of the pattern of arrivals."""
        return (*self.signature.declared.searched, *self.signature.declared.having("pattern"))

    def usual_tries(self) -> int:
        """Return about how many tries the search makes: those of the closed loop, of some ten rates, and of the curve."""
        return 20

    def _next_values(self, tries: Tries) -> Params | None:
        return self._state_after(tries).wanted

    def outcome(self, tries: Tries, number: int) -> Measurement:
        """Return the result of the tries, one or more, as the measurement of the case in round ``number``."""
        state = self._state_after(tries)
        outcome = replace(tries[-1], case=self.case, round=number, status=Status.OK, reason=None, values={})
        if state.ended:
            status, reason = state.ended
            return self.unfinished(replace(outcome, status=status, reason=reason), tries)
        highest = state.highest
        if not highest:
            reason = f"not even {min(state.verdicts):g} requests a second keep the bound, where a closed loop does {state.saturation:.3g}"
            return replace(outcome, status=Status.UNSUPPORTED, reason=reason)
        results = state.results()
        values = {each.name: results[each.role] for each in self.signature.declared.values if results.get(each.role)}
        return replace(outcome, found={self.names[0]: highest}, values=values)  # the first of its names is the rate

    def _best_so_far(self, tries: Tries) -> tuple[Params, str]:
        highest = self._state_after(tries).highest
        return ({self.names[0]: highest}, f"{highest:g} requests a second keep the bound so far") if highest else ({}, "")

    def _state_after(self, tries: Tries) -> RateState:
        state = RateState()
        try:
            self._replay({each.case.id: each for each in tries}, state)  # it fills `state` as far as it gets
        except _Stop as stop:
            state.wanted, state.ended = stop.args
        return state

    def _replay(self, tries: Mapping[str, Measurement], state: RateState) -> None:
        """Repeat the whole search with the tries that were made, given by the id of their case, and note its results in ``state``.

        1. A closed loop gives the saturation: the rate that no try reaches.
        2. Try a quarter of the saturation, and double the rate as long as it holds.
        3. If no rate has held, halve the rate until one holds, down to a 64th of the saturation.
        4. Bisect between the highest rate that held and the lowest that failed.
        5. Measure the latencies at the shares `CURVE` of the highest rate that held.

        Raises _Stop at the first try that was not made yet, and where the search ends early.
        """
        percentile: Any = self.case.params[str(self.signature.declared.parameter("percentile"))]
        allowed, resolution = TARGETS[percentile]  # the share of requests that may miss the bound, and the gap that ends the search

        def try_rate(rate: float) -> bool:
            """Note the verdict on a rate, from which ``state.highest`` follows, and return whether it holds: whether it keeps the bound."""
            state.verdicts[rate] = self._verdict_on(rate, tries, allowed)
            return state.verdicts[rate] is RateVerdict.HOLDS

        closed_loop = self._reported(tries, "")  # a try without rate and number is the closed loop
        state.saturation = saturation = closed_loop["saturation"] or 0.0
        if not saturation:
            raise _Stop(None, (Status.FAILED, "its closed loop reports no requests a second"))
        rate = rounded(FIRST * saturation)
        while rate < saturation and try_rate(rate):
            rate = rounded(2 * rate)
        while not state.highest and rate > LEAST * saturation:
            rate = rounded(rate / 2)
            try_rate(rate)
        while state.highest and (between := state.between(state.highest, resolution)):
            try_rate(rounded(between))
        if highest := state.highest:
            latencies = []
            for share in CURVE:  # at each a single run, number 1; "that" is the highest rate, which the reason names first
                reported = self._reported(tries, f"at {share:.0%} of that: ", rounded(share * highest), 1)
                latencies.append(reported[percentile])
            state.curve = None if None in latencies else tuple(latencies)  # an overload has no latencies

    def _verdict_on(self, rate: float, tries: Mapping[str, Measurement], allowed: float) -> RateVerdict:
        """Return the verdict on a rate after as few runs as decide it, at most `RUNS`; a share ``allowed`` of requests may miss the bound.

        Raises _Stop for a run that was not made yet or is not ok, and if the client was late in all runs: these tell nothing of the server.
        """
        place = f"at {rate:g} requests a second: "
        runs: list[OpenRun] = []
        for number in range(1, RUNS + 1):
            run = self._reported(tries, place, rate, number)
            runs.append(OpenRun(run["missed"], run["queries"], run["late"], run["backlog"]))
            result = verdict(runs, allowed)
            if result not in (RateVerdict.UNDECIDED, RateVerdict.CLIENT_BOUND):
                return result
        if result is RateVerdict.CLIENT_BOUND:
            why = f"the client is bound: it was late by more than {CLIENT_BOUND:.0%} of the bound; leave it a core, or raise the bound"
            raise _Stop(None, (Status.UNSUPPORTED, place + why))
        return result  # still undecided after all runs

    def _reported(self, tries: Mapping[str, Measurement], place: str, *settings: float) -> dict[ValueRole | None, Any]:
        """Return the values that a try reported, by role. Its ``settings`` are rate and number of the run, or none for the closed loop.

        Raises _Stop if it is not among the tries yet, or is not ok: the reason then begins with ``place``.
        """
        values = dict(zip(self.names, settings, strict=False))
        tried = tries.get(self.with_values(values).id)
        if tried is None:
            raise _Stop(values, None)
        if tried.status is not Status.OK:
            raise _Stop(None, (tried.status, f"{place}{tried.reason}"))
        return {value.role: tried.values.get(value.name) for value in self.signature.declared.values}


_GROWTH = 4
"""Highest ratio of the next size to the largest that fitted so far: beyond it memory may leave the line."""
FIRST_TRY = 8
"""First value of a size in a search for the fastest, which then halves and doubles it."""
FASTER = 1.02
"""Ratio by which a try has to be faster than the fastest before it to count as faster: a try is one process, and processes differ."""
_TRIES_BY_LINE = 9
"""Tries after which the line through the peaks is no longer used, as it may creep up. A search by the line hardly ever takes more."""
_NEARLY_FULL = 0.5
"""Share of the limit from which on a process that dies is taken to have died of it: libraries end in many ways without memory."""
Peaks = Mapping[int, int | None]
"""Each size that fits, and the bytes that it took; None where they are unknown."""


def search_of(case: Case, signature: Signature | None) -> "RateSearch | SizeSearch | SpeedSearch | None":
    """Return the search that a case asks for; None where it leaves nothing open."""
    if signature is None or not signature.declared.searches(case.params):
        return None
    if signature.declared.value("highest_rate"):
        return RateSearch(case, signature)
    return SizeSearch(case, signature) if signature.declared.value("largest") else SpeedSearch(case, signature)


def searches_in(cases: Iterable[Case], signatures: Mapping[str, Signature]) -> list[Search]:
    """Return the searches among cases; a case without a signature is none."""
    return [search for case in cases if (search := search_of(case, signatures.get(case.workload)))]


class SizeSearch(Search):
    """The search for the largest value of one parameter whose case fits into the memory."""

    @property
    def _limit_bytes(self) -> float | None:
        """The limit of memory that the case sets itself."""
        gibibytes = self.case.params.get(self.signature.declared.parameter("limit") or "")
        return float(gibibytes) * 2**30 if gibibytes is not None else None

    def usual_tries(self) -> int:
        """Return about how many tries the search makes, with memory on a line."""
        return _TRIES_BY_LINE

    def _next_values(self, tries: Tries) -> Params | None:
        size = self._next_size(tries)
        return None if size is None else {self.names[0]: size}

    def _next_size(self, tries: Tries) -> int | None:
        """Return the size to try next; None where the search has ended.

        If a line through the peaks of memory so far predicts the size that fills the memory (`_predicted`), that size is next. Otherwise
        the search doubles ``low``, the largest size that fits, until one does not fit, and then bisects. It ends when ``high``, the
        smallest that does not fit, is larger by no more than `SEARCH_RESOLUTION`, or when a try failed for another reason.
        """
        peaks, high, failed = self._sort_tries(tries)
        if failed:
            return None
        if tries and self._is_doubtful(tries, peaks):
            return self._size(tries[-1])  # once more, as it ran out of memory though by the line it fits
        low = max(peaks, default=0)
        predicted = self._predicted(peaks) if len(tries) < _TRIES_BY_LINE else None
        if high is None:
            if predicted is None:
                return max(1, 2 * low)
            # More than the line predicts may fit: peaks include pages of libraries, which the limit does not count. Go up a tenth at least.
            beyond_line = low + max(1, int(2 * low * SEARCH_RESOLUTION))
            return min(max(predicted, beyond_line), _GROWTH * low)
        least_next = low + max(1, int(low * SEARCH_RESOLUTION))
        if high <= least_next:
            return None
        # Only a try that fits adds a peak to the line. After one that does not fit, the line tells nothing new: bisect.
        if predicted is not None and tries[-1].status is Status.OK:
            by_line = min(predicted, high - max(1, int(high * SEARCH_RESOLUTION)))  # a step below `high` at most
            if by_line > low:
                return max(by_line, least_next)
        return (low + high) // 2

    def _is_doubtful(self, tries: Tries, peaks: Peaks) -> bool:
        """Whether the last try ran out of memory though by the line it fits, and was the first of its size: it is repeated once."""
        # As measured, a forward pass of ResNet-18 at batch 56 did not fit once, and others at 62 did.
        last, predicted = tries[-1], self._predicted(peaks)
        is_first = [each.case.id for each in tries].count(last.case.id) == 1
        return last.status is Status.OOM and is_first and predicted is not None and self._size(last) <= predicted

    def _size(self, tried: Measurement) -> int:
        """Return the size of a try."""
        return int(tried.case.params[self.names[0]])

    def _sort_tries(self, tries: Tries) -> tuple[Peaks, int | None, Measurement | None]:
        """Return the peak of each size that fits, the smallest size that does not fit, and the first try that failed for another reason.

        Sizes above one that did not fit are left out of the peaks: they had memory by chance.
        """
        peaks: dict[int, int | None] = {}
        for each in tries:
            if each.status is Status.OK:
                memory = each.memory  # what torch's allocator held, or else the peak of the tensors, or that of the host
                peaks[self._size(each)] = memory.reserved_bytes or memory.peak_bytes or memory.host_peak_bytes
        never_ok = [each for each in tries if self._size(each) not in peaks]  # a size may have had a second try
        too_large = [each for each in never_ok if self._does_not_fit(each, peaks)]
        high = min((self._size(each) for each in too_large), default=None)
        failed = next((each for each in never_ok if each not in too_large), None)
        reliable_peaks = {size: peak for size, peak in peaks.items() if high is None or size < high}
        return reliable_peaks, high, failed

    def _does_not_fit(self, tried: Measurement, peaks: Peaks) -> bool:
        """Whether a try ran out of memory, or crashed and by the peaks of smaller sizes would nearly have filled the limit."""
        if tried.status is not Status.CRASHED:
            return tried.status is Status.OOM
        size, limit_bytes = self._size(tried), self._limit_bytes
        in_proportion = [size / smaller * peak for smaller, peak in peaks.items() if peak and smaller < size]
        return bool(in_proportion) and limit_bytes is not None and min(in_proportion) >= _NEARLY_FULL * limit_bytes

    def _predicted(self, peaks: Peaks) -> int | None:
        """Return the size whose peak reaches the limit, by a line through two known peaks; None without such a line.

        One is the peak of the largest size. The other is that of the next smaller size that took less memory: with another algorithm a
        size may take as much as a larger one, or more.
        """
        known = sorted((size, peak) for size, peak in peaks.items() if peak)
        limit_bytes = self._limit_bytes
        if not known or limit_bytes is None:
            return None
        largest, its_peak = known[-1]
        for size, peak in reversed(known):
            if peak < its_peak:
                bytes_of_one_more = (its_peak - peak) / (largest - size)
                return int(largest + (limit_bytes - its_peak) / bytes_of_one_more)
        return None

    def outcome(self, tries: Tries, number: int) -> Measurement:
        """Return the result of the tries, one or more, as the measurement of the case in round ``number``."""
        name = self.names[0]
        peaks, high, failed = self._sort_tries(tries)
        largest = max(peaks, default=0)
        best = next((each for each in reversed(tries) if self._size(each) == largest), tries[-1])  # if no size fits, the last try
        # All that describes how it was measured, without its times: a try is too brief for these.
        fields = ("side", "device_name", "threads", "memory", "limit_bytes", "math", "missing_reasons", "throttling")
        outcome = Measurement(self.case, number, Status.OK, **{field: getattr(best, field) for field in fields})
        if failed:
            reason = f"{name}={self._size(failed)}: {failed.reason}"
            return self.unfinished(replace(outcome, status=failed.status, reason=reason), tries)
        if not largest:
            smallest = next(each for each in tries if self._size(each) == high)  # there is one, as no size fits and none failed otherwise
            return replace(outcome, status=Status.OOM, reason=f"not even {name}={high} fits: {smallest.reason}")
        values = {each.name: float(largest) for each in self.signature.declared.values if each.role == "largest"}
        return replace(outcome, found={name: largest}, values=values)

    def _best_so_far(self, tries: Tries) -> tuple[Params, str]:
        peaks = self._sort_tries(tries)[0]
        found = {self.names[0]: max(peaks)} if peaks else {}
        return found, f"{settings_text(found)} fits so far"


class SpeedSearch(Search):
    """The search for the values of parameters with which a case is fastest."""

    @property
    def names(self) -> Sequence[str]:
        """All that the case leaves open; a try with the default number of threads or instances has no value for these."""
        return [each.name for each in self._open]

    def usual_tries(self) -> int:
        """Return about how many tries the search makes: each change of its start, and as many changes of a faster try."""
        around_start: list[Measurement] = []
        while (case := self.next(around_start)) is not None:
            around_start.append(Measurement(case, 0, Status.OK, threads=2))  # without times none is faster than the first
        return 2 * len(around_start) - 1

    def _next_values(self, tries: Tries) -> Params | None:
        """Return the values to try next; None where the search has ended.

        It is a coordinate ascent: begin with the first candidate of each parameter, then change one parameter of a base, the fastest try so
        far, until no change makes it faster. Only a try with the first candidate of each parameter that is searched last, such as a mode of
        compilation, can be the base. With a second mode in the base, all changes of the other parameters would be tried again in that mode.
        """
        tried = [self.values(each.case) for each in tries]
        # The first try names no number of threads or instances, so it has all cores in one process.
        start = {each.name: _candidates(each, None)[0] for each in self._open if each.name not in self._cores}
        if start not in tried:
            return start
        searched_last = [name for name in self.signature.declared.having("searched_last") if name in start]
        bases = [each for each in tries if all(each.case.params.get(name) == start[name] for name in searched_last)]
        fastest = self.fastest(bases)
        base = self.values(fastest.case) if fastest else start
        for parameter in self._open:
            for values in self._changes(parameter, base, tries):
                if values not in tried:
                    return values
        return None

    def _changes(self, parameter: Parameter, base: Params, tries: Tries) -> Iterator[Params]:
        """Yield the ``base`` values with each neighbouring value of one parameter in place of its own."""
        name = parameter.name
        default = self._default_count(name, base, tries) if name in self._cores else None
        # Other instances are first tried with all cores shared among them, so no number of threads stays.
        dropped = ("instances", "threads") if name == "instances" else (name,)
        others = {other: value for other, value in base.items() if other not in dropped}
        for value in _candidates(parameter, base.get(name, default)):
            yield others if value == default else {**others, name: value}  # the default count is tried without naming it

    def _default_count(self, name: str, base: Params, tries: Tries) -> int | None:
        """Return how many instances, or threads of each instance, a case has that names no number; None if no try shows it yet."""
        if name == "instances":
            return 1
        instances = self.case.instances or base.get("instances")
        return next((each.threads for each in tries if (each.case.instances, each.case.threads) == (instances, None)), None)

    def fastest(self, tries: Tries) -> Measurement | None:
        """Return the try with the highest throughput, or the first of those that hardly differ; None if none has a throughput."""
        fastest: Measurement | None = None
        for each in tries:
            rate = _rate(each)
            if rate and (fastest is None or rate > FASTER * _rate(fastest)):
                fastest = each
        return fastest

    def outcome(self, tries: Tries, number: int) -> Measurement:
        """Return the result of the tries, one or more, as the measurement of the case in round ``number``."""
        if fastest := self.fastest(tries):
            return replace(fastest, case=self.case, round=number, found=self.values(fastest.case))
        first = replace(tries[0], case=self.case, round=number)
        if first.status is not Status.OK:
            return first
        reason = "its work states no items, so no try can be the fastest"
        return replace(first, status=Status.FAILED, reason=reason, samples=None)

    def _best_so_far(self, tries: Tries) -> tuple[Params, str]:
        fastest = self.fastest(tries)
        found = self.values(fastest.case) if fastest else {}
        return found, f"{settings_text(found)} is the fastest so far{self._untried(tries)}"

    def _untried(self, tries: Tries) -> str:
        """Say what no try has changed yet: choices that none has had, and numbers, such as a size, that were the same in all."""
        untried: list[str] = []
        for each in self._open:
            tried_values = {self.values(tried.case).get(each.name) for tried in tries}
            untried += [f"{each.name}={value}" for value in each.choices if value not in tried_values]
            if not each.choices and len(tried_values) == 1:
                untried.append(each.name)
        return f", without a try of {', '.join(untried)}" if untried else ""

    @property
    def _cores(self) -> tuple[str, ...]:
        """The parameters of a CPU's cores; the first try has none of them."""
        return self.signature.declared.having("searched_cores")

    @property
    def _open(self) -> list[Parameter]:
        """Parameters that the case leaves open, in the order in which they are varied: texts before sizes, which have no end."""
        declared = self.signature.declared
        searched = [name for name in declared.searched if self.case.device == "cpu" or name not in self._cores]
        unset = [each for each in self.signature.parameters if each.name in searched and each.name not in self.case.params]
        # False sorts first: parameters that are searched last come behind all, and in each part those without choices.
        return sorted(unset, key=lambda each: (each.name in declared.having("searched_last"), not each.choices))


def _candidates(parameter: Parameter, current: ParamValue | None) -> Sequence[ParamValue]:
    """Return the values of a parameter to try next to the current one."""
    if parameter.choices:
        return parameter.choices
    if not isinstance(current, int):
        return (FIRST_TRY,)
    return tuple(each for each in (2 * current, current // 2) if each)


def _rate(measured: Measurement) -> float:
    """Return the items a second of a try; 0 if it is not ok or has no times."""
    samples = measured.samples
    if measured.status is not Status.OK or not samples or not measured.items:
        return 0.0
    seconds = quantile(sorted(samples.counted_s), 0.5)
    return measured.items / seconds if seconds else 0.0
