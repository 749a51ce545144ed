"""JSON of signatures (over the pipe) and measurements (in the result file)."""

from dataclasses import asdict, fields, is_dataclass
from typing import Any

from dlbench.core import declared_json
from dlbench.core.conditions import Throttling
from dlbench.core.measurement import Measurement
from dlbench.core.model import Parameter, Signature
from dlbench.core.typed_json import Json, convert


def signature_to_json(signature: Signature) -> Json:
    """Return plain data for the pipe between the measuring process and its parent."""
    parameters = [asdict(each) for each in signature.parameters]
    return {
        "name": signature.name,
        "about": signature.about,
        "parameters": parameters,
        "declared": declared_json.to_json(signature.declared),
    }


def signature_from_json(data: Json) -> Signature:
    """Inverse of `signature_to_json`."""
    return Signature(
        data["name"], data["about"], convert(tuple[Parameter, ...], data["parameters"]), declared_json.from_json(data["declared"])
    )


def measurement_to_json(measurement: Measurement, kind: str = "measurement") -> dict[str, Any]:
    """Return plain data; groups that are empty are left out. ``kind``: of the line, where it is no measurement of a planned case."""
    data: dict[str, Any] = {"kind": kind}
    for each in fields(measurement):
        value = getattr(measurement, each.name)
        if value is not None and value != {}:
            data[each.name] = value.to_json() if isinstance(value, Throttling) else asdict(value) if is_dataclass(type(value)) else value
    return data
