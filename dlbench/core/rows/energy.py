"""Columns of the energy of a case, from what was metered in its rounds."""

import statistics
from collections.abc import Callable, Sequence

from dlbench.core.measurement import Measurement, MeteredWindow
from dlbench.core.rows.columns import Energy
from dlbench.core.stats import known, known_median, median_interval


def joules_per_item(rounds: Sequence[Measurement]) -> tuple[float, ...]:
    """Return of each round the energy of the device for an item, in J; empty where a round does not tell."""
    found = [_per_item(each.energy, each.energy.joules) if each.energy else None for each in rounds]
    return () if None in found else tuple(known(found))


def columns(rounds: Sequence[Measurement], reason: str | None, telemetry_reason: str | None) -> Energy:
    """Return the columns, null where a round has nothing; the reasons are those of the file."""
    windows = known(each.energy for each in rounds)
    if not windows:
        return Energy(reason=reason or "measured by dlbench run sustained", telemetry_reason=telemetry_reason)
    per_item = joules_per_item(rounds)
    interval = median_interval(per_item)

    def of_windows(value: Callable[[MeteredWindow], float | None]) -> float | None:
        found = [value(each) for each in windows] if len(windows) == len(rounds) else [None]
        return None if None in found else known_median(found)

    return Energy(
        joules_per_item=statistics.median(per_item) if per_item else None,
        joules_per_item_low=interval.low if interval else None,
        joules_per_item_high=interval.high if interval else None,
        net_joules_per_item=of_windows(lambda window: _per_item(window, _net(window))),
        watts=of_windows(lambda window: _power(window, window.joules)),
        idle_watts=of_windows(lambda window: window.idle_watts),
        host_watts=of_windows(lambda window: _power(window, window.host_joules)),
        window_s=of_windows(lambda window: window.seconds),
        source=windows[-1].source,
        reason=reason or (None if per_item else _why_null(windows, len(rounds))),
        telemetry_reason=telemetry_reason,
    )


def _why_null(windows: Sequence[MeteredWindow], rounds: int) -> str:
    if len(windows) < rounds:
        return f"{len(windows)} of {rounds} rounds were metered"
    return "its window had no item, or no time" if all(window.joules is not None for window in windows) else "not every round tells it"


def _net(window: MeteredWindow) -> float | None:
    """Return the energy beyond that of the idle device; below it, by chance, is zero."""
    if window.joules is None or window.idle_watts is None:
        return None
    return max(0.0, window.joules - window.idle_watts * window.seconds)


def _per_item(window: MeteredWindow, joules: float | None) -> float | None:
    return joules / window.items if joules is not None and window.items else None


def _power(window: MeteredWindow, joules: float | None) -> float | None:
    return joules / window.seconds if joules is not None and window.seconds else None
