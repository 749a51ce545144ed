"""Door to msgspec, which decodes JSON into the types that describe it: in the parent and in readers, never in a measuring process."""

from collections.abc import Callable
from dataclasses import asdict, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

from dlbench.core.units import Bounds

T = TypeVar("T")


def decode(kind: type[T], text: bytes) -> T:
    """Return JSON as a value of that type; fields that it does not have are ignored. Raises ValueError, which says what is wrong where."""
    hint: Any = kind
    found: T = _found(_decoder(hint), text)
    return found


def convert(kind: type[T], data: object) -> T:
    """Return decoded JSON as a value of that type. Raises ValueError as `decode` does."""
    import msgspec

    hint: Any = kind
    found: T = _found(lambda given: msgspec.convert(given, _bounded(hint)), data)
    return found


def _found(made: Callable[[Any], Any], data: object) -> Any:
    import msgspec

    try:
        return made(data)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    except msgspec.MsgspecError as error:  # no ValueError before msgspec 0.20
        raise ValueError(str(error)) from None


@cache
def _decoder(kind: Any) -> Callable[[bytes], Any]:
    import msgspec

    return msgspec.json.Decoder(_bounded(kind)).decode


def _with_meta(hint: Any) -> Any:
    """Return a type hint with msgspec's class in place of `Bounds`, whose attributes are the same; the hints of data classes change."""
    if isinstance(hint, Bounds):
        import msgspec

        return msgspec.Meta(**asdict(hint))
    if is_dataclass(hint) or is_typeddict(hint):
        own = get_type_hints(hint, include_extras=True)
        hint.__annotations__ = {name: _with_meta(each) for name, each in own.items()}
    inner = tuple(map(_with_meta, get_args(hint)))
    return (Union if isinstance(hint, UnionType) else get_origin(hint))[inner] if inner else hint


_bounded = cache(_with_meta)
