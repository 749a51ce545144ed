"""Operations that a call hands to its device, one by one: each is one launch at least."""

from collections.abc import Callable, Sequence
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

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
