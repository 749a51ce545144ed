"""Result files as one tidy table: a row a case and file, a column an address. The door to pandas.

That is imported when a frame is asked for: it takes longer than most comparisons, which need the rows alone.
"""

import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeVar

from dlbench.analysis import pyperf_file
from dlbench.analysis.clocks import Clocks, read_clocks
from dlbench.analysis.scaling import flag_super_linear
from dlbench.analysis.trend import shared_change
from dlbench.core import store
from dlbench.core.errors import UsageError
from dlbench.core.model import CONFIRMING, Case, Measurement, ParamValue, Policy, Status
from dlbench.core.peaks import link_bytes_per_s
from dlbench.core.schema import BY_NAME, Column, Unit
from dlbench.core.store import RunFile
from dlbench.core.summary import Rounds, Row, with_rounds
from dlbench.core.thresholds import Settings

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")

_DTYPES = {Unit.TEXT: "string", Unit.COUNT: "Int64", Unit.BYTES: "Int64", Unit.FLAG: "boolean"}
"""Types that hold a null as a null; every other unit is a float, whose null is NaN."""


@dataclass(frozen=True)
class Results:
    """Result files, read."""

    rows: tuple[Row, ...]
    """One a case and file, each with all of ``columns``."""
    rounds: tuple[Rounds, ...]
    """What each round gave, in the order of the rows."""
    notes: tuple[str, ...]
    """A sentence for each thing that a file lacks, and what to do about it."""
    environments: Mapping[str, Mapping[str, Any]]
    """Of each ``case.run`` the header's ``environment``, with what it says of a side; empty where a file does not say."""
    thresholds: Mapping[str, Mapping[str, Settings]] = field(default_factory=dict)
    """Of each ``case.run``, for each suite that sets any, its thresholds."""
    clocks: Mapping[str, Clocks] = field(default_factory=dict)
    """At which clocks each ``case.run`` was measured; not known of the sides of an A/B, whose rounds alternate."""
    circumstances: tuple[str, ...] = ()
    """A sentence for each thing that was in the way of all cases of a file, and what to do about it."""
    protocols: Mapping[str, Row] = field(default_factory=dict)
    """How each ``case.run`` was measured, as far as its header says: isolation, and of the policy what a time depends on."""

    @cached_property
    def frame(self) -> "pd.DataFrame":
        """The rows; columns as in `core.schema`, then ``param.*`` and ``value.*``."""
        return as_frame(self.rows, BY_NAME)

    @property
    def columns(self) -> list[str]:
        """What every row has."""
        return _columns(self.rows[0] if self.rows else BY_NAME, BY_NAME)

    def of_run(self, *names: str) -> Self:
        """Return the rows of one ``case.run``, or of several."""
        chosen = [(row, rounds) for row, rounds in zip(self.rows, self.rounds, strict=True) if row["case.run"] in names]

        def theirs(of_all: Mapping[str, T]) -> dict[str, T]:
            return {name: of_all[name] for name in names if name in of_all}

        return replace(
            self,
            rows=tuple(row for row, _ in chosen),
            rounds=tuple(rounds for _, rounds in chosen),
            environments=theirs(self.environments),
            thresholds=theirs(self.thresholds),
            clocks=theirs(self.clocks),
            protocols=theirs(self.protocols),
        )


def read(paths: str | PathLike[str] | Iterable[str | PathLike[str]]) -> "pd.DataFrame":
    """Return one result file or several, or a folder of them, as a tidy table; see `core.schema` for the columns, in base units.

    ``param.*`` has the parameters (precision and mode are ``case.dtype`` and ``case.mode`` only) and ``value.*`` what
    single workloads report. Warns where a file is incomplete; raises ResultFileError where one can't be read.
    """
    single = isinstance(paths, str | PathLike)
    results = collect([Path(paths)] if single else [Path(path) for path in paths])  # type: ignore[arg-type, union-attr]  # narrowed by `single`
    for note in results.notes:
        warnings.warn(note, stacklevel=2)
    return results.frame


class Map(Protocol):
    """`map`, or that of a pool of processes."""

    def __call__(self, function: Callable[[Path, str], "_File"], paths: Iterable[Path], names: Iterable[str], /) -> Iterable["_File"]:
        """Call the function with each path and name, and return the results in that order."""
        ...


