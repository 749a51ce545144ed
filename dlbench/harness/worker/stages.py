"""Messages of a case to its parent: what it is at, when it is timed or metered. Standard library only."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

LEAST_S = 0.01
"""Between two readings."""
_tell: Callable[[Mapping[str, Any]], object] | None = None


def tell_parent(tell: Callable[[Mapping[str, Any]], object]) -> None:
    """Have the others here pass on what they say; until then they do nothing."""
    global _tell
    _tell = tell


def note_stage(text: str) -> None:
    """Say what takes long, such as "compiling", and with an empty text that it is over: a case that is killed ends with it."""
    if _tell:
        _tell({"stage": text})


def keep_timed(measurement: Mapping[str, Any]) -> None:
    """Have the parent keep what was timed, for the case that nothing comes behind."""
    if _tell:
        _tell({"timed": measurement})


@contextmanager
def timed_part() -> Iterator[None]:
    """Have the parent read a card's clock, power and reasons for a low clock meanwhile: they end with the load."""
    if _tell:
        _tell({"window": {"timed": True}})
    try:
        yield
    finally:
        if _tell:
            _tell({"window": {"timed": False}})


class MeteredItems:
    """What a window processed."""

    count = 0.0
    """Items in all."""


@contextmanager
def metered_window(interval_s: float) -> Iterator[MeteredItems]:
    """Have the parent read energy at both ends, and clock, temperature and power meanwhile, every so many seconds.

    Set ``count`` of what it yields to the items that were processed. The device must have nothing else to do at either end, so wait for it
    first: ``clock.now()`` does. A second window of a case takes the place of the first. Raises ValueError for less than `LEAST_S`.
    """
    if not LEAST_S <= interval_s < math.inf:
        raise ValueError(f"readings {interval_s!r} s apart can't be taken; give {LEAST_S:g} s or more")
    items = MeteredItems()
    if _tell:
        _tell({"window": {"interval_s": interval_s}})
    begun = time.perf_counter()
    yield items
    if _tell:
        _tell({"window": {"items": items.count, "seconds": time.perf_counter() - begun}})
