"""Whether two files were measured at the same clocks."""

import statistics
from typing import NamedTuple

from dlbench.analysis.read.header import Readings
from dlbench.core.rank_test import smallest_p
from dlbench.core.units import hertz

FAR = 0.02
"""Clocks that differ by more than this part make times that say little about the program."""
_CHANCE = 0.05  # that readings which differ by accident lie wholly apart

_OF_CPU = {"clock_hz": "clock"}
_OF_ACCELERATOR = {"clock_sm_hz": "clock", "clock_memory_hz": "memory clock"}


class ClockDifference(NamedTuple):
    """Clocks of a device that two files read differently."""

    sentence: str
    """Which clock, and how it reads in either."""
    slower: float
    """Times as long as in the base a call may take in the new file because of the clocks alone, at most; 1 where they make none longer."""
    faster: float
    """The same at least, 1 where they make none shorter."""

    @property
    def share(self) -> float:
        """The largest change that they explain, as a fraction."""
        return max(self.slower, 1 / self.faster) - 1


def clock_difference(base: Readings, new: Readings, device: str) -> ClockDifference | None:
    """Return how a device's clocks differ between two files, if by more than `FAR`; None too where a file does not tell.

    An accelerator's clock holds while its process does, so the medians decide. What the system tells of a CPU is the clock of the
    moment, mostly of cores that rest already, so there every reading of one file has to lie so far beyond every one of the other, with
    readings enough that this is no accident. No call takes longer by more than the ratio of the clock that fell most.
    """
    if device not in base or device not in new:
        return None
    names = _OF_CPU if device == "cpu" else _OF_ACCELERATOR
    sentence, slower, faster = "", 1.0, 1.0
    for name, what in names.items():
        one, other = (side[device].get(name, ()) for side in (base, new))
        if not one or not other:
            continue
        before, after = statistics.median(one), statistics.median(other)
        if device == "cpu":
            apart = max(min(one) / max(other), min(other) / max(one)) - 1
            far = apart > FAR and smallest_p(len(one), len(other)) < _CHANCE
        else:
            far = max(before / after, after / before) - 1 > FAR
        if far:
            sentence = sentence or f"the {what} of {device} was {hertz(before)} in the base and {hertz(after)} in the new file"
        slower, faster = max(slower, max(one) / min(other)), min(faster, min(one) / max(other))
    return ClockDifference(sentence, slower, faster) if sentence else None
