"""Trial of a plugin in a process that is thrown away: whether a process that forks can import it once for all its cases."""

import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from dlbench.harness.worker import registry, user_definitions
from dlbench.harness.worker.checking.operations import OperationWatch

_THREADS = Path("/proc/self/task")


@dataclass(frozen=True, slots=True)
class Trial:
    """An import of a plugin that brings networks or data."""

    plugin: str
    seconds: float
    not_once: str | None
    """Why no process that forks may import it; None where one may."""


class _Operations(OperationWatch):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    first: str | None = None

    def see(self, name: str, operands: Sequence[Any], output: Any) -> None:
        self.first = self.first or name


def try_plugins(plugins: Iterable[str]) -> list[dict[str, Any]]:
    """Import plugins as `registry.load_plugin` does, and return a `Trial` of each that brings something, as plain data."""
    return [asdict(trial) for plugin in plugins if (trial := _try(plugin))]


def _try(plugin: str) -> Trial | None:
    before, threads, began = user_definitions.sources(), _threads(), time.monotonic()
    operations = _Operations()  # type: ignore[no-untyped-call]  # as above
    with operations:
        registry.load_plugin(plugin)
    seconds = time.monotonic() - began
    if user_definitions.sources() == before:
        return None
    if operations.first:
        why = f"it computes when imported ({operations.first})"
    elif _threads() > threads:
        why = "it starts threads when imported"
    elif torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # as above
        why = "it uses a device when imported"
    else:
        why = None
    return Trial(plugin, seconds, why)


def _threads() -> int:
    """Return the threads of this process, those of libraries too where Linux counts them."""
    return len(list(_THREADS.iterdir())) if _THREADS.is_dir() else threading.active_count()
