"""Notes of what a case is at, for the row of one that does not end in time. Standard library only."""

from collections.abc import Callable

_tell: Callable[[str], object] | None = None


def tell_stages(tell: Callable[[str], object]) -> None:
    """Have `note_stage` pass on what it is given; until then it does nothing."""
    global _tell
    _tell = tell


def note_stage(text: str) -> None:
    """Say what takes long, such as "compiling", and with an empty text that it is over: a case that is killed ends with it."""
    if _tell:
        _tell(text)
