"""Decoded JSON as the type that describes it, by its hints and the bounds in them: data classes, typed dictionaries, enumerations.

A field that the type does not have is ignored. A typed dictionary is checked and stays as it is.
"""

import math
import reprlib
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from enum import EnumType
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

T = TypeVar("T")
Json = Mapping[str, Any]
"""Object of JSON, decoded."""
_Reader = Callable[[Any], Any]
_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
_OBJECT = "an object", lambda data: isinstance(data, Mapping)


def convert(kind: type[T], data: object) -> T:
    """Return data as a value of that type. Raises ValueError: ``samples.calls must be a whole number, not 'two'``."""
    hint: Any = kind
    try:
        found: T = _reader(hint)(data)
    except ValueError as error:
        raise ValueError(str(error).strip(".")) from None
    return found


@cache
def _reader(hint: Any) -> _Reader:
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:  # with bounds, or as a dictionary with what is read of it
        of, bounds = inner
        return _record(bounds) if is_typeddict(bounds) else _sequence(of, bounds) if get_origin(of) is tuple else _scalar(of, bounds)
    if origin in (Union, UnionType):
        return _union([each for each in inner if each is not NoneType], nullable=NoneType in inner)
    if origin in (tuple, Sequence):
        return _sequence(hint)
    if origin is Mapping:
        read = _reader(inner[1])
        return _checked(*_OBJECT, lambda data: {name: _within(f".{name}", read, value) for name, value in data.items()})
    if is_dataclass(hint) or is_typeddict(hint):
        return _record(hint)
    if origin is Literal or isinstance(hint, EnumType):
        members = {each: each for each in inner} or {each.value: each for each in hint}
        return _checked(f"one of {', '.join(members)}", lambda data: isinstance(data, str) and data in members, members.__getitem__)
    return (lambda data: data) if hint is Any else _scalar(hint)


def _checked(wanted: str, holds: Callable[[Any], bool], made: _Reader) -> _Reader:
    def read(data: Any) -> Any:
        if not holds(data):
            raise ValueError(f" must be {wanted}, not {reprlib.repr(data)}")
        return made(data)

    return read


def _within(where: str, read: _Reader, data: object) -> Any:
    try:
        return read(data)
    except ValueError as error:
        raise ValueError(f"{where}{error}") from None


def _record(kind: Any) -> _Reader:
    readers = {name: _reader(hint) for name, hint in get_type_hints(kind, include_extras=True).items()}
    required = kind.__required_keys__ if is_typeddict(kind) else {f.name for f in fields(kind) if f.default is f.default_factory is MISSING}

    def made(data: Json) -> Any:
        if missing := sorted(required - data.keys()):
            raise ValueError(f".{missing[0]} is missing")
        found = {name: _within(f".{name}", read, data[name]) for name, read in readers.items() if name in data}
        return data if is_typeddict(kind) else kind(**found)

    return _checked(*_OBJECT, made)


def _sequence(hint: Any, bounds: Any = None) -> _Reader:
    read, kind = _reader(get_args(hint)[0]), tuple if get_origin(hint) is tuple else list
    least, wanted = (bounds.min_length, bounds.description) if bounds else (0, "a list")

    def made(data: Sequence[Any]) -> Any:
        with suppress(ValueError):  # one by one only to say which is wrong
            return kind(map(read, data))
        return kind([_within(f"[{number}]", read, each) for number, each in enumerate(data)])

    return _checked(wanted, lambda data: isinstance(data, list | tuple) and len(data) >= least, made)


def _union(hints: Sequence[Any], *, nullable: bool) -> _Reader:
    readers, wanted = [_reader(each) for each in hints], " or ".join(dict.fromkeys(map(_words, hints)))
    # The sentence of a single one says more.
    last = _checked(wanted, lambda data: False, readers[0]) if readers[1:] else readers.pop()

    def read(data: object) -> Any:
        if data is None and nullable:
            return None
        for reader in readers:
            with suppress(ValueError):
                return reader(data)
        return last(data)

    return read


def _words(hint: Any) -> str:
    bounds = get_args(hint)[-1] if get_origin(hint) is Annotated else None
    return bounds.description if bounds else _WORDS.get(hint, "a list" if get_origin(hint) is Sequence else "an object")


def _scalar(kind: Any, bounds: Any = None) -> _Reader:
    """Return a reader of numbers, flags or texts; a float is finite, and may be written without a point."""
    kinds, furthest = ((int, float), sys.float_info.max) if kind is float else ((kind,), math.inf)
    low, high, wanted = (bounds.ge, bounds.le, bounds.description) if bounds else (-furthest, furthest, _WORDS[kind])
    return _checked(wanted, lambda data: type(data) in kinds and (kind in (bool, str) or low <= data <= high), kind)
