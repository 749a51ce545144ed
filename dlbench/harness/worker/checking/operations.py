"""Count of the operations that a call hands to its device: each is one launch at least."""

from collections.abc import Callable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

_COMPUTE_NOTHING = frozenset(
    (
        *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"),
        "_unsafe_view",  # which is_view does not say
        *("_record_function_enter_new", "_record_function_exit"),  # notes for a profiler: every step of an optimizer makes some
    )
)


def operations_of(call: Callable[[], object]) -> int:
    """Return how many operations of ATen one call takes, backward and optimizer included; views, allocations and notes compute nothing."""
    counter = _Counter()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    with counter:
        call()
    return int(counter.count)


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """Counts below autograd, so that its own operations are seen, too."""

    count = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False: to keep its compiler from this mode torch would import it, 1 s in each case's process; nothing compiles here."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += not (func.is_view or func.__name__.partition(".")[0] in _COMPUTE_NOTHING)
        return func(*args, **(kwargs or {}))
