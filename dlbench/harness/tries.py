"""Tries of a round at its cases: each is in the file as soon as it exists, and one of them counts."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from dlbench.core.conditions import Throttling
from dlbench.core.measurement import Measurement, Series, measurement_to_json
from dlbench.core.model import Status
from dlbench.harness.schedule import Attempt

_Try = Sequence[Measurement]
"""What an attempt measured on each side, or on fewer where it was interrupted."""


class Tries:
    """Of cases that are tried again the tries so far. ``save`` takes a line of the result file, ``keep`` a measurement that counts."""

    def __init__(self, save: Callable[[dict[str, Any]], None], keep: Callable[[Measurement], None]) -> None:
        self._save = save
        self._keep_one = keep
        self._postponed: dict[Series, list[_Try]] = {}
        """By the first side of their case."""

    def postpone(self, attempt: Attempt, measured: _Try) -> None:
        """Save a try that will be followed by another."""
        self._discard(measured)
        self._postponed.setdefault(attempt.tasks[0].series, []).append(measured)

    def end(self, attempt: Attempt, measured: _Try = ()) -> None:
        """Save the last try at a case, if there was one, and keep the best."""
        tries = self._postponed.pop(attempt.tasks[0].series, [])
        if any(each.status is not Status.OK for each in measured):
            tries = []  # how it ended counts
        if len(measured) == len(attempt.tasks) or not tries:
            tries.append(measured)
        if _kept(tries) is not measured:
            self._discard(measured)
        self._keep(tries)

    def end_all(self) -> None:
        """Keep the best try at each case that will not be tried again after all."""
        while self._postponed:
            self._keep(self._postponed.pop(next(iter(self._postponed))))

    def _discard(self, measured: _Try) -> None:
        for measurement in measured:
            self._save(measurement_to_json(measurement, "discarded"))

    def _keep(self, tries: Sequence[_Try]) -> None:
        """Keep the best of the tries; one that was discarded stands in the file twice then, by which readers know that it counts."""
        for measurement in _kept(tries):
            if (throttling := measurement.throttling) and len(tries) > 1:
                measurement = replace(measurement, throttling=replace(throttling, tries=len(tries)))
            self._keep_one(measurement)


def _kept(tries: Sequence[_Try]) -> _Try:
    """Return the try that counts, never by its times: of those that were not throttled, if there are any, the one that lost least.

    The worse side of a try decides; the last one where that is equal, or where one does not tell for how long its threads waited.
    """
    calm = [each for each in tries if not any(found and found.throttled for found in _conditions(each))] or tries
    if any(found is None or None in (found.waiting, found.lost) for each in calm for found in _conditions(each)):
        return calm[-1]
    return min(reversed(calm), key=lambda each: max((found.lost or 0.0 for found in _conditions(each) if found), default=0.0))


def _conditions(measured: _Try) -> list[Throttling | None]:
    return [each.conditions for each in measured]