def files_in(paths: Sequence[Path]) -> list[Path]:
    """Return files as they are, and in place of each folder the result files in it that were not given by themselves, by name.

    Raises UsageError for a folder without any.
    """
    given = {path.resolve() for path in paths}
    found: list[Path] = []
    for path in paths:
        inside = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
        if not inside:
            raise UsageError(f"{path} is a folder without a result file; give one that holds .jsonl files of dlbench run")
        found += [each for each in inside if not path.is_dir() or each.resolve() not in given]
    return found


def collect(paths: Sequence[Path], each: Map = map) -> Results:
    """Read files into one table, with what each round gave beside it; ``each`` reads them, one after the other or side by side.

    A folder stands for the result files in it. Raises ResultFileError where one can't be read, UsageError where one is given twice.
    """
    paths = files_in(paths)
    files = list(each(_read_one, paths, _names(paths)))
    columns = [name for file in files for row in file.rows[:1] for name in row]
    return Results(
        rows=tuple(row for file in files for row in _filled(file.rows, columns)),
        rounds=tuple(rounds for file in files for rounds in file.rounds),
        notes=tuple(note for file in files for note in file.notes),
        environments={name: environment for file in files for name, environment in file.environments.items()},
        thresholds={name: file.thresholds for file in files for name in file.environments},
        clocks={file.name: file.clocks for file in files},
        circumstances=tuple(line for file in files for line in file.circumstances),
        protocols={name: file.protocol for file in files for name in file.environments},
    )


class _File(NamedTuple):
    name: str
    rows: list[Row]
    """All of them with the same columns."""
    rounds: list[Rounds]
    notes: list[str]
    environments: Mapping[str, Mapping[str, Any]]
    thresholds: Mapping[str, Settings]
    clocks: Clocks
    circumstances: list[str]
    protocol: Row


def _read_one(path: Path, name: str) -> _File:
    # What a file is reduced to before the next is read: raw block times are many, rows are few.
    run = load(path)
    devices = {device["id"]: device for device in run.header.get("devices", ())}
    names = _device_names(run)
    target = run.header.get("policy", {}).get("target", Policy().target)
    cases = by_case(run.measurements)
    rows, rounds = [], []
    for measurements in cases:
        row, each = with_rounds(measurements, target, run.states)
        row["case.run"] = _run(name, measurements[0].side)
        row["case.device_name"] = row["case.device_name"] or names.get(str(row["case.device"]))
        row |= _link(row, devices.get(str(row["case.device"]), {}))
        rows.append(_writable(row))
        rounds.append(each)
    rows = flag_super_linear(rows, rounds)
    environments = _environments(run, name, cases)
    rows = _filled(rows, chain.from_iterable(rows))
    told = [*circumstances(run, name), *_trends(run, name, cases, rounds)]
    return _File(name, rows, rounds, incomplete(run, len(cases)), environments, _thresholds(run), read_clocks(run), told, _protocol(run))


def _run(file: str, side: str | None) -> str:
    return file if side is None else f"{file}:{side}"


def _environments(run: RunFile, name: str, cases: Sequence[Sequence[Measurement]]) -> dict[str, Mapping[str, Any]]:
    """Return where each ``case.run`` of a file was measured; a side that was measured again is still that side."""
    whole, sides = run.header.get("environment") or {}, run.header.get("sides") or {}
    found = dict.fromkeys([*(sides or [None]), *(measurements[0].side for measurements in cases)])
    return {_run(name, side): {**whole, **sides.get((side or "").removesuffix(CONFIRMING), {})} for side in found}


def load(path: Path) -> RunFile:
    """Read a result file, or one that pyperf wrote. Raises ResultFileError where it is neither, or damaged."""
    return pyperf_file.load(path) or store.load(path)


def as_frame(rows: Sequence[Row], columns: Mapping[str, Column]) -> "pd.DataFrame":
    """Return rows as a frame: the columns given, each always there, then whatever ``param.*`` and ``value.*`` the rows have."""
    import pandas as pd

    names = _columns(dict.fromkeys(name for row in rows for name in row), columns)
    units = {name: column.unit for name, column in columns.items()}
    return pd.DataFrame({name: _series([row.get(name) for row in rows], units.get(name)) for name in names})


