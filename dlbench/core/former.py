"""Spellings of earlier versions, and what they are today: of workloads, and of optimizers that named their implementation, too."""

import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from dlbench.core.measurement import Measurement
from dlbench.core.typed_json import Json

_T = TypeVar("_T")

IMPLEMENTATIONS = ("default", "foreach", "fused")
_USUAL = {"optimizer": "sgd", "implementation": "default"}
"""Defaults, which no id of a case shows."""
_SHOWN = r"(?:optimizer=(\w+),)?implementation=(\w+)"


@cache
def _former() -> Mapping[str, Json]:
    return tomllib.loads(Path(__file__).with_name("former.toml").read_text(encoding="utf-8"))


def _steps() -> Mapping[str, Collection[str]]:
    return _former()["optimizers"]


def workload_of(name: str) -> str:
    """Return what the workload of that name is called today."""
    today: str = _former()["workloads"].get(name, name)
    return today


def by_workload(settings: Mapping[str, _T]) -> dict[str, _T]:
    """Return what is kept by the names of workloads, by those of today."""
    return {workload_of(name): value for name, value in settings.items()}


@cache
def _concerned() -> Collection[str]:
    return {*_former()["workloads"], *_steps()}


def modernised(measurement: Measurement) -> Measurement:
    """Return a measurement that was read, its case and what its search found spelled as today."""
    case = measurement.case
    if case.workload not in _concerned():  # every line that is read comes by here
        return measurement
    if (today := workload_of(case.workload)) != case.workload:
        measurement.case = replace(case, id=today + case.id.removeprefix(case.workload), workload=today)
        return measurement
    if "implementation" in case.params:
        return measurement
    if "optimizer" in case.params:
        name = re.sub(r"optimizer=(\w+)", lambda shown: _shown(case.workload, shown[1]), case.id)
        measurement.case = replace(case, id=name, params=split_up(case.workload, case.params))
    if "optimizer" in measurement.found:
        measurement.found = split_up(case.workload, measurement.found)
    return measurement


def split_up(workload: str, settings: Json) -> dict[str, Any]:
    """Return settings of a workload in their order, with an optimizer's name split into the parameters of today."""
    found: dict[str, Any] = {}
    parameters = () if "implementation" in settings else _steps().get(workload, ())
    for name, value in settings.items():
        found |= _parts(value, parameters) if parameters and name == "optimizer" else {name: value}
    return found


def is_former(workload: str, optimizer: object) -> bool:
    """Whether a workload took such an optimizer in an earlier version only."""
    parameters = _steps().get(workload, ("optimizer",))
    return "optimizer" not in parameters or (
        "implementation" in parameters and _parts(optimizer, ("optimizer",)) != {"optimizer": optimizer}
    )


def in_any_spelling(selects: Callable[[str], bool]) -> Callable[[str], bool]:
    """Return what a file selects by the ids of its cases as one that knows a case by its former id, too."""

    def formerly(shown: re.Match[str]) -> str:
        return f"optimizer={shown[1] or _USUAL['optimizer']}_{shown[2]}"

    was = {today: name for name, today in _former()["workloads"].items()}

    def in_all(case_id: str) -> str:
        workload, bracket, rest = case_id.partition("[")
        return f"{case_id} {was.get(workload, workload)}{bracket}{re.sub(_SHOWN, formerly, rest)}"

    return lambda case_id: selects(in_all(case_id))


def instead(name: str, value: object, parameters: Collection[str] = ("optimizer", "implementation")) -> str:
    """Say what to write for a setting that a workload with these parameters refuses; empty where it is no former spelling."""
    if name != "optimizer" or "implementation" not in parameters or (parts := _parts(value, parameters)).get(name) == value:
        return ""
    return "; write " + " ".join(f"{part}={text}" for part, text in parts.items())


def _parts(value: object, parameters: Collection[str]) -> dict[str, object]:
    optimizer, _, implementation = str(value).rpartition("_")
    parts = (optimizer, implementation) if implementation in IMPLEMENTATIONS[1:] else (value, IMPLEMENTATIONS[0])
    return {name: part for name, part in zip(("optimizer", "implementation"), parts, strict=True) if name in parameters}


def _shown(workload: str, value: str) -> str:
    parameters = _steps()[workload]
    # What a search may choose has no default, so that an id shows whatever is set.
    usual = _USUAL if "optimizer" in parameters else {}
    return ",".join(f"{name}={text}" for name, text in _parts(value, parameters).items() if usual.get(name) != text)
