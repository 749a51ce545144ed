"""Operations that a call hands to its device, one launch at least each; and whether a plugin computes when it is imported."""

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
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
    """Notes each operation of ATen that computes something, below autograd, so that its own are noted, too."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self.names: list[str] = []
        """Such as ``addmm``, in their order."""

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
        """Take note of an operation."""
        self.names.append(name)


def operations_of(call: Callable[[], object]) -> list[str]:
    """Return the operations of ATen that one call takes, backward and optimizer included; views, allocations and notes compute nothing."""
    with (watch := OperationWatch()):
        call()
    return watch.names


_THREADS = Path("/proc/self/task")


def try_plugins(plugins: Iterable[str]) -> list[dict[str, Any]]:
    """Import plugins as `registry.load_plugin` does, and return a record of each that defines networks or data.

    Its ``not_once`` says why a process must not import the plugin once and then fork for each case; it is None if a process may. The
    forks would hang or fail if the import has computed something, started threads, or used a device.
    """
    trials = []
    for plugin in plugins:
        sources_before = user.sources()
        threads_before = _threads()
        operations = operations_of(partial(registry.load_plugin, plugin))
        not_once = None
        if operations:
            not_once = f"it computes when imported ({operations[0]})"
        elif _threads() > threads_before:
            not_once = "it starts threads when imported"
        elif torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch leaves it untyped
            not_once = "it uses a device when imported"
        if user.sources() != sources_before:
            trials.append({"plugin": plugin, "not_once": not_once})
    return trials


def _threads() -> int:
    """Return the threads of this process, those of libraries too where Linux counts them."""
    return len(list(_THREADS.iterdir())) if _THREADS.is_dir() else threading.active_count()
