"""Operations that a call hands to its device, one launch at least each; and whether a plugin computes when it is imported."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dlbench.harness.worker import registry, user

_COMPUTE_NOTHING = frozenset(
    (
        *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"),
        "_unsafe_view",  # which is_view does not say
        *("_record_function_enter_new", "_record_function_exit"),  # notes for a profiler: every step of an optimizer makes some
    )
)


class OperationWatch(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """Sees each operation of ATen below autograd, so that its own are seen, too."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False: to keep its compiler from this mode torch would import it, 1 s in each case's process; nothing compiles here."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output, name = func(*args, **(kwargs or {})), func.__name__.partition(".")[0]
        if not (func.is_view or name in _COMPUTE_NOTHING):
            self.see(name, (*args, *(kwargs or {}).values()), output)
        return output

    def see(self, name: str, operands: Sequence[Any], output: Any) -> None:
        """Take note of an operation that computes something, such as ``addmm``."""
        raise NotImplementedError


class _Counter(OperationWatch):  # type: ignore[no-untyped-call]  # as above
    count = 0

    def see(self, name: str, operands: Sequence[Any], output: Any) -> None:
        self.count += 1


def operations_of(call: Callable[[], object]) -> int:
    """Return how many operations of ATen one call takes, backward and optimizer included; views, allocations and notes compute nothing."""
    counter = _Counter()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    with counter:
        call()
    return counter.count


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
    before, threads, began = user.sources(), _threads(), time.monotonic()
    operations = _Operations()  # type: ignore[no-untyped-call]  # as above
    with operations:
        registry.load_plugin(plugin)
    seconds = time.monotonic() - began
    if user.sources() == before:
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
