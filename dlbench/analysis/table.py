"""Result files as one tidy table: a row a case and file, a column an address. The door to pandas."""

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from dlbench.core.errors import UsageError
from dlbench.core.model import Case, Measurement, Policy, Value
from dlbench.core.schema import BY_NAME, Column, Unit
from dlbench.core.store import RunFile, load
from dlbench.core.summary import Rounds, Row, per_round, summarise

_DTYPES = {Unit.TEXT: "string", Unit.COUNT: "Int64", Unit.BYTES: "Int64", Unit.FLAG: "boolean"}
"""Types that hold a null as a null; every other unit is a float, whose null is NaN."""


@dataclass(frozen=True, slots=True)
class Results:
    """Result files, read."""

    frame: pd.DataFrame
    """One row a case and file; columns as in `core.schema`, then ``param.*`` and ``value.*``."""
    rounds: tuple[Rounds, ...]
    """What each round gave; ``rounds[label]`` belongs to ``frame.loc[label]``."""
    notes: tuple[str, ...]
    """A sentence for each thing that a file lacks, and what to do about it."""


def read(paths: str | PathLike[str] | Iterable[str | PathLike[str]]) -> pd.DataFrame:
    """Return one result file or several as a tidy table; see `core.schema` for the columns, in base units.

    ``param.*`` has the parameters (precision and mode are ``case.dtype`` and ``case.mode`` only) and ``value.*`` what
    single workloads report. Warns where a file is incomplete; raises ResultFileError where one can't be read.
    """
    single = isinstance(paths, str | PathLike)
    results = collect([Path(paths)] if single else [Path(path) for path in paths])  # type: ignore[arg-type, union-attr]  # narrowed by `single`
    for note in results.notes:
        warnings.warn(note, stacklevel=2)
    return results.frame


def collect(paths: Sequence[Path]) -> Results:
    """Read files into one table, with what each round gave beside it.

    Raises ResultFileError where one can't be read, UsageError where one is given twice.
    """
    rows: list[Row] = []
    rounds: list[Rounds] = []
    notes: list[str] = []
    # One file at a time: raw block times are many, rows are few.
    for path, name in zip(paths, _names(paths), strict=True):
        run = load(path)
        names = _device_names(run)
        target = run.header.get("policy", {}).get("target", Policy().target)
        cases = _by_case(run.measurements)
        # Rounds shuffle the cases, so the order in the file means nothing.
        for measurements in sorted(cases.values(), key=lambda rounds: _order(rounds[0].case)):
            row = summarise(measurements, target)
            row["case.run"] = name
            row["case.device_name"] = row["case.device_name"] or names.get(str(row["case.device"]))
            rows.append(row)
            rounds.append(per_round(measurements))
        notes.extend(_notes(run, len(cases)))
    return Results(as_frame(rows, BY_NAME), tuple(rounds), tuple(notes))


def as_frame(rows: Sequence[Row], columns: Mapping[str, Column]) -> pd.DataFrame:
    """Return rows as a frame: the columns given, each always there, then whatever ``param.*`` and ``value.*`` the rows have."""
    found = dict.fromkeys(name for row in rows for name in row)
    names = [*columns, *(n for n in found if n.startswith("param.")), *(n for n in found if n.startswith("value."))]
    units = {name: column.unit for name, column in columns.items()}
    return pd.DataFrame({name: _series([row.get(name) for row in rows], units.get(name)) for name in names})


def records(frame: pd.DataFrame) -> list[Row]:
    """Return the rows as plain Python values, every kind of null as None."""
    plain = {name: _plain(frame[name]) for name in frame.columns}
    return [dict(zip(plain, values, strict=True)) for values in zip(*plain.values(), strict=True)]


def _names(paths: Sequence[Path]) -> list[str]:
    """Name each file by its stem, or by its path where that would not tell it from another."""
    if repeated := next((path for path in paths if [each.resolve() for each in paths].count(path.resolve()) > 1), None):
        raise UsageError(f"{repeated} is given twice; name each result file once")
    stems = [path.stem for path in paths]
    return [path.stem if stems.count(path.stem) == 1 else str(path) for path in paths]


def _by_case(measurements: Iterable[Measurement]) -> dict[str, list[Measurement]]:
    cases: dict[str, list[Measurement]] = {}
    for measurement in measurements:
        cases.setdefault(measurement.case.id, []).append(measurement)
    return cases


def _order(case: Case) -> tuple[Any, ...]:
    """Return what sorts cases as a reader expects: by work, 8 before 16, fp64 before fp32 before bf16, the CPU first."""
    work = (_natural(value, widest_first=name == "dtype") for name, value in case.params.items())
    return case.workload, tuple(work), case.device != "cpu", _natural(case.device)


def _natural(value: Value, widest_first: bool = False) -> tuple[Any, ...]:
    if not isinstance(value, str):
        return 0, value
    parts = re.split(r"(\d+)", value)  # text and digits in turn
    numbers = [*map(int, parts[1::2]), 0]
    if widest_first:
        return 1, [("", -number) for number in numbers], value
    return 1, list(zip(parts[::2], numbers, strict=True)), value


def _device_names(run: RunFile) -> dict[str, str]:
    """What the header calls each device, for cases that ended before they could say."""
    return {device["id"]: device["name"] for device in run.header.get("devices", ()) if device.get("name")}


def _notes(run: RunFile, cases: int) -> list[str]:
    resume = f"continue it with: dlbench run --resume {run.path}"
    planned = run.header.get("planned", {}).get("count", cases)
    notes = []
    if run.torn:
        notes.append(f"{run.path}: the last line was cut while it was written and is left out; {resume}")
    if run.footer is None:
        notes.append(f"{run.path}: the run was interrupted or is still going on, at {cases} of {planned} planned cases; {resume}")
    elif cases < planned:
        notes.append(f"{run.path}: {planned - cases} of {planned} planned cases were never measured; {resume}")
    return notes


def _series(values: list[Any], unit: Unit | None) -> "pd.Series[Any]":
    dtype = _DTYPES.get(unit, "float64") if unit else _dtype_of(values)
    if dtype == "string":
        values = [None if value is None else _text(value) for value in values]
    return pd.Series(values, dtype=dtype)


def _dtype_of(values: Iterable[Value | None]) -> str:
    """Return the type that holds a parameter's values as they are; text where they are of several kinds."""
    known = [value for value in values if value is not None]
    kinds = {type(value) for value in known}
    if kinds == {bool}:
        return "boolean"
    if kinds == {int} and all(-(2**63) <= value < 2**63 for value in known):  # type: ignore[operator]  # all are integers here
        return "Int64"
    return "float64" if kinds in ({float}, {int, float}) else "string"


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _plain(series: "pd.Series[Any]") -> list[Value | None]:
    return [None if null else value for value, null in zip(series.tolist(), series.isna().tolist(), strict=True)]
