"""Header of a result file: the parts that readers rely on."""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from dlbench.core import thresholds
from dlbench.core.typed_json import convert


class _Identified(TypedDict):
    id: str


class _DeviceKeys(_Identified, total=False):
    name: str | None


class _PolicyKeys(TypedDict, total=False):
    target: float


class _PlannedKeys(TypedDict):
    count: int


class _EnvironmentKeys(TypedDict, total=False):
    machine_key: str
    stack_key: str
    identity: Mapping[str, Any]
    stack: Mapping[str, Any]


class _SideKeys(_EnvironmentKeys, total=False):
    workloads: Mapping[str, Any]


class _SuiteKeys(TypedDict, total=False):
    thresholds: Mapping[str, Any]


class _HeaderKeys(TypedDict, total=False):
    """Parts of a header that readers rely on; it may lack any of them."""

    gate: Mapping[str, Any]
    policy: _PolicyKeys
    devices: Sequence[_DeviceKeys]
    planned: _PlannedKeys
    environment: _EnvironmentKeys
    sides: Mapping[str, _SideKeys]
    suites: Sequence[str | _SuiteKeys]
    """A file without a run behind it may only name them."""
    workloads: Mapping[str, Any]


def check_header(header: Mapping[str, Any]) -> None:
    """Raise ValueError for a header that no dlbench writes: ``devices[0].id must be text, not 3``."""
    convert(_HeaderKeys, header)
    if "sides" in header and len(header["sides"]) != 2:
        raise ValueError(f"sides must be two, not {len(header['sides'])}")
    suites = [("thresholds", each.get("thresholds", {})) for each in header.get("suites", ()) if isinstance(each, dict)]
    for name, settings in (("gate", header.get("gate", {})), *suites):
        try:
            thresholds.check(settings)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
