"""One clock for every device: host time between synchronisations."""

import time
from collections.abc import Callable


class DeviceClock:
    """Reads the host's clock once the device has finished what it was given."""

    def __init__(self, synchronize: Callable[[], None], timer: Callable[[], float] = time.perf_counter) -> None:
        self._synchronize = synchronize
        self._timer = timer

    def now(self) -> float:
        """Wait for the device, then return seconds from an arbitrary start."""
        self._synchronize()
        return self._timer()
