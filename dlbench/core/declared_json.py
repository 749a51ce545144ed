"""JSON of declarations and signatures, for the pipe and for the headers of result files."""

from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from typing import Any

from dlbench.core.declarations import Declaration
from dlbench.core.model import Signature
from dlbench.core.quantities import Json
from dlbench.core.schema import Unit


def to_json(declared: Declaration) -> Json:
    """Return plain data for the pipe and for the header of a result file; its records without what is empty."""
    return {each.name: _plain(getattr(declared, each.name)) for each in fields(declared)}


def _plain(value: Any) -> Any:
    if is_dataclass(type(value)):
        given = {each.name: getattr(value, each.name) for each in fields(value)}
        return {name: _plain(each) for name, each in given.items() if each or type(each) in (int, float)}  # a margin of 0 is a mistake
    if isinstance(value, tuple):
        return list(map(_plain, value))
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return value.value if isinstance(value, Unit) else value


def signature_to_json(signature: Signature) -> Json:
    """Return plain data for the pipe between the measuring process and its parent."""
    return {**asdict(signature), "declared": to_json(signature.declared)}
