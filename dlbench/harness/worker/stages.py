"""Notes of what a case is at, for the row of one that does not end in time. Standard library only."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_tell = ContextVar[Callable[[str], None] | None]("tell", default=None)


@contextmanager
def stages_told(tell: Callable[[str], None]) -> Iterator[None]:
    """Have `note_stage` pass on what it is given."""
    token = _tell.set(tell)
    try:
        yield
    finally:
        _tell.reset(token)


def note_stage(text: str) -> None:
    """Say what takes long, such as "compiling", and with an empty text that it is over: a case that is killed ends with it."""
    if tell := _tell.get():
        tell(text)