def _columns(found: Iterable[str], first: Iterable[str]) -> list[str]:
    found = list(found)
    return [*first, *(n for n in found if n.startswith("param.")), *(n for n in found if n.startswith("value."))]


def _filled(rows: Iterable[Row], names: Iterable[str]) -> list[Row]:
    """Return the rows with all of the names, which are theirs and those of others; what a row has not is null."""
    every: Row = dict.fromkeys(names)
    return [row if len(row) == len(every) else {**every, **row} for row in rows]


def _writable(row: Row) -> Row:
    """Return the row with names and texts that have an encoding: JSON may hold half of a surrogate pair, which has none."""
    if "".join([*row, *[value for value in row.values() if isinstance(value, str)]]).isascii():
        return row
    return {_text(name): _text(value) if isinstance(value, str) else value for name, value in row.items()}


def records(frame: "pd.DataFrame") -> list[Row]:
    """Return the rows as plain Python values, every kind of null as None."""
    plain = {name: _plain(frame[name]) for name in frame.columns}
    return [dict(zip(plain, values, strict=True)) for values in zip(*plain.values(), strict=True)]


def _names(paths: Sequence[Path]) -> list[str]:
    """Name each file by its stem, or by its path where that would not tell it from another."""
    if repeated := next((path for path in paths if [each.resolve() for each in paths].count(path.resolve()) > 1), None):
        raise UsageError(f"{repeated} is given twice; name each result file once")
    stems = [path.stem for path in paths]
    return [path.stem if stems.count(path.stem) == 1 else str(path) for path in paths]


def by_case(measurements: Iterable[Measurement]) -> list[list[Measurement]]:
    """Return the rounds of each case, on each side, in the order of the table: rounds shuffle them, so their order means nothing."""
    cases: dict[tuple[str | None, str], list[Measurement]] = {}
    for measurement in measurements:
        cases.setdefault((measurement.side, measurement.case.id), []).append(measurement)
    return sorted(cases.values(), key=lambda rounds: (_order(rounds[0].case), rounds[0].side or ""))


def _order(case: Case) -> tuple[Any, ...]:
    """Return what sorts cases as a reader expects: by work, 8 before 16, fp64 before fp32 before bf16, the CPU first."""
    work = (_natural(value, widest_first=name == "dtype") for name, value in case.params.items())
    return case.workload, tuple(work), case.device != "cpu", _natural(case.device)


def _natural(value: ParamValue, widest_first: bool = False) -> tuple[Any, ...]:
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


_TIMING = ("round_s", "min_blocks", "max_blocks", "warmup_s", "max_warmup_s")
"""Of a policy what the time of a round depends on; how many rounds there are is no matter of theirs."""


def _protocol(run: RunFile) -> Row:
    policy, isolation = run.header.get("policy") or {}, run.header.get("isolation")
    said: Row = {f"policy.{name}": "default" if policy[name] is None else str(policy[name]) for name in _TIMING if name in policy}
    return {**said, **({"isolation": isolation} if isinstance(isolation, str) else {})}


def _link(row: Row, device: Mapping[str, Any]) -> Row:
    """Set the pinned copies against the PCIe link of the device, as the header describes it; say why that can't be done."""
    pinned, reason = row["transfer.pinned_h2d_bytes_per_s"], row["transfer.reason"]
    if pinned is None:
        return {}
    generation, lanes = device.get("pcie_generation_max"), device.get("pcie_width_max")
    if isinstance(generation, int) and isinstance(lanes, int) and (most := link_bytes_per_s(generation, lanes)):
        return {"transfer.link_bytes_per_s": most, "transfer.link_fraction": float(pinned) / most}
    reasons = device.get("reasons")
    told = reasons.get("pcie_generation_max") if isinstance(reasons, dict) else None
    why = f"link: {told or 'the file tells of no PCIe link of this device that dlbench knows'}"
    return {"transfer.reason": why if reason is None else f"{reason}; {why}"}


def _thresholds(run: RunFile) -> dict[str, Settings]:
    suites = [suite for suite in run.header.get("suites", ()) if isinstance(suite, dict)]
    return {str(suite.get("name")): suite["thresholds"] for suite in suites if suite.get("thresholds")}


