"""Header of a result file: its fields, and the parts that readers rely on."""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from dlbench.core import thresholds
from dlbench.core.conditions import MachineState
from dlbench.core.decoding import convert
from dlbench.core.quantities import Count, Json, Quantity


class _Identified(TypedDict):
    id: str


class _DeviceKeys(_Identified, total=False):
    name: str | None


class _FileKeys(TypedDict):
    file: str
    sha256: str


class _PolicyKeys(TypedDict, total=False):
    target: float


class _PlannedKeys(TypedDict):
    count: int


class _EnvironmentKeys(TypedDict, total=False):
    machine_key: str
    stack_key: str
    identity: Json
    stack: Json


class _SideKeys(_EnvironmentKeys, total=False):
    workloads: Json


class _SuiteKeys(TypedDict, total=False):
    thresholds: Json


class HeaderKeys(TypedDict, total=False):
    """Fields that dlbench writes; a header may lack any of them. Readers rely on those that have a type."""

    schema: Any
    dlbench: Any
    expression: Any
    cases: Any
    include_absent: Any
    plugins: Any
    user: Mapping[str, _FileKeys]
    """Networks and data of the user's, by name."""
    seed: Any
    isolation: Any
    order: Any
    machines: Any
    gate: Json
    policy: _PolicyKeys
    devices: Sequence[_DeviceKeys]
    planned: _PlannedKeys
    environment: _EnvironmentKeys
    sides: Mapping[str, _SideKeys]
    suites: Sequence[str | _SuiteKeys]
    """A file without a run behind it may only name them."""
    workloads: Json


class FooterKeys(TypedDict, total=False):
    """Fields that dlbench writes at the end of a run."""

    rounds: Count
    seconds: Quantity
    state: MachineState | None


def check_header(header: Json) -> None:
    """Raise ValueError for a header that no dlbench writes: ``Expected `str`, got `int` - at `$.devices[0].id```."""
    convert(HeaderKeys, header)
    if "sides" in header and len(header["sides"]) != 2:
        raise ValueError(f"sides must be two, not {len(header['sides'])}")
    suites = [("thresholds", each.get("thresholds", {})) for each in header.get("suites", ()) if isinstance(each, dict)]
    for name, settings in (("gate", header.get("gate", {})), *suites):
        try:
            thresholds.check(settings)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
