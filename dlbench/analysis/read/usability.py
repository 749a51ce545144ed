"""Usability of a run: whether its machine was left alone enough for its numbers to say anything."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from dlbench.core.rows.row import Row

_WIDE = 0.2
"""Width of an interval over its median from which on a case is noisy."""


def flag_not_usable(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of files, each with ``flag.not_usable`` of its ``case.run``; None where no row of that tells of disturbances.

    A run is not usable if more than half of its ok cases were throttled or disturbed in more than half of their rounds.
    """
    ok = [row for row in rows if row.is_ok]
    cases, spoiled = (Counter(row.case.run for row in some) for some in (ok, filter(mostly_disturbed, ok)))
    known = {row.case.run for row in ok if row.time.disturbed_rounds is not None}
    flags = {run: 2 * spoiled[run] > count if run in known else None for run, count in cases.items()}
    if not known:
        return [*rows]
    return [replace(row, flag=replace(row.flag, not_usable=flags.get(row.case.run))) for row in rows]


def mostly_disturbed(row: Row) -> bool:
    """Whether a case was throttled or disturbed in more than half of its rounds.

    A sustained step that was throttled is not: how far a device throttles is what it measures.
    """
    if row.declared.is_sustained and row.flag.throttled:
        return False
    return 2 * (row.time.disturbed_rounds or 0) > (row.time.rounds or 0)


def is_set_aside(row: Row) -> bool:
    """Whether no answer rests on a row: it was spoiled in a run that is not usable, and its time is what it is about.

    The accuracy of a training, and what a search found to fit, no disturbance changes.
    """
    return bool(row.flag.not_usable) and mostly_disturbed(row) and not (row.declared.having("format") or row.declared.value("largest"))


def all_disturbed(rows: Sequence[Row]) -> bool:
    """Whether every case that was timed was disturbed in some round."""
    timed = [row for row in rows if row.is_ok and row.time.rounds]
    return bool(timed) and all(row.flag.disturbed for row in timed)


def is_noisy(row: Row) -> bool:
    """Whether the 95 % interval of a case is wider than a fifth of its median; of too few rounds there is none."""
    time = row.time
    return time.ci_low_s is not None and (time.ci_high_s or 0) - time.ci_low_s > _WIDE * (time.median_s or 0)
