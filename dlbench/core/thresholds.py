"""Smallest relevant change, and the smallest that a gate must detect, for all workloads or for one."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from dlbench.core.errors import nearest
from dlbench.core.units import parse_fraction, percent

DETECT = "detect"
_NAMES = ("time", "throughput", "memory", "energy", "value", DETECT)

ThresholdSettings = Mapping[str, Any]
"""A suite's TOML table: metrics, and a table of metrics for each workload that has its own. `check` validates it."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Smallest relevant change, as a fraction: 0.1 is 10 % more."""

    time: float = 0.1
    memory: float = 0.05
    energy: float = 0.05
    """Threshold of the energy of an item, where it was metered."""
    value: float | None = None
    """Threshold of declared values with a direction; None: 10 %, and 1 % if each side has the same number in all of its rounds."""
    detect: float | None = None
    """Change of time that a comparison must be able to detect, or it decides nothing; None where not asked for."""

    def with_metrics(self, settings: ThresholdSettings) -> Self:
        """Return a copy with the metrics that are set; tables of single workloads are ignored.

        Throughput is the inverse of time: if it may fall by the fraction q, the time of the same work may grow by q / (1 - q).
        """
        if not settings:
            return self
        values = {name: fraction(name, value) for name, value in settings.items() if not isinstance(value, Mapping)}
        if (lost := values.pop("throughput", None)) is not None:
            values["time"] = lost / (1 - lost)
        return replace(self, **values)

    def require_sight(self) -> None:
        """Raise ValueError, with a sentence, where ``detect`` is not above the threshold of time."""
        if self.detect is not None and self.detect <= self.time:
            change, threshold = percent(self.detect), percent(self.time)
            raise ValueError(f"a change of {change} can't be relied on to be called at a threshold of {threshold}; give more")

    def for_workload(self, workload: str, settings: ThresholdSettings) -> Self:
        """Return a workload's thresholds: what is set for it, else for all workloads, else these."""
        own = settings.get(workload)
        return self.with_metrics(settings).with_metrics(own if isinstance(own, Mapping) else {})


ACROSS_RUNS = Thresholds(time=0.1)
WITHIN_A_RUN = Thresholds(time=0.03)
"""Interleaved rounds share the state of the machine, so a smaller change can be detected."""


def fraction(metric: str, value: object) -> float:
    """Return a threshold, written as a fraction below 1 or as text in percent. Raises ValueError, with a sentence, for anything else."""
    if metric not in _NAMES:
        raise ValueError(f"there is no metric '{metric}'{nearest(metric, list(_NAMES))}")
    if isinstance(value, str):
        threshold = _sight(value) if metric == DETECT else parse_fraction(value)
    elif type(value) is float and 1e-4 <= value < 1:  # as `parse_fraction` has it
        threshold = value
    else:
        raise ValueError(f'{metric} must be a fraction such as 0.05 or "5%", not {value!r}')
    if metric == "throughput" and threshold >= 1:
        raise ValueError(f"throughput can't fall by {percent(threshold)}; write for example 5% or 0.05")
    return threshold


def _sight(text: str) -> float:
    # A detect of 25 is always 25 %; a threshold of 25 might be a slip.
    try:
        return parse_fraction(f"{text}%" if re.fullmatch(r"\s*[1-9]\d*(\.\d*)?\s*", text) else text)
    except ValueError as error:
        raise ValueError(f"'{text}' is no change that could be seen; write for example 25% or 0.25") from error


def override_thresholds(settings: ThresholdSettings, given: ThresholdSettings) -> ThresholdSettings:
    """Return a suite's settings with the ``given`` ones in place of theirs, for all of its workloads."""
    replaced = set(given)
    if not replaced.isdisjoint(_TIME_NAMES):
        replaced |= _TIME_NAMES

    def without_replaced(settings: ThresholdSettings) -> dict[str, Any]:
        left = {name: each for name, each in settings.items() if name not in replaced}
        return {name: without_replaced(each) if isinstance(each, Mapping) else each for name, each in left.items()}

    return {**without_replaced(settings), **given}


_TIME_NAMES = {"time", "throughput"}
"""Two names of one threshold."""


def check(settings: ThresholdSettings) -> None:
    """Raise ValueError, with a sentence, for invalid settings. Names of workloads are not checked."""
    _check_metrics({name: value for name, value in settings.items() if not isinstance(value, Mapping)})
    for workload, own in settings.items():
        if isinstance(own, Mapping):
            try:
                _check_metrics(own)
            except ValueError as error:
                raise ValueError(f"{workload}: {error}") from error


def _check_metrics(settings: ThresholdSettings) -> None:
    values = {metric: fraction(metric, value) for metric, value in settings.items()}
    Thresholds(values.get("time", 0.0), detect=values.get(DETECT)).require_sight()
    if "time" in settings and "throughput" in settings:
        raise ValueError("throughput is time turned over, so the two are one threshold; give one of them")