def incomplete(run: RunFile, cases: int) -> list[str]:
    """Return a sentence for each thing that a file with so many measured cases lacks, and what to do about it."""
    resume = "start it again, as an A/B can't be resumed" if "sides" in run.header else f"continue it with: dlbench run --resume {run.path}"
    planned = run.header.get("planned", {}).get("count", cases)
    notes = []
    if run.torn:
        notes.append(f"{run.path}: the last line was cut while it was written and is left out; {resume}")
    if run.footer is None:
        notes.append(f"{run.path}: the run was interrupted or is still going on, at {cases} of {planned} planned cases; {resume}")
    elif cases < planned:
        notes.append(f"{run.path}: {planned - cases} of {planned} planned cases were never measured; {resume}")
    return notes


def circumstances(run: RunFile, name: str) -> list[str]:
    """Return a sentence for each thing that was in the way of all cases of a file, and what to do about it."""
    said = []
    governors = {governor for each in run.states if (governor := each.before.get("cpu", {}).get("governor"))}
    if slow := sorted(governors - {"performance"}):
        said.append(
            f"{name}: the CPU's frequency governor was {' and '.join(slow)}, under which the clock follows the load; "
            "have performance set (as root: cpupower frequency-set -g performance) and measure again"
        )
    if run.discarded:
        cases = len({each.case.id for each in run.discarded})
        of = "of one case" if cases == 1 else f"of {cases} cases"
        said.append(
            f"{name}: {_held_back(run.discarded)} made again, {of}; the file keeps what was discarded, and no number here counts it"
        )
    return said


def _trends(run: RunFile, name: str, cases: Sequence[Sequence[Measurement]], rounds: Sequence[Rounds]) -> list[str]:
    """Return a sentence for each device on which all cases changed alike over the rounds; ``rounds[i]`` is of ``cases[i]``.

    Of an A/B the first side tells, as both are measured at the same moments. Another tool's runs of two cases are not: they tell nothing.
    """
    if "seed" not in run.header:
        return []
    times: dict[str, list[dict[int, float]]] = {}
    for measurements, each in zip(cases, rounds, strict=True):
        if measurements[0].side in (None, "a"):
            numbers = [one.round for one in measurements if one.status is Status.OK and one.samples]
            times.setdefault(measurements[0].case.device, []).append(dict(zip(numbers, each.median_s, strict=True)))
    said = {device: sentence for device, of_device in times.items() if (sentence := shared_change(of_device))}
    return [f"{name}{f' on {device}' if len(times) > 1 else ''}: {sentence}" for device, sentence in said.items()]


def _held_back(discarded: Sequence[Measurement]) -> str:
    """Return for example ``2 throttled and 1 disturbed measurements were``, with those of the other side that go with them."""
    throttled = sum(bool(each.throttling and each.throttling.throttled) for each in discarded)
    held_back = sum(bool(each.throttling and each.throttling.held_back) for each in discarded)
    counts = {"throttled": throttled, "disturbed": held_back - throttled}
    said = [f"{count} {how}" for how, count in counts.items() if count]
    if said:
        said[-1] += f" measurement{'' if held_back == 1 else 's'}"
    if beside := len(discarded) - held_back:
        said.append(f"{beside} of the other side")
    return f"{' and '.join(said)} {'was' if len(discarded) == 1 else 'were'}"


def _series(values: list[Any], unit: Unit | None) -> "pd.Series[Any]":
    import pandas as pd

    dtype = _DTYPES.get(unit, "float64") if unit else _dtype_of(values)
    if dtype == "string":
        values = [None if value is None else _text(value) for value in values]
    return pd.Series(values, dtype=dtype)


def _dtype_of(values: Iterable[ParamValue | None]) -> str:
    """Return the type that holds a parameter's values as they are; text where they are of several kinds."""
    known = [value for value in values if value is not None]
    kinds = {type(value) for value in known}
    if kinds == {bool}:
        return "boolean"
    if kinds == {int} and all(-(2**63) <= value < 2**63 for value in known):  # type: ignore[operator]  # all are integers here
        return "Int64"
    return "float64" if kinds in ({float}, {int, float}) else "string"


def _text(value: ParamValue) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if text.isascii() else text.encode(errors="replace").decode()


def _plain(series: "pd.Series[Any]") -> list[ParamValue | None]:
    return [None if null else value for value, null in zip(series.tolist(), series.isna().tolist(), strict=True)]
