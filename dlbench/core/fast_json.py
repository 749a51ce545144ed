"""Door to msgspec, which reads valid JSON straight into data classes; imported when a file is read, and nothing depends on it."""

from collections.abc import Callable
from dataclasses import asdict, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from dlbench.core.quantities import Bounds

T = TypeVar("T")


@cache
def fast_reader(kind: type[T]) -> Callable[[bytes], T | None]:
    """Return a reader of a data class in JSON, which returns None for `typed_json.convert` to look at what is not valid."""
    try:
        import msgspec
    except ImportError:  # as in a bare checkout
        return lambda line: None
    decode: Callable[[bytes], T] = msgspec.json.Decoder(_with_its_bounds(kind)).decode

    def read(line: bytes) -> T | None:
        try:
            return decode(line)
        except (msgspec.DecodeError, RecursionError):
            return None

    return read


def _with_its_bounds(hint: Any) -> Any:
    """Return a type hint with msgspec's class in place of `Bounds`, whose attributes are the same; the hints of data classes change."""
    if isinstance(hint, Bounds):
        import msgspec

        return msgspec.Meta(**asdict(hint))
    if is_dataclass(hint):
        own = get_type_hints(hint, include_extras=True)
        hint.__annotations__ = {name: _with_its_bounds(each) for name, each in own.items()}
    inner = tuple(map(_with_its_bounds, get_args(hint)))
    return (Union if isinstance(hint, UnionType) else get_origin(hint))[inner] if inner else hint
