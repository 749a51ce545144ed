"""Searches for the largest size and for the fastest settings: the case to try next, by the tries so far, and the result.

All of it follows from the tries alone, so a resumed run goes on where the file ends.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from dlbench.core.declarations import SEARCH_RESOLUTION
from dlbench.core.measurement import Measurement
from dlbench.core.model import Case, Parameter, Params, ParamValue, Policy, Signature, Status, settings_text
from dlbench.core.stats import quantile
from dlbench.harness.plan.rate_search import RateSearch, Search, Tries

_GROWTH = 4
"""Most times the largest value that fitted so far that the next try goes up to, as its memory may not be on a line."""
FIRST_TRY = 8
"""First value of a size in a search for the fastest, which then halves and doubles it."""
FASTER = 1.02
"""How many times as fast a try has to be for a search to go on from it: a try is one process."""
_BY_LINE = 9
"""Tries that a search of memory on a line hardly ever takes; after those the sizes alone decide, as the line may creep up."""
_NEARLY_FULL = 0.5
"""Share of the limit from which on a process that dies is taken to have died of it: libraries end in many ways without memory."""

Peaks = Mapping[int, int | None]
"""Memory that each size that fits took."""


def search_of(case: Case, signature: Signature | None) -> Search | None:
    """Return the search that a case stands for; None where it leaves nothing open."""
    if signature is None or not signature.declared.searches(case.params):
        return None
    if signature.declared.value("highest_rate"):
        return RateSearch(case, signature)
    return SizeSearch(case, signature) if signature.declared.value("largest") else SpeedSearch(case, signature)


def unsearched(case: Case, signature: Signature | None) -> Case:
    """Return a case without what it could leave to a search: all that differ in nothing else draw the same numbers."""
    if signature is None or not (searched := signature.declared.searched):
        return case
    return Case.of(case.suite, signature, {name: each for name, each in case.params.items() if name not in searched}, case.device)


def policy_of_tries(policy: Policy) -> Policy:
    """Return how a try is measured: as briefly as its memory and a rough time allow."""
    return replace(policy, min_blocks=1, round_s=min(policy.round_s, 0.2), max_warmup_s=min(policy.max_warmup_s, 1.0))


class SizeSearch(Search):
    """The search for the largest value of one parameter whose case fits into the memory."""

    @property
    def names(self) -> Sequence[str]:
        """The parameter whose largest value is sought."""
        return self.signature.declared.searched

    @property
    def _limit_bytes(self) -> float | None:
        """The limit of memory that the case sets itself."""
        gibibytes = self.case.params.get(self.signature.declared.parameter("limit") or "")
        return float(gibibytes) * 2**30 if gibibytes is not None else None

    def _next_values(self, tries: Tries) -> Params | None:
        size = self._next_size(tries)
        return None if size is None else {self.names[0]: size}

    def _next_size(self, tries: Tries) -> int | None:
        """Return the size to try next; None where the search has ended.

        It is the size that fills the memory by a line through the peaks so far (`_predicted`). Without such a line, double the largest
        that fits until one does not, then bisect.
        """
        fits, high, stopped = self._sizes(tries)
        if stopped:
            return None
        low = max(fits, default=0)
        least = low + max(1, int(low * SEARCH_RESOLUTION))
        predicted = self._predicted(fits) if len(tries) < _BY_LINE else None
        if high is None:
            # There may be room left beyond the line, as the pages of libraries are in peaks and not in a limit.
            beyond = low + max(1, int(2 * low * SEARCH_RESOLUTION))
            return max(1, 2 * low if predicted is None else min(max(predicted, beyond), _GROWTH * low))
        if high <= least:
            return None
        # A second try by the line in a row may only confirm it: after one that did not fit, bisect.
        if predicted is not None and tries[-1].status is Status.OK:
            by_line = min(predicted, high - max(1, int(high * SEARCH_RESOLUTION)))
            if by_line > low:
                return max(by_line, least)
        return (low + high) // 2

    def _size(self, tried: Measurement) -> int:
        """Return the size of a try."""
        return int(tried.case.params[self.names[0]])

    def _sizes(self, tries: Tries) -> tuple[Peaks, int | None, Measurement | None]:
        """Return the peak of each size that fits, the smallest that does not, and the try that ended the search otherwise.

        Sizes that fit do not count if a smaller one did not fit: they had memory by chance.
        """
        peaks = ((self._size(each), each.memory) for each in tries if each.status is Status.OK)
        fitting = {size: memory.reserved_bytes or memory.peak_bytes or memory.host_peak_bytes for size, memory in peaks}
        failed = [each for each in tries if each.status is not Status.OK]
        too_large = [each for each in failed if self._does_not_fit(each, fitting)]
        high = min(map(self._size, too_large), default=None)
        stopped = next((each for each in failed if each not in too_large), None)
        return {size: peak for size, peak in fitting.items() if high is None or size < high}, high, stopped

    def _does_not_fit(self, tried: Measurement, fitting: Peaks) -> bool:
        """Whether a try ran out of memory, or crashed and by the peaks of smaller sizes would nearly have filled the limit."""
        if tried.status is not Status.CRASHED:
            return tried.status is Status.OOM
        size = self._size(tried)
        in_proportion = [size / fitted * peak for fitted, peak in fitting.items() if peak and fitted < size]
        limit = self._limit_bytes
        return bool(in_proportion) and limit is not None and min(in_proportion) >= _NEARLY_FULL * limit

    def _predicted(self, fits: Peaks) -> int | None:
        """Return the size whose peak reaches the limit by a line through two known peaks; None without such a line.

        These are the peak of the largest size, and that of the next smaller size that took less: with another algorithm a size may take
        less than a smaller one.
        """
        known = sorted((size, peak) for size, peak in fits.items() if peak)
        limit = self._limit_bytes
        if not known or limit is None:
            return None
        largest, most = known[-1]
        for size, peak in reversed(known):
            if peak < most:
                slope = (most - peak) / (largest - size)
                return int(largest + (limit - most) / slope)
        return None

    def outcome(self, tries: Tries, number: int) -> Measurement:
        """Return the result of the tries, one or more, as the measurement of the case in round ``number``."""
        name = self.names[0]
        fits, high, stopped = self._sizes(tries)
        largest = max(fits, default=0)
        best = next((each for each in tries if self._size(each) == largest), tries[-1])
        outcome = Measurement(
            self.case,
            number,
            Status.OK,
            side=best.side,
            device_name=best.device_name,
            threads=best.threads,
            memory=best.memory,
            limit_bytes=best.limit_bytes,
            math=best.math,
            missing_reasons=best.missing_reasons,
            throttling=best.throttling,
        )
        if stopped:
            reason = f"{name}={self._size(stopped)}: {stopped.reason}"
            return self.unfinished(replace(outcome, status=stopped.status, reason=reason), tries)
        if not largest:
            smallest = next(each for each in tries if self._size(each) == high)
            return replace(outcome, status=Status.OOM, reason=f"not even {name}={high} fits: {smallest.reason}")
        values = {each.name: float(largest) for each in self.signature.declared.values if each.role == "largest"}
        return replace(outcome, found={name: largest}, values=values)

    def _so_far(self, tries: Tries) -> tuple[Params, str]:
        fits, *_ = self._sizes(tries)
        found = {self.names[0]: max(fits)} if fits else {}
        return found, f"{settings_text(found)} fits"


class SpeedSearch(Search):
    """The search for the values of parameters with which a case is fastest."""

    @property
    def names(self) -> Sequence[str]:
        """All that the case leaves open; a try with the usual number of threads or instances has none of these."""
        return [each.name for each in self._open]

    def _next_values(self, tries: Tries) -> Params | None:
        """Return the values to try next; None where the search has ended.

        It is a coordinate ascent: change one parameter of the fastest try so far, until no change makes it faster. No change starts from
        a try in which a parameter that is searched last has changed: it would cost as much again.
        """
        tried = [self.values(each.case) for each in tries]
        start = {each.name: _candidates(each, None)[0] for each in self._open if each.name not in self._cores}
        if start not in tried:
            return start
        last = start.keys() & self.signature.declared.having("searched_last")
        fastest = self.fastest([each for each in tries if all(self.values(each.case)[name] == start[name] for name in last)])
        around = self.values(fastest.case) if fastest else start
        changes = (values for parameter in self._open for values in self._changes(parameter, around, tries))
        return next((values for values in changes if values not in tried), None)

    def _changes(self, parameter: Parameter, around: Params, tries: Tries) -> Iterator[Params]:
        """Yield the values of a try with each neighbouring value of one parameter.

        Each number of instances begins with all cores shared among them, without a number of threads.
        """
        name = parameter.name
        usual = self._usual(name, around, tries) if name in self._cores else None
        rest = {other: value for other, value in around.items() if other != name and (name, other) != ("instances", "threads")}
        for value in _candidates(parameter, around.get(name, usual)):
            yield rest if value == usual else {**rest, name: value}

    def _usual(self, name: str, around: Params, tries: Tries) -> int | None:
        """Return the number of instances of a case that names none, or of threads of each instance, by the tries; None if unknown."""
        if name == "instances":
            return 1
        instances = self.case.instances or around.get("instances")
        alike = (each for each in tries if (each.case.instances, each.case.threads) == (instances, None))
        return next((each.threads for each in alike), None)

    def fastest(self, tries: Tries) -> Measurement | None:
        """Return the try with the highest throughput, or the first of those that hardly differ; None if none has a throughput."""
        found: Measurement | None = None
        for each in tries:
            rate = _rate(each)
            if rate and (found is None or rate > FASTER * _rate(found)):
                found = each
        return found

    def outcome(self, tries: Tries, number: int) -> Measurement:
        """Return the result of the tries, one or more, as the measurement of the case in round ``number``."""
        if fastest := self.fastest(tries):
            return replace(fastest, case=self.case, round=number, found=self.values(fastest.case))
        first = replace(tries[0], case=self.case, round=number)
        if first.status is not Status.OK:
            return first
        reason = "its work states no items, so no try can be the fastest"
        return replace(first, status=Status.FAILED, reason=reason, samples=None)

    def _so_far(self, tries: Tries) -> tuple[Params, str]:
        fastest = self.fastest(tries)
        found = self.values(fastest.case) if fastest else {}
        return found, f"{settings_text(found)} is the fastest"

    @property
    def _cores(self) -> tuple[str, ...]:
        """The parameters of the cores of a CPU, of which a start has none."""
        return self.signature.declared.having("searched_cores")

    @property
    def _open(self) -> list[Parameter]:
        """Parameters that the case leaves open, in the order in which they are varied: texts before sizes, which have no end."""
        declared = self.signature.declared
        searched = [name for name in declared.searched if self.case.device == "cpu" or name not in self._cores]
        left = [each for each in self.signature.parameters if each.name in searched and each.name not in self.case.params]
        return sorted(left, key=lambda each: (each.name in declared.having("searched_last"), not each.choices))


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
