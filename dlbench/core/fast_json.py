"""Door to msgspec, which reads valid JSON straight into data classes; nothing depends on it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import msgspec
    from msgspec import Meta as Meta
else:
    try:
        import msgspec
        from msgspec import Meta
    except ImportError:  # as in a bare checkout, or in the interpreter of a measuring process
        msgspec = None

        @dataclass(frozen=True)
        class Meta:
            """Bounds of a number or of a length, and the words for what is within them."""

            description: str
            ge: float | None = None
            le: float | None = None
            min_length: int = 0


T = TypeVar("T")


def fast_reader(kind: type[T]) -> Callable[[bytes], T | None]:
    """Return a reader of a data class in JSON, which returns None for `typed_json.convert` to look at what is not valid."""
    if msgspec is None:
        return lambda line: None
    decode = msgspec.json.Decoder(kind).decode

    def read(line: bytes) -> T | None:
        try:
            return decode(line)
        except (msgspec.DecodeError, RecursionError):
            return None

    return read
